"""Threads that walk a line of due jobs: as few as keep it moving, more where jobs wait for what hangs."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Servers answer within milliseconds, and the rest is computing, of which Python does one thing at a time.
FEW = 2
# For each so long that the line stands one more may walk, up to so many: servers that answer, but take their time.
STANDS_SECONDS = 0.1
MANY = 32
# Who needs longer is held up by a server, and another walks in its place.
HELD_UP_SECONDS = 0.1
# What took more than this share of its interval is slow the next time: it waits in a line of its own.
SLOW_SHARE = 0.1
# What begins later than this share of its interval is late.
LATE_SHARE = 0.5
# So many may be held up at once before others that hang wait; those that answer go on.
MAX_HELD_UP = 256
# How often one thread looks whether the line stands.
LOOK_SECONDS = 0.05
# More than so many without work go home.
SPARE = 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Due:
    name: str
    job: Callable[[], None]
    since: float
    interval_seconds: float

    @property
    def slow_seconds(self) -> float:
        return SLOW_SHARE * self.interval_seconds


@dataclass(frozen=True, slots=True)
class _Run:
    since: float
    patience_seconds: float


class Walkers:
    """Runs jobs in the order in which they become due, each name once at a time.

    A job that is slow costs its own place only. `late` counts jobs that had stood in the line for long.
    """

    def __init__(self) -> None:
        self.late = 0
        self._change = threading.Condition()
        self._line: deque[_Due] = deque()
        self._slow_line: deque[_Due] = deque()
        self._queued: set[str] = set()
        self._running: dict[str, _Run] = {}
        self._slow: set[str] = set()
        self._threads = 0
        self._idle = 0
        # Of those idle, and of all: how many were called, or started, and have not come yet.
        self._called = 0
        self._starting = 0
        self._looks = False
        self._stopped = False

    def offer(self, name: str, job: Callable[[], None], interval_seconds: float) -> bool:
        """Puts a job in the line; false where the one before it is still in it, or runs.

        `interval_seconds` is when it will be offered again.
        """
        with self._change:
            if self._stopped or name in self._queued or name in self._running:
                return False
            line = self._slow_line if name in self._slow else self._line
            line.append(_Due(name, job, time.monotonic(), interval_seconds))
            self._queued.add(name)
            walking = self._threads - self._idle + self._called - self._held_up(time.monotonic())
            if walking < FEW or self._is_unwatched:
                self._call()
            return True

    def withdraw(self, name: str) -> None:
        """Takes a job out of the line; a run that is under way ends by itself."""
        with self._change:
            self._slow.discard(name)
            if name in self._queued:
                self._queued.discard(name)
                self._line = deque(each for each in self._line if each.name != name)
                self._slow_line = deque(each for each in self._slow_line if each.name != name)

    def stop(self) -> None:
        """Begins nothing more; what runs is left to end by itself."""
        with self._change:
            self._stopped = True
            self._line.clear()
            self._slow_line.clear()
            self._change.notify_all()

    def _call(self) -> None:
        """Has somebody come who is idle, or somebody new; the lock is held."""
        if self._idle > self._called:
            self._called += 1
            self._change.notify()
        elif self._threads < MANY + MAX_HELD_UP:
            try:
                threading.Thread(target=self._walk, name="walker", daemon=True).start()
            except RuntimeError:
                # The system has no more threads: those that are there go on.
                return
            self._threads += 1
            self._starting += 1

    def _walk(self) -> None:
        with self._change:
            self._starting -= 1
        while (due := self._next()) is not None:
            began = time.monotonic()
            try:
                due.job()
            except Exception:  # one job must not end the walk of all
                log.exception("job_raised", extra={"job": due.name})
            self._done(due, time.monotonic() - began)

    def _next(self) -> _Due | None:
        """Waits for a job that may be begun; None where this thread is to end."""
        with self._change:
            while not self._stopped:
                due = self._take(time.monotonic())
                if due is not None:
                    if self._is_due and self._is_unwatched:
                        self._call()
                    return due
                if not self._is_due and self._idle >= SPARE:
                    break
                self._wait()
            self._threads -= 1
            return None

    @property
    def _is_due(self) -> bool:
        return bool(self._line or self._slow_line)

    @property
    def _is_unwatched(self) -> bool:
        """Whether nobody is free, or on the way, to see that the line stands."""
        return not (self._looks or self._called or self._starting)

    def _wait(self) -> None:
        """Waits until called; one of those who wait looks after the line from time to time."""
        looks = self._is_due and not self._looks
        self._looks = self._looks or looks
        self._idle += 1
        self._change.wait(LOOK_SECONDS if looks else None)
        self._idle -= 1
        # Also where the time was up, which a call may cross: too few counted as called only means one call more.
        self._called = max(0, self._called - 1)
        if looks:
            self._looks = False

    def _take(self, now: float) -> _Due | None:
        """The next job, now begun; None where nothing is due or as many walk as may."""
        held_up = self._held_up(now)
        due = None
        if self._line:
            stands_seconds = now - self._line[0].since
            most = min(MANY, FEW + int(stands_seconds / STANDS_SECONDS))
            if len(self._running) - held_up < most:
                due = self._line.popleft()
        if due is None and self._slow_line and held_up < MAX_HELD_UP:
            due = self._slow_line.popleft()
        if due is not None:
            self._queued.discard(due.name)
            if now - due.since >= LATE_SHARE * due.interval_seconds:
                self.late += 1
            self._running[due.name] = _Run(now, min(due.slow_seconds, HELD_UP_SECONDS))
        return due

    def _held_up(self, now: float) -> int:
        return sum(
            name in self._slow or now - run.since >= run.patience_seconds
            for name, run in self._running.items()
        )

    def _done(self, due: _Due, seconds: float) -> None:
        with self._change:
            del self._running[due.name]
            if seconds >= due.slow_seconds:
                self._slow.add(due.name)
            else:
                self._slow.discard(due.name)
