"""What an earlier life left firing, until this one has watched long enough to say that it is over."""

from collections.abc import Iterable, Mapping, Sequence

from watchdog.facts import gauge_ranges, host_memory, inflight, reachability, restarts, server, watching
from watchdog.facts.fact import Fact
from watchdog.history.span import NOW_SECONDS
from watchdog.model import Finding, Incident, Key, State, Subject, Truth
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import compared_signal

# Facts say themselves how far they are known, but for those of balance, which sum up windows.
_WITHOUT_WINDOW = frozenset(
    one.name
    for module in (gauge_ranges, host_memory, inflight, reachability, restarts, server, watching)
    for one in vars(module).values()
    if isinstance(one, Fact)
)


class Inherited:
    """The incidents that were taken up firing, by key, until their windows have filled again.

    A window that began with this process shows only a part of what the rule looks at: its no may be the quiet second
    of a storm. Until a whole window was seen such a no is unknown, and unknown ends nothing. What an incident was
    compared with came before this life too: its evidence remembers it.
    """

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._compared: dict[Subject, dict[str, dict[str, float]]] = {}

    def take_up(self, incidents: Iterable[Incident]) -> None:
        """Adds those that fire, and what they were compared with."""
        for one in incidents:
            if one.state is not State.FIRING:
                continue
            self._keys.add(one.key)
            compared = {
                name: value
                for evidence in one.evidence
                for name, value in evidence.values.items()
                if value is not None and compared_signal(name) is not None
            }
            self._compared.setdefault(Subject(*one.key[1:]), {})[one.key.rule] = compared

    def end(self, ended: Iterable[Key]) -> None:
        """Forgets what is over."""
        for key in ended:
            self._keys.discard(key)
            self._compared.get(Subject(*key[1:]), {}).pop(key.rule, None)

    def compared(self, subject: Subject) -> Mapping[str, Mapping[str, float]]:
        """What each rule's incident was compared with in the life before, by rule id."""
        return self._compared.get(subject, {})

    def settled(
        self, findings: Sequence[Finding], rules: RuleSet, seen_seconds: float | None
    ) -> Sequence[Finding]:
        """The findings of one subject, which was watched for so long (None: not yet)."""
        if not self._keys:
            return findings
        if seen_seconds is not None and seen_seconds >= NOW_SECONDS:
            self._keys.difference_update(_key(each) for each in findings)
            return findings
        return [self._as_known(each, rules.find(each.rule)) for each in findings]

    def _as_known(self, finding: Finding, rule: Rule | None) -> Finding:
        doubtful = finding.truth is Truth.NO and _key(finding) in self._keys
        if not doubtful or rule is None or not _looks_back(rule):
            return finding
        return finding._replace(truth=Truth.UNKNOWN)


def _key(finding: Finding) -> Key:
    return Key(finding.rule, *finding.subject)


def _looks_back(rule: Rule) -> bool:
    return any(name not in _WITHOUT_WINDOW for clause in (*rule.when, *rule.unless) for name in clause.names)
