"""The past of one engine in short stretches: the load it carried and what was felt, in a few numbers each.

Now is compared with the engine's own past under a like load. Pages are not kept for that: eight hours of stretches take
some 50 kB, less than two minutes of pages.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, log2, nan
from statistics import median

from watchdog.history.history import History
from watchdog.history.span import NOW_SECONDS, Span, span_between
from watchdog.model import Subject

# Half a window of a busy server; a quiet one needs up to a minute to say anything.
SHORTEST_SECONDS = 15.0
LONGEST_SECONDS = 60.0
ENOUGH_REQUESTS = 10.0
# One interval of 10 s is enough before an onset, and a scrape may come a little early.
LEAST_SECONDS = 9.5
# After an hour a minute is fine enough; after eight the day has changed.
FINE_SECONDS = 3600.0
KEPT_SECONDS = 8 * 3600.0
# So many of the newest like ones are compared with: two minutes, a few of which may have caught a change of traffic.
MOST_COMPARED = 8
# Until so much was seen, the seconds since the last stretch count as one too: else a fresh server has no past.
EARLY_SECONDS = 150.0
# A state that lasts an hour is the new normal; what was before it says nothing any more.
LONGEST_HURT_SECONDS = 3600.0
# Half a scrape of jitter: neighbours that lie no further apart are one piece of time.
_SEAM_SECONDS = 1.0
# Steps of a tenth: loads that differ by less find the same stretches, so the search is made once for them.
_STEPS_AN_OCTAVE = 8

Likeness = Mapping[str, float]
"""What makes two stretches alike: the factor within which each of these signals must be in both."""
Measure = Callable[[Span, Sequence[str]], Mapping[str, float | None]]
"""The remembered signals of these names over a span; None where a signal is unknown."""


@dataclass(slots=True)
class Stretches:
    """The calm stretches of one engine's life, the oldest first. One writer.

    `names` are the signals that are remembered, `requests_per_second` the one that says how much came. Stretches in
    which a warning or worse held, and the half minute before it, are left out. Times are monotonic seconds.
    """

    names: tuple[str, ...]
    requests_per_second: str
    begins: "array[float]" = field(default_factory=lambda: array("d"))
    ends: "array[float]" = field(default_factory=lambda: array("d"))
    columns: dict[str, "array[float]"] = field(default_factory=dict)
    """By signal; NaN where it was unknown."""
    hurt_from: float | None = None
    """Since when a warning or worse holds; None while none does."""
    since_start: Mapping[str, float | None] = field(default_factory=dict)
    """The same signals over the engine's life up to its first page here; empty where it had served too little."""
    added: int = 0
    """How many were added since the start of this process."""
    _open_from: float | None = None
    # What was asked for already, until the next stretch is added.
    _found: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict, repr=False)
    _lowest: dict[str, float | None] = field(default_factory=dict, repr=False)
    _medians: dict[tuple[str, tuple[int, ...]], float | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in self.names:
            self.columns.setdefault(name, array("f"))

    def note(self, history: History, subject: Subject, at: float, hurts: bool, measure: Measure) -> None:
        """Takes in one step; `hurts` while a warning or worse holds on the engine."""
        # Only what ended a window ago is past: until then an onset may show that it belongs to an incident.
        settled_at = at - NOW_SECONDS * 0.98
        if hurts and self.hurt_from is None:
            self.hurt_from = at
            self._close(history, subject, settled_at, measure, cut=True)
        elif not hurts:
            self.hurt_from = None
        if self.hurt_from is not None and at - self.hurt_from <= LONGEST_HURT_SECONDS:
            self._open_from = at
            return
        if self._open_from is None:
            self._open_from = history.epoch(subject.model_name, subject.engine)
        self._close(history, subject, settled_at, measure, cut=False)

    def open_span(self, history: History, subject: Subject, at: float) -> Span | None:
        """What was seen since the last stretch and is settled; None for less than ten seconds of it."""
        if self._open_from is None:
            return None
        span = span_between(history, subject, self._open_from, at - NOW_SECONDS * 0.98)
        return span if span is not None and span.seconds >= LEAST_SECONDS else None

    def like(self, now: Mapping[str, float | None], likeness: Likeness) -> tuple[int, ...]:
        """The newest stretches whose load was alike, by their places; empty where there are none.

        A signal that is unknown on either side is not compared; where all are, nothing is alike.
        """
        known = {name: value for name in likeness if (value := now.get(name)) is not None and 0 < value < inf}
        if likeness and not known:
            return ()
        rounded = {name: round(log2(value) * _STEPS_AN_OCTAVE) for name, value in known.items()}
        key = (*likeness.items(), *rounded.items())
        found = self._found.get(key)
        if found is None:
            bounds = [
                (self.columns[name], value / likeness[name], value * likeness[name])
                for name, value in ((name, 2 ** (step / _STEPS_AN_OCTAVE)) for name, step in rounded.items())
            ]
            places = zip(self._alike(bounds), range(MOST_COMPARED), strict=False)
            found = self._found[key] = tuple(place for place, _ in places)
        return found

    def value(self, name: str, places: tuple[int, ...]) -> float | None:
        """The median of a signal over some stretches; None where it is unknown in all of them."""
        key = (name, places)
        if key not in self._medians:
            column = self.columns[name]
            known = [value for place in places if not isnan(value := column[place])]
            self._medians[key] = median(known) if known else None
        return self._medians[key]

    def lowest(self, name: str) -> float | None:
        """The low end of a signal over all stretches: of twenty or more the lowest twentieth is left out."""
        if name not in self._lowest:
            known = sorted(value for value in self.columns[name] if not isnan(value))
            self._lowest[name] = known[len(known) // 20] if known else None
        return self._lowest[name]

    def forget_before(self, at: float) -> None:
        """Leaves out what is too old at a time that is not before the newest."""
        self._delete(0, bisect_left(self.ends, at - KEPT_SECONDS))

    def _close(
        self, history: History, subject: Subject, until: float, measure: Measure, *, cut: bool
    ) -> None:
        """Closes the open stretch where it is long enough or says enough; with `cut` as it is."""
        if self._open_from is None:
            return
        span = span_between(history, subject, self._open_from, until)
        if span is None or span.seconds < (LEAST_SECONDS if cut else SHORTEST_SECONDS * 0.98):
            return
        if cut or span.seconds >= LONGEST_SECONDS * 0.98 or self._has_enough(span, measure):
            self._add(span, measure(span, self.names))
            self._open_from = span.frames[-1].at

    def _has_enough(self, span: Span, measure: Measure) -> bool:
        rate = measure(span, (self.requests_per_second,))[self.requests_per_second]
        return (rate or 0.0) * span.seconds >= ENOUGH_REQUESTS

    def _alike(self, bounds: Sequence[tuple["array[float]", float, float]]) -> Iterator[int]:
        for place in range(len(self.ends) - 1, -1, -1):
            compared = 0
            for column, least, most in bounds:
                then = column[place]
                if isnan(then):
                    continue
                if not least <= then <= most:
                    break
                compared += 1
            else:
                if compared or not bounds:
                    yield place

    def _add(self, span: Span, values: Mapping[str, float | None]) -> None:
        self._found.clear()
        self._lowest.clear()
        self._medians.clear()
        self.added += 1
        self.begins.append(span.frames[0].at)
        self.ends.append(span.frames[-1].at)
        for name, column in self.columns.items():
            value = values.get(name)
            column.append(nan if value is None else value)
        self._forget_old()
        self._join_old()

    def _forget_old(self) -> None:
        oldest = self.ends[-1] - KEPT_SECONDS
        # In steps, since deleting at the front of an array costs its length.
        if bisect_left(self.ends, oldest) >= 16:
            self.forget_before(self.ends[-1])

    def _join_old(self) -> None:
        """Joins what is older than an hour to stretches of a minute, a pair a call: one is added a call."""
        fine_from = self.ends[-1] - FINE_SECONDS
        for place in range(len(self.ends) - 2, -1, -1):
            if self.ends[place + 1] >= fine_from:
                continue
            together = self.ends[place + 1] - self.begins[place]
            if together > LONGEST_SECONDS * 1.02 or self.begins[place + 1] - self.ends[place] > _SEAM_SECONDS:
                continue
            self._join(place)
            return

    def _join(self, place: int) -> None:
        weights = [self.ends[each] - self.begins[each] for each in (place, place + 1)]
        for column in self.columns.values():
            one, other = column[place], column[place + 1]
            if isnan(one) or isnan(other):
                column[place] = other if isnan(one) else one
            else:
                column[place] = (one * weights[0] + other * weights[1]) / sum(weights)
        self.ends[place] = self.ends[place + 1]
        self._delete(place + 1, place + 2)

    def _delete(self, begin: int, end: int) -> None:
        for column in (self.begins, self.ends, *self.columns.values()):
            del column[begin:end]
