"""A real Prometheus that already holds what it would have scraped while recordings were made."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from prometheus_client import generate_latest

from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Incident, Scrape, Snapshot, Target
from watchdog.notify.outbox import Statistics
from watchdog.report.metrics import Figures, Metrics
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import RuleSettings

from .loopback import free_port
from .programs import run

INTERVAL_SECONDS = 5.0
# All recordings are laid side by side from here on, whenever they were made.
BEGIN = 1_790_000_400.0

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


@dataclass
class Replayed:
    """The service as its metrics see it, fed from recordings instead of servers."""

    rules: RuleSet
    diagnoses: Mapping[str, TargetDiagnosis]
    last: dict[str, Snapshot] = field(default_factory=dict)

    def targets(self) -> Sequence[Target]:
        return [diagnosis.target for diagnosis in self.diagnoses.values()]

    def snapshots(self) -> Mapping[str, Snapshot]:
        return self.last

    def fleet_incidents(self) -> Sequence[Incident]:
        return ()

    def figures(self) -> Figures:
        """Counted as a service does whose only Alertmanager is at hand."""
        names = list(self.diagnoses)
        return Figures(
            reloaded_at=BEGIN,
            cycle_seconds=dict.fromkeys(names, 0.002),
            cycle_errors=dict.fromkeys(names, 0),
            skipped_cycles=dict.fromkeys(names, 0),
            notifications=[STATISTICS],
            external_url="https://watchdog.example",
        )


STATISTICS = Statistics(
    receiver="http://127.0.0.1:9093", sent=1, errors=0, dropped=0, queue_length=0, queue_capacity=10_000
)


def samples(recordings: Mapping[str, Path]) -> Iterator[str]:
    """What Prometheus would have scraped of the watchdog and of each server, in OpenMetrics form."""
    rules = load_rules(RuleSettings())
    targets = {name: Target(name, f"http://{name}:8000/metrics") for name in recordings}
    replayed = Replayed(rules, {name: TargetDiagnosis(target, rules) for name, target in targets.items()})
    pages = {name: list(thin(read(path)[1], INTERVAL_SECONDS)) for name, path in recordings.items()}
    ours = Metrics(replayed)
    for step in range(max(map(len, pages.values()))):
        at = BEGIN + step * INTERVAL_SECONDS
        for name, scrapes in pages.items():
            if step < len(scrapes):
                scrape = scrapes[step]
                replayed.last[name] = replayed.diagnoses[name].observe(_moved(scrape, at))
                yield from _stamped(scrape.body.decode(), {"instance": f"{name}:8000", "job": "vllm"}, at)
        labels = {"instance": "watchdog:9847", "job": "vllm-watchdog"}
        yield from _stamped(generate_latest(ours).decode(), labels, at)
    yield "# EOF"


def _moved(scrape: Scrape, at: float) -> Scrape:
    return Scrape(at, at, scrape.took_seconds, scrape.status, scrape.body, scrape.failure, scrape.server_info)


def _stamped(page: str, labels: Mapping[str, str], at: float) -> Iterator[str]:
    added = ",".join(f'{name}="{value}"' for name, value in labels.items())
    for line in page.splitlines():
        match = _SAMPLE.match(line)
        if match:
            name, own, value = match.groups()
            yield f"{name}{{{added}{',' + own.rstrip(',') if own else ''}}} {value} {at}"


@dataclass(frozen=True, slots=True)
class Past:
    """A running Prometheus to be asked about the time between `begin` and `end`."""

    url: str
    begin: float
    end: float

    def instant(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """The series of an instant query, at the end unless told otherwise."""
        return self._ask("query", {"query": query, "time": str(at or self.end)})

    def range(self, query: str, step_seconds: float = 5.0) -> list[dict[str, Any]]:
        """The series of a range query over the whole time."""
        bounds = {"start": str(self.begin), "end": str(self.end), "step": str(step_seconds)}
        return self._ask("query_range", {"query": query, **bounds})

    def _ask(self, kind: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        answer = requests.post(f"{self.url}/api/v1/{kind}", data=parameters, timeout=30)
        told = answer.json()
        assert told["status"] == "success", f"{parameters['query']}\n{told.get('error')}"
        result: list[dict[str, Any]] = told["data"]["result"]
        return result


@contextmanager
def prometheus_of_the_past(
    folder: Path, recordings: Mapping[str, Path], end_seconds: float
) -> Iterator[Past]:
    """A Prometheus that scrapes nothing and knows the recordings up to `end_seconds` after their start."""
    text = folder / "samples.txt"
    text.write_text("\n".join(samples(recordings)) + "\n")
    database = folder / "data"
    run(["promtool", "tsdb", "create-blocks-from", "openmetrics", text, database])
    config = folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 5s}\n")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={database}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=error",
    ]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_until_ready(url, process)
            yield Past(url, BEGIN, BEGIN + end_seconds)
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if requests.get(f"{url}/-/ready", timeout=2).status_code == 200:
                return
        except (requests.ConnectionError, requests.Timeout):
            pass
        assert process.poll() is None, "Prometheus ended"
        assert time.monotonic() < end, "Prometheus is not ready"
        time.sleep(0.1)
