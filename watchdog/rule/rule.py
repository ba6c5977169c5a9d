"""A rule: one cause, the clauses that show it, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from watchdog.history.number import Bound, finite
from watchdog.history.stretches import Likeness
from watchdog.language.expression import Expression, render
from watchdog.language.template import Template, render_text
from watchdog.model import Evidence, Limit, Lookup, Scope, Severity, Truth


class Direction(StrEnum):
    """Which way a remedy moves its flag."""

    RAISE = "raise"
    LOWER = "lower"
    SET = "set"


class Expectation(StrEnum):
    """What a rule's own test says of the rule."""

    FIRES = "fires"
    SILENT = "silent"
    UNKNOWN = "unknown"
    LEADS = "leads"


EXPECTED_TRUTH = {
    Expectation.FIRES: Truth.YES,
    Expectation.SILENT: Truth.NO,
    Expectation.UNKNOWN: Truth.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named threshold of a rule: its value, the unit of it, and why it is this one."""

    value: float
    unit: str
    why: str


@dataclass(frozen=True, slots=True)
class RemedyRule:
    """A thing to do, before values are put in; `flag` is None for an action without one.

    `price` is None where it costs nothing. `value` is fixed text, `suggest`
    computes the value, and `suggest_format` writes that with `{value}`.
    Versions are the first and the last vLLM version it applies to, None where there is no such end.
    """

    action: Template
    flag: str | None
    suggest: Expression | None
    suggest_format: str
    value: Template | None
    direction: Direction | None
    why: Template
    price: Template | None
    when: Expression | None
    unless: Expression | None
    first_version: str | None
    last_version: str | None
    lasting: bool | None = None
    """Whether it keeps the trouble from coming back; None as is usual: a flag does, an action helps right now."""
    group: int | None = None
    """Of the remedies of one group the first that can be offered is; None for one by itself."""


@dataclass(frozen=True, slots=True)
class RuleTest:
    """What a rule says of given signal values (every signal not given is unknown), or in a phase of a recording.

    `recording` is the name of one and `phase` the number of its phase, from 1; both are None for given values.
    `remedy` are flags that must be offered, each with its value as text; `not_offered` flags that must not.
    """

    name: str
    signals: Mapping[str, float]
    expect: Expectation
    severity: Severity | None = None
    cause_contains: str | None = None
    remedy: Mapping[str, str] = field(default_factory=dict)
    not_offered: tuple[str, ...] = ()
    recording: str | None = None
    phase: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause. All of `when` must hold, none of `unless`; times are seconds.

    `like` is what makes a stretch of the past comparable: the factor within which each signal must have been.
    `or_since_start` is whether averages since the server started stand in while no calm stretch was seen.
    `raise_to` is a worse severity and the clause that calls for it. `explains` are ids of rules that become
    its symptoms while it fires, those that name it in their `explained_by` among them once the set is read.
    `where` are named parts of the clauses. Once it fires it lasts while all of `lasts_while` hold, whatever `when`
    says by then: what it left behind still hurts. `began` is how many seconds ago the trouble began, None where
    nothing shows that better than the first look that saw it. `limit` is what bounds throughput where the rule holds,
    None where it says nothing of that.
    """

    id: str
    title: str
    severity: Severity
    raise_to: tuple[Severity, Expression] | None
    scope: Scope
    for_seconds: float
    keep_firing_seconds: float
    parameters: Mapping[str, Parameter]
    when: tuple[Expression, ...]
    unless: tuple[Expression, ...]
    explains: tuple[str, ...]
    cause: Template
    remedies: tuple[RemedyRule, ...]
    unhelpful: tuple[str, ...]
    false_positives: tuple[str, ...]
    references: tuple[str, ...]
    tests: tuple[RuleTest, ...]
    path: Path
    like: Likeness = field(default_factory=dict)
    or_since_start: bool = False
    limit: Limit | None = None
    explained_by: tuple[str, ...] = ()
    where: Mapping[str, Expression] = field(default_factory=dict)
    began: Expression | None = None
    lasts_while: tuple[Expression, ...] = ()


class Complaint(NamedTuple):
    """What works in a rule but should be written otherwise: keys and positions down to it, what it is, and a hint."""

    path: tuple[str | int, ...]
    text: str
    hint: str = ""


class Judgement(NamedTuple):
    """What a rule says of one subject; `evidence` where it is yes, `missing` where it is unknown.

    `denied_by` is the clause of `when` that does not hold, None where none decides.
    """

    truth: Truth
    severity: Severity
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    denied_by: Expression | None = None


_YES, _NO, _UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
_SILENT = {severity: Judgement(Truth.NO, severity) for severity in Severity}


def evaluate(rule: Rule, lookup: Lookup) -> Judgement:
    """Yes when all of `when` and none of `unless` hold, no when one decides so, else unknown.

    An `unless` that is unknown does not block.
    """
    unknown = []
    for clause in rule.when:
        truth = clause.truth(lookup)
        if truth is _NO:
            return Judgement(_NO, rule.severity, denied_by=clause)
        if truth is _UNKNOWN:
            unknown.append(clause)
    for clause in rule.unless:
        if clause.truth(lookup) is _YES:
            return _SILENT[rule.severity]
    if unknown:
        missing = dict.fromkeys(name for clause in unknown for name in clause.missing(lookup))
        return Judgement(Truth.UNKNOWN, rule.severity, missing=tuple(missing))
    evidence = tuple(render(clause, lookup) for clause in rule.when)
    severity = rule.severity
    if rule.raise_to and rule.raise_to[1].truth(lookup) is Truth.YES:
        severity = rule.raise_to[0]
        graver = render(rule.raise_to[1], lookup)
        # Often it is a part of what is said already.
        if not any(f" {graver.text} " in f" {each.text} " for each in evidence):
            evidence = (*evidence, graver)
    return Judgement(Truth.YES, severity, evidence)


def lasting_evidence(rule: Rule, lookup: Lookup) -> tuple[Evidence, ...]:
    """What shows that a cause which fired is not over though its clauses no longer hold; empty where it is."""
    if any(clause.truth(lookup) is not _YES for clause in rule.lasts_while):
        return ()
    return tuple(render(clause, lookup) for clause in rule.lasts_while)


def is_offered(remedy: RemedyRule, lookup: Lookup) -> bool:
    """Whether a remedy's own conditions let it be offered: `when` is yes, and `unless` is not."""
    if remedy.when and remedy.when.truth(lookup) is not Truth.YES:
        return False
    return not (remedy.unless and remedy.unless.truth(lookup) is Truth.YES)


def remedy_value(remedy: RemedyRule, lookup: Lookup) -> str | None:
    """The value for a remedy's flag as text; None where it has none or it is not known exactly."""
    if remedy.value is not None:
        known = all(is_exact(lookup(name)) for name in remedy.value.names)
        return render_text(remedy.value, lookup) if known else None
    number = remedy.suggest.number(lookup) if remedy.suggest else None
    return remedy.suggest_format.format(value=number) if is_exact(number) else None


def is_exact(number: float | None) -> bool:
    """Whether a number is known, and not only as a bound."""
    return finite(number) is not None and not isinstance(number, Bound)
