"""From findings to incidents: `for`, `keep_firing_for`, unknown, and what is known of each when it changes.

Time is always an argument. `at` is monotonic and only ever subtracted; `wall` is for people.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watchdog.diagnosis.relations import explains, is_explained_by, lead_of, related, with_relations
from watchdog.history.span import NOW_SECONDS, RECENT_SECONDS
from watchdog.model import (
    SEVERITY_RANK,
    Finding,
    Incident,
    Key,
    Severity,
    Standing,
    State,
    Transition,
    Truth,
)
from watchdog.remedy.order import reconcile
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet

# What ended within the hour is what a person who comes late wants to know.
RESOLVED_RETENTION_SECONDS = 3600.0
# Histograms speak of a cause for one window after it is gone; its symptoms then are aftermath, not news. So long a
# cause that has cleared stays for them, and so long after its end none begins to fire.
AFTERMATH_SECONDS = 60.0
# A backlog takes about as long to drain as it took to grow: for so long what has cleared explains what it left behind.
# Not for longer than this: what still hurts by then is news, and may have begun beside it.
LONGEST_WAKE_SECONDS = 300.0
# What is pending and would explain something fires within this, or it is no reason to wait: a symptom that holds for
# half a minute is then named within 45 s, also where it is all there is.
LONGEST_WAIT_FOR_CAUSE_SECONDS = 10.0
# Longer than this between two looks nothing was watched (suspended, stopped): the time does not count.
GAP_SECONDS = 60.0
# An engine that no page showed for so long is gone, and so are its incidents.
GONE_SECONDS = 600.0
MOST_INCIDENTS = 10_000
_STATE_ORDER = {State.FIRING: 0, State.PENDING: 1, State.RESOLVED: 2}


@dataclass(slots=True)
class _Entry:
    """An incident with its clocks (seconds), as its rule found it and as it was last handed on.

    `symptoms` and `causes` are all that it explained and that explained it since it fires: a symptom that
    ends sooner than its cause still belongs to the story of the cause. `quiet_seconds` is for how long its rule has
    said no, `fired_at` when it began to fire (before all time where that was in a life before this one). An end
    without a wake is one that symptoms have outlived for long enough to be news of their own. `begun_at` is when it
    was first seen, `over_at` since when its rule has not said yes of the newest part of its window (None while it
    does). It fades while the window as a whole still says yes; one that `has_returned` from that is believed to be
    over only once the whole window says so.
    """

    incident: Incident
    shown: Incident
    last_at: float
    last_truth: Truth
    quiet_seconds: float = 0.0
    has_wake: bool = True
    seen_at: float = 0.0
    begun_at: float = float("-inf")
    over_at: float | None = None
    is_fading: bool = False
    has_returned: bool = False
    milder_seconds: float = 0.0
    fired_at: float = float("-inf")
    symptoms: set[str] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)

    @property
    def is_due(self) -> bool:
        """Whether it has cleared for as long as it keeps firing."""
        return self.incident.is_cleared and self.incident.closes_at is None

    @property
    def wake_seconds(self) -> float:
        """For how long after it has cleared it explains what it left behind: as long as it lasted, within bounds."""
        cleared_at = self.incident.cleared_at
        lasted = 0.0 if cleared_at is None else cleared_at - self.incident.since
        return min(max(lasted, AFTERMATH_SECONDS), LONGEST_WAKE_SECONDS)

    def show(self, incident: Incident) -> None:
        """Notes how it is handed on after a step."""
        self.shown = incident
        if incident.state is State.FIRING:
            self.symptoms.update(incident.symptoms)
            self.causes.update(incident.explained_by)

    def ended(self, wall: float) -> Transition:
        """Its end, with the tree it had while it fired and the remedies it was last handed on with."""
        fired = self.incident.state is State.FIRING
        return Transition.end_of(
            replace(
                self.incident,
                symptoms=tuple(sorted(self.symptoms)) if fired else (),
                explained_by=tuple(sorted(self.causes)) if fired else self.shown.explained_by,
                remedies=self.shown.remedies,
            ),
            wall,
        )


class IncidentBook:
    """All incidents of one target. One writer: each step gives how all of them stand, and what it changed."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._entries: dict[Key, _Entry] = {}
        # Those that are resolved and since when (monotonic), the oldest first.
        self._ended: dict[Key, float] = {}
        # Ends that came with other rules, to be handed on with the next step.
        self._dropped: list[Transition] = []
        self._looked_at: float | None = None

    def update(
        self, findings: Iterable[Finding], at: float, wall: float, *, readable: bool = True
    ) -> Standing:
        """Takes one step's findings; a key without a finding counts as unknown.

        `readable` is whether the target was: engines behind one that cannot be read are not gone.
        """
        if not readable:
            for entry in self._entries.values():
                entry.seen_at = at
        changes = [*self._dropped, *self._take_all(findings, at, wall)]
        self._dropped.clear()
        self._looked_at = at
        self._forget(at)
        return self._standing(changes, at)

    def restore(
        self, stored: Iterable[Incident], at: float, ended: Iterable[Incident] = (), wall: float = 0.0
    ) -> None:
        """Takes up what a process before this one left; the time in between counts for nothing.

        `ended` are those that were over by then: within the hour they are still shown, and `wall` (now, in unix
        seconds) says for how long they have been.
        """
        self._restore_ended(ended, at, wall)
        for one in stored:
            rule = self._rules.find(one.key.rule)
            if rule is None:
                continue
            self._ended.pop(one.key, None)
            # What fires has waited long enough, whatever was counted: a reload must not ask it to wait again.
            least = rule.for_seconds if one.state is State.FIRING else 0.0
            held = max(one.held_seconds, least)
            incident = replace(one, unknown=True, cleared_at=None, closes_at=None, held_seconds=held)
            entry = _Entry(incident, incident, at, Truth.UNKNOWN, seen_at=at)
            entry.show(incident)
            self._entries[incident.key] = entry

    def _restore_ended(self, ended: Iterable[Incident], at: float, wall: float) -> None:
        for seconds, one in sorted(
            # A clock that was set back since then makes an end neither younger than now nor older than another.
            ((max(0.0, wall - one.resolved_at), one) for one in ended if one.resolved_at is not None),
            key=lambda pair: -pair[0],
        ):
            if seconds <= RESOLVED_RETENTION_SECONDS and self._rules.find(one.key.rule) is not None:
                self._entries[one.key] = _Entry(one, one, at - seconds, Truth.NO, seen_at=at - seconds)
                self._ended[one.key] = at - seconds

    def replace_rules(self, rules: RuleSet, wall: float) -> None:
        """Goes over to another rule set: identity is kept by rule id; incidents of rules that are gone resolve."""
        self._rules = rules
        for key, entry in list(self._entries.items()):
            rule = rules.find(key.rule)
            incident = entry.incident
            if rule is None:
                self._remove(key)
                if incident.state is State.FIRING:
                    self._dropped.append(entry.ended(wall))
            elif incident.state is State.FIRING and incident.held_seconds < rule.for_seconds:
                entry.incident = replace(incident, state=State.PENDING, firing_since=None)

    # How all of them stand.

    def _standing(self, changes: Sequence[Transition], at: float) -> Standing:
        """All incidents with their relations and remedies that do not contradict each other, the lead first."""
        if not self._entries:
            return Standing(transitions=tuple(changes))
        live = [entry.incident for key, entry in self._entries.items() if key not in self._ended]
        found = [one for one in live if one.state is State.FIRING]
        firing = [self._after_its_cause(one, at) for one in related(found, self._rules, self._is_too_late)]
        pending = [self._before_it_fires(one, firing) for one in live if one.state is State.PENDING]
        lead = lead_of(firing, {one.key for one in live if self._entries[one.key].over_at is not None})
        resolved = [self._entries[key].incident for key in self._ended]
        incidents = reconcile(sorted([*firing, *pending, *resolved], key=lambda one: _order(one, lead)))
        shown = {one.key: one for one in incidents}
        for key, incident in shown.items():
            self._entries[key].show(incident)
        return Standing(
            incidents,
            lead,
            tuple(_completed(change, shown) for change in changes),
            awaits_cause=lead is not None and self._awaits_cause(lead, pending, at),
        )

    def _awaits_cause(self, lead: Key, pending: Sequence[Incident], at: float) -> bool:
        """Whether the lead has just begun to fire, and what is about to fire would explain it."""
        entry = self._entries[lead]
        if at - entry.fired_at >= LONGEST_WAIT_FOR_CAUSE_SECONDS - 1e-6:
            return False
        return any(
            one.severity is not Severity.INFO
            and not one.unknown
            and is_explained_by(self._rules, entry.incident, one)
            for one in pending
        )

    def _before_it_fires(self, incident: Incident, firing: Sequence[Incident]) -> Incident:
        """A pending one with what fires and explains it already: it will be a symptom, not news."""
        causes = {
            one.key.rule
            for one in firing
            if is_explained_by(self._rules, incident, one) and not self._is_too_late(incident, one)
        }
        return with_relations(incident, (), causes)

    def _is_too_late(self, effect: Incident, cause: Incident) -> bool:
        """Whether one began when the other had been over for longer than a window remembers."""
        over_at = self._entries[cause.key].over_at
        return over_at is not None and self._entries[effect.key].begun_at > over_at + NOW_SECONDS

    def _after_its_cause(self, incident: Incident, at: float) -> Incident:
        """A symptom that outlives its cause by what its window remembers is still explained by it."""
        if incident.explained_by:
            return incident
        causes = {cause.rule for cause in self._just_ended_causes(incident.key, incident.severity, at)}
        return replace(incident, explained_by=tuple(sorted(causes))) if causes else incident

    # What a finding makes of one.

    def _take_all(self, findings: Iterable[Finding], at: float, wall: float) -> Iterator[Transition]:
        met: set[Key] = set()
        ripe: dict[Key, tuple[Finding, Transition | None]] = {}
        known = {key.rule for key in self._entries}
        for finding in findings:
            # Most rules say no, of what was never an incident.
            if finding.truth is not Truth.YES and finding.rule not in known:
                continue
            key = Key(finding.rule, *finding.subject)
            if finding.truth is not Truth.YES and key not in self._entries:
                continue
            met.add(key)
            change = self._take(key, finding, at, wall)
            if self._is_ripe(key, finding, at):
                ripe[key] = finding, change
            elif change is not None:
                yield change
        for key in [key for key in self._entries if key not in met]:
            if (change := self._take_nothing(key, at, wall)) is not None:
                yield change
        # Once all have spoken: whether a symptom fires hangs on its causes, whether a cause may end on its symptoms.
        yield from self._fire_ripe(ripe, at, wall)
        for key in [key for key, entry in self._entries.items() if key not in self._ended and entry.is_due]:
            yield from self._end_with_symptoms(key, at, wall)

    def _take(self, key: Key, finding: Finding, at: float, wall: float) -> Transition | None:
        entry = self._entries.get(key)
        live = key not in self._ended
        if finding.truth is Truth.YES:
            return self._yes(key, finding, entry if live else None, at, wall)
        if entry is None or not live:
            return None
        entry.seen_at = at
        if finding.lasts and entry.incident.state is State.FIRING:
            self._last(entry, finding, at, wall)
        elif finding.truth is Truth.NO:
            return self._no(entry, at, wall)
        else:
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
        held = _counted(at - entry.last_at) if entry.last_truth is Truth.YES else 0.0
        entry.last_at, entry.last_truth, entry.seen_at = at, Truth.YES, at
        entry.quiet_seconds = 0.0
        if finding.fades and self._fade(entry, rule, at, wall):
            return None
        # Not yet over as a whole, and back: its newest part has been believed too soon.
        entry.has_returned = entry.has_returned or entry.is_fading
        entry.over_at, entry.is_fading = None, False
        entry.incident = _found_again(entry.incident, finding, held, wall)
        if entry.incident.state is State.FIRING:
            return _graver(entry, finding, wall) or _milder(entry, finding, held, rule, wall)
        return None

    @staticmethod
    def _fade(entry: _Entry, rule: Rule, at: float, wall: float) -> bool:
        """Whether it clears though its window still says yes: it closes once that has forgotten, and as ever then."""
        incident = entry.incident
        if incident.state is not State.FIRING or entry.has_returned:
            return False
        entry.over_at = at if entry.over_at is None else entry.over_at
        entry.is_fading = True
        remembered = max(0.0, NOW_SECONDS - RECENT_SECONDS - (at - entry.over_at))
        entry.incident = replace(
            incident,
            unknown=False,
            cleared_at=wall if incident.cleared_at is None else incident.cleared_at,
            closes_at=wall + remembered + rule.keep_firing_seconds,
        )
        return True

    def _start(self, key: Key, rule: Rule, finding: Finding, at: float, wall: float) -> Transition:
        # What holds for the first time began, for all that is known, half-way since the look before. At a scrape
        # each 5 s that decides nothing; at one each 15 s a hold of 5 s costs no whole scrape.
        before = at if self._looked_at is None else self._looked_at
        begun = _begin(key, rule, finding, wall, _counted(at - before) / 2)
        self._entries[key] = _Entry(begun, begun, at, Truth.YES, seen_at=at, begun_at=at)
        return Transition(begun, None, wall)

    def _is_ripe(self, key: Key, finding: Finding, at: float) -> bool:
        """Whether it has been pending for as long as its rule wants, is not over and not in the wake of what is."""
        entry, rule = self._entries.get(key), self._rules.find(key.rule)
        if finding.truth is not Truth.YES or finding.fades or entry is None or rule is None:
            return False
        if entry.incident.state is not State.PENDING or self._remaining_seconds(entry.incident) > 1e-6:
            return False
        return not self._is_aftermath(key, finding.severity, at)

    def _fire_ripe(
        self, ripe: Mapping[Key, tuple[Finding, Transition | None]], at: float, wall: float
    ) -> Iterator[Transition]:
        """What has waited long enough fires, unless what would explain it is about to.

        Beside each is how it changed in this step until here: one that fires at once has never been pending.
        """
        waiting = {key for key, (finding, _) in ripe.items() if self._waits_for_cause(key, finding.severity)}
        for key, (finding, change) in ripe.items():
            if key not in waiting:
                yield self._fire(self._entries[key], finding, at, wall)
            elif change is not None:
                yield change

    def _waits_for_cause(self, key: Key, severity: Severity) -> bool:
        """Whether something that holds and would explain it fires before it has waited for too long."""
        incident = self._entries[key].incident
        patience = self._remaining_seconds(incident) + LONGEST_WAIT_FOR_CAUSE_SECONDS
        return severity is not Severity.INFO and any(
            1e-6 < self._remaining_seconds(cause.incident) <= patience + 1e-6
            and cause.last_truth is Truth.YES
            and is_explained_by(self._rules, incident, cause.incident)
            for cause in self._entries.values()
            if cause.incident.state is State.PENDING
        )

    def _remaining_seconds(self, pending: Incident) -> float:
        """For how much longer a pending one must hold before it may fire; below 0 where it could have fired."""
        rule = self._rules.find(pending.key.rule)
        return (rule.for_seconds if rule is not None else 0.0) - pending.held_seconds

    @staticmethod
    def _fire(entry: _Entry, finding: Finding, at: float, wall: float) -> Transition:
        before = entry.incident.state
        entry.fired_at, entry.has_returned = at, False
        entry.symptoms.clear()
        entry.causes.clear()
        entry.incident = replace(
            entry.incident, state=State.FIRING, firing_since=wall, severity=finding.severity
        )
        return Transition(entry.incident, before, wall)

    def _last(self, entry: _Entry, finding: Finding, at: float, wall: float) -> None:
        """What it left behind still hurts: it holds, and once that is gone too it has been quiet for long enough."""
        rule = self._rules.find(entry.incident.key.rule)
        quiet = entry.quiet_seconds + _counted(at - entry.last_at)
        entry.quiet_seconds = min(quiet, rule.keep_firing_seconds if rule is not None else 0.0)
        entry.last_at, entry.last_truth = at, Truth.YES
        if finding.fades and rule is not None and self._fade(entry, rule, at, wall):
            return
        entry.over_at, entry.is_fading = None, False
        entry.incident = _found_again(entry.incident, finding, 0.0, wall)

    def _no(self, entry: _Entry, at: float, wall: float) -> Transition | None:
        incident = entry.incident
        if incident.state is State.PENDING:
            del self._entries[incident.key]
            return entry.ended(wall)
        if entry.last_truth is Truth.NO:
            entry.quiet_seconds += _counted(at - entry.last_at)
        entry.last_at, entry.last_truth = at, Truth.NO
        entry.over_at, entry.is_fading = at if entry.over_at is None else entry.over_at, False
        rule = self._rules.find(incident.key.rule)
        remaining = rule.keep_firing_seconds - entry.quiet_seconds if rule is not None else 0.0
        entry.incident = replace(
            incident,
            unknown=False,
            cleared_at=wall if incident.cleared_at is None else incident.cleared_at,
            closes_at=wall + remaining if remaining > 1e-6 else None,
        )
        return None

    def _end_with_symptoms(self, key: Key, at: float, wall: float) -> Iterator[Transition]:
        """The end of what has cleared, unless it still explains what holds; with it ends what does not hold itself."""
        if key in self._ended:
            return
        entry = self._entries[key]
        holds = any(self._is_left_behind(other, key) for other in self._entries)
        if holds and entry.quiet_seconds < entry.wake_seconds - 1e-6:
            return
        entry.has_wake = not holds
        yield from self._end_of_story(entry, at, wall)

    def _end_of_story(self, entry: _Entry, at: float, wall: float) -> Iterator[Transition]:
        """The end of a cause, of its symptoms that do not hold, and of what these alone explain."""
        symptoms = self._symptoms_of(entry.incident.key)
        yield self._resolve(entry, at, wall)
        for symptom in symptoms:
            is_own = symptom.incident.pending_since < entry.incident.pending_since
            lasts = symptom.last_truth is Truth.YES or (symptom.last_truth is Truth.UNKNOWN and is_own)
            if not lasts and symptom.incident.key not in self._ended:
                yield from self._end_of_story(symptom, at, wall)

    def _is_left_behind(self, key: Key, cause: Key) -> bool:
        """Whether something holds that this cause explains, and no other that fires does."""
        entry = self._entries[key]
        is_felt = entry.incident.severity is not Severity.INFO or entry.incident.state is State.FIRING
        return is_felt and entry.last_truth is Truth.YES and self._is_symptom_of(key, cause)

    def _symptoms_of(self, cause: Key) -> list[_Entry]:
        """What fires because of this cause, and of no other that fires."""
        return [
            entry
            for key, entry in self._entries.items()
            if entry.incident.state is State.FIRING and self._is_symptom_of(key, cause)
        ]

    def _is_symptom_of(self, key: Key, cause: Key) -> bool:
        """Whether something holds or fires that this cause explains, and no other that fires does."""
        if key in self._ended or not self._is_because_of(key, cause):
            return False
        return not any(
            self._entries[other].incident.state is State.FIRING and self._is_because_of(key, other)
            for other in self._entries
            if other not in (cause, key) and other not in self._ended
        )

    def _is_because_of(self, key: Key, cause: Key) -> bool:
        effect, reason = self._entries[key].incident, self._entries[cause].incident
        weighs = effect.severity is Severity.INFO or reason.severity is not Severity.INFO
        return weighs and explains(self._rules, cause, key) and not self._is_too_late(effect, reason)

    def _resolve(self, entry: _Entry, at: float, wall: float) -> Transition:
        change = entry.ended(wall)
        entry.incident = change.incident
        self._ended[entry.incident.key] = at
        return change

    @staticmethod
    def _unknown(entry: _Entry, at: float) -> None:
        entry.last_at, entry.last_truth = at, Truth.UNKNOWN
        entry.incident = replace(entry.incident, unknown=True, cleared_at=None, closes_at=None)

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

    # What is kept.

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
        """Whether it is what something has left behind that has ended, or has cleared and still fires."""
        return any(True for _ in self._just_ended_causes(key, severity, at)) or any(
            cause.incident.is_cleared and other not in self._ended and self._is_because_of(key, other)
            for other, cause in self._entries.items()
        )

    def _just_ended_causes(self, key: Key, severity: Severity, at: float) -> Iterator[Key]:
        for cause, ended_at in reversed(self._ended.items()):
            if at - ended_at > AFTERMATH_SECONDS:
                return
            ended = self._entries[cause]
            weighs = severity is Severity.INFO or ended.incident.severity is not Severity.INFO
            if weighs and ended.has_wake and explains(self._rules, cause, key):
                yield cause


def _counted(seconds: float) -> float:
    return seconds if 0 <= seconds <= GAP_SECONDS else 0.0


def _order(incident: Incident, lead: Key | None) -> tuple[object, ...]:
    """The lead, then what fires, what is about to and what is over; the worse, then the older before."""
    return (
        incident.key != lead,
        _STATE_ORDER[incident.state],
        SEVERITY_RANK[incident.severity],
        incident.pending_since,
        incident.key,
    )


def _completed(change: Transition, shown: dict[Key, Incident]) -> Transition:
    """A change with all that its step knows of the incident; one that ended knows it already."""
    incident = shown.get(change.incident.key)
    if incident is None or incident.state is not change.incident.state:
        return change
    return replace(change, incident=incident)


def _begin(key: Key, rule: Rule, finding: Finding, wall: float, held_seconds: float) -> Incident:
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
        held_seconds=held_seconds,
        began_at=_began_at(None, finding, wall),
    )


def _began_at(known: float | None, finding: Finding, wall: float) -> float | None:
    """When the trouble began; what is known of it once is kept, since the later look sees less of the past."""
    if known is not None or finding.began_seconds is None or finding.began_seconds < 0:
        return known
    return wall - finding.began_seconds


def _found_again(incident: Incident, finding: Finding, held_seconds: float, wall: float) -> Incident:
    return replace(
        incident,
        cause=finding.cause,
        evidence=finding.evidence,
        remedies=finding.remedies,
        unhelpful=finding.unhelpful,
        unknown=False,
        cleared_at=None,
        closes_at=None,
        held_seconds=incident.held_seconds + held_seconds,
        began_at=_began_at(incident.began_at, finding, wall),
    )


def _graver(entry: _Entry, finding: Finding, wall: float) -> Transition | None:
    """The incident with the severity of a finding that is worse."""
    entry.milder_seconds = entry.milder_seconds if _is_milder(entry, finding) else 0.0
    if SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[entry.incident.severity]:
        return None
    return _of_severity(entry, finding, wall)


def _milder(entry: _Entry, finding: Finding, held: float, rule: Rule, wall: float) -> Transition | None:
    """The incident with a milder severity, once nothing worse held for as long as it keeps firing.

    Not at once: one that falls and rises again would page twice.
    """
    if not _is_milder(entry, finding):
        return None
    entry.milder_seconds += held
    if entry.milder_seconds < rule.keep_firing_seconds - 1e-6:
        return None
    return _of_severity(entry, finding, wall)


def _is_milder(entry: _Entry, finding: Finding) -> bool:
    return SEVERITY_RANK[finding.severity] > SEVERITY_RANK[entry.incident.severity]


def _of_severity(entry: _Entry, finding: Finding, wall: float) -> Transition:
    entry.milder_seconds = 0.0
    entry.incident = replace(entry.incident, severity=finding.severity)
    return Transition(entry.incident, State.FIRING, wall)
