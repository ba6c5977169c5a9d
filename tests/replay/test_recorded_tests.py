"""Tests of rules that point at a phase of a recording: run on shipped rules, and what they say where they fail."""

from pathlib import Path

import pytest

from tests.commands import command
from tests.places import RECORDINGS
from tests.watching import shipped_rules
from watchdog.cli.recorded import run_recorded
from watchdog.errors import RuleError
from watchdog.replay.recorded_tests import recorded_tests
from watchdog.rule.rule_set import RuleSet, load

SIGNALS = frozenset({"waiting_last", "kv_usage_last_ratio"})
RULE = """
id: queue
title: A queue
severity: warning
for: {held}
when: [waiting_last > 0]
cause: "{{waiting_last:.0f}} wait."
remedies:
  - {{action: "Act.", flag: --max-num-seqs, value: "8", direction: raise, why: w, price: p}}
tests:
  - {{name: one, {test}}}
"""


def rules_of(tmp_path: Path, test: str, held: str = "0s") -> RuleSet:
    (tmp_path / "queue.yaml").write_text(RULE.format(test=test, held=held))
    return load([tmp_path], SIGNALS, allow_untested=True)


def problems(tmp_path: Path, test: str, held: str = "0s", folder: Path = RECORDINGS) -> tuple[str, ...]:
    rules = rules_of(tmp_path, test, held)
    [result] = run_recorded(rules.rules, folder, rules)
    assert (result.rule, result.test, result.passed) == ("queue", "one", not result.problems)
    return result.problems


def faults(tmp_path: Path, test: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        rules_of(tmp_path, test)
    return [fault.text for fault in caught.value.faults]


QUEUE = "recording: seqs-limited, phase: 2"


@pytest.mark.slow
def test_the_recorded_tests_of_the_shipped_rules_pass() -> None:
    rules = shipped_rules()
    assert len(list(recorded_tests(rules.rules))) >= 10
    failed = {
        result.rule: result.problems
        for result in run_recorded(rules.rules, RECORDINGS, rules)
        if not result.passed
    }
    assert failed == {}


@pytest.mark.parametrize(
    "test",
    [
        f"{QUEUE}, expect: leads",
        f"{QUEUE}, expect: fires",
        f"{QUEUE}, expect: leads, severity: warning, cause_contains: wait, remedy: {{--max-num-seqs: 8}}",
        "recording: idle, phase: 1, expect: silent",
    ],
)
def test_what_a_recording_shows_passes(tmp_path: Path, test: str) -> None:
    assert problems(tmp_path, test) == ()


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (f"{QUEUE}, expect: silent", "expected silent, in phase 2 (seqs-limited) of seqs-limited it leads"),
        (
            "recording: idle, phase: 1, expect: leads",
            "expected leads, in phase 1 (idle) of idle it is silent",
        ),
        ("recording: idle, phase: 2, expect: silent", "the recording idle has 1 phases"),
        (f"{QUEUE}, expect: leads, severity: critical", "expected severity critical, it is warning"),
        (f"{QUEUE}, expect: leads, cause_contains: leave", "the cause does not contain 'leave'"),
        (f"{QUEUE}, expect: leads, remedy: {{--max-num-seqs: 9}}", "expected --max-num-seqs 9, it is 8"),
        (f"{QUEUE}, expect: leads, remedy: {{--swap-space: 9}}", "--swap-space is not offered"),
        (f"{QUEUE}, expect: leads, not_offered: [--max-num-seqs]", "--max-num-seqs is offered"),
        ("recording: nowhere, phase: 1, expect: leads", "there is no recording nowhere in "),
    ],
)
def test_what_it_does_not_show_fails_with_the_reason(tmp_path: Path, test: str, told: str) -> None:
    [problem] = problems(tmp_path, test)
    assert problem.startswith(told)


def test_how_long_a_rule_must_hold_is_tested(tmp_path: Path) -> None:
    assert problems(tmp_path, f"{QUEUE}, expect: leads", held="1h") == (
        "expected leads, in phase 2 (seqs-limited) of seqs-limited it is silent",
    )


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("recording: a, expect: leads", "a test has both `recording` and `phase`, or none of them"),
        ("phase: 1, signals: {}, expect: fires", "a test has both `recording` and `phase`, or none of them"),
        ("recording: ../a, phase: 1, expect: leads", "`../a` is not the name of a recording"),
        ("recording: a, phase: 0, expect: leads", "a phase is a number from 1 on"),
        ("recording: a, phase: one, expect: leads", "a phase is a number from 1 on"),
        ("recording: a, phase: 1, expect: unknown", "no test expects `unknown` in a recording"),
        ("signals: {}, expect: leads", "no test expects `leads` of values"),
        ("recording: a, phase: 1, signals: {}, expect: leads", "`signals` or a `recording`, not both"),
        ("expect: fires", "`signals` is missing"),
    ],
)
def test_a_test_of_neither_kind_is_refused(tmp_path: Path, test: str, text: str) -> None:
    assert any(text in fault for fault in faults(tmp_path, test))


def test_a_recorded_test_is_none_of_the_three_kinds_that_a_rule_must_have(tmp_path: Path) -> None:
    rules_of(tmp_path, f"{QUEUE}, expect: silent")
    with pytest.raises(RuleError, match="no test that expects fires, nor silent, nor unknown"):
        load([tmp_path], SIGNALS)


def test_the_command_runs_them_on_the_recordings_beside_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATCHDOG_RULES__SHIPPED", "false")
    monkeypatch.setenv("WATCHDOG_RULES__ALLOW_UNTESTED", "true")
    rules_of(tmp_path, f"{QUEUE}, expect: leads")
    ended = command(capsys, "rules", "test", tmp_path)
    assert (
        "1 of the tests point at recordings and did not run; --recordings DIR says where those are"
        in ended.err
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = command(capsys, "rules", "test", tmp_path, "--recordings", empty)
    assert ended.code == 1
    assert f"there is no recording seqs-limited in {empty}" in ended.out
    (tmp_path / "recordings").symlink_to(RECORDINGS)
    assert command(capsys, "rules", "test", tmp_path).out == "pass  queue: one\n1 of 1 tests pass\n"
    assert command(capsys, "rules", "test", tmp_path, "--recordings", RECORDINGS).code == 0
