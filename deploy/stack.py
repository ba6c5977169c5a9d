"""`make stack`: the files of deploy/compose at work without containers, on a replayed recording of a real vLLM.

    python deploy/stack.py [--until-alert SECONDS]

Needs Debian's prometheus and prometheus-alertmanager. With --until-alert it ends with 0 as soon as the alert
has gone the whole way, or with 1 after that time.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import requests

from watchdog.replay.demo_server import demo_server

DEPLOY = Path(__file__).resolve().parent
COMPOSE = DEPLOY / "compose"
PORTS = {8000: "vLLM", 9847: "watchdog", 9090: "Prometheus", 9093: "Alertmanager", 9095: "receiver"}
STOP_SECONDS = 10


def say(text: str) -> None:
    """A line for a person."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Pager(ThreadingHTTPServer):
    """The receivers of deploy/alertmanager/alertmanager.yml: prints the path and each alert that arrives."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 9095), _Handler)
        self.arrived = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Pager

    def do_POST(self) -> None:
        """Print each alert and say thanks."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
        for alert in json.loads(body)["alerts"]:
            say(f"{self.path[1:]} {json.dumps(alert, sort_keys=True)}")
        if self.path == "/pager":
            self.server.arrived.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Nothing: what arrives is printed."""


def commands(folder: Path) -> dict[str, list[str]]:
    """The programs, with the very files of the compose stack and what they store in `folder`."""
    return {
        "alertmanager": [
            "prometheus-alertmanager",
            f"--config.file={DEPLOY / 'alertmanager' / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            "--web.listen-address=127.0.0.1:9093",
            "--cluster.listen-address=",
        ],
        "watchdog": [
            sys.executable,
            "-m",
            "watchdog",
            "serve",
            f"--config={COMPOSE / 'watchdog.yaml'}",
        ],
        "prometheus": [
            "prometheus",
            f"--config.file={COMPOSE / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            "--web.listen-address=127.0.0.1:9090",
        ],
    }


@contextmanager
def running(name: str, command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the stack, its output in a file of `folder`; ended with the stack."""
    environment = os.environ | {"WATCHDOG_STATE__DIRECTORY": str(folder / "state")}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def what_is_missing() -> list[str]:
    """Why the stack cannot start; empty where it can."""
    programs = ("prometheus", "prometheus-alertmanager")
    faults = [
        f"{each} is not installed (apt-get install {each})" for each in programs if not shutil.which(each)
    ]
    for port, name in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                faults.append(f"port {port} is taken, which the {name} of the stack needs")
    return faults


def main() -> int:
    """Run until Ctrl-C, or until the alert has arrived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--until-alert", type=float, metavar="SECONDS", help="end when an alert has arrived")
    seconds = parser.parse_args().until_alert
    faults = what_is_missing()
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="vllm-watchdog-stack-")))
        (folder / "state").mkdir()
        pager = stack.enter_context(Pager())
        threading.Thread(target=pager.serve_forever, daemon=True).start()
        stack.callback(pager.shutdown)
        stack.enter_context(demo_server(port=8000))
        processes = {
            name: stack.enter_context(running(name, command, folder))
            for name, command in commands(folder).items()
        }
        say(
            "watchdog http://127.0.0.1:9847   Prometheus http://127.0.0.1:9090   Alertmanager http://127.0.0.1:9093\n"
            f"logs in {folder}; the recorded vLLM's KV cache runs full in 20 s; alerts are printed as they arrive"
        )
        return _watch(processes, pager, folder, seconds)


def _watch(
    processes: dict[str, subprocess.Popen[bytes]], pager: Pager, folder: Path, seconds: float | None
) -> int:
    end = time.monotonic() + (seconds or float("inf"))
    while time.monotonic() < end:
        for name, process in processes.items():
            if process.poll() is not None:
                log = (folder / f"{name}.log").read_text(errors="replace")
                sys.stderr.write(f"{name} ended with {process.returncode}:\n{log[-2000:]}")
                return 1
        if pager.arrived.wait(0.5) and seconds:
            return _tell_prometheus()
        if not seconds:
            time.sleep(0.5)
    sys.stderr.write("no alert has arrived\n")
    return 1


def _tell_prometheus() -> int:
    """Print what Prometheus knows of the stack: which of its targets are up, and the lead."""
    for query in ("up", "vllm_watchdog_lead"):
        answer = requests.get("http://127.0.0.1:9090/api/v1/query", params={"query": query}, timeout=10)
        say(f"{query} {json.dumps(answer.json()['data']['result'])}")
    return 0


if __name__ == "__main__":
    # On any signal to stop, it stops its programs as well.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
