"""`GET /load`: when a server is asked how many requests it holds, and what its answer says."""

import json
from dataclasses import dataclass, field
from typing import NamedTuple

# A server that works is asked this seldom: only to learn whether it counts.
PAUSE_SECONDS = 60.0
# Beyond this a number is a mistake, whoever told it.
_GREATEST = 10**9
# What of a page changes when a step ends, under any prefix. Searched for as bytes, near where it was on the page
# before: the parser comes later, and a search of the whole page costs a tenth of the step.
_NEARBY_BYTES = 1024
_PROGRESS = (b"iteration_tokens_total_count", b"generation_tokens_total", b"prompt_tokens_total")


def requests_in_flight(body: bytes | str) -> int | None:
    """The number in an answer of `GET /load`, in requests; None if it has none."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    number = told.get("server_load") if isinstance(told, dict) else None
    is_count = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _GREATEST
    return number if is_count else None


def answer_of(in_flight: int) -> str:
    """An answer with this number, as a server gives it."""
    return json.dumps({"server_load": in_flight}, separators=(",", ":"))


class _Place(NamedTuple):
    """Where on a page the lines of a counter begin and end, and how many they are."""

    begin: int
    end: int
    number: int


class _Found(NamedTuple):
    lines: list[bytes]
    place: _Place


@dataclass(slots=True)
class LoadAsking:
    """Decides beside which pages a server is asked; times are monotonic seconds.

    It is where no step ended since the page before, where the API server is suspected, and once a minute otherwise, so
    that a busy server pays nothing for it. A server without `/load` is not asked again before its next start.
    """

    offered: bool = True
    _progress: list[bytes] = field(default_factory=list)
    _places: dict[bytes, _Place] = field(default_factory=dict)
    _asked_at: float | None = None

    def is_due(self, page: bytes, at: float, is_suspected: bool) -> bool:
        """Takes each page in its turn; whether to ask beside this one."""
        progress = [line for name in _PROGRESS for line in self._lines(name, page)]
        is_still = bool(progress) and progress == self._progress
        self._progress = progress
        if self._asked_at is None:
            self._asked_at = at
        is_due = self.offered and (is_still or is_suspected or at - self._asked_at >= PAUSE_SECONDS)
        if is_due:
            self._asked_at = at
        return is_due

    def refused(self) -> None:
        """The server has no such path."""
        self.offered = False

    def begin_again(self) -> None:
        """A page failed: another process may answer next."""
        self.offered, self._progress, self._asked_at = True, [], None
        self._places.clear()

    def _lines(self, name: bytes, page: bytes) -> list[bytes]:
        """The lines of one counter, looked for where they were on the page before."""
        place = self._places.get(name)
        if place is not None and place.number:
            found = _found(name, page, max(0, place.begin - _NEARBY_BYTES), place.end + _NEARBY_BYTES)
            if len(found.lines) == place.number:
                self._places[name] = found.place
                return found.lines
        found = _found(name, page, 0, len(page))
        self._places[name] = found.place
        return found.lines


def _found(name: bytes, page: bytes, begin: int, end: int) -> _Found:
    """The lines of a counter between two places, each from its name on; HELP and TYPE among them never change."""
    lines: list[bytes] = []
    first = last = begin
    place = page.find(name, begin, end)
    while place >= 0:
        first = first if lines else place
        last = page.find(b"\n", place)
        last = last if last >= 0 else len(page)
        lines.append(page[place:last])
        place = page.find(name, last, end)
    return _Found(lines, _Place(first, last, len(lines)))
