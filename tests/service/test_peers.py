"""A watchdog over other watchdogs: their real API on loopback, asked by a real service."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.a_service import AService, a_service, healthy, readings, snapshot
from tests.a_site import Site, a_site
from tests.pagers import Pager
from tests.servers import Server, answer, closed_port, serving
from tests.waiting import until
from watchdog.diagnosis.fleet import FLEET
from watchdog.model import Pod, Snapshot, Verdict
from watchdog.service.service import Service
from watchdog.settings.model import load

pytestmark = pytest.mark.usefixtures("restored_root_logger")

FLEET_RULE = """
id: replica-imbalance
title: One server gets no work
severity: warning
scope: fleet
for: 0s
keep_firing_for: 1m
parameters: {}
when: ["targets >= 2", "running_least < 1", "running_greatest > 10"]
cause: "{targets:.0f} servers."
remedies: [{action: "a", why: "b", price: "c"}]
tests: []
""".replace("running_least", "engine_running_least").replace("running_greatest", "engine_running_greatest")


@contextmanager
def sidecars(folder: Path, **seen: Snapshot) -> Iterator[dict[str, Site[AService]]]:
    """A watchdog beside each server."""
    with ExitStack() as stack:
        sites = {}
        for name, each in seen.items():
            (folder / name).mkdir()
            sites[name] = stack.enter_context(a_site(a_service(folder / name, each)))
        yield sites


@contextmanager
def over(rules: Path, *watchdogs: Any, **more: Any) -> Iterator[Service]:
    """A watchdog over others."""
    values = {
        "watchdogs": list(watchdogs),
        "scrape.interval_seconds": 0.2,
        "rules.shipped": False,
        "rules.directories": [str(rules)],
        "rules.allow_untested": True,
        **more,
    }
    service = Service(load(None, values, {}), lambda: load(None, values, {}))
    service.start()
    try:
        until(lambda: service.started)
        yield service
    finally:
        service.stop(1.0)


def a_watchdog(site: Site[Any], **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{site.port}", "interval_seconds": 1, "deadline_seconds": 0.9, **more}


def test_servers_of_other_watchdogs_are_shown_as_they_show_them(rules: Path, tmp_path: Path) -> None:
    pod = Pod("chat-0", "llm", "gpu-3", restarts=2, ended="OOMKilled", ended_at=1_789_999_000.0)
    with sidecars(tmp_path, chat=snapshot("chat"), embed=healthy("embed")) as sites:
        sites["chat"].service.of_kubernetes["chat"] = pod
        with over(rules, *[a_watchdog(each, name=name) for name, each in sites.items()]) as service:
            with a_site(service) as site:
                shown = {each["name"]: each for each in site.ask("/diagnose").json["targets"]}
                text = site.ask("/diagnose?format=text&verbose=true").text
                page, metrics = site.ask("/").text, site.ask("/metrics").text
                listed = site.ask("/incidents").json["incidents"]
            for name, sidecar in sites.items():
                [theirs] = sidecar.ask("/diagnose").json["targets"]
                ours = shown[name]
                assert ours.pop("watchdog") == name
                assert theirs.pop("watchdog") is None
                for body in (ours, theirs):
                    body.pop("scrape_age_seconds")
                assert ours == theirs
    assert "CRITICAL  chat: The KV cache is full" in text
    assert "watched by chat" in text
    assert "chat" in page
    assert "embed" in page
    assert {each["rule"] for each in listed} >= {"kv-pool-exhausted"}
    # Their series are theirs: of two watchdogs that show one, each alert would be two.
    assert 'target="chat"' not in metrics
    assert 'vllm_watchdog_watchdog_up{watchdog="chat"} 1' in metrics
    assert 'vllm_watchdog_watchdog_servers{watchdog="embed"} 1' in metrics


def test_only_what_is_the_fleets_is_judged_and_sent(rules: Path, tmp_path: Path) -> None:
    (rules / "replica-imbalance.yaml").write_text(FLEET_RULE)
    busy, idle = snapshot("chat"), healthy("embed")
    busy = replace(busy, readings=(_running("chat", 38.0),))
    idle = replace(idle, readings=(_running("embed", 0.0),))
    with Pager() as pager, sidecars(tmp_path, chat=busy, embed=idle) as sites:
        alertmanager = {"alertmanager.urls": [pager.url], "alertmanager.heartbeat": False}
        with over(rules, *map(a_watchdog, sites.values()), **alertmanager) as service:
            [found] = until(service.fleet_incidents)
            assert (found.key.rule, found.key.target) == ("replica-imbalance", FLEET)
            until(lambda: pager.page_log)
            assert {each["labels"]["rule"] for each in pager.alerts.values()} == {"replica-imbalance"}


def _running(target: str, requests: float) -> Any:
    made = readings(target)
    return replace(made, values={**made.values, "running_mean_requests": requests})


def test_servers_of_one_name_are_told_apart_by_their_watchdogs(rules: Path, tmp_path: Path) -> None:
    """Sidecars may all call theirs by a loopback address."""
    seen = snapshot("127.0.0.1:8000")
    with (
        sidecars(tmp_path, a=seen, b=seen) as sites,
        over(rules, *[a_watchdog(each, name=name) for name, each in sites.items()]) as service,
    ):
        names = [each.name for each in service.targets()]
        assert names == ["127.0.0.1:8000", "127.0.0.1:8000 of b"]
        other = service.snapshots()["127.0.0.1:8000 of b"]
        assert other.lead is not None
        assert other.lead.target == "127.0.0.1:8000 of b"


def test_a_watchdog_over_watchdogs_passes_on_its_own_servers_only(rules: Path, tmp_path: Path) -> None:
    """Two that read each other would show their rows for ever."""
    with (
        sidecars(tmp_path, chat=snapshot("chat")) as sites,
        over(rules, a_watchdog(sites["chat"])) as middle,
        a_site(middle) as site,
        over(rules, a_watchdog(site)) as service,
    ):
        assert list(service.targets()) == []


def test_a_watchdog_that_is_away_leaves_its_servers_unknown(rules: Path, tmp_path: Path) -> None:
    with ExitStack() as away, closed_port() as port:
        sites = away.enter_context(sidecars(tmp_path, chat=snapshot("chat")))
        entries = [a_watchdog(sites["chat"], name="one"), f"http://127.0.0.1:{port}"]
        with over(rules, *entries) as service:
            assert service.snapshots()["chat"].verdict is Verdict.CRITICAL
            away.close()
            until(lambda: service.snapshots()["chat"].verdict is Verdict.UNKNOWN)
            assert service.snapshots()["chat"].why == "its watchdog one does not answer"
            assert not service.snapshots()["chat"].incidents
            notes = [each for each in service.strains() if each.startswith("the watchdog ")]
            assert notes[0].startswith("the watchdog one cannot be read: http://127.0.0.1")
            assert len(notes) == 2


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "no JSON: is this the address of a watchdog?"),
        (b"[]", "no diagnosis of a watchdog that we know"),
        (b'{"verdict": "healthy", "targets": [{"name": "a"}]}', "no diagnosis of a watchdog that we know"),
    ],
)
def test_what_is_no_watchdog_is_said(rules: Path, body: bytes, why: str) -> None:
    with Server(serving(answer(body))) as server, over(rules, server.url.removesuffix("/metrics")) as service:
        assert any(why in each for each in service.strains())
        assert service.targets() == []


def test_a_newer_watchdog_is_read_as_far_as_we_know_it(rules: Path, tmp_path: Path) -> None:
    with sidecars(tmp_path, chat=snapshot("chat")) as sites:
        told = sites["chat"].ask("/diagnose").json
    told["later"] = 1
    told["targets"][0] |= {"later": {"a": 1}, "notes": ["bad \x1b[31m text"]}
    told["targets"][0]["incidents"][0]["later"] = True
    with (
        Server(serving(answer(json.dumps(told).encode()))) as server,
        over(rules, server.url.removesuffix("/metrics")) as service,
    ):
        [seen] = service.snapshots().values()
    assert seen.lead is not None
    assert seen.notes == ("bad \\x1b[31m text",)


def test_watchdogs_may_be_found_as_servers_are(rules: Path, tmp_path: Path) -> None:
    with sidecars(tmp_path, chat=snapshot("chat")) as sites:
        path = tmp_path / "sidecars.json"
        path.write_text(json.dumps([{"targets": [f"127.0.0.1:{sites['chat'].port}"]}]))
        discovery = {"file_sd": [{"files": [str(path)], "finds": "watchdogs"}]}
        with over(rules, discovery=discovery) as service:

            def found() -> bool:
                service.look()
                return "chat" in service.snapshots()

            until(found)
            assert [each.name for each in service.targets()] == ["chat"]
