"""What is unknown has no place in a sentence: a rule that holds without a figure says all but that figure."""

from collections.abc import Iterator, Mapping

import pytest

from tests.places import ROOT
from watchdog.language.template import TEXTS, VALUE, render_text
from watchdog.model import Truth
from watchdog.rule.rule import Expectation, Rule, evaluate, is_offered, remedy_value
from watchdog.rule.rule_set import load
from watchdog.signals.catalogue import signal_names

SHIPPED = load([ROOT / "rules"], signal_names())
QUOTED = dict.fromkeys(TEXTS, "quoted")


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


def texts(rule: Rule, signals: dict[str, float | None]) -> Iterator[str]:
    """What the rule says with these signals, but for texts that have the word of their own."""
    lookup = signals.get
    if "unknown" not in rule.cause:
        yield render_text(rule.cause, lookup, texts=QUOTED)
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
