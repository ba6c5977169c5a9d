"""The watchdog's own metrics: what is in them, what vanishes, and that nothing a server says can break the page."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.a_service import (
    NOW,
    RULE,
    SIGNALS,
    AService,
    a_service,
    down,
    healthy,
    incident,
    readings,
    snapshot,
)
from watchdog.diagnosis.fleet import FLEET
from watchdog.diagnosis.readings import READINGS
from watchdog.model import Key, Readings, Reason, Severity, State, Subject, Target
from watchdog.notify.outbox import Statistics
from watchdog.report.families import label_value
from watchdog.report.metrics import Figures
from watchdog.rule.rule_set import load


def page(service: AService) -> str:
    """Our own text, which is the library's but for the process, which goes on meanwhile."""
    ours, theirs = service.registry.text().decode(), generate_latest(service.registry).decode()
    assert own_lines(ours) == own_lines(theirs)
    return ours


def own_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "process_" not in line]


def samples(service: AService) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page(service)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def values(service: AService, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    series = samples(service).get(f"vllm_watchdog_{name}", [])
    return {tuple(given[label] for label in labels): value for given, value in series}


def test_what_fires_has_a_series_and_each_rule_a_0_without_a_target(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot("chat"), healthy("embed"))
    assert values(service, "diagnosis_active", "target", "rule", "severity", "model_name", "engine") == {
        ("chat", "kv-pool-exhausted", "critical", "meta/llama-8b", "0"): 1,
        ("chat", "ttft-high", "warning", "meta/llama-8b", "0"): 1,
        ("", "kv-pool-exhausted", "critical", "", ""): 0,
        ("", "ttft-high", "warning", "", ""): 0,
        ("", "target-down", "critical", "", ""): 0,
    }
    assert values(service, "lead", "target", "rule") == {("chat", "kv-pool-exhausted"): 1}
    assert values(service, "diagnosis_since_timestamp_seconds", "rule") == {
        ("kv-pool-exhausted",): NOW - 200,
        ("ttft-high",): NOW - 200,
    }


def test_what_has_ended_stays_at_0_while_it_is_shown_and_fires_anew_under_its_own_name(
    tmp_path: Path,
) -> None:
    ended = incident(state=State.RESOLVED, resolved_at=NOW - 60)
    service = a_service(tmp_path, snapshot(incidents=(ended,), lead=None))
    assert values(service, "diagnosis_active", "target", "rule")["chat", "kv-pool-exhausted"] == 0
    assert values(service, "diagnosis_since_timestamp_seconds", "rule") == {}
    service.last["chat"] = snapshot(incidents=(ended, incident()), lead=incident().key)
    assert values(service, "diagnosis_active", "target", "rule")["chat", "kv-pool-exhausted"] == 1


def test_what_is_well_takes_few_series(tmp_path: Path) -> None:
    """A thousand targets are read every 15 s."""
    alone = page(a_service(tmp_path, healthy("embed"))).count('target="embed"')
    assert alone < 75


def test_a_pending_incident_is_not_active(tmp_path: Path) -> None:
    pending = incident(state=State.PENDING, firing_since=None)
    service = a_service(tmp_path, snapshot(incidents=(pending,), lead=None))
    assert set(values(service, "diagnosis_active", "target")) == {("",)}
    assert values(service, "lead", "rule") == {}


def test_a_raised_severity_replaces_the_rules_own(tmp_path: Path) -> None:
    raised = incident("ttft-high", severity=Severity.CRITICAL)
    service = a_service(tmp_path, snapshot(incidents=(raised,), lead=raised.key))
    active = values(service, "diagnosis_active", "target", "rule", "severity")
    of_target = {row: value for row, value in active.items() if row[0]}
    assert of_target == {("chat", "ttft-high", "critical"): 1}


def test_each_engine_has_its_own_series(tmp_path: Path) -> None:
    sick = incident(key=Key("kv-pool-exhausted", "chat", "meta/llama-8b", "1"))
    both = (readings("chat", "0"), readings("chat", "1"))
    service = a_service(tmp_path, snapshot(readings=both, incidents=(sick,), lead=sick.key))
    active = values(service, "diagnosis_active", "rule", "engine")
    assert ("kv-pool-exhausted", "0") not in active
    assert active["kv-pool-exhausted", "1"] == 1
    assert values(service, "running_requests", "engine") == {("0",): 38, ("1",): 38}


def compares_servers(service: AService, directory: Path) -> AService:
    """The service with one rule, `skew`, of fleet scope."""
    directory.mkdir()
    text = RULE.format(id="skew", title="Skew", severity="warning", scope="fleet")
    (directory / "skew.yaml").write_text(text)
    service.rules = load([directory], SIGNALS, allow_untested=True)
    return service


def test_a_rule_about_a_fleet_has_a_series_where_it_fires(tmp_path: Path) -> None:
    service = compares_servers(a_service(tmp_path, snapshot("a"), healthy("b")), tmp_path / "fleet")
    assert values(service, "diagnosis_active", "target", "rule")["", "skew"] == 0
    service.fleet = (incident(key=Key("skew", FLEET, "meta/llama-8b", "")),)
    row = (FLEET, "skew", "meta/llama-8b")
    assert values(service, "diagnosis_active", "target", "rule", "model_name")[row] == 1


def test_a_blind_rule_is_unknown(tmp_path: Path) -> None:
    blind = replace(snapshot().blind[0], rule="ttft-high")
    service = a_service(tmp_path, snapshot(blind=(blind, snapshot().blind[0])))
    assert values(service, "diagnosis_unknown", "rule") == {("ttft-high",): 1, ("deferred-backlog",): 1}
    # Of three rules two are of an engine, and one is of the target.
    assert values(service, "target_unknown_rules_ratio", "target") == {("chat",): pytest.approx(2 / 3)}


def test_derived_series_of_a_target_that_is_down_vanish(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot("chat"))
    before = set(samples(service))
    assert {"vllm_watchdog_kv_usage_ratio", "vllm_watchdog_limit_binding"} <= before
    # Even where the last snapshot still carries readings.
    service.last["chat"] = replace(down("chat"), readings=(readings("chat"),))
    after = samples(service)
    derived = {f"vllm_watchdog_{name}" for name in READINGS}
    assert not derived & set(after)
    assert not {"vllm_watchdog_limit_binding", "vllm_watchdog_latency_budget_seconds"} & set(after)
    assert values(service, "target_up", "target") == {("chat",): 0}
    assert values(service, "target_last_success_timestamp_seconds", "target") == {("chat",): NOW - 95}
    assert values(service, "diagnosis_active", "target", "rule")["chat", "target-down"] == 1


def test_what_fires_stays_active_while_its_server_is_down(tmp_path: Path) -> None:
    """It is frozen, not over: an alert over this metric must not resolve because a scrape failed."""
    frozen = incident(unknown=True)
    service = a_service(tmp_path, replace(down("chat"), incidents=(frozen,), lead=frozen.key))
    assert values(service, "diagnosis_active", "target", "rule")["chat", "kv-pool-exhausted"] == 1


def test_a_target_removed_or_not_yet_read_has_no_series(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot("chat"), healthy("embed"))
    service.watched = (service.watched[0],)
    assert 'target="embed"' not in page(service)
    service.last = {}
    assert 'target="chat"' not in page(service)
    assert values(service, "targets") == {(): 1}


def test_scrapes_and_failures_count_from_zero_by_reason(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    failures = values(service, "target_scrape_failures_total", "reason")
    assert (failures["timeout",], failures["refused",], len(failures)) == (2, 0, len(Reason))
    assert values(service, "target_scrapes_total", "target") == {("chat",): 80}
    assert values(service, "target_scrape_samples", "target") == {("chat",): 435}


def test_the_limit_and_the_budget_are_told_by_label(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    binding = values(service, "limit_binding", "limit")
    assert {limit for (limit,), value in binding.items() if value} == {"kv_pool"}
    assert binding["sequences",] == 0
    assert values(service, "latency_budget_seconds", "phase") == {
        ("queue",): 39.5,
        ("prefill",): 0.9,
        ("decode",): 7.2,
    }
    assert sum(values(service, "latency_budget_ratio", "phase").values()) == pytest.approx(1)


def test_what_is_unknown_has_no_series(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    assert values(service, "output_tokens_mean", "target") == {}
    assert values(service, "kv_usage_ratio", "target") == {("chat",): 0.982}


def test_the_service_tells_of_itself(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    service.own = Figures(
        reload_successful=False,
        reloaded_at=NOW,
        cycle_seconds={"chat": 0.02},
        cycle_errors={"chat": 1},
        skipped_cycles={"chat": 3},
        late_cycles=2,
        notifications=(Statistics("am:9093", 5, 2, 1, 4, 10_000),),
    )
    assert values(service, "config_last_reload_successful") == {(): 0}
    assert values(service, "config_last_reload_success_timestamp_seconds") == {(): NOW}
    assert values(service, "skipped_cycles_total", "target") == {("chat",): 3}
    assert values(service, "late_cycles_total") == {(): 2}
    assert values(service, "cycle_duration_seconds", "target") == {("chat",): 0.02}
    assert values(service, "notifications_dropped_total", "receiver") == {("am:9093",): 1}
    assert values(service, "notifications_queue_capacity", "receiver") == {("am:9093",): 10_000}
    assert values(service, "rules") == {(): 3}
    [(version, revision)] = values(service, "build_info", "version", "revision")
    assert (version, revision) == ("1.0.0", "abc123")


def test_canaries_are_counted_by_what_came_of_them(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    service.own = Figures(canaries={"chat": {"answered": 3, "late": 1, "refused": 0}})
    assert values(service, "canaries_total", "target", "outcome") == {
        ("chat", "answered"): 3,
        ("chat", "late"): 1,
        ("chat", "refused"): 0,
    }


def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    service = a_service(tmp_path, snapshot(), healthy(), down())
    service.own = Figures(
        True, NOW, {"chat": 0.1}, {"chat": 0}, {"chat": 0}, (Statistics("a", 0, 0, 0, 0, 1),)
    )
    every = replace(readings(), values=dict.fromkeys(READINGS, 1.0))
    service.last["chat"] = snapshot(readings=(every,))
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=page(service),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # `process_` metrics are the client library's.
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("process_")]
    assert said == []


def test_only_the_house_labels_are_used(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot(), down())
    used = {label for series in samples(service).values() for labels, _ in series for label in labels}
    own = {
        "target",
        "rule",
        "severity",
        "model_name",
        "engine",
        "reason",
        "limit",
        "phase",
        "receiver",
        "verdict",
    }
    assert used <= own | {"version", "revision", "pythonversion", "external_url"}


def test_a_target_brings_its_own_labels_and_the_way_to_our_pages(tmp_path: Path) -> None:
    labelled = replace(
        snapshot(), target=Target("chat", "http://chat:8000/metrics", labels={"team": "search"})
    )
    service = a_service(tmp_path, labelled, down())
    service.own = Figures(external_url="https://watchdog")
    assert values(service, "target_info", "target", "external_url", "label_team") == {
        ("chat", "https://watchdog", "search"): 1,
        ("batch", "https://watchdog", ""): 1,
    }
    assert not re.search(r"^vllm_watchdog_\w*:", page(service), re.M)


def test_one_bad_label_costs_nothing_else(tmp_path: Path) -> None:
    hostile = "model\n\"\\{x='}" + "x" * 100_000
    subject = Subject("chat", hostile, "0")
    bad = replace(readings(), subject=subject)
    sick = incident(key=Key("kv-pool-exhausted", "chat", hostile, "0"))
    service = a_service(
        tmp_path, snapshot(readings=(bad,), incidents=(sick,), lead=sick.key), healthy("embed")
    )
    assert values(service, "kv_usage_ratio", "target") == {("chat",): 0.982, ("embed",): 0.04}
    assert len(page(service)) < 100_000


def test_labels_that_look_alike_once_shortened_are_told_once(tmp_path: Path) -> None:
    """Two equal series would make Prometheus refuse the whole page."""
    pair = tuple(replace(readings(), subject=Subject("chat", "x" * 300 + tail, "0")) for tail in "ab")
    service = a_service(tmp_path, snapshot(readings=pair, incidents=(), lead=None))
    lines = [line.rpartition(" ")[0] for line in page(service).splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


@given(st.text(max_size=300), st.floats())
@settings(max_examples=60, deadline=None)
def test_any_label_and_any_number_make_a_page_that_parses(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: float
) -> None:
    assert len(label_value(text)) <= 200
    one = Readings(Subject("chat", text, text), {"kv_usage_ratio": number}, text, number)
    service = a_service(tmp_path_factory.mktemp("rules"), snapshot(readings=(one,), incidents=(), lead=None))
    assert len(values(service, "kv_usage_ratio", "target")) == 1
