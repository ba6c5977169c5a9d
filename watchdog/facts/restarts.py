"""Restarts of a target's engines, as its counters show them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from watchdog.facts.fact import Fact, Known
from watchdog.history.history import Reset
from watchdog.history.number import AtLeast

# fmt: off
RESTARTS = Fact("restarts", "restarts", "Restarts in the last 30 minutes.")
SECONDS_SINCE_RESTART = Fact("seconds_since_restart", "s", "Time since the last restart that was seen.")
PROCESS_AGE = Fact(
    "process_age_seconds", "s",
    "Age of the API server's process, by its start time and the watchdog's clock; unknown if it lies in the future.")
COUNTER_JUMPS = Fact(
    "counter_jumps", "jumps",
    "Counters that fell and came back in the last two minutes: two servers behind one address.")
# fmt: on

CRASH_LOOP_SECONDS = 1800.0
JUMP_SECONDS = 120.0
# Of engines whose names never come back only so many are remembered, those that restarted last.
MOST_REMEMBERED = 1024
JUMPS_OF_TWO_SERVERS = 3


@dataclass(slots=True)
class Restarts:
    """When engines restarted; times are monotonic seconds.

    A fall with no failed scrape since the fall before it is a jump: a process that really restarts is away for
    longer than a scrape interval while it loads weights. What came before the first page (`watched_since`, None: no
    page yet) nobody counted.
    """

    watched_since: float | None = None
    at: list[float] = field(default_factory=list)
    jumps: list[float] = field(default_factory=list)
    by_engine: dict[tuple[str, str], float] = field(default_factory=dict)
    last_words: list[str] = field(default_factory=list)
    process_began_at: float | None = None

    def began(self, process_seconds: float, at: float) -> None:
        """The process is that old at a page; below 0, or NaN, where its clock and ours do not agree on it."""
        self.process_began_at = at - process_seconds if process_seconds >= 0 else None

    def note(self, resets: Iterable[Reset], at: float, was_away: bool, last_words: str) -> None:
        """Takes the resets of one page; `was_away` is whether scrapes failed since the page before."""
        if self.watched_since is None:
            self.watched_since = at
        engines = {(reset.model_name, reset.engine) for reset in resets}
        if engines:
            self.at.append(at)
            self.last_words = [*self.last_words[-4:], last_words]
            if not was_away:
                self.jumps.append(at)
            for engine in engines:
                self.by_engine.pop(engine, None)
                self.by_engine[engine] = at
            for engine in list(self.by_engine)[:-MOST_REMEMBERED]:
                del self.by_engine[engine]
        self.at = [one for one in self.at if at - one <= CRASH_LOOP_SECONDS]
        self.jumps = [one for one in self.jumps if at - one <= JUMP_SECONDS]
        if len(self.jumps) >= JUMPS_OF_TWO_SERVERS:
            # No process restarts that often: these were two servers in turn, and no crash.
            self.at = [one for one in self.at if one not in self.jumps]

    def facts(self, at: float) -> Iterator[Known]:
        """The facts of the target's signals; of a time that was watched in part the counts are lower bounds."""
        yield RESTARTS, self._counted(len(self.at), CRASH_LOOP_SECONDS, at)
        yield COUNTER_JUMPS, self._counted(len(self.jumps), JUMP_SECONDS, at)
        if self.at:
            yield SECONDS_SINCE_RESTART, at - self.at[-1]
        yield from self._process_age(at)

    def engine_facts(
        self, engine: tuple[str, str], at: float, first_seen_at: float | None = None
    ) -> Iterator[Known]:
        """The facts of one engine's signals; one that was never seen to restart runs at least since it was seen."""
        if engine in self.by_engine:
            yield SECONDS_SINCE_RESTART, at - self.by_engine[engine]
        elif first_seen_at is not None:
            yield SECONDS_SINCE_RESTART, AtLeast(at - first_seen_at)
        yield from self._process_age(at)

    def _process_age(self, at: float) -> Iterator[Known]:
        if self.process_began_at is not None:
            yield PROCESS_AGE, at - self.process_began_at

    def _counted(self, count: int, seconds: float, at: float) -> float:
        whole = self.watched_since is not None and at - self.watched_since >= seconds
        return float(count) if whole else AtLeast(count)
