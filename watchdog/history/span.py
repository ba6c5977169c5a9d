"""A stretch of one engine's history, and the stretches that signals look at: now, lately, its life, before now."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import isnan, nan
from operator import attrgetter
from typing import Any

from watchdog.history.history import History
from watchdog.history.layout import WHOLE_TARGET, Frame, Selector
from watchdog.model import Subject

# Long enough for 5 requests on a light server, short enough to name a cause within 45 s.
NOW_SECONDS = 30.0
# A queue that stands for 10 s is no blip: healthy bursts clear in 3 to 4 s (recordings healthy-busy, -bursty).
RECENT_SECONDS = 10.0
_LAYOUT = attrgetter("layout")
_COUNTED = ("_total", "_sum", "_count", "_bucket")


# So many requests say what is usual now; where fewer came in the window of now it widens, up to three minutes.
ENOUGH_REQUESTS = 10.0
# So many within that time are a rush, a load of its own.
RUSH_SECONDS = 15.0
WIDEST_SECONDS = 180.0
# A figure of fewer requests is chance; in the newest third of the window of now they are a third of what is enough.
FEWEST_NEWEST_REQUESTS = 3.0
# Where pages lie so far apart that the newest part is most of the window, it tells nothing that the window does not.
MOST_NEWEST_SHARE = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Consecutive frames of one engine, the last one included; `history` resolves series that came later."""

    history: History
    frames: Sequence[Frame]
    subject: Subject
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    """What was read from it already: many signals ask for the same gauge, increase or histogram."""
    times: float = 1.0
    """How often it is taken to repeat: its seconds and what counters grew in it are multiplied by this."""

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return (self.frames[-1].at - self.frames[0].at) * self.times if self.frames else 0.0

    def columns(self, frame: Frame, selector: Selector) -> tuple[int, ...]:
        """Where a selector's samples stand in a frame, for this span's engine."""
        return frame.layout.columns(selector, self.subject.model_name, self.subject.engine)

    def total(self, frame: Frame, selector: Selector) -> float:
        """The sum over the selected series in a frame; NaN where one is unknown, or none is there and it is not 0."""
        columns = self.columns(frame, selector)
        return frame.total(columns) if columns or not frame.layout.is_zero(selector.metric) else 0.0

    def increase(self, selector: Selector) -> float | None:
        """How much the selected counters grew from the first frame to the last, summed.

        A series that was first seen inside the span counts from 0, since counters are born at 0. None where a value
        is unknown at either end or fell.
        """
        key = ("increase", selector)
        if key not in self.memo:
            self.memo[key] = self._increase(selector)
        grown: float | None = self.memo[key]
        return grown

    def _increase(self, selector: Selector) -> float | None:
        if len(self.frames) < 2:
            return None
        first, last = self.frames[0], self.frames[-1]
        columns = self.columns(last, selector)
        if not columns:
            return 0.0 if last.layout.is_zero(selector.metric) else None
        total = 0.0
        same = first.layout is last.layout
        for column in columns:
            grown = last.values[column] - first.values[column] if same else self.grown(first, last, column)
            if not grown >= 0.0:  # NaN compares false
                return None
            total += grown
        return total * self.times

    def grown(self, first: Frame, last: Frame, column: int) -> float:
        """The growth of the series in one column of the last frame; NaN where it is unknown."""
        value = last.values[column]
        key = last.layout.keys[column]
        position = first.layout.index.get(key)
        if position is not None:
            return value - first.values[position]
        seen = self.history.first_seen(key)
        born_inside = seen is not None and seen > first.at
        present = (self.subject.model_name, self.subject.engine) in first.layout.subjects
        return value if born_inside and (present or not self.subject.model_name) else nan

    def gauge(self, selector: Selector) -> list[float]:
        """The known values of a gauge over the frames, summed where a metric has several series."""
        known: list[float] | None = self.memo.get(selector)
        if known is None:
            known = self.memo[selector] = [value for value in self.totals(selector) if not isnan(value)]
        return known

    def totals(self, selector: Selector) -> list[float]:
        """The total of each frame; NaN where it is unknown."""
        key = ("totals", selector)
        found: list[float] | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._totals(selector)
        return found

    def _totals(self, selector: Selector) -> list[float]:
        found: list[float] = []
        # Most frames are of one layout, and most gauges are one series: a whole life is read with every page.
        for _, alike in groupby(self.frames, key=_LAYOUT):
            frames = list(alike)
            columns = self.columns(frames[0], selector)
            if len(columns) == 1:
                column = columns[0]
                found += [frame.values[column] for frame in frames]
            else:
                found += [self.total(frame, selector) for frame in frames]
        return found

    def buckets(self, bucket: Selector) -> list[tuple[float, float]] | None:
        """A histogram's upper bounds and its observations up to each; None where the set cannot be trusted.

        That is: a layout without +Inf, a bucket that fell, counts that do not rise with their bounds, buckets that
        changed inside the span.
        """
        key = ("buckets", bucket)
        if key not in self.memo:
            self.memo[key] = self._buckets(bucket)
        grown: list[tuple[float, float]] | None = self.memo[key]
        return grown

    def _buckets(self, bucket: Selector) -> list[tuple[float, float]] | None:
        if len(self.frames) < 2:
            return None
        first, last = self.frames[0], self.frames[-1]
        columns = last.layout.bucket_columns(bucket, self.subject.model_name, self.subject.engine)
        if columns is None:
            return None
        grown: list[tuple[float, float]] = []
        before = 0.0
        same = first.layout is last.layout
        old, new = first.values, last.values
        for bound, column in columns:
            count = new[column] - old[column] if same else self.grown(first, last, column)
            if not count >= before:
                return None
            grown.append((bound, count * self.times))
            before = count
        return grown

    def newest_labels(self, frame: Frame, selector: Selector) -> Mapping[str, str] | None:
        """Of series whose value is a time the labels of the newest in a frame; None where that is unknown."""
        newest = max(self.columns(frame, selector), key=lambda column: frame.values[column], default=None)
        if newest is None or isnan(frame.values[newest]):
            return None
        return frame.layout.series[newest].labels

    def thirds(self) -> list["Span"]:
        """Three parts of about equal time (two of three frames, none of fewer); neighbours share a frame."""
        if len(self.frames) < 3:
            return []
        count = min(3, len(self.frames) - 1)
        inner = range(1, len(self.frames) - 1)
        seconds = self.frames[-1].at - self.frames[0].at
        goals = [self.frames[0].at + seconds * part / count for part in range(1, count)]
        nearest = [min(inner, key=lambda index: abs(self.frames[index].at - goal)) for goal in goals]
        edges = pairwise([0, *nearest, len(self.frames) - 1])
        parts = (Span(self.history, self.frames[a : b + 1], self.subject) for a, b in edges)
        return [part for part in parts if part.seconds]

    def still_since(self, counters: tuple[Selector, ...]) -> int | None:
        """The first frame from which on no counter moved; None where the last one knows none of them."""
        key = ("still", counters)
        if key not in self.memo:
            self.memo[key] = self._still_since(counters)
        since: int | None = self.memo[key]
        return since

    def _still_since(self, counters: tuple[Selector, ...]) -> int | None:
        last = self.frames[-1] if len(self.frames) >= 2 else None
        totals = [(one, self.total(last, one)) for one in counters] if last else []
        values = [(one, value) for one, value in totals if not isnan(value)]
        if not values:
            return None

        def is_still(frame: Frame) -> bool:
            return not any(self._moved(frame, one, value) for one, value in values)

        if not is_still(self.frames[-2]):
            return len(self.frames) - 1
        if self.subject[1:] != WHOLE_TARGET:
            # Counters only grow within a life: frames that lack the last movement all come before those that have it.
            return bisect_left(self.frames, True, key=is_still)
        # The sum over engines falls when one of them restarts, while the others work on.
        since = len(self.frames) - 1
        while since > 0 and is_still(self.frames[since - 1]):
            since -= 1
        return since

    def _moved(self, frame: Frame, selector: Selector, value: float) -> bool:
        # A series that was not there yet has moved by appearing; an unknown value is no sign of movement.
        return (value != 0 and not self.columns(frame, selector)) or self.total(frame, selector) < value


def now_span(history: History, subject: Subject) -> Span | None:
    """The last 30 s of an engine's present life; None until half of it was seen, or after a gap as long as it."""
    begin = _begin(history, subject)
    if begin is None:
        return None
    at = history.times[-1]
    # A scrape is never exactly on time: a fiftieth of the window is no reason to take a whole scrape more.
    edge = at - NOW_SECONDS * 0.98
    first = max(begin, bisect_right(history.times, edge) - 1)
    if history.times[first] < at - 2 * NOW_SECONDS:
        first += 1
    span = Span(history, history.frames[first:], subject)
    return span if span.seconds >= NOW_SECONDS / 2 else None


def request_span(now: Span | None, first_tokens: Selector) -> Span | None:
    """The window of figures per request: that of now, or where few came the shortest that holds enough of them.

    It widens only while requests come: once the window of now has none, what was before it is over. So is what came
    closely together before, a rush or a burst: the window ends at it.
    """
    grown = None if now is None else now.increase(first_tokens)
    if now is None or grown is None or not 1 <= grown < ENOUGH_REQUESTS:
        return now
    history, subject = now.history, now.subject
    begin = _begin(history, subject)
    if begin is None:
        return now
    last = len(history.frames) - len(now.frames)
    first = max(begin, bisect_left(history.times, history.times[-1] - WIDEST_SECONDS))
    least = now.total(now.frames[-1], first_tokens) - ENOUGH_REQUESTS
    while last > first and not now.total(history.frames[last], first_tokens) <= least:
        if _is_rush(now, last - 1, first_tokens):
            break
        last -= 1
    return Span(history, history.frames[last:], subject)


def _is_rush(now: Span, first: int, first_tokens: Selector) -> bool:
    """Whether from one frame on so many requests came within a few scrapes that they are a load of their own."""
    history = now.history
    last = max(first + 1, bisect_right(history.times, history.times[first] + RUSH_SECONDS) - 1)
    came = now.total(history.frames[last], first_tokens) - now.total(history.frames[first], first_tokens)
    return came >= ENOUGH_REQUESTS


def recent_span(history: History, subject: Subject) -> Span | None:
    """The last 10 s; None until that much was seen, or where frames are so far apart that they say little.

    The frame at its far edge is taken in, so that frames 5 s apart give three and frames 15 s apart give two.
    """
    begin = _begin(history, subject)
    if begin is None:
        return None
    edge = history.times[-1] - RECENT_SECONDS * 0.98
    first = max(begin, bisect_right(history.times, edge) - 1)
    span = Span(history, history.frames[first:], subject)
    enough = span.seconds >= RECENT_SECONDS * 0.6 and len(span.frames) >= 2
    return span if enough and span.seconds <= NOW_SECONDS else None


def as_now(now: Span | None, recent: Span | None, first_tokens: Selector) -> Span | None:
    """The newest part of the window of now as if all of it had been so; None where it says too little.

    Too little are a handful of requests, and a part that is hardly shorter than the window.
    """
    if now is None or recent is None or recent.seconds > MOST_NEWEST_SHARE * now.seconds:
        return None
    came = recent.increase(first_tokens)
    if came is None or came < FEWEST_NEWEST_REQUESTS:
        return None
    return Span(now.history, recent.frames, now.subject, times=now.seconds / recent.seconds)


def span_between(history: History, subject: Subject, begin_at: float, end_at: float) -> Span | None:
    """The frames of an engine's present life from one time to another; None where there are under two."""
    begin = _begin(history, subject)
    if begin is None:
        return None
    first = max(begin, bisect_left(history.times, begin_at))
    last = bisect_right(history.times, end_at)
    return Span(history, history.frames[first:last], subject) if last - first >= 2 else None


def span_since_start(history: History, subject: Subject, seconds: float) -> Span | None:
    """From the start of an engine, when all its counters were 0, to the newest page; None before the first page.

    `seconds` is how old the server is, 0 where nothing shows it: rates are unknown then. What is no counter is unknown
    in it: nobody knows how a gauge stood over that time.
    """
    if not history.frames:
        return None
    newest = history.frames[-1]
    counts = [one.name.endswith(_COUNTED) for one in newest.layout.series]
    born = array("d", (0.0 if one else nan for one in counts))
    now = array("d", (value if one else nan for one, value in zip(counts, newest.values, strict=True)))
    frames = [Frame(newest.at - seconds, newest.layout, born), Frame(newest.at, newest.layout, now)]
    return Span(history, frames, subject)


def life_span(history: History, subject: Subject) -> Span | None:
    """All remembered frames of an engine's present life."""
    begin = _begin(history, subject)
    return None if begin is None else Span(history, history.frames[begin:], subject)


def _begin(history: History, subject: Subject) -> int | None:
    epoch = history.epoch(subject.model_name, subject.engine)
    if epoch is None or not history.frames:
        return None
    begin = bisect_left(history.times, epoch)
    return begin if begin < len(history.frames) else None
