"""`serve` on a real Prometheus or VictoriaMetrics: the same story as in process, and servers that come and go."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.past import kept_by, scrapes_of, written
from tests.contract.programs import ROOT, Prometheus, VictoriaMetrics
from tests.pagers import Pager
from tests.places import RECORDINGS
from tests.waiting import until
from watchdog.model import Reason, Scrape, Target, Verdict
from watchdog.replay.demo_server import ReplayServer
from watchdog.replay.replay import replay
from watchdog.rule.in_force import load_rules
from watchdog.scrape.recording import read
from watchdog.service import source_watch
from watchdog.service.service import Service
from watchdog.settings.model import RuleSettings, Settings, load

pytestmark = pytest.mark.usefixtures("restored_root_logger")

OUR_RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
PACE_SECONDS = 15.0
# One is in trouble still, one was, and two are well.
SICK = "kv-pool-exhausted"
NAMES = {SICK: SICK, "restart": None, "healthy-busy": None, "h200-healthy": None}


@contextmanager
def serving(**settings: Any) -> Iterator[Service]:
    def configured() -> Settings:
        return load(None, settings, {})

    service = Service(configured(), configured)
    service.start()
    try:
        yield service
    finally:
        service.stop(1.0)


@pytest.mark.parametrize("program", ["prometheus", "victoria-metrics"])
def test_the_sick_server_is_named_as_it_would_be_in_process(program: str, tmp_path: Path) -> None:
    end = round(time.time(), 3) - 1
    recorded = {name: scrapes_of(name, PACE_SECONDS, end, phase) for name, phase in NAMES.items()}
    rules = load_rules(RuleSettings())
    stories = {name: replay(Target(name, ""), scrapes, rules) for name, scrapes in recorded.items()}
    with (
        kept_by(program, tmp_path / "store", recorded) as url,
        serving(
            prometheus=[{"url": url, "interval_seconds": 1}], **{"state.directory": str(tmp_path / "state")}
        ) as service,
    ):
        until(lambda: service.started)
        found = service.snapshots()
        assert set(found) == {f"{name}:8000" for name in NAMES}
        for name, story in stories.items():
            snapshot, last = found[f"{name}:8000"], story.timeline[-1]
            assert (snapshot.verdict, snapshot.lead and snapshot.lead.rule) == (last.verdict, last.lead)
            assert snapshot.target.labels == {"instance": f"{name}:8000", "job": "vllm"}
        assert found[f"{SICK}:8000"].verdict is Verdict.CRITICAL
        assert service.history is not None
        kept = {
            (each.key.target.removesuffix(":8000"), each.key.rule, round(each.firing_since, 1))
            for each in service.history.query()
            if each.firing_since is not None
        }
    fired = {
        (name, each.key.rule, round(each.firing_at, 1))
        for name, story in stories.items()
        for each in story.episodes
    }
    assert kept == fired


def test_over_a_restart_incidents_go_on_and_the_past_is_at_hand(tmp_path: Path) -> None:
    scrapes = scrapes_of(SICK, PACE_SECONDS, round(time.time(), 3) - 1, SICK)
    with VictoriaMetrics(tmp_path / "store") as victoria, Pager() as pager:
        settings = {
            "prometheus": [{"url": victoria.url, "interval_seconds": 1}],
            "state.directory": str(tmp_path / "state"),
            "alertmanager.urls": [pager.url],
            "alertmanager.heartbeat": False,
        }
        victoria.take(written(tmp_path, {SICK: scrapes[:-1]}, 1000))
        with serving(**settings) as service:
            until(lambda: pager.page_log)
            before = service.snapshots()[f"{SICK}:8000"].lead_incident
        victoria.take(written(tmp_path, {SICK: scrapes[-1:]}, 1000))
        with serving(**settings) as service:
            until(lambda: f"{SICK}:8000" in service.snapshots())
            after = service.snapshots()[f"{SICK}:8000"]
    assert before is not None
    assert after.lead_incident is not None
    assert (after.verdict, after.scrapes) == (Verdict.CRITICAL, len(scrapes))
    assert (after.lead, after.lead_incident.firing_since) == (before.key, before.firing_since)
    assert pager.page_log == [("VllmKvPoolExhausted", "firing")]
    [alert] = pager.alerts.values()
    assert (alert["labels"]["target"], alert["labels"]["job"]) == (f"{SICK}:8000", "vllm")


def pages(name: str) -> list[Scrape]:
    _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    return list(scrapes)


def test_servers_come_and_go_and_so_does_their_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watchdog")
    monkeypatch.setattr(source_watch, "GONE_SECONDS", 1.0)
    monkeypatch.setattr(source_watch, "WAY_SECONDS", 1.0)
    scraped = tmp_path / "scraped.json"

    def scrape(*servers: ReplayServer) -> list[str]:
        names = [each.url.removeprefix("http://").removesuffix("/metrics") for each in servers]
        (tmp_path / "new.json").write_text(json.dumps([{"targets": names, "labels": {"cluster": "a"}}]))
        (tmp_path / "new.json").replace(scraped)
        return names

    with ExitStack() as stack:
        recordings = ("healthy", "healthy-busy", "idle")
        one, two, three = (stack.enter_context(ReplayServer(pages(name))) for name in recordings)
        first, second = scrape(one, two)
        store = stack.enter_context(Prometheus(tmp_path / "store", scraped, OUR_RULES))
        sources = [{"name": "here", "url": store.url, "interval_seconds": 1}]
        service = stack.enter_context(serving(prometheus=sources))

        def seen(name: str, holds: Callable[[Any], bool]) -> None:
            until(lambda: name in service.snapshots() and holds(service.snapshots()[name]))

        seen(first, lambda each: each.up)
        assert service.snapshots()[first].target.labels["cluster"] == "a"
        one.close()
        seen(first, lambda each: each.failure is not None and each.failure.reason is Reason.NOT_SCRAPED)
        _, third = scrape(two, three)
        until(lambda: {target.name for target in service.targets()} == {second, third})
        store.end()
        seen(second, lambda each: each.failure is not None and each.failure.reason is Reason.NOT_SEEN)
        assert service.snapshots()[second].verdict is Verdict.UNKNOWN
        assert "no server of the Prometheus here is seen" in " ".join(service.strains())
        assert service.cycle_alive()
        store.start()
        seen(second, lambda each: each.up)
    words = [record.message for record in caplog.records]
    assert words.count("prometheus_failed") == 1
    assert words.count("server_gone") == 1
