"""`python -m tests.bench.scale [TARGETS ...]`: what `serve` costs by its number of targets, a tenth of them firing.

CPU time, not wall time: a machine may be shared. The servers are a process of their own, which is not counted.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.bench.resident import cpu_seconds, resident_bytes
from tests.pagers import resolved
from watchdog.model import State, Transition
from watchdog.state.store import FILE_NAME, Store

COUNTS = (1, 20, 100, 1000, 1500)
INTERVAL_SECONDS = 5.0
WARM_SECONDS = 30.0
WINDOW_SECONDS = 60.0
FIRING_SHARE = 0.1
OLD_INCIDENTS = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What a service of so many targets took in a window: shares of a core, bytes, seconds."""

    targets: int
    core_share: float
    tick_seconds: float
    missed_share: float
    resident_bytes: int
    disk_bytes_per_second: float
    metrics_seconds: float


@contextmanager
def load_server(firing_share: float) -> Iterator[str]:
    """Servers on loopback; yields their address."""
    command = [sys.executable, "-m", "tests.bench.load_server", "0", str(firing_share)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
        finally:
            process.terminate()


def fill(directory: Path, count: int) -> None:
    """A state file with so many incidents that are long over."""
    wall = time.time() - 86_400
    with closing(Store(directory / FILE_NAME)) as store:
        store.open(wall)
        for start in range(0, count, 500):
            ends = [
                resolved(wall, f"r{number}", since=wall) for number in range(start, min(count, start + 500))
            ]
            store.record([Transition(each, State.FIRING, wall) for each in ends])


def written_bytes(process: int) -> int:
    """What it has written to disk so far."""
    found = re.search(r"^write_bytes: (\d+)$", Path(f"/proc/{process}/io").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@contextmanager
def service(servers: str, targets: int, directory: Path) -> Iterator[tuple[int, str]]:
    """A watchdog of so many of the servers; yields its process and its address."""
    lines = [f"  - {{name: vllm-{n}, url: '{servers}/t/{n}/metrics'}}\n" for n in range(targets)]
    config = directory / "watchdog.yaml"
    config.write_text(
        f"scrape: {{interval_seconds: {INTERVAL_SECONDS}}}\nweb: {{port: 0}}\nstate: {{directory: {directory}}}\n"
        f"targets:\n{''.join(lines)}"
    )
    log = directory / "log"
    command = [sys.executable, "-m", "watchdog", "serve", "--config", str(config)]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            yield process.pid, address_of(process, log)
        finally:
            process.terminate()


def address_of(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where a watchdog answers, once its log says so."""
    while (found := re.search(r"address=(\S+)", log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    return found[1]


def scrapes(servers: str) -> int:
    """How many pages were read so far."""
    return sum(json.loads(requests.get(f"{servers}/counts", timeout=30).content).values())


def skips(address: str) -> float:
    """How many scrapes a watchdog says that it left out so far."""
    page = requests.get(f"{address}/metrics", timeout=60).text
    return sum(
        map(float, re.findall(r"^vllm_watchdog_skipped_cycles_total\{.*\} (\S+)$", page, re.MULTILINE))
    )


def cost(targets: int, firing_share: float = FIRING_SHARE, old_incidents: int = OLD_INCIDENTS) -> Cost:
    """What a service of so many targets takes, once it has settled."""
    with tempfile.TemporaryDirectory() as name, load_server(firing_share) as servers:
        directory = Path(name)
        fill(directory, old_incidents)
        with service(servers, targets, directory) as (process, address):
            time.sleep(WARM_SECONDS)
            skipped = skips(address)
            before = cpu_seconds(process), written_bytes(process), scrapes(servers), time.monotonic()
            time.sleep(WINDOW_SECONDS)
            after = cpu_seconds(process), written_bytes(process), scrapes(servers), time.monotonic()
            used, written, done, span = (new - old for new, old in zip(after, before, strict=True))
            began = time.monotonic()
            skipped = skips(address) - skipped
            return Cost(
                targets=targets,
                core_share=used / span,
                tick_seconds=used / done,
                missed_share=skipped / (skipped + done),
                metrics_seconds=time.monotonic() - began,
                resident_bytes=resident_bytes(process),
                disk_bytes_per_second=written / span,
            )


def main(counts: tuple[int, ...] = COUNTS) -> None:
    """Print a line for each number of targets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    print(
        f"serve at a scrape each {INTERVAL_SECONDS:g} s, {FIRING_SHARE:.0%} of the targets firing, "
        f"{OLD_INCIDENTS:,} old incidents kept, {os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}"
    )
    for targets in counts:
        one = cost(targets)
        print(
            f"  {targets:5} targets  {one.core_share:6.2%} of a core  {one.tick_seconds * 1e3:5.2f} ms a tick  "
            f"{one.missed_share:5.1%} missed  {one.resident_bytes / 1e6:4.0f} MB  "
            f"{one.disk_bytes_per_second / 1e3:5.0f} kB/s to disk  /metrics {one.metrics_seconds:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or COUNTS)
