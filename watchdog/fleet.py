"""Among the targets that serve one model: the rules of fleet scope, judged over their last snapshots."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from watchdog.diagnosis.incidents import IncidentBook, Restored
from watchdog.diagnosis.judge import Case, judge
from watchdog.diagnosis.remedies import ServerContext, reconcile
from watchdog.diagnosis.rules import RuleSet
from watchdog.model import Finding, Incident, Readings, Scope, Snapshot, Subject, Transition
from watchdog.signals import engines

# Stands where an incident of one server has its target's name; no target can be called so.
FLEET = "*"
# A snapshot older than this says nothing of now.
OLDEST_SECONDS = 60.0
# Reading of a snapshot -> the signal that engines.facts asks for.
_SIGNALS = {
    "first_tokens": "window_first_tokens",
    "generation_tokens_per_second": "generation_tokens_per_second",
    "running_mean": "running_mean_requests",
    "waiting_recent_min": "standing_queue_requests",
}


class Fleet:
    """Watches all targets together; one writer. Pure: it is given snapshots and the time."""

    def __init__(self, rules: RuleSet) -> None:
        self._book = IncidentBook(rules)
        self.replace_rules(rules)

    def replace_rules(self, rules: RuleSet, wall: float = 0.0) -> None:
        """Goes over to another rule set."""
        self._book.replace_rules(rules, wall)
        self._rules = tuple(rule for rule in rules.rules if rule.scope is Scope.FLEET)

    def restore(self, stored: Iterable[Restored], at: float) -> None:
        """Takes up the incidents that a process before this one left."""
        self._book.restore(stored, at)

    def observe(
        self, snapshots: Iterable[Snapshot], at: float, wall: float
    ) -> tuple[tuple[Incident, ...], tuple[Transition, ...]]:
        """One step over the last snapshots: the incidents of the fleet, and what changed."""
        findings = [
            finding
            for model_name, targets in _by_model(snapshots, at).items()
            for finding in self._judge(model_name, targets)
        ]
        changes = self._book.update(findings, at, wall)
        return reconcile(self._book.incidents()), changes

    def _judge(self, model_name: str, targets: Mapping[Subject, list[Readings]]) -> Iterator[Finding]:
        lookups = {subject: _lookup(readings) for subject, readings in targets.items()}
        facts = dict(engines.facts(lookups))
        facts["targets"] = float(len(targets))
        ratios = [ratio for readings in targets.values() if (ratio := _hit_ratio(readings)) is not None]
        if len(ratios) >= 2:
            facts["hit_ratio_spread"] = max(ratios) - min(ratios)
        subject = Subject(FLEET, model_name)
        yield from judge(self._rules, Case(subject, facts.get, ServerContext(), {}))


def _by_model(snapshots: Iterable[Snapshot], at: float) -> dict[str, dict[Subject, list[Readings]]]:
    models: dict[str, dict[Subject, list[Readings]]] = {}
    for snapshot in snapshots:
        if not snapshot.up or at - snapshot.at > OLDEST_SECONDS:
            continue
        for readings in snapshot.readings:
            targets = models.setdefault(readings.subject.model_name, {})
            targets.setdefault(Subject(snapshot.target.name), []).append(readings)
    return models


def _lookup(readings: list[Readings]) -> Callable[[str], float | None]:
    def lookup(name: str) -> float | None:
        values = [one.values.get(_SIGNALS[name]) for one in readings]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    return lookup


def _hit_ratio(readings: list[Readings]) -> float | None:
    known = [ratio for one in readings if (ratio := one.values.get("prefix_hit_ratio")) is not None]
    return sum(known) / len(known) if known else None
