"""Runs the tests a rule carries: signal values in, what the rule must say out."""

from collections.abc import Iterator
from dataclasses import dataclass

from watchdog.language.expression import Expression, render
from watchdog.language.template import render_text
from watchdog.model import Lookup, Truth
from watchdog.rule.rule import (
    EXPECTED_TRUTH,
    Judgement,
    RemedyRule,
    Rule,
    RuleTest,
    evaluate,
    is_offered,
    remedy_value,
)


@dataclass(frozen=True, slots=True)
class RuleTestResult:
    """What became of one test; `problems` is empty where it passed."""

    rule: str
    test: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the rule said what the test expects."""
        return not self.problems


def test_rule(rule: Rule) -> list[RuleTestResult]:
    """Runs all tests of a rule that give signal values; signals a test does not give are unknown."""
    return [
        RuleTestResult(rule.id, test.name, tuple(_problems(rule, test)))
        for test in rule.tests
        if test.recording is None
    ]


test_rule.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test of its own where imported


def _problems(rule: Rule, test: RuleTest) -> Iterator[str]:
    lookup = test.signals.get
    judgement = evaluate(rule, lookup)
    if judgement.truth is not EXPECTED_TRUTH[test.expect]:
        yield _why_not(rule, test, judgement, lookup)
        return
    if test.severity and judgement.severity is not test.severity:
        yield f"expected severity {test.severity}, it is {judgement.severity}"
    cause = render_text(rule.cause, lookup)
    if test.cause_contains and test.cause_contains not in cause:
        yield f"the cause does not contain {test.cause_contains!r}: {cause}"
    offered = [remedy for remedy in rule.remedies if is_offered(remedy, lookup)]
    for flag, value in test.remedy.items():
        yield from _remedy_problems(flag, value, offered, lookup)
    for flag in test.not_offered:
        if any(remedy.flag == flag for remedy in offered):
            yield f"{flag} is offered"


def _remedy_problems(flag: str, value: str, offered: list[RemedyRule], lookup: Lookup) -> Iterator[str]:
    values = [remedy_value(remedy, lookup) for remedy in offered if remedy.flag == flag]
    if not values:
        yield f"{flag} is not offered"
    elif value not in [found or "" for found in values]:
        yield f"expected {flag} {value}, it is {' or '.join(found or 'unknown' for found in values)}"


def _why_not(rule: Rule, test: RuleTest, judgement: Judgement, lookup: Lookup) -> str:
    said = {Truth.YES: "it fires", Truth.NO: "it is silent", Truth.UNKNOWN: "it is unknown"}[judgement.truth]
    clauses = [("when", clause, Truth.YES) for clause in rule.when]
    clauses += [("unless", clause, Truth.NO) for clause in rule.unless]
    if judgement.truth is Truth.YES:
        told = [_told(place, clause, lookup) for place, clause, _ in clauses]
    else:
        told = [
            _told(place, clause, lookup)
            for place, clause, wanted in clauses
            if clause.truth(lookup) is not wanted
        ]
    return f"expected {test.expect}, {said}: {'; '.join(told)}"


def _told(place: str, clause: Expression, lookup: Lookup) -> str:
    return f"{place} {render(clause, lookup).text} is {clause.truth(lookup)}"
