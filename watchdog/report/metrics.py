"""Our own metrics for Prometheus: made anew from the last snapshots at each scrape, so nothing dead stays."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from watchdog import __version__
from watchdog.diagnosis.fleet import FLEET
from watchdog.diagnosis.readings import LIMITS, READINGS
from watchdog.model import Incident, Reason, Scope, Snapshot, State, Subject, Target, Verdict
from watchdog.notify.outbox import Statistics
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet

PREFIX = "vllm_watchdog_"
MAX_LABEL_CHARACTERS = 200

_SUBJECT = ("target", "model_name", "engine")
_DIAGNOSIS = ("target", "rule", "severity", "model_name", "engine")
_RULE = ("target", "rule", "model_name", "engine")


@dataclass(frozen=True, slots=True)
class Looks:
    """What is counted of the looks at one place where servers are found.

    `is_well` is whether the last look was of use, `last_success_wall` when one was last (unix seconds, None: never).
    """

    name: str
    is_well: bool
    servers: int
    failures: int
    last_success_wall: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What the service counts of itself; times are unix seconds, `cycles` and `skipped` by target name.

    `reloaded_at` is the last reload (or start) that worked, None where none did.
    """

    reload_successful: bool = True
    reloaded_at: float | None = None
    cycle_seconds: Mapping[str, float] = field(default_factory=dict)
    cycle_errors: Mapping[str, int] = field(default_factory=dict)
    skipped_cycles: Mapping[str, int] = field(default_factory=dict)
    notifications: Sequence[Statistics] = ()
    alerts_unread: int = 0
    """Alerts of others that were passed on unread."""
    state_on_disk: bool | None = None
    """Whether incidents are kept on disk; None where no state directory is set."""
    external_url: str = ""
    """Where people reach us; empty where that is not known."""
    in_maintenance: frozenset[str] = frozenset()
    """The targets whose notifications are held."""
    canaries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How often each outcome of the canary came, by target name."""
    looks: Sequence[Looks] = ()
    """Where servers are found."""


class Source(Protocol):
    """The running service as its metrics see it; all answers come from memory."""

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        ...

    def targets(self) -> Sequence[Target]:
        """Every configured target."""
        ...

    def snapshots(self) -> Mapping[str, Snapshot]:
        """The last snapshot of each target by its name."""
        ...

    def fleet_incidents(self) -> Sequence[Incident]:
        """What is wrong among the targets that serve one model."""
        ...

    def figures(self) -> Figures:
        """What the service counts of itself."""
        ...


def registry(source: Source, revision: str = "") -> CollectorRegistry:
    """A registry of its own with all our metrics."""
    made = CollectorRegistry(auto_describe=False)
    made.register(WatchdogCollector(source, revision))
    made.register(ProcessCollector(registry=None))
    return made


class WatchdogCollector(Collector):
    """Turns the last snapshots into metrics, without a clock and without a request."""

    def __init__(self, source: Source, revision: str = "") -> None:
        self._source = source
        self._revision = revision

    def collect(self) -> Iterator[Metric]:
        """Every family, each series once."""
        known = self._source.snapshots()
        snapshots = [known[target.name] for target in self._source.targets() if target.name in known]
        figures = self._source.figures()
        yield from self._own(figures)
        read = [target for target in self._source.targets() if target.name in known]
        yield _target_info(read, figures.external_url)
        yield from _cycles(figures)
        yield from _discovery(figures.looks)
        held = _Gauge("target_maintenance", "1 while notifications of the target are held.", ("target",))
        for target in read:
            held.add((target.name,), target.name in figures.in_maintenance)
        yield held.family
        yield from _notifications(figures.notifications)
        unread = _Counter("received_alerts_unread", "Alerts of others beyond what is read of one post.", ())
        unread.add((), figures.alerts_unread)
        yield unread.family
        yield from _scrapes(snapshots)
        yield from _diagnoses(snapshots, self._source.fleet_incidents(), self._source.rules)
        yield from _reading_families([snapshot for snapshot in snapshots if snapshot.up])

    def _own(self, figures: Figures) -> Iterator[Metric]:
        info = _Gauge("build_info", "Which watchdog this is.", ("version", "revision", "pythonversion"))
        info.add((__version__, self._revision, platform.python_version()), 1)
        yield info.family
        rules = _Gauge("rules", "Rules in use.")
        rules.add((), len(self._source.rules.rules))
        yield rules.family
        targets = _Gauge("targets", "Configured targets.")
        targets.add((), len(self._source.targets()))
        yield targets.family
        successful = _Gauge("config_last_reload_successful", "Whether the last reload (or start) worked.")
        successful.add((), figures.reload_successful)
        yield successful.family
        at = _Gauge("config_last_reload_success_timestamp_seconds", "When a reload (or start) last worked.")
        at.add((), figures.reloaded_at)
        yield at.family
        on_disk = _Gauge("state_on_disk", "Whether incidents are kept on disk: 0 where the disk failed.")
        on_disk.add((), figures.state_on_disk)
        yield on_disk.family


class _Series:
    """A family that takes each set of labels once: at a second one Prometheus would refuse the whole page."""

    def __init__(self, family: CounterMetricFamily | GaugeMetricFamily) -> None:
        self.family = family
        self._seen: set[tuple[str, ...]] = set()

    def add(self, labels: Sequence[str], value: float | None) -> None:
        """Adds one series; None is no series."""
        values = tuple(map(label_value, labels))
        if value is None or values in self._seen:
            return
        self._seen.add(values)
        self.family.add_metric(values, float(value))


class _Gauge(_Series):
    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(GaugeMetricFamily(PREFIX + name, text, labels=labels))


class _Counter(_Series):
    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(CounterMetricFamily(PREFIX + name, text, labels=labels))


def label_value(text: str) -> str:
    """`text` as a label, of bounded length."""
    return text if len(text) <= MAX_LABEL_CHARACTERS else text[: MAX_LABEL_CHARACTERS - 3] + "..."


def _target_info(targets: Sequence[Target], external_url: str) -> Metric:
    """What to join: alerts find the way to our pages here, and the team or zone of a server."""
    names = sorted({name for target in targets for name in target.labels})
    info = _Gauge(
        "target_info",
        "A target, its own labels of the settings (each after label_), and the address of the watchdog's pages.",
        ("target", "external_url", *(f"label_{name}" for name in names)),
    )
    for target in targets:
        info.add((target.name, external_url, *(target.labels.get(name, "") for name in names)), 1)
    return info.family


def _cycles(figures: Figures) -> Iterator[Metric]:
    seconds = _Gauge("cycle_duration_seconds", "Time from scrape to verdict in the last cycle.", ("target",))
    errors = _Counter("cycle_errors", "Cycles that failed inside the watchdog.", ("target",))
    skipped = _Counter("skipped_cycles", "Cycles left out because the one before still ran.", ("target",))
    for series, values in (
        (seconds, figures.cycle_seconds),
        (errors, figures.cycle_errors),
        (skipped, figures.skipped_cycles),
    ):
        for target, value in values.items():
            series.add((target,), value)
        yield series.family
    canaries = _Counter("canaries", "Canaries of one token, by what came of them.", ("target", "outcome"))
    for target, outcomes in figures.canaries.items():
        for outcome, count in outcomes.items():
            canaries.add((target, outcome), count)
    yield canaries.family


def _discovery(looks: Sequence[Looks]) -> Iterator[Metric]:
    labels = ("discovery",)
    up = _Gauge("discovery_up", "Whether the last look at where servers are found was of use.", labels)
    servers = _Gauge("discovery_servers", "Servers found there, those of before while it fails.", labels)
    failures = _Counter("discovery_failures", "Looks that were of no use, or only in part.", labels)
    success = _Gauge("discovery_last_success_timestamp_seconds", "When a look was last of use.", labels)
    for each in looks:
        up.add((each.name,), each.is_well)
        servers.add((each.name,), each.servers)
        failures.add((each.name,), each.failures)
        success.add((each.name,), each.last_success_wall)
    for series in (up, servers, failures, success):
        yield series.family


def _notifications(statistics: Sequence[Statistics]) -> Iterator[Metric]:
    labels = ("receiver",)
    sent = _Counter("notifications_sent", "Alerts that the receiver took.", labels)
    errors = _Counter("notifications_errors", "Alerts in posts that failed, each try counted.", labels)
    dropped = _Counter("notifications_dropped", "Alerts given up unsent.", labels)
    length = _Gauge("notifications_queue_length", "Alerts that wait to be sent.", labels)
    capacity = _Gauge("notifications_queue_capacity", "Alerts that can wait at most.", labels)
    for each in statistics:
        sent.add((each.receiver,), each.sent)
        errors.add((each.receiver,), each.errors)
        dropped.add((each.receiver,), each.dropped)
        length.add((each.receiver,), each.queue_length)
        capacity.add((each.receiver,), each.queue_capacity)
    for series in (sent, errors, dropped, length, capacity):
        yield series.family


def _scrapes(snapshots: Sequence[Snapshot]) -> Iterator[Metric]:
    labels = ("target",)
    up = _Gauge("target_up", "Whether the last scrape gave a page that could be read.", labels)
    verdict = _Gauge(
        "target_verdict", "1 for the verdict on the target, 0 for the others.", ("target", "verdict")
    )
    scrapes = _Counter("target_scrapes", "Scrapes of the target, on our own timer.", labels)
    failures = _Counter("target_scrape_failures", "Scrapes that gave nothing.", ("target", "reason"))
    took = _Gauge("target_scrape_duration_seconds", "How long the last scrape took.", labels)
    samples = _Gauge("target_scrape_samples", "Samples in the last page.", labels)
    success = _Gauge("target_last_success_timestamp_seconds", "When a scrape last worked.", labels)
    errors = _Counter("rule_errors", "Judgements that went wrong inside a rule: a fault of ours.", labels)
    for snapshot in snapshots:
        name = snapshot.target.name
        up.add((name,), snapshot.up)
        for each in Verdict:
            verdict.add((name, each), snapshot.verdict is each)
        scrapes.add((name,), snapshot.scrapes)
        for reason in Reason:
            failures.add((name, reason), snapshot.failures.get(reason, 0))
        took.add((name,), snapshot.scrape_took_seconds)
        samples.add((name,), snapshot.scrape_samples if snapshot.up else 0)
        success.add((name,), snapshot.last_success_wall)
        errors.add((name,), sum(snapshot.rule_errors.values()))
    for series in (up, verdict, scrapes, failures, took, samples, success, errors):
        yield series.family


def _diagnoses(snapshots: Sequence[Snapshot], fleet: Sequence[Incident], rules: RuleSet) -> Iterator[Metric]:
    """0 or 1 for each rule and each subject it can speak of, so that nobody needs `absent()`."""
    active = _Gauge("diagnosis_active", "1 while the rule fires, 0 while it does not.", _DIAGNOSIS)
    since = _Gauge("diagnosis_since_timestamp_seconds", "When what fires began to fire.", _DIAGNOSIS)
    lead = _Gauge("lead", "1 for the cause to look at first.", _DIAGNOSIS)
    unknown = _Gauge("diagnosis_unknown", "1 while the rule cannot be judged, 0 while it can.", _RULE)
    incidents = [incident for snapshot in snapshots for incident in snapshot.incidents] + list(fleet)
    leads = {snapshot.lead for snapshot in snapshots}
    firing = {incident.key: incident for incident in incidents if incident.state is State.FIRING}
    for incident in firing.values():
        labels = _labels(incident)
        active.add(labels, 1)
        since.add(labels, incident.firing_since)
        if incident.key in leads:
            lead.add(labels, 1)
    for rule, subject in _fleet_pairs(rules, snapshots):
        if (rule.id, *subject) not in firing:
            active.add((subject.target, rule.id, rule.severity, *subject[1:]), 0)
    for snapshot in snapshots:
        blind = {(each.rule, *each.subject) for each in snapshot.blind}
        for rule, subject in _pairs(rules, snapshot):
            key = (rule.id, *subject)
            if key not in firing:
                active.add((subject.target, rule.id, rule.severity, *subject[1:]), 0)
            unknown.add((subject.target, rule.id, *subject[1:]), key in blind)
        for each in snapshot.blind:
            unknown.add((each.subject.target, each.rule, *each.subject[1:]), 1)
    for series in (active, since, lead, unknown):
        yield series.family


def _labels(incident: Incident) -> tuple[str, ...]:
    key = incident.key
    return (key.target, key.rule, incident.severity, key.model_name, key.engine)


def _pairs(rules: RuleSet, snapshot: Snapshot) -> Iterator[tuple[Rule, Subject]]:
    """Each rule with what it can speak of here; engines are known only while the target answers."""
    subjects = {
        Scope.TARGET: (Subject(snapshot.target.name),),
        Scope.ENGINE: tuple(readings.subject for readings in snapshot.readings),
    }
    for rule in rules.rules:
        for subject in subjects.get(rule.scope, ()):
            yield rule, subject


def _fleet_pairs(rules: RuleSet, snapshots: Sequence[Snapshot]) -> Iterator[tuple[Rule, Subject]]:
    """Each rule of fleet scope with each model that answers, and with each that has several servers on one page."""
    models = {readings.subject.model_name for each in snapshots if each.up for readings in each.readings}
    subjects = [Subject(FLEET, model) for model in sorted(models)]
    subjects += [Subject(each.target.name, model) for each in snapshots for model in each.replicated_models]
    for rule in rules.rules:
        if rule.scope is Scope.FLEET:
            yield from ((rule, subject) for subject in subjects)


def _reading_families(snapshots: Sequence[Snapshot]) -> Iterator[Metric]:
    """Readings of the targets that answer: a server that does not has no values, not its last ones."""
    engines = [readings for snapshot in snapshots for readings in snapshot.readings]
    families = {name: _Gauge(name, text, _SUBJECT) for name, (_, text) in sorted(READINGS.items())}
    binding = _Gauge("limit_binding", "1 for the limit that bounds throughput now.", (*_SUBJECT, "limit"))
    budget = _Gauge(
        "latency_budget_seconds", "Where the average request spent its time.", (*_SUBJECT, "phase")
    )
    share = _Gauge("latency_budget_ratio", "The phase's share of the average request.", (*_SUBJECT, "phase"))
    for engine in engines:
        for name, value in engine.values.items():
            if name in families:
                families[name].add(engine.subject, value)
        for limit in LIMITS:
            binding.add((*engine.subject, limit), limit == engine.limit)
        for phase, part in engine.latency_budget.items():
            budget.add((*engine.subject, phase), part.seconds)
            share.add((*engine.subject, phase), part.share)
    for series in (*families.values(), binding, budget, share):
        yield series.family
