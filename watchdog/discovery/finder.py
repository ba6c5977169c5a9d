"""One place where servers are found: looked at again and again, its last good word kept while it has no other."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from watchdog.discovery.found import Found, found_in
from watchdog.errors import SourceError
from watchdog.notify.announcements import Ledger
from watchdog.report.metrics import Looks
from watchdog.settings.discovery import FindSettings
from watchdog.text import one_line

# A server that stops answering may have left: whoever knows is asked at once, but not more often than this.
HURRY_SECONDS = 2.0
STOP_SECONDS = 2.0
MOST_ERROR_CHARACTERS = 500

log = logging.getLogger(__name__)


class Said(NamedTuple):
    """An answer: the servers there are, and what a part of it lacked; empty where it was whole."""

    found: Sequence[Found]
    fault: str = ""


class Finder(ABC):
    """Looks in a thread of its own, every `refresh_seconds`, and at once on request.

    `found` are the servers as last said, at first those of an earlier life; `answered` whether a look has ended, well
    or badly. An answer that is bad, or empty where there were servers, changes nothing and is reported.
    """

    def __init__(self, settings: FindSettings, refresh_seconds: float, ledger: Ledger) -> None:
        self.settings = settings
        self._ledger = ledger
        self.found: tuple[Found, ...] = found_in(ledger.load())
        self.answered = False
        self.error = ""
        self._refresh_seconds = refresh_seconds
        self._failures = 0
        self._looked_at = float("-inf")
        self._last_success_wall: float | None = None
        self._takes_empty = False
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"finder {settings.name}", daemon=True)

    @abstractmethod
    def look(self) -> None:
        """One look, and what it says taken in; never raises."""

    @property
    def looks(self) -> Looks:
        """What is counted of it."""
        return Looks(
            self.settings.name, not self.error, len(self.found), self._failures, self._last_success_wall
        )

    @property
    def note(self) -> str:
        """What is wrong with it, for people; empty where nothing is."""
        if not self.error:
            return ""
        count = len(self.found)
        kept = (
            f"; {count} server{'s of before stay' if count > 1 else ' of before stays'} watched"
            if count
            else ""
        )
        return f"discovery of {self.settings.name} fails: {self.error}{kept}"

    def replace(self, found: Sequence[Found]) -> None:
        """Takes over what is certain to be so, an empty set too."""
        if tuple(found) == self.found:
            return
        self._keep(found)
        # Who asks meanwhile sees the servers of before, or of after.
        self.found = tuple(found)

    def succeed(self) -> None:
        """Notes a look that was well."""
        self.answered = True
        self._last_success_wall = time.time()
        if self.error:
            log.info("discovery_works_again", extra={"discovery": self.settings.name})
        self.error = ""

    def refuse(self, error: str) -> None:
        """Counts a look that was of no use; its reason is logged once."""
        if self._stopped:
            return
        self._failures += 1
        error = one_line(error, MOST_ERROR_CHARACTERS)
        if error != self.error:
            log.warning(
                "discovery_failed",
                extra={"discovery": self.settings.name, "why": error, "servers_kept": len(self.found)},
            )
        self.error = error
        self.answered = True

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def hurry(self, takes_empty: bool = False) -> None:
        """Has it look now; `takes_empty` after a reload, by which people say that they mean it."""
        self._takes_empty = self._takes_empty or takes_empty
        if takes_empty or time.monotonic() - self._looked_at >= HURRY_SECONDS:
            self._wake.set()

    def stop(self) -> None:
        """Looks no more."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def forget(self) -> None:
        """Forgets which servers there were: nobody is to go on with them."""
        self._ledger.save(dict.fromkeys(self._ledger.load()))

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            self.look()
            self._wake.wait(self._refresh_seconds)

    def _keep(self, found: Sequence[Found]) -> None:
        before = {each.name: each.text() for each in self.found}
        now = {each.name: each.text() for each in found}
        changes: dict[str, str | None] = dict.fromkeys(before.keys() - now.keys())
        changes.update((name, text) for name, text in now.items() if before.get(name) != text)
        if changes:
            self._ledger.save(changes)


class AskingFinder(Finder):
    """A finder that reads the whole list each time."""

    @abstractmethod
    def find(self) -> Said:
        """The servers there are now; raises SourceError with a sentence where that cannot be said."""

    def look(self) -> None:
        """One look, and what it says taken in; never raises."""
        self._looked_at = time.monotonic()
        try:
            said = self.find()
        except SourceError as error:
            self.refuse(str(error))
        except Exception as error:  # the looks must go on
            log.exception("discovery_raised", extra={"discovery": self.settings.name})
            self.refuse(f"internal error: {type(error).__name__}")
        else:
            self.take(said)

    def take(self, said: Said) -> None:
        """Takes an answer in; an empty one only where there was nothing before, or after a reload."""
        if not said.found and self.found and not self._takes_empty:
            self.refuse(said.fault or "an empty list, which is accepted only after a reload")
            return
        self._takes_empty = False
        self.replace(said.found)
        if said.fault:
            self.refuse(said.fault)
        else:
            self.succeed()
