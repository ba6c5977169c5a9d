"""`GET /load`: when a server is asked how many requests it holds, and what its answer says."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

# A server that works is asked this seldom: only to learn whether it counts.
PAUSE_SECONDS = 60.0
# Beyond this a number is a mistake, whoever told it.
_GREATEST = 10**9
# What of a page changes when a step ends, under any prefix. Searched for as bytes: the parser comes later, and a
# regular expression takes three times as long.
_PROGRESS = (b"iteration_tokens_total_count", b"generation_tokens_total", b"prompt_tokens_total")


def requests_in_flight(body: bytes | str) -> int | None:
    """The number that an answer of `GET /load` tells, in requests; None where it tells none."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    number = told.get("server_load") if isinstance(told, dict) else None
    is_count = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _GREATEST
    return number if is_count else None


def answer_of(in_flight: int) -> str:
    """An answer that tells this number, as a server gives it."""
    return json.dumps({"server_load": in_flight}, separators=(",", ":"))


@dataclass(slots=True)
class LoadAsking:
    """Decides beside which pages a server is asked; times are monotonic seconds.

    It is where no step ended since the page before, where the API server is suspected, and once a minute otherwise, so
    that a busy server pays nothing for it. A server without `/load` is not asked again before its next start.
    """

    offered: bool = True
    _progress: list[bytes] = field(default_factory=list)
    _asked_at: float | None = None

    def is_due(self, page: bytes, at: float, is_suspected: bool) -> bool:
        """Takes each page in its turn; whether to ask beside this one."""
        progress = list(_progress_lines(page))
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


def _progress_lines(page: bytes) -> Iterator[bytes]:
    """The lines of counters of progress, each from the counter's name on; HELP and TYPE among them never change."""
    for name in _PROGRESS:
        begin = page.find(name)
        while begin >= 0:
            end = page.find(b"\n", begin)
            yield page[begin:end]
            begin = page.find(name, end) if end >= 0 else -1
