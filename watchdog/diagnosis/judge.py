"""From signals to findings: each rule asked of each subject of its scope."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from watchdog.facts.launch import ServerContext
from watchdog.history.number import finite
from watchdog.history.stretches import Likeness
from watchdog.language.expression import Expression
from watchdog.language.template import Template, render_text
from watchdog.model import BlindRule, Finding, Lookup, Scope, Subject, Truth
from watchdog.remedy.offer import offer
from watchdog.rule.rule import Judgement, Rule, evaluate, lasting_evidence
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import Signals, compared_signal, metrics_of
from watchdog.signals.past import SINCE_START

_SINCE_START = Template.read(
    f"[ The comparison is with the average of the {{{SINCE_START}:,.0f}} requests since the server started.]",
    {SINCE_START},
)


@dataclass(frozen=True, slots=True)
class Case:
    """A subject to judge: its signals, what is known of its server, and texts that causes and remedies may quote.

    `compared` is what incidents of an earlier life were compared with, by rule id; it stands in for the past
    of this life, which began in the middle of them.
    """

    subject: Subject
    signals: Signals
    context: ServerContext
    texts: Mapping[str, str]
    compared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    _alike: dict[tuple[object, ...], Lookup] = field(default_factory=dict, repr=False)
    """The signals under each likeness: rules that name the same share the search."""
    _newest: list["Case | None"] = field(default_factory=list, repr=False)
    """The case by the newest part of the window, once it was asked for."""

    def lookup(self, rule: Rule) -> Lookup:
        """The signals as a rule sees them."""
        if not (rule.like or rule.or_since_start or self.compared):
            return self.signals.__getitem__
        compares = rule.like or rule.or_since_start
        own = self._under(rule.like, rule.or_since_start) if compares else self.signals.__getitem__
        earlier = self.compared.get(rule.id) if self.compared else None
        if earlier is None:
            return own

        def known(name: str) -> float | None:
            # Of its own this life has a past of the incident at most.
            return own(name) if compared_signal(name) is None else earlier.get(name)

        return known

    @property
    def newest(self) -> "Case | None":
        """The same subject as if the whole window had been as its newest part; None where that says too little."""
        if not self._newest:
            signals = self.signals.newest_part()
            self._newest.append(
                None if signals is None else replace(self, signals=signals, _alike={}, _newest=[])
            )
        return self._newest[0]

    def _under(self, likeness: Likeness, or_since_start: bool) -> Lookup:
        key = (or_since_start, *likeness.items())
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self.signals.under(likeness, or_since_start)
        return found


class Judge:
    """Asks the rules in force; `errors` counts the answers that failed inside a rule, by its id, since the start."""

    def __init__(self, rules: RuleSet) -> None:
        self.errors: dict[str, int] = {}
        # By which clause each rule said no of each subject: what did not hold a moment ago seldom holds now.
        self._denied: dict[Subject, dict[str, Expression]] = {}
        self.replace_rules(rules)

    def replace_rules(self, rules: RuleSet) -> None:
        """Goes over to another rule set."""
        self._by_scope = {
            scope: tuple(rule for rule in rules.rules if rule.scope is scope) for scope in Scope
        }
        self._denied.clear()

    def forget(self, subject: Subject) -> None:
        """Drops what is kept of one that is gone."""
        self._denied.pop(subject, None)

    def findings(self, scope: Scope, case: Case) -> list[Finding]:
        """What each rule of a scope says of one subject."""
        findings = list(judge(self._by_scope[scope], case, self._denied.setdefault(case.subject, {})))
        for finding in findings:
            if finding.error:
                self.errors[finding.rule] = self.errors.get(finding.rule, 0) + 1
        return findings


def judge(
    rules: Iterable[Rule], case: Case, denied: dict[str, Expression] | None = None
) -> Iterator[Finding]:
    """What each rule says of one subject; a rule that fails inside is unknown, and the others speak all the same.

    `denied` is by which clause rules said no, by id: it is asked before the others, and kept up to date.
    """
    denied = {} if denied is None else denied
    for rule in rules:
        try:
            yield _ask(rule, case, denied)
        except Exception as error:  # a fault in one rule must not silence the rest
            text = f"{type(error).__name__}: {error}"
            yield Finding(rule.id, case.subject, Truth.UNKNOWN, rule.severity, error=text)


def _ask(rule: Rule, case: Case, denied: dict[str, Expression]) -> Finding:
    lookup = case.lookup(rule)
    judgement = _judgement(rule, lookup, denied)
    evidence = judgement.evidence
    if judgement.truth is Truth.NO:
        evidence = lasting_evidence(rule, lookup)
        if not evidence:
            return Finding(rule.id, case.subject, Truth.NO, judgement.severity)
    if judgement.truth is Truth.UNKNOWN:
        return Finding(rule.id, case.subject, Truth.UNKNOWN, judgement.severity, missing=judgement.missing)
    remedies, unhelpful = offer(rule, lookup, case.context, case.texts)
    return Finding(
        rule=rule.id,
        subject=case.subject,
        truth=judgement.truth,
        severity=judgement.severity,
        cause=_cause(rule, lookup, case.texts),
        evidence=evidence,
        remedies=remedies,
        unhelpful=unhelpful,
        began_seconds=finite(rule.began.number(lookup)) if rule.began else None,
        lasts=judgement.truth is Truth.NO,
        fades=case.newest is not None and _is_over(rule, lookup, case.newest.lookup(rule)),
    )


def _is_over(rule: Rule, lookup: Lookup, newest: Lookup) -> bool:
    """Whether the newest part of the window says no, on values that it knows as well as the whole window does."""
    clause = evaluate(rule, newest).denied_by
    if clause is None or lasting_evidence(rule, newest):
        return False
    return all(newest(name) is not None or lookup(name) is None for name in clause.names)


def _judgement(rule: Rule, lookup: Lookup, denied: dict[str, Expression]) -> Judgement:
    """What the rule says; the clause that said no a moment ago is asked first, and mostly says it again."""
    clause = denied.get(rule.id)
    if clause is not None:
        if clause.truth(lookup) is Truth.NO:
            return Judgement(Truth.NO, rule.severity)
        del denied[rule.id]
    judgement = evaluate(rule, lookup)
    if judgement.denied_by is not None:
        denied[rule.id] = judgement.denied_by
    return judgement


def _cause(rule: Rule, lookup: Lookup, texts: Mapping[str, str]) -> str:
    cause = render_text(rule.cause, lookup, texts=texts) or f"{rule.title}."
    compares = any(compared_signal(name) and lookup(name) is not None for name in rule.cause.names)
    return cause + render_text(_SINCE_START, lookup) if rule.or_since_start and compares else cause


def blind_rules(findings: Iterable[Finding], on_page: Callable[[str], bool]) -> Iterator[BlindRule]:
    """The rules that are unknown because the page lacks a metric, not merely for lack of history or traffic."""
    for finding in findings:
        if finding.truth is not Truth.UNKNOWN:
            continue
        lacking = [metric for metric in _wanted(finding.missing) if not on_page(metric)]
        if lacking:
            yield BlindRule(finding.rule, finding.subject, tuple(lacking))


@lru_cache(maxsize=4096)
def _wanted(names: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics that signals are read from, in order; asked for the same names with every page."""
    return tuple(sorted({metric for name in names for metric in metrics_of(name)}))
