"""What now is compared with: the engine's calm stretches under a like load, the newest of all, the least of all."""

from collections.abc import Mapping
from dataclasses import dataclass

from watchdog.history.span import Span
from watchdog.history.stretches import EARLY_SECONDS, Likeness, Measure, Stretches
from watchdog.model import Lookup

BASELINE = "baseline"
LOWEST = "lowest"
SINCE_START = "requests_since_start"
"""How many requests the baseline is an average of, where that is since the server started."""
LATELY = "lately"
# Half a minute on a busy server, two on a quiet one: a change of traffic is usual after as long.
MOST_LATELY = 2


@dataclass(slots=True)
class Past:
    """The past of one engine as seen at one step; figures are worked out when they are asked for.

    `open_span` is what is calm and settled but no stretch yet, `seen_seconds` how long the engine's life was watched.
    """

    stretches: Stretches
    open_span: Span | None
    seen_seconds: float
    measure: Measure
    _open: Mapping[str, float | None] | None = None

    def under(self, likeness: Likeness, now: Lookup, or_since_start: bool = False) -> Mapping[str, Lookup]:
        """Where each comparison looks its signals up, by its name; `now` are the present ones. None is unknown.

        With `or_since_start` the average since the server started stands for calm stretches until there is one.
        """
        lowest = self._lowest_or_since_start if or_since_start else self._lowest
        return {
            BASELINE: _Baseline(self, likeness, now, or_since_start),
            LATELY: self._lately,
            LOWEST: lowest,
        }

    def open_figures(self) -> Mapping[str, float | None]:
        """The figures of the open span while the server is young: later it is a stretch soon enough."""
        if self._open is None:
            is_young = self.seen_seconds < EARLY_SECONDS
            span = self.open_span if is_young else None
            self._open = {} if span is None else self.measure(span, self.stretches.names)
        return self._open

    def since_start(self) -> Mapping[str, float | None]:
        """The averages of the engine's life before it was watched, while it has no calm stretch."""
        return {} if self.stretches.ends else self.stretches.since_start

    def _lately(self, name: str) -> float | None:
        found = self.stretches.value(name, self.stretches.like({}, {})[:MOST_LATELY])
        return self.open_figures().get(name) if found is None else found

    def _lowest(self, name: str) -> float | None:
        known = [self.stretches.lowest(name), self.open_figures().get(name)]
        return min((value for value in known if value is not None), default=None)

    def _lowest_or_since_start(self, name: str) -> float | None:
        known = (self._lowest(name), self.since_start().get(name))
        return min((value for value in known if value is not None), default=None)


class _Baseline:
    """The figures of the newest like stretches, which are looked for once."""

    __slots__ = ("_likeness", "_now", "_or_since_start", "_past", "_places", "_present")

    def __init__(self, past: Past, likeness: Likeness, present: Lookup, or_since_start: bool) -> None:
        self._past = past
        self._likeness = likeness
        self._present = present
        self._or_since_start = or_since_start
        self._now: Mapping[str, float | None] = {}
        self._places: tuple[int, ...] | None = None

    def __call__(self, name: str) -> float | None:
        if self._places is None:
            self._now = {each: self._present(each) for each in self._likeness}
            self._places = self._past.stretches.like(self._now, self._likeness)
        if self._or_since_start and _is_known_like(self._past.since_start(), self._now, self._likeness):
            return self._past.since_start().get(name)
        if name == SINCE_START:
            return None
        found = self._past.stretches.value(name, self._places)
        if found is None and _is_like(self._past.open_figures(), self._now, self._likeness):
            return self._past.open_figures().get(name)
        return found


def _is_like(then: Mapping[str, float | None], now: Mapping[str, float | None], likeness: Likeness) -> bool:
    """Whether figures are those of a like load; what one side does not know is not compared."""
    pairs = ((then.get(name), now[name], factor) for name, factor in likeness.items())
    compared = [
        one <= factor * other and other <= factor * one
        for one, other, factor in pairs
        if one is not None and other is not None
    ]
    return all(compared) and (bool(compared) or not likeness)


def _is_known_like(
    then: Mapping[str, float | None], now: Mapping[str, float | None], likeness: Likeness
) -> bool:
    """The same of figures over a whole life, in which all kinds of load were: each one must be known, and alike.

    Nothing is like a life of which nothing is known.
    """
    both = all(then.get(name) is not None and now[name] is not None for name in likeness)
    return bool(then) and both and _is_like(then, now, likeness)
