"""The real Prometheus reads us, finds every metric its rules name, and fires them and stops."""

import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.a_service import AService, a_service, down, healthy, snapshot
from tests.a_site import a_site
from tests.contract.programs import ROOT, Prometheus, get, program, run
from tests.waiting import until
from watchdog.notify.outbox import Statistics
from watchdog.report.metrics import Figures, Looks, PrometheusFigures

RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"


def test_the_rules_are_accepted_and_pass_their_tests() -> None:
    assert "SUCCESS" in run("promtool", "check", "rules", RULES)
    assert "SUCCESS" in run("promtool", "test", "rules", RULES.with_name("rules_test.yaml"))


def test_each_rule_has_a_test_on_both_sides() -> None:
    tests = yaml.safe_load(RULES.with_name("rules_test.yaml").read_text())["tests"]
    sides: dict[str, set[bool]] = {}
    for test in tests:
        for case in test["alert_rule_test"]:
            sides.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert sides == {name: {True, False} for name in alert_names()}


def alert_names() -> set[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"]}


def hasty(folder: Path) -> Path:
    """The same rules without their patience, which the rules' own tests cover."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            rule.pop("for", None)
            rule.pop("keep_firing_for", None)
            rule["expr"] = re.sub(r"\[\d+[mh]\]", "[3s]", rule["expr"])
    written = folder / "rules.yaml"
    written.write_text(yaml.safe_dump(rules))
    return written


def sick(errors: int) -> Figures:
    return Figures(
        reload_successful=False,
        reloaded_at=time.time(),
        cycle_seconds={"chat": 0.01},
        skipped_cycles={"chat": 0},
        notifications=(Statistics("http://am:9093", 10 * errors, errors, errors, 9000, 10_000),),
        looks=(Looks("app=vllm", False, 3, 1, None),),
        prometheus=(PrometheusFigures("mimir", False, 0.1, 0, 1, 0),),
    )


@pytest.fixture
def service(tmp_path: Path) -> AService:
    directory = tmp_path / "shipped"
    directory.mkdir()
    made = a_service(directory, snapshot("chat"), down("batch"), healthy("embed"))
    made.own = sick(1)
    return made


def names(labels: list[dict[str, str]]) -> set[tuple[str, str]]:
    """Alert and target of what fires; for the watchdog's own only the alert."""
    return {(each["alertname"], each.get("target", "")) for each in labels}


def test_prometheus_scrapes_us_and_its_rules_fire_and_stop(service: AService, tmp_path: Path) -> None:
    with a_site(service) as site:
        where = f"localhost:{site.port}"
        page = get(f"http://{where}/metrics")
        checked = subprocess.run(
            [program("promtool"), "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")
        with Prometheus(tmp_path / "prometheus", where, hasty(tmp_path)) as prometheus:
            wanted = {
                ("VllmWatchdogCause", "chat"),
                ("VllmWatchdogTargetDown", "batch"),
                ("VllmWatchdogHeartbeat", ""),
                ("VllmWatchdogReloadFailed", ""),
                ("VllmWatchdogDiscoveryFailing", ""),
                ("VllmWatchdogPrometheusUnreadable", ""),
                ("VllmWatchdogNotificationQueueFilling", ""),
                ("VllmWatchdogNotificationErrors", ""),
                ("VllmWatchdogNotificationsDropped", ""),
            }
            until(lambda: goes_on(service) and wanted <= names(prometheus.firing()))
            causes = [each for each in prometheus.firing() if each["alertname"] == "VllmWatchdogCause"]
            assert [(each["rule"], each["severity"], each["engine"]) for each in causes] == [
                ("kv-pool-exhausted", "critical", "0")
            ]
            for name in sorted(set(re.findall(r"vllm_watchdog_\w+", RULES.read_text()))):
                assert prometheus.query(name), f"{name} is not among our metrics"
            assert [each["metric"]["target"] for each in prometheus.query("vllm_watchdog_target_up==0")] == [
                "batch"
            ]
            service.own = Figures(reloaded_at=time.time())
            service.last |= {"chat": healthy("chat"), "batch": replace(healthy("batch"), scrapes=9)}
            until(lambda: looks(service) and names(prometheus.firing()) == {("VllmWatchdogHeartbeat", "")})


def test_prometheus_misses_a_watchdog_that_is_gone(service: AService, tmp_path: Path) -> None:
    with a_site(service) as site:
        prometheus = Prometheus(tmp_path / "prometheus", f"localhost:{site.port}", hasty(tmp_path))
        prometheus.start()
        until(lambda: ("VllmWatchdogHeartbeat", "") in names(prometheus.firing()))
    try:
        until(lambda: ("VllmWatchdogDown", "") in names(prometheus.firing()))
        until(lambda: ("VllmWatchdogHeartbeat", "") not in names(prometheus.firing()))
    finally:
        prometheus.end()


def goes_on(service: AService) -> bool:
    """Another failure, and another scrape of each target."""
    service.own = sick(service.own.notifications[0].errors + 1)
    return looks(service)


def looks(service: AService) -> bool:
    changed: dict[str, Any] = {
        name: replace(each, scrapes=each.scrapes + 1) for name, each in service.last.items()
    }
    service.last = changed
    return True
