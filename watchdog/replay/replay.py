"""A recording run through the pipeline of `serve`: one moment a scrape, and every incident that fired."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import (
    SEVERITY_RANK,
    Evidence,
    Incident,
    Key,
    Remedy,
    Scrape,
    Severity,
    Snapshot,
    State,
    Target,
    Verdict,
)
from watchdog.rule.rule_set import RuleSet


@dataclass(frozen=True, slots=True)
class Moment:
    """What was said at one scrape (`wall`, unix time).

    `alarming` are the firing rules of warning and above whose condition has not cleared.
    """

    wall: float
    verdict: Verdict
    lead: str | None
    firing: tuple[str, ...]
    alarming: tuple[str, ...]


@dataclass(slots=True)
class Episode:
    """One incident from pending to resolved, in unix seconds; evidence and remedies as it fired.

    `severity` is the gravest it had, `lead_from` the first moment it led (None: it never did),
    `explained_by` every rule that explained it while it fired.
    """

    key: Key
    labels: Mapping[str, str]
    severity: Severity
    pending_at: float
    firing_at: float
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    cause: str
    resolved_at: float | None = None
    lead_from: float | None = None
    explained_by: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replay:
    """The whole story of one recording; `last` is None for a recording without a scrape."""

    timeline: tuple[Moment, ...]
    episodes: tuple[Episode, ...]
    last: Snapshot | None


def replay(target: Target, scrapes: Iterable[Scrape], rules: RuleSet) -> Replay:
    """Runs every scrape through one fresh diagnosis, as `serve` would have."""
    diagnosis = TargetDiagnosis(target, rules)
    story = Story()
    snapshot = None
    for scrape in scrapes:
        snapshot = diagnosis.observe(scrape)
        story.add(snapshot)
    return Replay(tuple(story.timeline), tuple(story.episodes), snapshot)


class Story:
    """Snapshots in, moments and episodes out."""

    def __init__(self) -> None:
        self.timeline: list[Moment] = []
        self.episodes: list[Episode] = []
        self._open: dict[Key, Episode] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Takes the snapshot of the next scrape."""
        firing = snapshot.firing
        self.timeline.append(moment(snapshot))
        for transition in snapshot.transitions:
            if transition.incident.state is State.RESOLVED:
                self._close(transition.incident.key, transition.at)
        for incident in firing:
            self._follow(incident, snapshot)

    def _close(self, key: Key, wall: float) -> None:
        episode = self._open.pop(key, None)
        if episode is not None:
            episode.resolved_at = wall

    def _follow(self, incident: Incident, snapshot: Snapshot) -> None:
        episode = self._open.get(incident.key)
        if episode is None:
            episode = self._begin(incident, snapshot.wall)
        if SEVERITY_RANK[incident.severity] < SEVERITY_RANK[episode.severity]:
            episode.severity = incident.severity
        if episode.lead_from is None and snapshot.lead == incident.key:
            episode.lead_from = snapshot.wall
        episode.explained_by += [rule for rule in incident.explained_by if rule not in episode.explained_by]

    def _begin(self, incident: Incident, wall: float) -> Episode:
        firing_at = wall if incident.firing_since is None else incident.firing_since
        episode = Episode(
            incident.key,
            incident.labels,
            incident.severity,
            incident.pending_since,
            firing_at,
            incident.evidence,
            incident.remedies,
            incident.cause,
        )
        self.episodes.append(episode)
        self._open[incident.key] = episode
        return episode


def moment(snapshot: Snapshot) -> Moment:
    """What one snapshot says, each rule once and the lead first."""
    lead = snapshot.lead.rule if snapshot.lead is not None else None
    firing = snapshot.firing
    rules = tuple(dict.fromkeys(incident.key.rule for incident in firing))
    grave = (each for each in firing if each.severity is not Severity.INFO)
    alarming = tuple(dict.fromkeys(each.key.rule for each in grave if not each.is_cleared))
    return Moment(snapshot.wall, snapshot.verdict, lead, rules, alarming)
