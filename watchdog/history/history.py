"""A bounded ring of pages of one target, cut at the restarts of each engine."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from watchdog.history.layout import WHOLE_TARGET, Frame, Layout, Selector, SeriesKey
from watchdog.history.shapes import Shapes
from watchdog.model import Page, Series

# Ten minutes of baseline, the window of now, and a margin.
RETENTION_SECONDS = 660.0
# At one scrape a second the ring holds RETENTION_SECONDS; faster scraping shortens the baseline, not the memory.
MOST_FRAMES = 720
# What all frames may hold, in values: one target must not take the memory of all.
MOST_VALUES = 8_000_000

# Counters that show a restart by falling. Not histograms' buckets: the counts say the same.
_RESET_MARKS = (
    Selector("vllm:prompt_tokens_total"),
    Selector("vllm:generation_tokens_total"),
    Selector("vllm:iteration_tokens_total_count"),
    Selector("vllm:time_to_first_token_seconds_count"),
    Selector("vllm:prefix_cache_queries_total"),
)
START_TIME = Selector("process_start_time_seconds")


@dataclass(frozen=True, slots=True)
class Reset:
    """An engine (or with empty names the whole process) that restarted, at a frame's time."""

    model_name: str
    engine: str
    at: float


class Marks(NamedTuple):
    """What one page shows of an engine's life: the start of its process (unix seconds), and counters that only grow.

    NaN is unknown.
    """

    process_start_seconds: float
    counters: tuple[float, ...]

    def are_continued_by(self, now: "Marks") -> bool:
        """Whether no new process and no fall of a counter lies between; what one side does not know says nothing."""
        fell = any(new < old for old, new in zip(self.counters, now.counters, strict=False))
        return not (_is_another_start(self.process_start_seconds, now.process_start_seconds) or fell)


class History:
    """The frames of one target. One writer; nothing here reads a clock."""

    def __init__(
        self,
        retention_seconds: float = RETENTION_SECONDS,
        most_frames: int = MOST_FRAMES,
        shapes: Shapes | None = None,
    ) -> None:
        self._retention_seconds = retention_seconds
        self._most_frames = most_frames
        self.frames: list[Frame] = []
        self.times: list[float] = []
        self._epochs: dict[tuple[str, str], float] = {}
        self._first_seen: dict[SeriesKey, float] = {}
        self._shapes = shapes or Shapes()
        self._layout: Layout | None = None
        self._series: tuple[Series, ...] = ()
        self._held_values = 0
        self.overfull = False
        """Whether the last page made older ones go before their time, for want of memory."""

    def append(self, page: Page, at: float) -> tuple[Reset, ...]:
        """Adds a page; returns the engines that restarted with it."""
        layout = self._layout
        if layout is None or self._series is not page.series:
            layout = self._layout = self._shapes.layout(page.series)
            self._series = page.series
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

    def until(self, length: int) -> "History":
        """As it stood with so many of its frames, but for what is known of series since: to look back, never to add."""
        then = History(self._retention_seconds, self._most_frames, self._shapes)
        then.frames, then.times = self.frames[:length], self.times[:length]
        then._epochs, then._first_seen = dict(self._epochs), self._first_seen
        return then

    def epoch(self, model_name: str, engine: str) -> float | None:
        """Since when this engine's counters run without a break; None for one never seen."""
        return self._epochs.get((model_name, engine))

    def marks(self, model_name: str, engine: str) -> Marks | None:
        """What the last page shows of an engine's life; None before the first one."""
        if not self.frames:
            return None
        last = self.frames[-1]
        counters = (last.total(last.layout.columns(one, model_name, engine)) for one in _RESET_MARKS)
        return Marks(last.total(last.layout.columns(START_TIME, *WHOLE_TARGET)), tuple(counters))

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
        old = before.total(before.layout.columns(START_TIME, *WHOLE_TARGET))
        new = frame.total(frame.layout.columns(START_TIME, *WHOLE_TARGET))
        return _is_another_start(old, new)

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


def _is_another_start(old: float, new: float) -> bool:
    # Clocks that are slewed move the start time by parts of a second; a new process by more.
    return abs(new - old) > 1.0


def _fell(before: Frame, frame: Frame, model_name: str, engine: str) -> bool:
    for selector in _RESET_MARKS:
        old = before.total(before.layout.columns(selector, model_name, engine))
        new = frame.total(frame.layout.columns(selector, model_name, engine))
        if new < old:
            return True
    return False
