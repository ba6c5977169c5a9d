"""A bounded ring of pages of one target, cut at the restarts of each engine."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from watchdog.model import Page, Series, Subject
from watchdog.signals.names import CORE, spellings
from watchdog.signals.owners import Owners, owners_of

# Ten minutes of baseline, the window of now, and a margin.
RETENTION_SECONDS = 660.0
# At one scrape a second the ring holds RETENTION_SECONDS; faster scraping shortens the baseline, not the memory.
MOST_FRAMES = 720
# Engines of one page that are looked at; a server of vLLM has tens at most, and each costs a judgement of all rules.
MOST_ENGINES = 128
# A longer name is no model's: it would stand in every incident, label and answer.
MOST_NAME_CHARACTERS = 512
# What all frames may hold, in values: one target must not take the memory of all. A shape of its own makes a frame
# dear: each series then has its key and places (some 500 bytes), each engine its columns (some 20 kB).
MOST_VALUES = 8_000_000
_VALUES_A_SERIES = 64
_VALUES_AN_ENGINE = 2_500
WHOLE_TARGET = ("", "")

# Counters that show a restart by falling. Not histograms' buckets: the counts say the same.
_RESET_MARKS = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:iteration_tokens_total_count",
    "vllm:time_to_first_token_seconds_count",
    "vllm:prefix_cache_queries_total",
)


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """The samples of one metric, by canonical name, whose labels have the given values.

    Compared by identity, which is what makes the many look-ups of each step cheap: make each once.
    """

    metric: str
    matchers: tuple[tuple[str, str], ...] = ()


SeriesKey = tuple[str, frozenset[tuple[str, str]]]


_START_TIME = Selector("process_start_time_seconds")


@dataclass(slots=True, eq=False)
class Layout:
    """Where each series of a page stands; shared by all frames of one shape."""

    series: tuple[Series, ...]
    subjects: tuple[tuple[str, str], ...]
    """The (model_name, engine) pairs that the page has core series of, as many of them as are looked at."""
    surplus_engines: int
    """How many more of them the page has, those with names too long among them."""
    keys: tuple[SeriesKey, ...]
    index: Mapping[SeriesKey, int]
    by_name: Mapping[str, tuple[int, ...]]
    by_engine: Mapping[tuple[str, str | None, str | None], tuple[int, ...]]
    """Positions by name, model_name and engine; None for a label that a series lacks."""
    owners: Owners
    found: dict[tuple[Selector, str, str], tuple[int, ...]] = field(default_factory=dict)
    buckets: dict[tuple[Selector, str, str], tuple[tuple[float, int], ...] | None] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, series: tuple[Series, ...]) -> "Layout":
        """The layout of a page of these series."""
        keys = tuple((one.name, frozenset(one.labels.items())) for one in series)
        by_name: dict[str, list[int]] = {}
        by_engine: dict[tuple[str, str | None, str | None], list[int]] = {}
        owners = owners_of(series)
        for position, (one, owner) in enumerate(zip(series, owners.each, strict=True)):
            by_name.setdefault(one.name, []).append(position)
            by_engine.setdefault((one.name, *owner), []).append(position)
        everyone = _subjects(owners, by_name)
        subjects = tuple(one for one in everyone if len("".join(one)) <= MOST_NAME_CHARACTERS)[:MOST_ENGINES]
        return cls(
            series=series,
            subjects=subjects,
            surplus_engines=len(everyone) - len(subjects),
            keys=keys,
            index={key: position for position, key in enumerate(keys)},
            by_name={name: tuple(positions) for name, positions in by_name.items()},
            by_engine={owner: tuple(positions) for owner, positions in by_engine.items()},
            owners=owners,
        )

    @property
    def weight(self) -> int:
        """What it takes to remember, in values."""
        return _VALUES_A_SERIES * len(self.series) + _VALUES_AN_ENGINE * len(self.subjects)

    def columns(self, selector: Selector, model_name: str, engine: str) -> tuple[int, ...]:
        """The positions a selector has for an engine; series without these labels belong to every engine."""
        key = (selector, model_name, engine)
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = self._find(selector, model_name, engine)
        return found

    def _find(self, selector: Selector, model_name: str, engine: str) -> tuple[int, ...]:
        for name in spellings(selector.metric):
            positions = self._positions(name, model_name, engine)
            matching = tuple(position for position in positions if self._matches(position, selector))
            if matching:
                return matching
        return ()

    def _positions(self, name: str, model_name: str, engine: str) -> Sequence[int]:
        if (model_name, engine) == WHOLE_TARGET:
            return self.by_name.get(name, ())
        # What a page of several servers shows without the name of one (its configuration) is every server's.
        engines = dict.fromkeys((engine, self.owners.parted(engine)[0], None))
        owners = ((name, model, one) for model in (model_name, None) for one in engines)
        return sorted(position for owner in owners for position in self.by_engine.get(owner, ()))

    def _matches(self, position: int, selector: Selector) -> bool:
        labels = self.series[position].labels
        return all(labels.get(name) == value for name, value in selector.matchers)

    def bucket_columns(
        self, selector: Selector, model_name: str, engine: str
    ) -> tuple[tuple[float, int], ...] | None:
        """Upper bounds and positions of a histogram's buckets, in order; None for a set no quantile can be read from.

        That is: no `+Inf`, a bound twice, a bound that is no number, or no bucket at all.
        """
        key = (selector, model_name, engine)
        if key not in self.buckets:
            self.buckets[key] = self._bucket_columns(self.columns(selector, model_name, engine))
        return self.buckets[key]

    def _bucket_columns(self, columns: tuple[int, ...]) -> tuple[tuple[float, int], ...] | None:
        try:
            bounds = sorted((float(self.series[position].labels["le"]), position) for position in columns)
        except (KeyError, ValueError):
            return None
        distinct = len({bound for bound, _ in bounds}) == len(bounds)
        return tuple(bounds) if bounds and distinct and bounds[-1][0] == float("inf") else None


def _subjects(owners: Owners, by_name: Mapping[str, Sequence[int]]) -> tuple[tuple[str, str], ...]:
    names = (name for core in CORE for name in spellings(core))
    found = (owners.each[position] for name in names for position in by_name.get(name, ()))
    return tuple(dict.fromkeys((model_name or "", engine or "") for model_name, engine in found))


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One page: its monotonic time and its values by position."""

    at: float
    layout: Layout
    values: "array[float]"

    def total(self, columns: Sequence[int]) -> float:
        """The sum over columns; NaN where one is unknown or there is none."""
        if not columns:
            return nan
        values = self.values
        return values[columns[0]] if len(columns) == 1 else sum(values[column] for column in columns)


@dataclass(frozen=True, slots=True)
class Reset:
    """An engine (or with empty names the whole process) that began anew, at a frame's time."""

    model_name: str
    engine: str
    at: float


class History:
    """The frames of one target. One writer; nothing here reads a clock."""

    def __init__(self, retention_seconds: float = RETENTION_SECONDS, most_frames: int = MOST_FRAMES) -> None:
        self._retention_seconds = retention_seconds
        self._most_frames = most_frames
        self.frames: list[Frame] = []
        self.times: list[float] = []
        self._epochs: dict[tuple[str, str], float] = {}
        self._first_seen: dict[SeriesKey, float] = {}
        self._layout: Layout | None = None
        self._held_values = 0
        self.overfull = False
        """Whether the last page made older ones go before their time, for want of memory."""

    def append(self, page: Page, at: float) -> tuple[Reset, ...]:
        """Adds a page; returns the engines that began anew with it."""
        layout = self._layout
        if layout is None or layout.series is not page.series:
            layout = self._layout = Layout.of(page.series)
            self._remember(layout, at)
        frame = Frame(at, layout, array("d", page.values))
        self._held_values += self._cost(frame, self.frames[-1] if self.frames else None)
        resets = tuple(self._resets(frame))
        for reset in resets:
            self._epochs[reset.model_name, reset.engine] = at
        for subject in layout.subjects:
            self._epochs.setdefault(subject, at)
        self._epochs.setdefault(WHOLE_TARGET, at)
        self.frames.append(frame)
        self.times.append(at)
        self._trim(at)
        return resets

    def epoch(self, model_name: str, engine: str) -> float | None:
        """Since when this engine's counters run without a break; None for one never seen."""
        return self._epochs.get((model_name, engine))

    def subjects(self) -> tuple[tuple[str, str], ...]:
        """The engines on the last page."""
        return self.frames[-1].layout.subjects if self.frames else ()

    def first_seen(self, key: SeriesKey) -> float | None:
        """When a series was first on a page, within what is remembered."""
        return self._first_seen.get(key)

    def _remember(self, layout: Layout, at: float) -> None:
        known = {key: self._first_seen.get(key, at) for key in layout.keys}
        for frame_layout in {id(frame.layout): frame.layout for frame in self.frames}.values():
            for key in frame_layout.keys:
                if key in self._first_seen:
                    known[key] = self._first_seen[key]
        self._first_seen = known

    def _resets(self, frame: Frame) -> Iterator[Reset]:
        if not self.frames:
            return
        before = self.frames[-1]
        if self._process_started(before, frame):
            yield Reset("", "", frame.at)
            for model_name, engine in frame.layout.subjects:
                yield Reset(model_name, engine, frame.at)
            return
        for model_name, engine in frame.layout.subjects:
            if _fell(before, frame, model_name, engine):
                yield Reset(model_name, engine, frame.at)

    @staticmethod
    def _process_started(before: Frame, frame: Frame) -> bool:
        old = before.total(before.layout.columns(_START_TIME, "", ""))
        new = frame.total(frame.layout.columns(_START_TIME, "", ""))
        # Clocks that are slewed move the start time by parts of a second; a new process by more.
        return abs(new - old) > 1.0

    def _trim(self, at: float) -> None:
        first = bisect_right(self.times, at - self._retention_seconds)
        surplus = max(first, len(self.frames) - self._most_frames)
        too_much = self.overfull = self._held_values > MOST_VALUES
        # In steps, since deleting at the front of a list costs its length.
        if surplus > 16 or too_much:
            self._drop(max(surplus, len(self.frames) // 4 + 1) if too_much else surplus)
            present = self.frames[-1].layout.subjects
            self._epochs = {
                subject: since
                for subject, since in self._epochs.items()
                if subject in present or subject == WHOLE_TARGET or since >= self.times[0]
            }

    def _drop(self, count: int) -> None:
        """Forgets the oldest frames, but never the newest two, which tell a restart and a growth."""
        count = min(count, len(self.frames) - 2)
        if count <= 0:
            return
        del self.frames[:count]
        del self.times[:count]
        before: list[Frame | None] = [None, *self.frames]
        self._held_values = sum(map(self._cost, self.frames, before))

    @staticmethod
    def _cost(frame: Frame, before: Frame | None) -> int:
        shared = before is not None and before.layout is frame.layout
        return len(frame.values) + (0 if shared else frame.layout.weight)


_MARKS = tuple(Selector(name) for name in _RESET_MARKS)


def _fell(before: Frame, frame: Frame, model_name: str, engine: str) -> bool:
    for selector in _MARKS:
        old = before.total(before.layout.columns(selector, model_name, engine))
        new = frame.total(frame.layout.columns(selector, model_name, engine))
        if new < old:
            return True
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Consecutive frames of one engine, the last one included; `history` resolves series that came later."""

    history: History
    frames: Sequence[Frame]
    subject: Subject
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    """What was read from it already: many signals ask for the same gauge, increase or histogram."""

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return self.frames[-1].at - self.frames[0].at if self.frames else 0.0

    def columns(self, frame: Frame, selector: Selector) -> tuple[int, ...]:
        """Where a selector's samples stand in a frame, for this span's engine."""
        return frame.layout.columns(selector, self.subject.model_name, self.subject.engine)

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
            return None
        total = 0.0
        same = first.layout is last.layout
        for column in columns:
            grown = last.values[column] - first.values[column] if same else self.grown(first, last, column)
            if not grown >= 0.0:  # NaN compares false
                return None
            total += grown
        return total

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
            known = self.memo[selector] = self._gauge(selector)
        return known

    def _gauge(self, selector: Selector) -> list[float]:
        values = []
        layout: Layout | None = None
        columns: tuple[int, ...] = ()
        for frame in self.frames:
            if frame.layout is not layout:
                layout, columns = frame.layout, self.columns(frame, selector)
            value = frame.total(columns)
            if not isnan(value):
                values.append(value)
        return values


class WindowShape:
    """Which frames the windows take. Seconds; the reasons stand beside each figure."""

    # Long enough for 5 requests on a light server, short enough to name a cause within 45 s.
    NOW_SECONDS = 30.0
    # A queue that stands for 15 s is no blip: healthy bursts clear in 3 to 4 s (recordings healthy-busy, -bursty).
    RECENT_SECONDS = 15.0
    BASELINE_SECONDS = 600.0
    # One interval of 10 s is enough, and a scrape may come a little early: else a slow scraper compares with 20 s,
    # the second half of which an incident that just began has coloured.
    LEAST_BASELINE_SECONDS = 9.5


def now_span(history: History, subject: Subject) -> Span | None:
    """The last 30 s of an engine's present life; None until half of it was seen, or after a gap as long as it."""
    begin = _begin(history, subject)
    if begin is None:
        return None
    at = history.times[-1]
    # A scrape is never exactly on time: a fiftieth of the window is no reason to take a whole scrape more.
    edge = at - WindowShape.NOW_SECONDS * 0.98
    first = max(begin, bisect_right(history.times, edge) - 1)
    if history.times[first] < at - 2 * WindowShape.NOW_SECONDS:
        first += 1
    span = Span(history, history.frames[first:], subject)
    return span if span.seconds >= WindowShape.NOW_SECONDS / 2 else None


def recent_span(history: History, subject: Subject) -> Span | None:
    """The last 15 s; None until that much was seen, or where frames are so far apart that they say little.

    The frame at its far edge is taken in, so that frames 5 s apart give four and frames 15 s apart give two.
    """
    begin = _begin(history, subject)
    if begin is None:
        return None
    edge = history.times[-1] - WindowShape.RECENT_SECONDS * 0.98
    first = max(begin, bisect_right(history.times, edge) - 1)
    span = Span(history, history.frames[first:], subject)
    enough = span.seconds >= WindowShape.RECENT_SECONDS * 0.6 and len(span.frames) >= 2
    return span if enough and span.seconds <= WindowShape.NOW_SECONDS else None


def baseline_span(history: History, subject: Subject, end_at: float | None = None) -> Span | None:
    """Up to ten minutes before now (or before `end_at`); None where it is shorter than 9.5 s."""
    begin = _begin(history, subject)
    if begin is None:
        return None
    edge = history.times[-1] - WindowShape.NOW_SECONDS * 0.98 if end_at is None else end_at
    last = bisect_right(history.times, edge)
    first = max(begin, bisect_right(history.times, edge - WindowShape.BASELINE_SECONDS))
    span = Span(history, history.frames[first:last], subject)
    return span if span.seconds >= WindowShape.LEAST_BASELINE_SECONDS else None


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
