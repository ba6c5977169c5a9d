"""The rules as others run them: checked and tested by promtool, and fired in a real Prometheus."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bench.exported import Recorded, openmetrics
from tests.commands import command
from tests.contract.programs import Process, free_port, get, program, run
from tests.places import DOCS, RECORDINGS
from tests.waiting import until
from tests.watching import shipped_rules
from watchdog.model import Severity, Truth
from watchdog.report.exported import export, series_of, summary, unit_tests
from watchdog.rule.rule import evaluate
from watchdog.scrape.recording import Phase, read, thin

PAGE = (DOCS / "exported-rules.md").read_text()
ROW = re.compile(r"^\| (\d+) s \| (\d+) of (\d+) \|.*\| (\d+) of (\d+) \|$", re.MULTILINE)
SECONDS_APART = 5


def test_promtool_takes_the_rules_and_says_of_each_own_test_what_we_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pace in ("5s", "1m", "15s"):
        ended = command(
            capsys, "rules", "export", "--format", "prometheus", "--pace", pace, "--output", tmp_path
        )
        assert (ended.code, ended.err) == (0, "")
        run("promtool", "check", "rules", tmp_path / "vllm-rules.yaml")
    run("promtool", "test", "rules", tmp_path / "vllm-rules_test.yaml")
    inhibition = yaml.safe_load((tmp_path / "vllm-inhibition.yaml").read_text())
    whole = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]} | inhibition
    (tmp_path / "alertmanager.yaml").write_text(yaml.safe_dump(whole))
    assert "SUCCESS" in run("amtool", "check-config", tmp_path / "alertmanager.yaml")


def test_vmalert_gets_the_same_rules_without_what_is_promtools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(capsys, "rules", "export", "--format", "vmalert", "--output", tmp_path).code == 0
    assert {each.name for each in tmp_path.iterdir()} == {
        "vllm-rules.yaml",
        "vllm-inhibition.yaml",
        "vllm-rules.md",
    }
    printed = command(capsys, "rules", "export").out
    assert printed == (tmp_path / "vllm-rules.yaml").read_text()
    assert printed.startswith("# Made by vllm-watchdog ")
    refused = command(capsys, "rules", "export", "--pace", "5m")
    assert refused.code == 2
    assert "give whole seconds from 5 to 60" in refused.err


def test_own_tests_of_every_kind_reach_promtool() -> None:
    tests = unit_tests(export(shipped_rules(), 15, ""), "rules.yaml")["tests"]
    given = {series["series"].partition("{")[2] for one in tests for series in one["input_series"]}
    fires = [alert for one in tests for alert in one["alert_rule_test"][0]["exp_alerts"]]
    assert len(given) > 100
    assert 20 < len(fires) < len(given) - 20
    assert {alert["exp_labels"]["rule"] for alert in fires} >= {"kv-pool-exhausted", "errors-high"}


def test_a_carried_rule_is_never_yes_where_the_whole_rule_is_no() -> None:
    """Of its own tests: what PromQL does not know may make a rule silent, never loud."""
    for one in export(shipped_rules(), 15, "").carried:
        for test in one.rule.tests:
            carried = {name: value for name, value in test.signals.items() if series_of(name)}
            if test.recording is None and evaluate(one.rule, carried.get).truth is Truth.YES:
                settings = {
                    "batch_jobs",
                    "ttft_objective_seconds",
                    "itl_objective_seconds",
                    "e2e_objective_seconds",
                }
                whole = {name: value for name, value in test.signals.items() if name not in settings}
                assert evaluate(one.rule, whole.get).truth is Truth.YES, (one.rule.id, test.name)


def test_every_rule_is_carried_or_has_its_reason_and_its_page_says_so() -> None:
    made = export(shipped_rules(), 30, "")
    carried = {one.rule.id for one in made.carried}
    left = {one.rule.id: one.reason for one in made.left_behind}
    assert carried | set(left) == {rule.id for rule in shipped_rules().rules}
    assert carried.isdisjoint(left)
    assert "PromQL keeps no past under a like load" in left["decode-slowed"]
    assert PAGE.endswith(summary(made)), "make exported-rules"
    assert all(one.rule.severity is not Severity.INFO for one in made.carried)


def test_the_page_has_measured_each_pace_and_no_quiet_phase_alarmed() -> None:
    rows = [tuple(map(int, row)) for row in ROW.findall(PAGE)]
    assert [row[0] for row in rows] == [15, 30, 60]
    assert all(quiet == calm > 50 for *_, quiet, calm in rows)


def pages_until(end: float, name: str, label: str) -> Recorded:
    """A minute of a recording's phase of that label, at its end."""
    recording, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    phase: Phase = next(each for each in recording.phases if each.label == label)
    kept = [
        (each.wall, each.body.decode())
        for each in thin(scrapes, SECONDS_APART)
        if each.failure is None and each.wall < phase.end
    ][-13:]
    return Recorded(name, recording.phases, kept, end - kept[-1][0])


def alerts(url: str) -> Iterator[tuple[str, str, str]]:
    answer: Any = get(f"{url}/api/v1/alerts")
    for each in answer["data"]["alerts"] if answer else ():
        yield each["labels"]["instance"], each["labels"]["alertname"], each["state"]


def test_a_cause_fires_in_a_real_prometheus_and_calm_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(capsys, "rules", "export", "--pace", f"{SECONDS_APART}s", "--output", tmp_path)
    rules = (tmp_path / "vllm-rules.yaml").read_text().replace(f"interval: {SECONDS_APART}s", "interval: 1s")
    (tmp_path / "vllm-rules.yaml").write_text(rules)
    end = time.time()
    servers = [
        pages_until(end, "kv-pool-exhausted", "kv-pool-exhausted"),
        pages_until(end, "healthy-busy", "healthy-busy"),
    ]
    (tmp_path / "pages.txt").write_text("".join(openmetrics(servers)))
    run("promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "pages.txt", tmp_path / "data")
    (tmp_path / "prometheus.yml").write_text("rule_files: [vllm-rules.yaml]\n")
    url = f"http://127.0.0.1:{free_port()}"
    words: list[str | Path] = [
        program("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with Process(words, f"{url}/-/ready", tmp_path / "prometheus.log"):
        wanted = ("kv-pool-exhausted", "VllmKvPoolExhausted", "firing")
        until(lambda: wanted in set(alerts(url)))
        assert {instance for instance, _, _ in alerts(url)} == {"kv-pool-exhausted"}


def test_the_commands_of_the_page_work_as_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours, check, tested = PAGE.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert command(capsys, *ours.split()[1:]).code == 0
    run(*check.split())
    assert tested.split()[-1] == "vllm-rules_test.yaml"
    assert set(re.findall(r"`(vllm-[\w-]+\.\w+)`", PAGE)) == {each.name for each in tmp_path.iterdir()}
