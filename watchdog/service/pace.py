"""Whether the watching keeps its pace: cycles that were skipped or late, and room for open files."""

import logging
import resource
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

# What share of the last minute's cycles may be skipped or late before people hear of it, and when that is over.
TOLERATED_SHARE = 0.01
WINDOW_SECONDS = 60.0
# A target keeps one open; a page that is read, the state and what else is open beside them.
SPARE_FILES = 200
MOST_OPEN_FILES = 65_536

log = logging.getLogger(__name__)


class Counts(NamedTuple):
    """Cycles since the start: those that came due, that were left out, and that began late."""

    due: int = 0
    skipped: int = 0
    late: int = 0


class Pace:
    """Looks at the counts about every second; tells the log when the pace is lost, and when it is kept again."""

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


def raise_open_files_limit() -> None:
    """Takes what the system lets this process have of open files: a shell's 1,024 are no thousand targets'."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("open_files_limit_kept", extra={"limit": soft, "why": str(error)})


def open_files_notes(targets: int) -> Iterator[str]:
    """What is wrong with the limit of open files, for so many targets; nothing where it has room."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = targets + SPARE_FILES
    if limit != resource.RLIM_INFINITY and limit < needed:
        yield (
            f"{limit} files may be open, and {targets} targets need {needed}: raise the limit "
            "(ulimit -n, LimitNOFILE in the unit, the container's ulimits)"
        )
