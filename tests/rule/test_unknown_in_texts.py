"""What is unknown has no place in a sentence: a rule that holds without a figure says all but that figure."""

import re
from collections.abc import Iterator, Mapping

import pytest

from tests.places import ROOT
from watchdog.language.template import TEXTS, VALUE, Template, render_text
from watchdog.model import Truth
from watchdog.rule.rule import Expectation, Rule, evaluate, is_offered, remedy_value
from watchdog.rule.rule_set import load
from watchdog.signals.catalogue import signal_names

SHIPPED = load([ROOT / "rules"], signal_names())
QUOTED = dict.fromkeys(TEXTS, "quoted")
# A word that wants another after it, a lone word, and one of a thing in the plural.
HANGING = re.compile(
    r"\b(?:and|but|or|so|while|which|with|by|of|from|than|the|a|an)[.;:!?]"
    r"|(?:^|[.!?] )[A-Za-z]+\.(?: |$)|[:,;][.,;:]| [.,;:] |(?<![\w.,:-])1 (?:requests|wait|run|scrapes)\b"
)


def thinned(signals: Mapping[str, float | None], rule: Rule) -> Iterator[dict[str, float | None]]:
    """The signals less each one alone, and less all at once that the rule can do without."""
    bare = dict(signals)
    for name in signals:
        without = {other: value for other, value in signals.items() if other != name}
        yield without
        fewer = {other: value for other, value in bare.items() if other != name}
        if evaluate(rule, fewer.get).truth is Truth.YES:
            bare = fewer
    yield bare


def texts(rule: Rule, signals: dict[str, float | None], quoted: Mapping[str, str] = QUOTED) -> Iterator[str]:
    """What the rule says with these signals, but for texts that have the word of their own."""
    lookup = signals.get
    if "unknown" not in rule.cause:
        yield render_text(rule.cause, lookup, texts=quoted)
    for remedy in rule.remedies:
        if not is_offered(remedy, lookup):
            continue
        value = remedy_value(remedy, lookup)
        each = tuple(text for text in (remedy.action, remedy.why, remedy.price) if text)
        if value is None and any(VALUE in text.fields for text in each):
            continue
        yield from (render_text(text, lookup, value) for text in each if "unknown" not in text)


@pytest.mark.parametrize("rule", SHIPPED.rules, ids=lambda rule: rule.id)
def test_no_sentence_of_a_rule_says_unknown(rule: Rule) -> None:
    told: set[str] = set()
    for test in rule.tests:
        if test.expect is Expectation.FIRES:
            for signals in thinned(test.signals, rule):
                if evaluate(rule, signals.get).truth is Truth.YES:
                    told.update(text for text in texts(rule, signals) if "unknown" in text)
    assert not told


@pytest.mark.parametrize("rule", SHIPPED.rules, ids=lambda rule: rule.id)
def test_no_sentence_of_a_rule_hangs_where_a_value_is_missing(rule: Rule) -> None:
    told: set[str] = set()
    for test in rule.tests:
        if test.expect is Expectation.FIRES:
            for signals in thinned(test.signals, rule):
                if evaluate(rule, signals.get).truth is Truth.YES:
                    told.update(texts(rule, signals, {}))
    assert [text for text in told if HANGING.search(text)] == []


@pytest.mark.parametrize(
    ("one", "said"),
    [
        ("{waiting_last:.0f} requests wait and {running_last:.0f} run.", "1 request waits and 1 runs."),
        ("{waiting_last:.0f} waiting requests are deferred.", "1 waiting request is deferred."),
        ("{running_last:.0f} tokens/s, 21 requests, 1.1 requests", "1 token/s, 21 requests, 1.1 requests"),
        ("At least {running_last:.0f} fetches finish late.", "At least 1 fetch finishes late."),
    ],
)
def test_one_of_a_thing_is_said_in_the_singular(one: str, said: str) -> None:
    template = Template.read(one, {"waiting_last", "running_last"})
    assert render_text(template, lambda _: 1.0) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Four scrapes failed, the last one with: {failure}. It is down.",
            "Four scrapes failed. It is down.",
        ),
        ("Checked: {waiting_last:.0f} wait, {running_last:.0f} run. Nothing else.", "Nothing else."),
        ("It looked and found {waiting_max:.0f}; it kept {waiting_last:.0f}.", "It looked and found 7."),
        ("It took {waiting_last:.0f} tokens (before: {waiting_max:.0f}). They are many.", "They are many."),
    ],
)
def test_what_introduces_an_unknown_value_goes_with_it(text: str, said: str) -> None:
    template = Template.read(text, {"waiting_last", "waiting_max", "running_last"})
    assert render_text(template, {"waiting_max": 7.0}.get) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It stands still.[ Since then {waiting_last:.0f} requests wait.]", "It stands still."),
        ("It is {kv_usage_last_ratio:.0%}[ (before {waiting_last:.0f})] now.", "It is 0% (before 0) now."),
        ("It.[ Of {running_last:.0f} requests {waiting_last:.0f} wait.]", "It. Of 20 requests 0 wait."),
        ("{waiting_last:.0f} requests wait.", "0 requests wait."),
    ],
)
def test_an_optional_sentence_of_zeros_is_left_out(text: str, said: str) -> None:
    values = {"waiting_last": 0.0, "kv_usage_last_ratio": 0.0, "running_last": 20.0}
    assert render_text(Template.read(text, values), values.get) == said
