"""`python -m tests.bench.resident`: memory and CPU of a `serve` process that watches one server."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import requests

from tests.bench.step import pages
from watchdog.replay.demo_server import ReplayServer

SECONDS = 20.0
INTERVAL_SECONDS = 0.5
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def resident_bytes(process: int) -> int:
    """What it holds of memory now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def cpu_seconds(process: int) -> float:
    """What it has used of CPU so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def main() -> None:
    """Print what a service of one target holds, and its CPU share at an interval of 5 s."""
    command = [sys.executable, "-m", "watchdog", "serve", "--port", "0", "--interval", str(INTERVAL_SECONDS)]
    with (
        ReplayServer(pages("h200-healthy")) as server,
        subprocess.Popen([*command, "--target", server.url], stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        address = next(found[1] for line in process.stderr if (found := re.search(r"address=(\S+)", line)))
        time.sleep(5)
        began, used = time.monotonic(), cpu_seconds(process.pid)
        time.sleep(SECONDS)
        idle = (cpu_seconds(process.pid) - used) / (time.monotonic() - began)
        for _ in range(20):
            requests.get(f"{address}/diagnose", timeout=5)
            requests.get(f"{address}/metrics", timeout=5)
        held = resident_bytes(process.pid)
        process.terminate()
        process.stderr.read()
    print("serve with one target")
    print(f"  resident memory  {held / 1e6:.0f} MB")
    print(f"  CPU at a scrape every {INTERVAL_SECONDS} s  {idle:.1%} of one core")


if __name__ == "__main__":
    main()
