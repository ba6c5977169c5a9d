"""Every Prometheus that is watched, and the change from one set of them to the next."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from watchdog.model import Target
from watchdog.notify.announcements import Ledger
from watchdog.report.metrics import PrometheusFigures
from watchdog.rule.rule_set import RuleSet
from watchdog.service.schedule import Schedule
from watchdog.service.source_watch import ServerWatch, SourceWatch, Surroundings
from watchdog.settings.prometheus import SourceSettings


@dataclass(frozen=True, slots=True)
class Household:
    """What sources need of the service: how a server is begun and ended, and what memory there is.

    `names` are the names of targets, `addresses` their hosts and ports.
    """

    begin: Callable[[Target], ServerWatch]
    end: Callable[[ServerWatch], None]
    ledger: Callable[[str], Ledger]
    names: Callable[[], Collection[str]]
    addresses: Callable[[], Collection[str]]


class Sources:
    """The watches of all Prometheus, each with its job on the schedule; one thread changes them, others read."""

    def __init__(self, household: Household, schedule: Schedule) -> None:
        self._household = household
        self._schedule = schedule
        self._watches: dict[str, SourceWatch] = {}

    def begin(self, entries: Iterable[SourceSettings], since: float | None) -> None:
        """Watches these; `since` is until when an earlier life did (unix seconds, None where there was none)."""
        for entry in entries:
            self._watches[entry.name] = self._begun(entry, since)

    def change(self, entries: Iterable[SourceSettings]) -> None:
        """Goes over to others: what stays goes on, and of what is gone the incidents end."""
        before, after = self._watches, dict[str, SourceWatch]()
        for entry in entries:
            watch = before.get(entry.name)
            if watch is None or watch.settings != entry:
                after[entry.name] = self._begun(entry, None, watch)
            else:
                after[entry.name] = watch
        self._watches = after
        for name in before.keys() - after.keys():
            self._schedule.remove(_job_of(name))
            before[name].stop()
            before[name].end_all()

    def replace_rules(self, rules: RuleSet) -> None:
        """Judges by other rules from the next look on."""
        for server in self.servers():
            server.replace_rules(rules)

    def close(self) -> None:
        """Looks no more; what is being published is waited for."""
        for watch in self._watches.values():
            watch.close()

    @property
    def is_used(self) -> bool:
        """Whether there is any."""
        return bool(self._watches)

    @property
    def have_looked(self) -> bool:
        """Whether the first look at each has ended, well or badly."""
        return all(watch.finished_at is not None for watch in self._watches.values())

    def servers(self) -> Iterator[ServerWatch]:
        """Every server that is watched through one of them."""
        for watch in tuple(self._watches.values()):
            yield from watch.servers.values()

    def looks(self) -> Sequence[tuple[float | None, float]]:
        """When each was last read (steady seconds, None for never), and how often it is."""
        return [(watch.alive_at, watch.settings.interval_seconds) for watch in self._watches.values()]

    def notes(self) -> Sequence[str]:
        """What is wrong with them, for people."""
        return [note for watch in self._watches.values() if (note := watch.note)]

    def figures(self) -> Sequence[PrometheusFigures]:
        """What is counted of each."""
        return [watch.figures for watch in self._watches.values()]

    def _begun(
        self, entry: SourceSettings, since: float | None, before: SourceWatch | None = None
    ) -> SourceWatch:
        household = self._household
        around = Surroundings(
            household.begin, household.end, lambda: self._names_beside(entry.name), household.addresses
        )
        watch = SourceWatch(entry, around, household.ledger(f"prometheus {entry.name}"), since)
        if before is not None:
            watch.adopt(before)
        self._schedule.add(_job_of(entry.name), watch.poll, entry.interval_seconds)
        return watch

    def _names_beside(self, source: str) -> Collection[str]:
        """The names that are not for the servers of this one."""
        others = [watch for name, watch in self._watches.items() if name != source]
        return {*self._household.names(), *(name for watch in others for name in watch.servers)}


def _job_of(source: str) -> str:
    """The name of its job: no target is called so, for a slash parts the words of a key."""
    return f"prometheus/{source}"
