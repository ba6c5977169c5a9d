"""Whether the watching keeps its pace: cycles that were skipped or late."""

import logging
from collections import deque
from typing import NamedTuple

# What share of the last minute's cycles may be skipped or late before people hear of it, and when that is over.
TOLERATED_SHARE = 0.01
WINDOW_SECONDS = 60.0

log = logging.getLogger(__name__)


class Counts(NamedTuple):
    """Cycles since the start: those that came due, that were left out, and that began late."""

    due: int = 0
    skipped: int = 0
    late: int = 0


class Pace:
    """Looks at the counts about every second; logs when the pace is lost, and when it is kept again."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Counts]] = deque([(float("-inf"), Counts())])
        self._is_lost = False

    def look(self, counts: Counts, at: float) -> None:
        """Takes the counts as they are at a monotonic time."""
        self._seen.append((at, counts))
        while len(self._seen) > 2 and self._seen[1][0] <= at - WINDOW_SECONDS:
            self._seen.popleft()
        note = self.note
        if note and not self._is_lost:
            log.warning("pace_lost", extra={"note": note})
        elif not note and self._is_lost:
            log.info("pace_kept_again")
        self._is_lost = bool(note)

    @property
    def note(self) -> str:
        """What share of the last minute's cycles was skipped or late, for people; empty while it is tolerable."""
        before, now = self._seen[0][1], self._seen[-1][1]
        due, skipped, late = (new - old for new, old in zip(now, before, strict=True))
        if due == 0 or skipped + late <= TOLERATED_SHARE * due:
            return ""
        return (
            f"{skipped} of the last minute's {due} scrapes were left out and {late} began late: raise "
            "scrape.interval_seconds, give the watchdog a whole core, or share its targets among several"
        )
