"""How the readings of one server went: compact samples of the last minutes, for pictures and for where it is going."""

import math
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watchdog.model import Readings, Snapshot

SPAN_SECONDS = 690.0
"""As long as the pages of the diagnosis are remembered, and a little more."""
MOST_SAMPLES = 160
"""Of one engine. 19 lines of them take 12 kB."""
MOST_SAMPLES_OF_ALL = 320
"""Of all engines of a server together: 25 kB, however many there are."""
LEAST_SAMPLES = 20
_MOST_MARKS = 20
BUDGET = {"queue": "queue_seconds", "prefill": "prefill_seconds", "decode": "decode_seconds"}
"""The line of each part of the latency budget, in seconds of an average request."""
LINES = (
    *("waiting_requests", "running_requests", "kv_usage_ratio", "ttft_p50_seconds", "ttft_p95_seconds"),
    *("itl_p50_seconds", "itl_p99_seconds", "prompt_tokens_per_second", "generation_tokens_per_second"),
    *("arrivals_per_second", "finished_requests_per_second", "prefix_hit_ratio", "preemptions_per_second"),
    *("seconds_since_progress", "prompt_tokens_mean", "single_stream_tokens_per_second"),
    *BUDGET.values(),
)
_NAN = math.nan

Engine = tuple[str, str]
"""Its model and its number, each empty where the server has no such label."""


@dataclass(frozen=True, slots=True)
class Line:
    """One reading over time: unix seconds, the oldest first, and a value for each; None where it was unknown."""

    name: str
    times: Sequence[float]
    values: Sequence[float | None]

    @property
    def known(self) -> list[float]:
        """The values that are known, the oldest first."""
        return [value for value in self.values if value is not None]

    def at(self, wall: float) -> float | None:
        """The last known value not after that moment; None where there is none."""
        pairs = zip(reversed(self.times), reversed(self.values), strict=True)
        return next((value for time, value in pairs if time <= wall and value is not None), None)


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of the server at a moment (unix seconds), in words."""

    wall: float
    text: str


class Course:
    """Samples of one server's readings over `SPAN_SECONDS`, bounded in bytes. One thread writes, many may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times = array("d")
        self._offset = 0.0
        self._began = -math.inf
        self._lines: dict[Engine, dict[str, array[float]]] = {}
        self._marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
        self._identity: Mapping[str, str] = {}

    def note(self, snapshot: Snapshot) -> None:
        """Takes what one step read; a step that comes sooner than a sample's time replaces the newest sample."""
        with self._lock:
            self._offset = snapshot.wall - snapshot.at
            self._note_restarts(snapshot)
            self._note_changes(snapshot)
            engines = {
                each.subject[1:]: each for each in snapshot.readings[: MOST_SAMPLES_OF_ALL // LEAST_SAMPLES]
            }
            most = _most_samples(max(len(engines), len(self._lines), 1))
            # The newest sample moves within its time, and the oldest has moved to the end of its own.
            if snapshot.at - self._began < SPAN_SECONDS / (most - 2) and self._times:
                self._pop()
            else:
                self._began = snapshot.at
            self._append(snapshot.at, engines)
            self._trim(most)

    def engines(self) -> list[Engine]:
        """The engines of which anything is known."""
        with self._lock:
            return list(self._lines)

    def line(self, engine: Engine, name: str) -> Line | None:
        """How a reading of an engine went; None where nothing of it is known."""
        with self._lock:
            values = self._lines.get(engine, {}).get(name)
            if values is None:
                return None
            times = [at + self._offset for at in self._times]
            shown = [None if math.isnan(value) else value for value in values]
        return Line(name, times, shown) if any(value is not None for value in shown) else None

    def marks(self) -> list[Mark]:
        """Restarts, and changes of version and configuration, that were seen, the oldest first."""
        with self._lock:
            return list(self._marks)

    def _append(self, at: float, engines: Mapping[Engine, Readings]) -> None:
        for new in engines.keys() - self._lines.keys():
            self._lines[new] = {name: array("f", [_NAN]) * len(self._times) for name in LINES}
        self._times.append(at)
        for engine, lines in self._lines.items():
            values = _values(engines.get(engine))
            for name, line in lines.items():
                line.append(values.get(name, _NAN))

    def _pop(self) -> None:
        self._times.pop()
        for lines in self._lines.values():
            for line in lines.values():
                line.pop()

    def _trim(self, most: int) -> None:
        surplus = len(self._times) - most
        if surplus > 0:
            del self._times[:surplus]
            for lines in self._lines.values():
                for line in lines.values():
                    del line[:surplus]
        gone = [each for each, lines in self._lines.items() if all(map(_is_empty, lines.values()))]
        for each in gone:
            del self._lines[each]

    def _note_restarts(self, snapshot: Snapshot) -> None:
        if not snapshot.restarted:
            return
        engines = sorted({each.engine for each in snapshot.restarted})
        # The whole process, or all of its engines at once, is the server.
        is_whole = "" in engines or len(engines) >= len(snapshot.readings)
        what = "the server" if is_whole else f"engine {', '.join(engines)}"
        self._marks.append(Mark(snapshot.wall, f"{what} restarted"))

    def _note_changes(self, snapshot: Snapshot) -> None:
        vllm = snapshot.vllm
        now = {**vllm.config, **({"vLLM": vllm.version} if vllm.version else {})}
        if not now:
            return
        before, self._identity = self._identity, now
        changed = [
            f"{name} {before[name]} to {value}"
            for name, value in now.items()
            if name in before and before[name] != value
        ]
        if changed:
            self._marks.append(Mark(snapshot.wall, ", ".join(changed)))


def _most_samples(engines: int) -> int:
    return max(LEAST_SAMPLES, min(MOST_SAMPLES, MOST_SAMPLES_OF_ALL // engines))


def _is_empty(line: "array[float]") -> bool:
    return all(map(math.isnan, line))


def _values(readings: Readings | None) -> dict[str, float]:
    if readings is None:
        return {}
    values = {name: value for name in LINES if (value := readings.values.get(name)) is not None}
    parts = readings.latency_budget
    values |= {line: parts[phase].seconds for phase, line in BUDGET.items() if phase in parts}
    return values
