"""Restarts of a target's engines, as its counters show them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from watchdog.facts.fact import Fact, Known
from watchdog.history.history import Reset

# fmt: off
RESTARTS = Fact("restarts", "restarts", "Restarts in the last 30 minutes.")
SECONDS_SINCE_RESTART = Fact("seconds_since_restart", "s", "Time since the last restart that was seen.")
COUNTER_JUMPS = Fact(
    "counter_jumps", "jumps",
    "Falls of counters in the last two minutes that came back: two servers behind one address.")
# fmt: on

CRASH_LOOP_SECONDS = 1800.0
JUMP_SECONDS = 120.0
# Of engines whose names never come back only so many are remembered, those that restarted last.
MOST_REMEMBERED = 1024
JUMPS_OF_TWO_SERVERS = 3


@dataclass(slots=True)
class Restarts:
    """When engines began anew; times are monotonic seconds.

    A fall with no failed scrape since the fall before it is a jump: a process that really restarts is away for
    longer than a scrape interval while it loads weights.
    """

    at: list[float] = field(default_factory=list)
    jumps: list[float] = field(default_factory=list)
    by_engine: dict[tuple[str, str], float] = field(default_factory=dict)
    last_words: list[str] = field(default_factory=list)

    def note(self, resets: Iterable[Reset], at: float, was_away: bool, last_words: str) -> None:
        """Takes the resets of one page; `was_away` is whether scrapes failed since the page before."""
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
        """The facts of the target's signals."""
        yield RESTARTS, float(len(self.at))
        yield COUNTER_JUMPS, float(len(self.jumps))
        if self.at:
            yield SECONDS_SINCE_RESTART, at - self.at[-1]

    def engine_facts(self, engine: tuple[str, str], at: float) -> Iterator[Known]:
        """The facts of one engine's signals."""
        if engine in self.by_engine:
            yield SECONDS_SINCE_RESTART, at - self.by_engine[engine]
