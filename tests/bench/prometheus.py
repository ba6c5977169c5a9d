"""`python -m tests.bench.prometheus [SERVERS [PROGRAM]]`: what `serve` costs on a Prometheus and on a VictoriaMetrics.

They scrape so many servers each 15 s, one of which is sick. Told are CPU and memory of `serve`, and what its queries
cost the store: its CPU with `serve` and without. The servers are a process of their own, which is not counted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests
import yaml

from tests.bench.resident import cpu_seconds, resident_bytes
from tests.bench.scale import address_of, load_server
from tests.contract.programs import free_port, get
from tests.waiting import until

SERVERS = 200
PROGRAMS = ("prometheus", "victoria-metrics")
INTERVAL_SECONDS = 15.0
# Scrapes begin all over an interval, and what is usual is known after some.
WARM_SECONDS = 75.0
WINDOW_SECONDS = 120.0
SICK = "kv-pool-exhausted"


@dataclass(frozen=True, slots=True)
class Cost:
    """What it took in a window: shares of a core, bytes, seconds; `named` are the servers with a cause."""

    core_share: float
    resident_bytes: int
    look_seconds: float
    read_bytes: float
    store_share_alone: float
    store_share: float
    store_resident_bytes: int
    named: Sequence[str]


def scrape_config(servers: str, count: int) -> dict[str, object]:
    """A configuration that scrapes so many servers of a load server."""
    address = urlsplit(servers).netloc
    targets = [
        {
            "targets": [address],
            "labels": {"__metrics_path__": f"/t/{n}/metrics", "instance": f"vllm-{n}:8000"},
        }
        for n in range(count)
    ]
    interval = f"{INTERVAL_SECONDS:g}s"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": "10s"},
        "scrape_configs": [{"job_name": "vllm", "static_configs": targets}],
    }


@contextmanager
def store(program: str, folder: Path, servers: str, count: int) -> Iterator[tuple[int, str]]:
    """A Prometheus or a VictoriaMetrics that scrapes; yields its process and its address."""
    config, address = folder / "scrape.yaml", f"127.0.0.1:{free_port()}"
    config.write_text(yaml.safe_dump(scrape_config(servers, count)))
    options = {
        "prometheus": (
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ),
        "victoria-metrics": (
            f"-promscrape.config={config}",
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr={address}",
        ),
    }[program]
    with (
        (folder / "store.log").open("w") as log,
        subprocess.Popen([program, *options], stdout=log, stderr=log) as process,
    ):
        until(lambda: get(f"http://{address}/-/ready") is not None)
        yield process.pid, f"http://{address}"
        process.terminate()


@contextmanager
def service(url: str, folder: Path) -> Iterator[tuple[int, str]]:
    """A watchdog of what is scraped there; yields its process and its address."""
    config, log = folder / "watchdog.yaml", folder / "log"
    config.write_text(
        f"web: {{port: 0}}\nstate: {{directory: {folder}}}\n"
        f"prometheus: [{{url: '{url}', interval_seconds: {INTERVAL_SECONDS:g}}}]\n"
    )
    command = [sys.executable, "-m", "watchdog", "serve", "--config", str(config)]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
        yield process.pid, address_of(process, log)
        process.terminate()


def share(process: int, seconds: float) -> float:
    """The share of a core that a process takes, over some time."""
    began, used = time.monotonic(), cpu_seconds(process)
    time.sleep(seconds)
    return (cpu_seconds(process) - used) / (time.monotonic() - began)


def cost(program: str, count: int) -> Cost:
    """What `serve` takes on such a store once all is settled."""
    with tempfile.TemporaryDirectory() as name, load_server(1 / count) as servers:
        folder = Path(name)
        with store(program, folder, servers, count) as (kept_by, url):
            time.sleep(WARM_SECONDS)
            alone = share(kept_by, WINDOW_SECONDS)
            with service(url, folder) as (process, address):
                time.sleep(WARM_SECONDS)
                before = metric(address, "vllm_watchdog_prometheus_read_bytes_total")
                began, used, of_store = time.monotonic(), cpu_seconds(process), cpu_seconds(kept_by)
                time.sleep(WINDOW_SECONDS)
                span = time.monotonic() - began
                diagnosed = requests.get(f"{address}/diagnose", timeout=30).json()
                return Cost(
                    core_share=(cpu_seconds(process) - used) / span,
                    resident_bytes=resident_bytes(process),
                    look_seconds=metric(address, "vllm_watchdog_prometheus_look_duration_seconds"),
                    read_bytes=metric(address, "vllm_watchdog_prometheus_read_bytes_total") - before,
                    store_share_alone=alone,
                    store_share=(cpu_seconds(kept_by) - of_store) / span,
                    store_resident_bytes=resident_bytes(kept_by),
                    named=[
                        f"{each['name']} {each['lead']}"
                        for each in diagnosed["targets"]
                        if each["lead"] == SICK
                    ],
                )


def metric(address: str, name: str) -> float:
    """A number that a watchdog counts of its one Prometheus."""
    lines = requests.get(f"{address}/metrics", timeout=60).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def main(count: int = SERVERS, programs: Sequence[str] = PROGRAMS) -> None:
    """Prints a part for each store that is installed."""
    print(
        f"serve on what scrapes {count} servers each {INTERVAL_SECONDS:g} s, one of them sick; "
        f"{os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}"
    )
    for program in programs:
        if shutil.which(program) is None:
            print(f"  {program} is not installed")
            continue
        one = cost(program, count)
        print(
            f"  {program:16} serve {one.core_share:.1%} of a core, {one.resident_bytes / 1e6:.0f} MB, "
            f"a look {one.look_seconds:.2f} s, {one.read_bytes / WINDOW_SECONDS / 1e6:.2f} MB/s read\n"
            f"  {'':16} store {one.store_share_alone:.1%} of a core alone, {one.store_share:.1%} with our queries, "
            f"{one.store_resident_bytes / 1e6:.0f} MB\n"
            f"  {'':16} named: {', '.join(one.named) or 'none'}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else SERVERS, sys.argv[2:] or PROGRAMS)
