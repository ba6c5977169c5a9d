"""The real Alertmanager and Prometheus, as Debian packages them, on loopback and on free ports."""

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
import requests
import yaml

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TIMINGS = {"group_wait": "100ms", "group_interval": "500ms", "repeat_interval": "1h"}


def program(name: str) -> str:
    """Where a program is; the test is left out where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not installed: apt-get install prometheus prometheus-alertmanager victoria-metrics"
        )
    return found


def run(*words: str | Path) -> str:
    """What a command that has to succeed prints."""
    done = subprocess.run(
        [program(str(words[0])), *words[1:]], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Process:
    """A process that answers on a URL once it is ready, and is ended by its own id."""

    def __init__(self, command: Sequence[str | Path], ready_url: str, log: Path) -> None:
        self._command = list(map(str, command))
        self._ready_url = ready_url
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until(self._is_ready)

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """The exit code; 0 where it had ended before."""
        if self._process is None:
            return 0
        self._process.send_signal(by)
        try:
            code = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        self._process = None
        return code

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        return get(self._ready_url) is not None


def get(url: str) -> Any:
    """The JSON or text behind a URL; None where it does not answer 200."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            with session.get(url, timeout=5) as response:
                if response.status_code != 200:
                    return None
                is_json = "json" in response.headers.get("Content-Type", "")
                return response.json() if is_json else response.text
        except (requests.ConnectionError, requests.Timeout):
            return None


class Alertmanager(Process):
    """An Alertmanager with its own data, that tells `hook_url` of each target's alerts; restartable."""

    def __init__(self, folder: Path, hook_url: str, configuration: dict[str, Any] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        written = folder / "alertmanager.yml"
        written.write_text(yaml.safe_dump(configuration or plain_configuration(hook_url)))
        command = [
            program("prometheus-alertmanager"),
            f"--config.file={written}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]
        super().__init__(command, f"{self.url}/-/ready", folder / "alertmanager.log")

    def alerts(self) -> list[dict[str, Any]]:
        """What fires, the heartbeat apart."""
        found = get(f"{self.url}/api/v2/alerts?active=true") or []
        return [alert for alert in found if alert["labels"]["alertname"] != "VllmWatchdogHeartbeat"]

    def names(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.alerts()}

    def wait_until_told(self, count: int) -> None:
        """Waits until this process knows of `count` messages that they arrived, and would say so after a restart.

        A receiver has a message before Alertmanager has its reply. One that ends in between tells it again, as it
        should. It counts the reply just before it writes the message into its log, hence the moment after.
        """
        counted = re.compile(
            r'^alertmanager_notification_latency_seconds_count\{integration="webhook"\} (\S+)$', re.MULTILINE
        )

        def told() -> bool:
            found = counted.search(get(f"{self.url}/metrics") or "")
            return found is not None and float(found[1]) >= count

        until(told)
        time.sleep(0.5)


def plain_configuration(hook_url: str) -> dict[str, Any]:
    return {
        "route": {
            "receiver": "hook",
            "group_by": ["target"],
            **TIMINGS,
            "routes": [{"receiver": "nobody", "matchers": ["severity = none"]}],
        },
        "receivers": [
            {"name": "hook", "webhook_configs": [{"url": hook_url, "send_resolved": True}]},
            {"name": "nobody"},
        ],
    }


class Prometheus(Process):
    """A Prometheus that scrapes each half second an address, or those in a file, and has our rules."""

    def __init__(self, folder: Path, scraped: str | Path, rules: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        job: dict[str, Any] = {"job_name": "vllm-watchdog"}
        if isinstance(scraped, Path):
            job["file_sd_configs"] = [{"files": [str(scraped)]}]
        else:
            job["static_configs"] = [{"targets": [scraped]}]
        configuration = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms", "scrape_timeout": "500ms"},
            "rule_files": [str(rules)],
            "scrape_configs": [job],
        }
        written = folder / "prometheus.yml"
        written.write_text(yaml.safe_dump(configuration))
        command = [
            program("prometheus"),
            f"--config.file={written}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        super().__init__(command, f"{self.url}/-/ready", folder / "prometheus.log")

    def firing(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire."""
        alerts = get(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get(f"{self.url}/api/v1/query?query={expression}")["data"]["result"]
        return found


class Store(Process):
    """A Prometheus that scrapes nothing and holds samples of long ago, read from a text with their times."""

    def __init__(self, folder: Path, samples: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        run("promtool", "tsdb", "create-blocks-from", "openmetrics", samples, folder / "data")
        (folder / "prometheus.yml").write_text("scrape_configs: []\n")
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=20y",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        super().__init__(command, f"{self.url}/-/ready", folder / "prometheus.log")


class VictoriaMetrics(Process):
    """A VictoriaMetrics that keeps old samples; with `scraped` it scrapes that address twice a second."""

    def __init__(self, folder: Path, scraped: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        command: list[str | Path] = [
            program("victoria-metrics"),
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr={self.url.removeprefix('http://')}",
            "-retentionPeriod=20y",
            "-search.latencyOffset=0s",
        ]
        if scraped is not None:
            # A server of ours that stops answers on connections that stand.
            job = {
                "job_name": "vllm",
                "disable_keepalive": True,
                "static_configs": [{"targets": [scraped]}],
            }
            timings = {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
            written = folder / "scrape.yml"
            written.write_text(yaml.safe_dump({"global": timings, "scrape_configs": [job]}))
            command.append(f"-promscrape.config={written}")
        super().__init__(command, f"{self.url}/health", folder / "victoria-metrics.log")

    def take(self, samples: Path) -> None:
        """Reads samples from a text with their times, in milliseconds."""
        with requests.Session() as session:
            session.trust_env = False
            session.post(
                f"{self.url}/api/v1/import/prometheus", data=samples.read_bytes(), timeout=30
            ).raise_for_status()
            session.get(f"{self.url}/internal/force_flush", timeout=30).raise_for_status()
