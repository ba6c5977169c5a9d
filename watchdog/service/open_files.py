"""Open files: how many this process may have, what they are kept for, and whether they run out."""

import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

# A target keeps one open; a page that is read, the state, alerts under way and what else is open beside them.
SPARE_FILES = 200
MOST_OPEN_FILES = 65_536
# However little there is: a health check and a few people.
FEWEST_CONNECTIONS = 16
# From this share on it is said, and until it is below the second.
NEARLY_ALL_RATIO = 0.9
_ENOUGH_AGAIN_RATIO = 0.8
_LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)


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
    limit = _limit()
    needed = targets + SPARE_FILES
    if limit is not None and limit < needed:
        yield (
            f"{limit} files may be open, and {targets} targets need {needed}: raise the limit "
            "(ulimit -n, LimitNOFILE in the unit, the container's ulimits)"
        )


def connections_allowed(targets: int, wanted: int) -> int:
    """How many callers may be connected, at most `wanted`: what they hold is not there for scrapes and alerts."""
    limit = _limit()
    if limit is None:
        return wanted
    return min(wanted, max(FEWEST_CONNECTIONS, limit - targets - SPARE_FILES))


def open_files() -> int | None:
    """How many files this process has open; None where the system does not tell."""
    try:
        # The folder that is listed is one of them.
        return sum(1 for _ in Path("/dev/fd").iterdir()) - 1
    except OSError:
        return None


class OpenFiles:
    """Checks from time to time how many are open; logs when they nearly run out, and when they no longer do."""

    def __init__(self, count: Callable[[], int | None] = open_files) -> None:
        self._count = count
        self._looked_at = float("-inf")
        self.note = ""

    def look(self, at: float) -> None:
        """Counts them, if it is time to; `at` is monotonic."""
        if at - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = at
        limit = _limit()
        used = self._count() if limit else None
        if limit is None or used is None:
            return
        least = _ENOUGH_AGAIN_RATIO if self.note else NEARLY_ALL_RATIO
        was_near, is_near = bool(self.note), used >= least * limit
        self.note = _near_note(used, limit) if is_near else ""
        if is_near and not was_near:
            log.warning("open_files_nearly_exhausted", extra={"used": used, "limit": limit})
        elif was_near and not is_near:
            log.info("open_files_enough_again", extra={"used": used, "limit": limit})


def _near_note(used: int, limit: int) -> str:
    return f"{used} files are open, of {limit} at most: raise the limit (ulimit -n, LimitNOFILE in the unit)"


def _limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
