"""The readings of one server over 24 hours: the greatest of each ten minutes, and what changed meanwhile."""

import json
import math
import threading
from collections.abc import Sequence
from itertools import takewhile

from watchdog.model import Snapshot
from watchdog.report.course import Line, Mark
from watchdog.report.day import SLOT_SECONDS, SLOTS
from watchdog.report.overall import over

LINES = ("waiting_requests", "kv_usage_ratio", "ttft_p95_seconds", "running_requests")
"""What is kept: as text some 3 kB a server."""
MOST_MARKS = 50
_MOST_CHARACTERS = 300
_DIGITS = 3
_NOT_KNOWN: tuple[float | None, ...] = (None,) * SLOTS


class DayReadings:
    """The greatest value of each reading by ten minutes of the wall clock, the oldest forgotten.

    One thread writes, many may read. A clock set back takes what was seen along.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1
        self._lines: dict[str, tuple[float | None, ...]] = {}
        self._marks: tuple[Mark, ...] = ()

    @classmethod
    def read(cls, text: str) -> "DayReadings":
        """What `text` wrote; empty for anything else."""
        day = cls()
        last, _, body = text.partition(":")
        if not (last.isascii() and last.isdigit() and len(last) < 12):
            return day
        try:
            told = json.loads(body)
            lines = {
                name: tuple(map(_number, told["lines"][name])) for name in LINES if name in told["lines"]
            }
            marks = tuple(Mark(float(wall), str(words)) for wall, words in told["marks"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return day
        if all(len(line) == SLOTS for line in lines.values()) and len(marks) <= MOST_MARKS:
            day._last, day._lines, day._marks = int(last), lines, marks
        return day

    def text(self) -> str:
        """All of it in a line, the number of the last slot first."""
        with self._lock:
            lines = {name: list(map(_rounded, line)) for name, line in self._lines.items()}
            marks = [[round(each.wall, 1), each.text[:_MOST_CHARACTERS]] for each in self._marks]
            return f"{self._last}:{json.dumps({'lines': lines, 'marks': marks}, separators=(',', ':'))}"

    def note(self, snapshot: Snapshot, marks: Sequence[Mark] = ()) -> bool:
        """Takes what one step read, and the changes that were seen of late; returns whether it is time to keep it.

        That is where ten minutes are over, or something changed: a kill loses the last ten minutes.
        """
        engines = snapshot.readings if snapshot.up else ()
        values = {name: over(engines, name) for name in LINES}
        slot = int(snapshot.wall // SLOT_SECONDS)
        with self._lock:
            is_another = slot != self._last
            self._lines = {name: _with(self._until(name, slot), value) for name, value in values.items()}
            self._last = slot
            return self._take(marks, snapshot.wall) or is_another

    def line(self, name: str, wall: float) -> Line | None:
        """A reading over the 24 hours until now (unix seconds); None where nothing of it is known."""
        slot = int(wall // SLOT_SECONDS)
        with self._lock:
            values = self._until(name, slot)
        if all(value is None for value in values):
            return None
        return Line(name, [(slot - SLOTS + 1 + place) * SLOT_SECONDS for place in range(SLOTS)], values)

    def marks(self, wall: float) -> list[Mark]:
        """What changed in the 24 hours until now, the oldest first."""
        with self._lock:
            return [each for each in self._marks if each.wall > wall - SLOTS * SLOT_SECONDS]

    def _take(self, marks: Sequence[Mark], wall: float) -> bool:
        """Adds the marks that are new; those of an earlier process stay for their day."""
        known = set(self._marks)
        new = [*takewhile(lambda each: each not in known, reversed(marks))][::-1]
        kept = [each for each in self._marks if each.wall > wall - SLOTS * SLOT_SECONDS]
        self._marks = tuple([*kept, *new][-MOST_MARKS:])
        return bool(new)

    def _until(self, name: str, slot: int) -> tuple[float | None, ...]:
        line = self._lines.get(name, _NOT_KNOWN)
        passed = min(SLOTS, max(0, slot - self._last)) if self._last >= 0 else SLOTS
        return (*line[passed:], *_NOT_KNOWN[:passed])


def _with(line: tuple[float | None, ...], value: float | None) -> tuple[float | None, ...]:
    """The line with a value taken into its last slot."""
    if value is None or not math.isfinite(value):
        return line
    before = line[-1]
    return (*line[:-1], value if before is None else max(before, value))


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    # A queue of 114 requests is written as 114, a share as 0.96.
    shown = float(f"{value:.{_DIGITS}g}")
    return int(shown) if shown.is_integer() else shown


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)
