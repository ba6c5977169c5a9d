"""Rule files: what they say, what is refused and where, what settings change, and how a rule judges."""

import time
import timeit
from collections.abc import Mapping
from pathlib import Path

import pytest

from watchdog.errors import ExpressionError, Fault, RuleError
from watchdog.history.number import AtLeast, AtMost
from watchdog.language.template import Template, render_text
from watchdog.model import Scope, Severity, Truth
from watchdog.resources import shipped_rules_directory
from watchdog.rule import rule_set as rules
from watchdog.rule.file import KIND
from watchdog.rule.own_tests import test_rule
from watchdog.rule.rule import Rule, evaluate, is_offered, remedy_value
from watchdog.rule.rule_set import RuleOverride, RuleSet, load

SIGNALS = frozenset(
    {"waiting", "waiting_baseline", "kv_usage_ratio", "pool_tokens", "request_tokens_p99", "preemptions"}
)

RULE = """\
id: pool-full
title: The KV cache is full
severity: warning
raise_to: {severity: critical, when: "kv_usage_ratio > 0.95"}
scope: engine
for: 5s
keep_firing_for: 1m30s
parameters:
  least_ratio: {value: 0.75, unit: ratio, why: "large requests leave the rest of the pool unused"}
when: ["waiting > 0", "kv_usage_ratio > least_ratio"]
unless: ["preemptions > 100"]
explains: []
cause: "{waiting:.0f} requests wait while the pool is {kv_usage_ratio:.0%} full, over {least_ratio:.0%}."
remedies:
  - action: "Lower the context to {value}"
    flag: --max-model-len
    suggest: "2 * request_tokens_p99"
    direction: lower
    why: "99 % of requests need {request_tokens_p99:,.0f} tokens"
    price: "longer requests are refused"
    unless: "request_tokens_p99 > pool_tokens"
  - {action: "Halve the cache", flag: --kv-cache-dtype, value: fp8, why: w, price: "p", first_version: 0.8.0}
unhelpful: ["--swap-space does nothing on V1"]
false_positives: ["a benchmark"]
references: ["https://docs.vllm.ai/"]
tests:
  - name: full
    signals: {waiting: 3, kv_usage_ratio: 0.98, request_tokens_p99: 2048}
    expect: fires
    severity: critical
    cause_contains: "98%"
    remedy: {--max-model-len: 4096, --kv-cache-dtype: fp8}
  - {name: no queue, signals: {waiting: 0, kv_usage_ratio: 0.98}, expect: silent}
  - {name: no usage, signals: {waiting: 3}, expect: unknown}
  - name: long requests
    signals: {waiting: 3, kv_usage_ratio: 0.8, request_tokens_p99: 2048, pool_tokens: 100}
    expect: fires
    severity: warning
    not_offered: [--max-model-len]
"""

SMALL = """\
id: {id}
title: t
severity: info
when: ["waiting > 0"]
cause: c
explains: [{explains}]
tests:
  - {{name: a, signals: {{waiting: 1}}, expect: fires}}
  - {{name: b, signals: {{waiting: 0}}, expect: silent}}
  - {{name: c, signals: {{}}, expect: unknown}}
"""


def small(identity: str, explains: str = "") -> str:
    return SMALL.format(id=identity, explains=explains)


def write(directory: Path, files: Mapping[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text)
    return directory


def loaded(tmp_path: Path, text: str = RULE, **changes: RuleOverride) -> RuleSet:
    overrides = {name.replace("_", "-"): change for name, change in changes.items()}
    return load([write(tmp_path, {"pool-full": text})], SIGNALS, overrides)


def faults(tmp_path: Path, text: str, allow_untested: bool = True) -> tuple[Fault, ...]:
    with pytest.raises(RuleError) as caught:
        load([write(tmp_path, {"pool-full": text})], SIGNALS, allow_untested=allow_untested)
    return caught.value.faults


@pytest.fixture
def rule(tmp_path: Path) -> Rule:
    return loaded(tmp_path).by_id("pool-full")


def test_a_rule_file_says_what_it_says(rule: Rule) -> None:
    assert (rule.title, rule.severity, rule.scope) == ("The KV cache is full", Severity.WARNING, Scope.ENGINE)
    assert (rule.for_seconds, rule.keep_firing_seconds) == (5.0, 90.0)
    assert rule.parameters["least_ratio"].value == 0.75
    assert [clause.text for clause in rule.when] == ["waiting > 0", "kv_usage_ratio > least_ratio"]
    assert [remedy.flag for remedy in rule.remedies] == ["--max-model-len", "--kv-cache-dtype"]
    assert rule.remedies[1].first_version == "0.8.0"
    assert rule.unhelpful == ("--swap-space does nothing on V1",)
    assert [test.name for test in rule.tests] == ["full", "no queue", "no usage", "long requests"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("0.5s", 0.5), ("1d", 86400), ("1h30m", 5400), ('"90"', 90), ("0s", 0)]
)
def test_durations_are_those_of_the_settings(tmp_path: Path, text: str, seconds: float) -> None:
    assert loaded(tmp_path, RULE.replace("for: 5s\n", f"for: {text}\n", 1)).rules[0].for_seconds == seconds


def test_likeness_is_a_factor_by_signal(tmp_path: Path) -> None:
    found = loaded(tmp_path, RULE.replace("scope: engine\n", "scope: engine\nlike: {waiting: 1.5}\n"))
    assert found.rules[0].like == {"waiting": 1.5}


def test_a_rule_fires_with_its_evidence(rule: Rule) -> None:
    judgement = evaluate(rule, {"waiting": 3.0, "kv_usage_ratio": 0.8}.get)
    assert (judgement.truth, judgement.severity, judgement.missing) == (Truth.YES, Severity.WARNING, ())
    assert [evidence.text for evidence in judgement.evidence] == [
        "waiting (3) > 0",
        "kv_usage_ratio (0.8) > least_ratio (0.75)",
    ]


def test_a_worse_severity_brings_its_own_evidence(rule: Rule) -> None:
    judgement = evaluate(rule, {"waiting": 3.0, "kv_usage_ratio": 0.98}.get)
    assert judgement.severity is Severity.CRITICAL
    assert judgement.evidence[-1].text == "kv_usage_ratio (0.98) > 0.95"


@pytest.mark.parametrize(
    ("also", "count"), [("kv_usage_ratio > 0.95 and waiting > 1", 2), ("waiting > 0", 3)]
)
def test_a_reason_to_be_graver_is_not_told_twice(tmp_path: Path, also: str, count: int) -> None:
    text = RULE.replace('"kv_usage_ratio > least_ratio"]', f'"{also}"]')
    (tmp_path / "pool-full.yaml").write_text(text.partition("tests:\n")[0] + "tests: []\n")
    rule = load([tmp_path], SIGNALS, allow_untested=True).by_id("pool-full")
    judgement = evaluate(rule, {"waiting": 3.0, "kv_usage_ratio": 0.98}.get)
    assert judgement.severity is Severity.CRITICAL
    assert len(judgement.evidence) == count


@pytest.mark.parametrize(
    ("values", "truth", "missing"),
    [
        ({}, Truth.UNKNOWN, ("waiting", "kv_usage_ratio")),
        ({"waiting": 3.0}, Truth.UNKNOWN, ("kv_usage_ratio",)),
        ({"kv_usage_ratio": 0.1}, Truth.NO, ()),
        ({"waiting": 0.0}, Truth.NO, ()),
        ({"waiting": 3.0, "kv_usage_ratio": 0.9, "preemptions": 200.0}, Truth.NO, ()),
        ({"waiting": 3.0, "preemptions": 200.0}, Truth.NO, ()),
        ({"waiting": 3.0, "kv_usage_ratio": 0.9, "preemptions": 1.0}, Truth.YES, ()),
        ({"waiting": AtLeast(2.0), "kv_usage_ratio": 0.9}, Truth.YES, ()),
        ({"waiting": AtLeast(0.0), "kv_usage_ratio": 0.9}, Truth.UNKNOWN, ()),
    ],
)
def test_a_rule_is_yes_no_or_unknown(
    rule: Rule, values: Mapping[str, float], truth: Truth, missing: tuple[str, ...]
) -> None:
    judgement = evaluate(rule, values.get)
    assert (judgement.truth, judgement.missing) == (truth, missing)
    assert bool(judgement.evidence) == (truth is Truth.YES)


def test_the_first_clause_that_is_no_ends_the_evaluation(rule: Rule) -> None:
    asked: list[str] = []

    def lookup(name: str) -> float | None:
        asked.append(name)
        return 0.0

    assert evaluate(rule, lookup).truth is Truth.NO
    assert asked == ["waiting"]


def test_a_remedy_is_offered_by_its_conditions_and_has_its_value(rule: Rule) -> None:
    lower, halve = rule.remedies
    values: dict[str, float | None] = {"request_tokens_p99": 2048.4}
    assert is_offered(lower, values.get)
    assert remedy_value(lower, values.get) == "4097"
    assert render_text(lower.action, values.get, "4097") == "Lower the context to 4097"
    assert render_text(lower.why, values.get) == "99 % of requests need 2,048 tokens"
    assert not is_offered(lower, {"request_tokens_p99": 5.0, "pool_tokens": 4.0}.get)
    assert remedy_value(lower, {"request_tokens_p99": AtLeast(2048)}.get) is None
    assert remedy_value(lower, {"request_tokens_p99": AtMost(2048)}.get) is None
    assert remedy_value(lower, dict[str, float]().get) is None
    assert remedy_value(halve, dict[str, float]().get) == "fp8"


def test_a_remedy_whose_when_is_unknown_is_not_offered(tmp_path: Path) -> None:
    text = RULE.replace('    unless: "request_tokens_p99 > pool_tokens"', '    when: "pool_tokens > 5"')
    text = text.replace("remedy: {--max-model-len: 4096, ", "remedy: {")
    text = text.replace("    not_offered: [--max-model-len]\n", "")
    lower = loaded(tmp_path, text).rules[0].remedies[0]
    assert not is_offered(lower, dict[str, float]().get)
    assert not is_offered(lower, {"pool_tokens": 5.0}.get)
    assert is_offered(lower, {"pool_tokens": 6.0}.get)


def test_a_fixed_value_may_quote_signals_that_must_be_known(tmp_path: Path) -> None:
    text = RULE.replace("value: fp8", 'value: "{pool_tokens:.0f}"').replace(", --kv-cache-dtype: fp8", "")
    halve = loaded(tmp_path, text).rules[0].remedies[1]
    assert remedy_value(halve, {"pool_tokens": 7.0}.get) == "7"
    assert remedy_value(halve, dict[str, float]().get) is None


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("{waiting:.0f} wait", 3.0, "3 wait"),
        ("{waiting} wait", 3.25, "3.25 wait"),
        ("{waiting:.1%}", 0.123, "12.3%"),
        ("{waiting:,.0f}", 1234567.0, "1,234,567"),
        ("{waiting:.1f}", None, ""),
        ("{waiting:.1f}", float("nan"), ""),
        ("Half: {half}. Of {waiting}.", None, "Half: 0.5."),
        ("{half} wait ({waiting} before), {waiting:.0f} run.", None, "0.5 wait."),
        ("{waiting} wait, with 3 of them old, and {half} run: it is slow.", None, "0.5 run: it is slow."),
        ("{waiting} wait: a step takes {half} s.", None, "A step takes 0.5 s."),
        ("{waiting:.1f}", AtLeast(2.0), ">= 2.0"),
        ("{waiting}", AtLeast(2.0), ">= 2"),
        ("{{waiting}} {half:.2f}", 1.0, "{waiting} 0.50"),
        ("{half:.1f} s[, {waiting:.0f} wait].", 3.0, "0.5 s, 3 wait."),
        ("{half:.1f} s[, {waiting:.0f} wait].", None, "0.5 s."),
        ("[{waiting:.0f} wait, ]{half:.1f} s[, {half} of {waiting}]", None, "0.5 s"),
        ("[{half}][{waiting}]", None, "0.5"),
        ("[[{waiting}]] and [[a]]", None, ""),
        ("[[[{waiting}]", 2.0, "[2"),
        ("[{{[[{waiting}]]}}]", 2.0, "{[2]}"),
    ],
)
def test_a_text_is_rendered(text: str, value: float | None, shown: str) -> None:
    template = Template.read(text, SIGNALS, {"half": 0.5})
    assert render_text(template, {"waiting": value}.get) == shown
    assert template == text


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("ab {wating}", 4, "no signal is named `wating`"),
        ("{value}", 1, "no signal is named `value`"),
        ("{waiting.real}", 0, "is not a name"),
        ("{waiting[0]}", 0, "is not a name"),
        ("{waiting!r}", 0, "is not a name"),
        ("{}", 0, "is not a name"),
        ("{0}", 0, "is not a name"),
        ("{waiting:{half}}", 0, "is not a format"),
        ("{waiting:99999999f}", 0, "is not a format"),
        ("{waiting:.99f}", 0, "is not a format"),
        ("{waiting:d}", 0, "is not a format"),
        ("{waiting:time}", 0, "its name says no seconds"),
        ("ab {waiting", 3, "the braces do not match"),
        ("ab waiting}", 0, "the braces do not match"),
        ("ab [{waiting}", 3, "`[` without `]`"),
        ("ab {waiting}]", 12, "`]` without `[`"),
        ("[{waiting} [{half}]]", 11, "an optional part in an optional part"),
        ("ab [cd]", 3, "an optional part without a value"),
        ("ab [{wating}]", 5, "no signal is named `wating`"),
    ],
)
def test_a_text_with_anything_but_names_and_formats_is_refused(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Template.read(text, SIGNALS, {"half": 0.5})
    assert message in caught.value.message
    assert caught.value.column == column


def test_a_text_may_quote_the_facts_that_are_no_numbers() -> None:
    template = Template.read("{failure} ({version})", SIGNALS)
    assert template.names == ()
    assert render_text(template, dict[str, float]().get, texts={"failure": "refused"}) == "refused"
    optional = Template.read("{failure}[ ({version})][ {value}]", SIGNALS, has_value=True)
    assert render_text(optional, dict[str, float]().get, texts={"failure": "refused"}) == "refused"
    assert render_text(optional, dict[str, float]().get, "7", {"failure": "a", "version": "b"}) == "a (b) 7"


def test_the_rules_own_tests_pass(rule: Rule) -> None:
    assert all(result.passed for result in test_rule(rule))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("kv_usage_ratio: 0.98, request", "kv_usage_ratio: 0.5, request", "expected fires, it is silent"),
        ("waiting: 0, kv", "waiting: 1, kv", "expected silent, it fires: when waiting (1) > 0 is yes"),
        ("signals: {waiting: 3}, expect: unknown", "signals: {waiting: 0}, expect: unknown", "it is silent"),
        ("severity: critical\n    cause", "severity: warning\n    cause", "expected severity warning"),
        ('contains: "98%"', 'contains: "97%"', "the cause does not contain '97%': 3 requests wait"),
        ("len: 4096", "len: 4095", "expected --max-model-len 4095, it is 4096"),
        ("remedy: {--max-model-len: 4096,", "remedy: {--other: 1,", "--other is not offered"),
        ("not_offered: [--max-model-len]", "not_offered: [--kv-cache-dtype]", "--kv-cache-dtype is offered"),
        ("request_tokens_p99: 2048}", 'request_tokens_p99: ">= 2048"}', "len 4096, it is unknown"),
        ("request_tokens_p99: 2048}", 'request_tokens_p99: "<= 2048"}', "len 4096, it is unknown"),
        ("waiting: 0, kv", 'waiting: "<= 3", kv', "expected silent, it is unknown"),
    ],
)
def test_a_failing_test_says_why(tmp_path: Path, before: str, after: str, problem: str) -> None:
    assert before in RULE
    (fault,) = faults(tmp_path, RULE.replace(before, after), allow_untested=False)
    assert problem in fault.text
    assert fault.line > RULE[: RULE.index("tests:")].count("\n")


def test_settings_change_a_rule_by_its_names(tmp_path: Path) -> None:
    change = RuleOverride(
        {"least_ratio": 0.5}, for_seconds=1.0, keep_firing_seconds=2.0, severity=Severity.INFO
    )
    rule = loaded(tmp_path, pool_full=change).rules[0]
    judgement = evaluate(rule, {"waiting": 3.0, "kv_usage_ratio": 0.96}.get)
    assert (rule.for_seconds, rule.keep_firing_seconds, rule.parameters["least_ratio"].value) == (
        1.0,
        2.0,
        0.5,
    )
    assert judgement.severity is Severity.INFO
    assert judgement.evidence[1].text == "kv_usage_ratio (0.96) > least_ratio (0.5)"
    assert "over 50%" in render_text(rule.cause, {"waiting": 3.0, "kv_usage_ratio": 0.96}.get)


def test_an_override_may_break_the_rules_tests_which_are_about_its_defaults(tmp_path: Path) -> None:
    rule = loaded(tmp_path, pool_full=RuleOverride({"least_ratio": 0.99})).rules[0]
    assert evaluate(rule, {"waiting": 3.0, "kv_usage_ratio": 0.98}.get).truth is Truth.NO


def test_a_disabled_rule_is_left_out_and_no_longer_explained(tmp_path: Path) -> None:
    directory = write(tmp_path, {"a": small("a", "b"), "b": small("b")})
    found = load([directory], SIGNALS, {"b": RuleOverride(enabled=False)})
    assert [(rule.id, rule.explains) for rule in found.rules] == [("a", ())]
    assert found.find("b") is None
    with pytest.raises(KeyError):
        found.by_id("b")


def test_overrides_for_what_is_not_there_are_faults(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        loaded(
            tmp_path,
            pool_ful=RuleOverride(),
            pool_full=RuleOverride({"least_rato": 1.0, "least_ratio": float("nan")}, for_seconds=-1.0),
        )
    assert [str(fault) for fault in caught.value.faults] == [
        "rules.overrides.pool-ful: there is no such rule (did you mean `pool-full`?)",
        "rules.overrides.pool-full: the rule has no parameter `least_rato` (did you mean `least_ratio`?)",
        "rules.overrides.pool-full: `least_ratio` is not a finite number",
        "rules.overrides.pool-full: a duration is not negative and has an end",
    ]


CHANGES = [
    ("id: pool-full", "id: Pool_full", "`Pool_full` is not an id"),
    ("id: pool-full", "id: other", "the file of the rule `other` is named other.yaml"),
    ("id: pool-full\n", "", "`id` is missing"),
    ("title: The KV cache is full", "title:", "empty"),
    ("title: The KV cache is full", "title: yes", "`yes` is not a text for every reader"),
    ("title: The KV cache is full", "title: 012", "`012` is not a text for every reader"),
    ("title: The KV cache is full", "title: [a]", "a text is expected here"),
    ("severity: warning\nr", "severity: warn\nr", "`severity` is one of critical, warning, info"),
    ("severity: warning\nr", "severity: critical\nr", "critical is not worse than critical"),
    ('severity: critical, when: "kv_usage_ratio > 0.95"', "severity: critical", "`when` is missing"),
    ("scope: engine", "scope: engines", "`scope` is one of engine, target, fleet"),
    ("scope: engine", "like: {pool_tokens: 2}", "`pool_tokens` is not remembered"),
    ("scope: engine", "like: {waiting: 1}", "a likeness is a factor above 1"),
    ("scope: engine", "like: {waiting: much}", "`much` is not a decimal number"),
    ("scope: engine", "limit: cpu", "`limit` is one of sequences, token_budget"),
    ("for: 5s\nk", "for: 1:30\nk", "`for` is a duration"),
    ("for: 5s\nk", "for: 5 s\nk", "`for` is a duration"),
    ("for: 5s\nk", "for: -5s\nk", "`for` is a duration"),
    ("for: 5s\nk", "for:\nk", "`for` is a duration"),
    ("for: 5s\nk", "for: [5s]\nk", "`for` is a duration"),
    ("for: 5s\nk", "for: 9999d\nk", "`for` must be less than or equal to 31622400"),
    ("for: 5s\nk", "for: true\nk", "`for` is a duration"),
    ("value: 0.75", "value: 075", "`075` is not a decimal number"),
    ("value: 0.75", "value: 1:30", "`1:30` is not a decimal number"),
    ("value: 0.75", "value: yes", "`yes` is not a decimal number"),
    ("value: 0.75", "value: .inf", "`.inf` is not a decimal number"),
    ("value: 0.75", "value: 1e999", "`1e999` is not a decimal number"),
    ("value: 0.75", "value: 1_000", "`1_000` is not a decimal number"),
    ("value: 0.75", 'value: "0.75"', "`0.75` is not a decimal number"),
    ("unit: ratio, ", "", "`unit` is missing"),
    ("unit: ratio, ", "unit: ratio, unti: x, ", "the key `unti` is not known here"),
    ("  least_ratio:", "  waiting:", "the parameter `waiting` has the name of a signal"),
    ("  least_ratio:", "  min:", "`min` cannot name a parameter"),
    ("  least_ratio:", "  value:", "`value` cannot name a parameter"),
    ("  least_ratio:", "  failure:", "`failure` cannot name a parameter"),
    ("  least_ratio:", "  Least:", "`Least` cannot name a parameter"),
    ("  least_ratio:", "  idle: {value: 1, unit: s, why: w}\n  least_ratio:", "uses the parameter `idle`"),
    ("parameters:\n", "parameters:\n  other: 5\n", "the parameter `other` is a mapping of fields"),
    ("{value: 0.75, ", "{", "`value` is missing"),
    ("parameters:\n", "parameters: [a]\nparamters:\n", "`parameters` is a mapping"),
    ('when: ["waiting > 0", "kv_usage_ratio > least_ratio"]', "when: []", "`when` is empty"),
    ('when: ["waiting > 0", "kv_usage_ratio > least_ratio"]', "when: waiting > 0", "`when` is a list"),
    ('"waiting > 0", ', '"waiting", ', "a clause compares"),
    ('"waiting > 0", ', '"waitin > 0", ', "no signal is named `waitin`"),
    ('"waiting > 0", ', "[waiting], ", "a text is expected here"),
    ("explains: []", "explains: [pool-fuller]", "names the rule `pool-fuller`, which does not exist"),
    ("explains: []", "explains: [pool-full]", "goes in a circle: pool-full -> pool-full"),
    ("{waiting:.0f} requests", "{wating:.0f} requests", "no signal is named `wating`"),
    ("{waiting:.0f} requests", "{value} requests", "no signal is named `value`"),
    ("{waiting:.0f} requests", "{failure:.0f} requests", "`failure` is a text"),
    ("context to {value}", "context to {value:.0f}", "the value has its format already"),
    ("context to {value}", "context to {valeu}", "no signal is named `valeu`"),
    ("flag: --max-model-len\n", "flag: max-model-len\n", "`max-model-len` is not a flag"),
    ('suggest: "2 * request_tokens_p99"', 'suggest: "2 > request_tokens_p99"', "a number is expected here"),
    ('suggest: "2 * request_tokens_p99"', 'suggest: "2 * x"', "no signal is named `x`"),
    ("    direction: lower", "    direction: down", "`direction` is one of raise, lower, set"),
    ("    direction: lower", '    suggest_format: "{value!r}"', "is not a name with a format"),
    ("    direction: lower", '    suggest_format: "4096"', "a format has one field"),
    ("    direction: lower", "    value: x", "`suggest` or `value`, not both"),
    ("value: fp8", 'value: fp8, suggest_format: "{value:.0f}"', "`suggest_format` without `suggest`"),
    (", why: w", "", "`why` is missing"),
    ("first_version: 0.8.0", "first_version: 0.8", "`0.8` is not a text for every reader"),
    ("first_version: 0.8.0", "first_version: v0.8.0", "`v0.8.0` is not a version"),
    ("remedies:\n", "remedies:\n  - take it out\n", "a remedy is a mapping"),
    ("unhelpful:", "unhelpfull:", "the key `unhelpfull` is not known here"),
    ("tests:\n", "tests:\n  - one\n", "a test is a mapping"),
    ("name: no queue", "name: full", "two tests have the name `full`"),
    ("expect: silent", "expect: quiet", "`expect` is one of fires, silent, unknown"),
    ("signals: {waiting: 3}", "signals: {wait: 3}", "no signal is named `wait`"),
    ("signals: {waiting: 3}", "signals: {waiting: on}", "`on` is not a decimal number"),
    ("signals: {waiting: 3}", "signals: [waiting]", "`signals` is a mapping"),
]


@pytest.mark.parametrize(("before", "after", "message"), CHANGES)
def test_what_a_field_may_not_say_is_refused_at_its_place(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert RULE.count(before) == 1
    text = RULE.replace(before, after)
    found = faults(tmp_path, text)
    fault = next(fault for fault in found if message in fault.text)
    assert fault.line > 0
    assert fault.column > 0
    assert "^" in fault.snippet


def test_a_fault_is_told_with_line_column_caret_and_the_nearest_name(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, RULE.replace('"kv_usage_ratio > least', '"kv_usge_ratio > least'))
    path = tmp_path / "pool-full.yaml"
    assert str(fault) == (
        f"{path}:10:24: no signal is named `kv_usge_ratio` (did you mean `kv_usage_ratio`?)\n"
        '  10 | when: ["waiting > 0", "kv_usge_ratio > least_ratio"]\n'
        "     |                        ^^^^^^^^^^^^^"
    )


def test_a_fault_in_a_folded_clause_shows_the_clause(tmp_path: Path) -> None:
    clause = "when:\n  - waiting > 0\n  - >\n    kv_usage_ratio >\n    leat_ratio\n"
    text = RULE.replace('when: ["waiting > 0", "kv_usage_ratio > least_ratio"]\n', clause)
    fault = faults(tmp_path, text)[0]
    assert (fault.line, fault.column) == (12, 5)
    assert fault.snippet == "   | kv_usage_ratio > leat_ratio\n   |                  ^^^^^^^^^^"


def test_a_long_line_is_shown_around_the_place(tmp_path: Path) -> None:
    clause = " and ".join(["waiting > 0"] * 20) + " and wating > 0"
    fault = faults(tmp_path, RULE.replace('"waiting > 0"', f'"{clause}"'))[0]
    line, carets = fault.snippet.splitlines()
    assert line[carets.index("^") :].startswith("wating")
    assert len(line) < 120


def test_every_fault_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    files = {
        "a": small("a").replace("info", "bad"),
        "b": small("b").replace("waiting > 0", "wait > 0") + "x: y\n",
    }
    with pytest.raises(RuleError) as caught:
        load([write(tmp_path, files)], SIGNALS, {"a": RuleOverride()})
    assert [(Path(fault.path).name, fault.line) for fault in caught.value.faults] == [
        ("a.yaml", 3),
        ("b.yaml", 4),
        ("b.yaml", 11),
    ]


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    for text in (RULE.replace("scope: engine", 'scope: "\\e[31mred"'), RULE + '"\\e]0;x": 1\n'):
        assert all("\x1b" not in str(fault) for fault in faults(tmp_path, text))


def test_no_rules_is_what_one_gets_who_names_no_directory() -> None:
    assert load([], SIGNALS).rules == ()


def test_the_digest_is_that_of_the_contents(tmp_path: Path) -> None:
    directory, copy = write(tmp_path / "one", {"a": small("a")}), write(tmp_path / "two", {"a": small("a")})
    before = load([directory], SIGNALS).digest
    assert before == rules.digest([directory]) == rules.digest([copy])
    (directory / "notes.txt").write_text("not a rule")
    assert rules.digest([directory]) == before
    (directory / "a.yaml").write_text(small("a") + "# a comment\n")
    assert rules.digest([directory]) != before


@pytest.mark.slow
def test_sixty_rules_load_in_less_than_a_second(tmp_path: Path) -> None:
    names = [f"rule-{number}" for number in range(60)]
    directory = write(tmp_path, {name: RULE.replace("id: pool-full", f"id: {name}") for name in names})
    loads = timeit.Timer(lambda: load([directory], SIGNALS), timer=time.process_time)
    assert min(loads.repeat(number=1, repeat=3)) < 1.0


def test_fifty_rules_of_five_clauses_are_judged_in_a_moment(tmp_path: Path) -> None:
    clauses = '"waiting > 0", "kv_usage_ratio > least_ratio", "pool_tokens / waiting > 2", "pool_tokens > 5"'
    text = RULE.replace('"waiting > 0", "kv_usage_ratio > least_ratio"', f'{clauses}, "preemptions > 5"')
    directory = write(tmp_path, {"pool-full": text})
    rule = load([directory], SIGNALS, allow_untested=True).rules[0]
    lookup = {"waiting": 3.0, "kv_usage_ratio": 0.98, "pool_tokens": 7.0, "preemptions": 0.0}.get
    assert (
        min(timeit.repeat(lambda: [evaluate(rule, lookup) for _ in range(50)], number=1, repeat=50)) < 0.003
    )


def test_the_size_limit_is_the_one_promised() -> None:
    assert KIND.max_bytes == 256 * 1024


def test_the_shipped_rules_are_beside_the_package() -> None:
    assert shipped_rules_directory().name == "rules"
    assert shipped_rules_directory().is_dir()
