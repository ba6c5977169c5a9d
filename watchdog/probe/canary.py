"""The canary: one token now and then, asked of a server on which nothing moves, to see whether its engine lives.

It waits in a thread of its own: a scrape never waits for it. It is no traffic, and its counts are its own.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from watchdog.model import CanaryReading
from watchdog.probe.completion import CompletionProbe, Outcome

PAUSE_SECONDS = 60.0
# Longer than the stall that it is to prove, shorter than the pause.
DEADLINE_SECONDS = 45.0


class Canary:
    """Asks one server at most once a minute; `steady` gives seconds that only grow."""

    def __init__(
        self, probe: CompletionProbe, steady: Callable[[], float], deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._probe = probe
        self._steady = steady
        self._deadline_seconds = deadline_seconds
        self._lock = threading.Lock()
        self._last_at: float | None = None
        self._reading = CanaryReading()
        self._outcomes: Counter[str] = Counter()
        self._thread: threading.Thread | None = None

    @property
    def reading(self) -> CanaryReading:
        """When it was last answered, and since when it has waited in vain."""
        with self._lock:
            return self._reading

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How often each outcome came, every one of them named."""
        with self._lock:
            return {str(outcome): self._outcomes[outcome] for outcome in Outcome}

    def send(self, model: str) -> bool:
        """Asks for a token of this model and does not wait; false where it was asked within the last minute."""
        at = self._steady()
        with self._lock:
            is_out = self._thread is not None and self._thread.is_alive()
            if is_out or (self._last_at is not None and at - self._last_at < PAUSE_SECONDS):
                return False
            self._last_at = at
            # What had no answer before has none still: it has waited since then.
            since = at if self._reading.waits_since is None else self._reading.waits_since
            self._reading = replace(self._reading, waits_since=since)
            self._thread = threading.Thread(target=self._ask, args=(model,), name="canary", daemon=True)
            self._thread.start()
        return True

    def close(self) -> None:
        """Ends what is under way; nothing is asked afterwards."""
        self._probe.close()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _ask(self, model: str) -> None:
        outcome = self._probe.ask(model, self._deadline_seconds)
        with self._lock:
            self._outcomes[outcome] += 1
            if outcome is Outcome.ANSWERED:
                self._reading = CanaryReading(answered_at=self._steady())
            elif outcome is Outcome.REFUSED:
                # A key that is not taken, or a model that generates nothing: it says nothing of the engine.
                self._reading = replace(self._reading, waits_since=None)
