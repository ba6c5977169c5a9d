"""Among the targets that serve one model: the rules of fleet scope, judged over their last snapshots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from watchdog.diagnosis.incidents import IncidentBook
from watchdog.diagnosis.judge import Case, judge
from watchdog.facts import balance
from watchdog.facts.balance import Load
from watchdog.facts.fact import by_name
from watchdog.facts.launch import ServerContext
from watchdog.model import Finding, Incident, Readings, Scope, Snapshot, Standing, Subject
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import Signals
from watchdog.signals.functions import View

# Stands where an incident of one server has its target's name; no target can be called so.
FLEET = "*"
# A snapshot older than this says nothing of now.
OLDEST_SECONDS = 60.0
MOST_NAMES = 3


class FleetDiagnosis:
    """Watches all targets together; one writer. Pure: it is given snapshots and the time."""

    def __init__(self, rules: RuleSet) -> None:
        self._book = IncidentBook(rules)
        self.replace_rules(rules)

    def replace_rules(self, rules: RuleSet, wall: float = 0.0) -> None:
        """Goes over to another rule set."""
        self._book.replace_rules(rules, wall)
        self._rules = tuple(rule for rule in rules.rules if rule.scope is Scope.FLEET)

    def restore(
        self, stored: Iterable[Incident], at: float, ended: Iterable[Incident] = (), wall: float = 0.0
    ) -> None:
        """Takes up the incidents that a process before this one left, and those that were over by then."""
        self._book.restore(stored, at, ended, wall)

    def observe(self, snapshots: Iterable[Snapshot], at: float, wall: float) -> Standing:
        """One step over the last snapshots: how the incidents of the fleet stand, and what changed."""
        findings = [
            finding
            for model_name, targets in _by_model(snapshots, at).items()
            for finding in self._judge(model_name, targets)
        ]
        return self._book.update(findings, at, wall)

    def _judge(self, model_name: str, targets: Mapping[str, Sequence[Readings]]) -> Iterator[Finding]:
        loads = {name: _load(readings) for name, readings in targets.items()}
        ratios = [ratio for readings in targets.values() if (ratio := _hit_ratio(readings)) is not None]
        facts = by_name(balance.fleet_facts(list(loads.values()), ratios))
        subject, texts = Subject(FLEET, model_name), {"idle_targets": _idle(loads)}
        yield from judge(self._rules, Case(subject, Signals(View(facts=facts)), ServerContext(), texts))


def _by_model(snapshots: Iterable[Snapshot], at: float) -> dict[str, dict[str, list[Readings]]]:
    """The readings of each target's engines by its name, of each model."""
    models: dict[str, dict[str, list[Readings]]] = {}
    for snapshot in snapshots:
        if not snapshot.up or at - snapshot.at > OLDEST_SECONDS:
            continue
        for readings in snapshot.readings:
            targets = models.setdefault(readings.subject.model_name, {})
            targets.setdefault(snapshot.target.name, []).append(readings)
    return models


def _idle(loads: Mapping[str, Load]) -> str:
    """The names of those that got no request, three at most."""
    names = [name for name, load in loads.items() if load.first_tokens == 0]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more or "none"


def _load(engines_of_target: Sequence[Readings]) -> Load:
    """What a target's engines did together."""

    def total(reading: str) -> float | None:
        values = [engine.values.get(reading) for engine in engines_of_target]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    return Load(
        first_tokens=total("window_first_tokens"),
        generation_tokens_per_second=total("generation_tokens_per_second"),
        prompt_tokens_per_second=total("prompt_tokens_per_second"),
        running_mean=total("running_mean_requests"),
        waiting_recent_min=total("standing_queue_requests"),
        kv_transfers_per_second=total("kv_transfers_per_second"),
    )


def _hit_ratio(engines_of_target: Sequence[Readings]) -> float | None:
    values = (engine.values.get("prefix_hit_ratio") for engine in engines_of_target)
    known = [ratio for ratio in values if ratio is not None]
    return sum(known) / len(known) if known else None
