"""From findings to incidents: `for`, `keep_firing_for`, unknown, and which of several causes leads.

Time is always an argument. `at` is monotonic and only ever subtracted; `wall` is for people.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from watchdog.model import (
    SEVERITY_RANK,
    Finding,
    Incident,
    Key,
    Severity,
    State,
    Subject,
    Transition,
    Truth,
)
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet

# Resolved incidents stay visible as long as Prometheus goes on sending a resolved alert.
RESOLVED_RETENTION_SECONDS = 900.0
# Histograms speak of a cause for one window after it is gone; its symptoms then are aftermath, not news.
AFTERMATH_SECONDS = 60.0
# Longer than this between two looks nothing was watched (suspended, stopped): the time does not count.
GAP_SECONDS = 60.0
# An engine that no page showed for so long is gone, and so are its incidents.
GONE_SECONDS = 600.0
MOST_INCIDENTS = 10_000


@dataclass(slots=True)
class _Entry:
    """An incident with its clocks, in seconds: how long it was pending, and how long its rule has said no."""

    incident: Incident
    last_at: float
    last_truth: Truth
    pending_seconds: float = 0.0
    quiet_seconds: float = 0.0
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident that is not over, with the seconds for which its rule has held, for whoever goes on with it."""

    incident: Incident
    pending_seconds: float


class IncidentBook:
    """All incidents of one target. One writer."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._entries: dict[Key, _Entry] = {}
        # Those that are resolved and since when (monotonic), the oldest first.
        self._ended: dict[Key, float] = {}
        self._dropped: list[Transition] = []
        self._at = float("-inf")
        # What fires, with what explains what, and the lead among it; None where it has to be worked out anew.
        self._firing: list[Incident] | None = None
        self._lead: Key | None = None

    def update(self, findings: Iterable[Finding], at: float, wall: float) -> tuple[Transition, ...]:
        """Takes one step's findings; a key without a finding counts as unknown. Returns what changed."""
        self._firing, self._at = None, at
        changes: list[Transition] = list(self._dropped)
        self._dropped.clear()
        met: set[Key] = set()
        for finding in findings:
            key = Key(finding.rule, *finding.subject)
            # Most rules say no, of what was never an incident.
            if finding.truth is not Truth.YES and key not in self._entries:
                continue
            met.add(key)
            change = self._take(key, finding, at, wall)
            if change is not None:
                changes.append(change)
        for key in [key for key in self._entries if key not in met]:
            change = self._take_nothing(key, at, wall)
            if change is not None:
                changes.append(change)
        self._forget(at)
        return tuple(changes)

    def incidents(self) -> tuple[Incident, ...]:
        """Pending, firing and lately resolved ones; they know what explains them; the lead comes first."""
        lead = self.lead()
        firing = self._related()
        by_key = {incident.key: incident for incident in firing}
        everything = [
            by_key.get(key) or self._explained(entry.incident, firing) for key, entry in self._entries.items()
        ]
        order = {State.FIRING: 0, State.PENDING: 1, State.RESOLVED: 2}
        everything.sort(
            key=lambda one: (
                one.key != lead,
                order[one.state],
                SEVERITY_RANK[one.severity],
                one.pending_since,
                one.key,
            )
        )
        return tuple(everything)

    def _explained(self, incident: Incident, firing: Sequence[Incident]) -> Incident:
        """A pending one with what fires and explains it already: it will be a symptom, not news."""
        if incident.state is not State.PENDING:
            return incident
        causes = {one.key.rule for one in firing if _explains(self._rules, one, incident)}
        return replace(incident, explained_by=tuple(sorted(causes)))

    def lead(self) -> Key | None:
        """The key of the one cause to show first; None where nothing of warning or above fires."""
        self._related()
        return self._lead

    def _related(self) -> list[Incident]:
        if self._firing is None:
            entries = self._entries.values()
            firing = [entry.incident for entry in entries if entry.incident.state is State.FIRING]
            self._firing = [self._after_its_cause(one) for one in related(firing, self._rules)]
            self._lead = lead_of(self._firing)
        return self._firing

    def _after_its_cause(self, incident: Incident) -> Incident:
        """A symptom that outlives its cause by what its window remembers is still explained by it."""
        if incident.explained_by:
            return incident
        causes = {cause.rule for cause in self._just_ended_causes(incident.key, incident.severity, self._at)}
        return replace(incident, explained_by=tuple(sorted(causes))) if causes else incident

    def pending_seconds(self) -> dict[Key, float]:
        """How long the rule of each incident held before it fired, or has held by now."""
        return {key: entry.pending_seconds for key, entry in self._entries.items()}

    def active(self) -> frozenset[Subject]:
        """The subjects on which anything of warning or above is pending or firing."""
        live = (entry.incident for key, entry in self._entries.items() if key not in self._ended)
        return frozenset(Subject(*one.key[1:]) for one in live if one.severity is not Severity.INFO)

    def restore(self, stored: Iterable[OpenIncident], at: float) -> None:
        """Takes up what was stored by a process before this one; the time in between counts for nothing."""
        self._firing = None
        for one in stored:
            rule = self._rules.find(one.incident.key.rule)
            if rule is None:
                continue
            incident = replace(one.incident, unknown=True, easing=False)
            # What fires has waited long enough, whatever was counted: a reload must not ask it to wait again.
            least = rule.for_seconds if incident.state is State.FIRING else 0.0
            waited = max(one.pending_seconds, least)
            self._entries[incident.key] = _Entry(
                incident, at, Truth.UNKNOWN, pending_seconds=waited, seen_at=at
            )

    def replace_rules(self, rules: RuleSet, wall: float) -> None:
        """Goes over to another rule set: identity is kept by rule id; incidents of rules that are gone resolve."""
        self._rules, self._firing = rules, None
        for key, entry in list(self._entries.items()):
            rule = rules.find(key.rule)
            if rule is None:
                self._remove(key)
                if entry.incident.state is State.FIRING:
                    self._dropped.append(Transition.end_of(entry.incident, wall))
            elif entry.incident.state is State.FIRING and entry.pending_seconds < rule.for_seconds:
                entry.incident = replace(entry.incident, state=State.PENDING, firing_since=None)

    def _take(self, key: Key, finding: Finding, at: float, wall: float) -> Transition | None:
        entry = self._entries.get(key)
        live = key not in self._ended
        if finding.truth is Truth.YES:
            return self._yes(key, finding, entry if live else None, at, wall)
        if entry is None or not live:
            return None
        entry.seen_at = at
        if finding.truth is Truth.NO:
            return self._no(entry, at, wall)
        self._unknown(entry, at)
        return None

    def _yes(
        self, key: Key, finding: Finding, entry: _Entry | None, at: float, wall: float
    ) -> Transition | None:
        rule = self._rules.find(key.rule)
        if rule is None or (entry is None and not self._has_room(key)):
            return None
        if entry is None:
            self._ended.pop(key, None)
            return self._start(key, rule, finding, at, wall)
        if entry.last_truth is Truth.YES:
            entry.pending_seconds += _counted(at - entry.last_at)
        entry.last_at, entry.last_truth, entry.seen_at = at, Truth.YES, at
        entry.quiet_seconds = 0.0
        entry.incident = _told(entry.incident, finding)
        if entry.incident.state is State.FIRING:
            return _worse(entry, finding, wall)
        waited = entry.pending_seconds >= rule.for_seconds - 1e-6
        return (
            self._fire(entry, finding, wall)
            if waited and not self._is_aftermath(key, finding.severity, at)
            else None
        )

    def _start(self, key: Key, rule: Rule, finding: Finding, at: float, wall: float) -> Transition:
        entry = self._entries[key] = _Entry(_begin(key, rule, finding, wall), at, Truth.YES, seen_at=at)
        if rule.for_seconds > 0 or self._is_aftermath(key, finding.severity, at):
            return Transition(entry.incident, None, wall)
        return self._fire(entry, finding, wall)

    @staticmethod
    def _fire(entry: _Entry, finding: Finding, wall: float) -> Transition:
        before = entry.incident.state
        entry.incident = replace(
            entry.incident, state=State.FIRING, firing_since=wall, severity=finding.severity
        )
        return Transition(entry.incident, before, wall)

    def _no(self, entry: _Entry, at: float, wall: float) -> Transition | None:
        incident = entry.incident
        if incident.state is State.PENDING:
            del self._entries[incident.key]
            return Transition.end_of(incident, wall)
        if entry.last_truth is Truth.NO:
            entry.quiet_seconds += _counted(at - entry.last_at)
        entry.last_at, entry.last_truth = at, Truth.NO
        entry.incident = replace(incident, unknown=False, easing=True)
        rule = self._rules.find(incident.key.rule)
        if rule is None or entry.quiet_seconds >= rule.keep_firing_seconds - 1e-6:
            return self._resolve(entry, at, wall)
        return None

    def _resolve(self, entry: _Entry, at: float, wall: float) -> Transition:
        change = Transition.end_of(entry.incident, wall)
        entry.incident = change.incident
        self._ended[entry.incident.key] = at
        return change

    @staticmethod
    def _unknown(entry: _Entry, at: float) -> None:
        entry.last_at, entry.last_truth = at, Truth.UNKNOWN
        entry.incident = replace(entry.incident, unknown=True, easing=False)

    def _take_nothing(self, key: Key, at: float, wall: float) -> Transition | None:
        if key in self._ended:
            return None
        entry = self._entries[key]
        self._unknown(entry, at)
        if at - entry.seen_at <= GONE_SECONDS:
            return None
        if entry.incident.state is State.PENDING:
            del self._entries[key]
            return None
        return self._resolve(entry, at, wall)

    def still_there(self, at: float) -> None:
        """Tells that the target cannot be read now: engines that are not seen are then not gone."""
        for entry in self._entries.values():
            entry.seen_at = at

    def _has_room(self, key: Key) -> bool:
        """Whether one more can be kept; what is over makes room, what is not never does."""
        if key in self._entries or len(self._entries) < MOST_INCIDENTS:
            return True
        oldest = next(iter(self._ended), None)
        if oldest is not None:
            self._remove(oldest)
        return oldest is not None

    def _remove(self, key: Key) -> None:
        del self._entries[key]
        self._ended.pop(key, None)

    def _forget(self, at: float) -> None:
        for key, ended_at in list(self._ended.items()):
            if at - ended_at <= RESOLVED_RETENTION_SECONDS:
                return
            self._remove(key)

    def _is_aftermath(self, key: Key, severity: Severity, at: float) -> bool:
        return any(True for _ in self._just_ended_causes(key, severity, at))

    def _just_ended_causes(self, key: Key, severity: Severity, at: float) -> Iterator[Key]:
        for cause, ended_at in reversed(self._ended.items()):
            if at - ended_at > AFTERMATH_SECONDS:
                return
            weighs = severity is Severity.INFO or self._entries[cause].incident.severity is not Severity.INFO
            if weighs and explains(self._rules, cause, key):
                yield cause


def _counted(seconds: float) -> float:
    return seconds if 0 <= seconds <= GAP_SECONDS else 0.0


def _begin(key: Key, rule: Rule, finding: Finding, wall: float) -> Incident:
    return Incident(
        key=key,
        title=rule.title,
        severity=finding.severity,
        state=State.PENDING,
        cause=finding.cause,
        evidence=finding.evidence,
        remedies=finding.remedies,
        unhelpful=finding.unhelpful,
        runbook=f"docs/causes.md#{rule.id}",
        pending_since=wall,
    )


def _told(incident: Incident, finding: Finding) -> Incident:
    return replace(
        incident,
        cause=finding.cause,
        evidence=finding.evidence,
        remedies=finding.remedies,
        unhelpful=finding.unhelpful,
        unknown=False,
        easing=False,
    )


def _worse(entry: _Entry, finding: Finding, wall: float) -> Transition | None:
    """While it fires an incident's severity only rises: one that falls and rises again would page twice."""
    if SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[entry.incident.severity]:
        return None
    entry.incident = replace(entry.incident, severity=finding.severity)
    return Transition(entry.incident, State.FIRING, wall)


def explains(rules: RuleSet, cause: Key, effect: Key) -> bool:
    """Whether a rule's firing on one subject explains another's: on the same engine, or where one is target-wide."""
    rule = rules.find(cause.rule)
    if rule is None or effect.rule not in rule.explains or cause.target != effect.target:
        return False
    return _is_wide(cause) or _is_wide(effect) or cause[2:] == effect[2:]


def related(firing: Sequence[Incident], rules: RuleSet) -> list[Incident]:
    """The firing incidents with what each explains and is explained by among them.

    An info incident explains info only: it cannot lead, so it must not take the lead from what people feel.
    """
    by_engine: dict[tuple[str, ...], list[Incident]] = {}
    for incident in firing:
        by_engine.setdefault(incident.key[2:], []).append(incident)
    wide = by_engine.get(("", ""), [])
    result = []
    for incident in firing:
        # Engines explain nothing of each other, so each need not be held against all.
        near = firing if _is_wide(incident.key) else [*wide, *by_engine[incident.key[2:]]]
        symptoms = {other.key.rule for other in near if _explains(rules, incident, other)}
        causes = {other.key.rule for other in near if _explains(rules, other, incident)}
        result.append(replace(incident, symptoms=tuple(sorted(symptoms)), explained_by=tuple(sorted(causes))))
    return result


def _explains(rules: RuleSet, cause: Incident, effect: Incident) -> bool:
    if cause.severity is Severity.INFO and effect.severity is not Severity.INFO:
        return False
    # What cannot be seen now is explained by why it cannot: a target that is down, a page without series.
    unseen = effect.unknown and not cause.unknown and _is_wide(cause.key) and not _is_wide(effect.key)
    return unseen or explains(rules, cause.key, effect.key)


def _is_wide(key: Key) -> bool:
    return not (key.model_name or key.engine)


def lead_of(firing: Sequence[Incident]) -> Key | None:
    """The unexplained cause of the worst severity, then the one that explains most, then the oldest.

    Where all that fires is explained by what has just ended, the same order finds what is left to show.
    """
    grave = [one for one in firing if one.severity is not Severity.INFO]
    candidates = [one for one in grave if not one.explained_by] or grave
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda one: (SEVERITY_RANK[one.severity], -len(one.symptoms), one.firing_since or 0.0, one.key),
    ).key
