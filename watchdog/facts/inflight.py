"""Requests in flight: what shows that requests hang although every gauge is calm, and what proves that none does.

The API server counts what it took and has not answered (`GET /load`). vLLM's front end in Python does so only with
--enable-server-load-tracking and says 0 otherwise; the one in Rust always does (0.32). Where it does not, each request
still holds one open file of the API server's process, and its answer is counted when it ends.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from watchdog.facts.fact import Fact, Known
from watchdog.history.number import AtLeast
from watchdog.model import CanaryReading

# fmt: off
IN_FLIGHT = Fact(
    "in_flight", "requests",
    "Requests that the API server took and has not answered (`GET /load` beside this page), where it counts them.")
IN_FLIGHT_TRACKED = Fact(
    "in_flight_tracked", "0 or 1", "Whether the API server counts them: it reported more than 0, or was started so.")
IN_FLIGHT_SECONDS = Fact(
    "in_flight_seconds", "s",
    "The longest time that requests were continuously in flight since the last step; unknown if none were.")
NONE_IN_FLIGHT_SECONDS = Fact(
    "none_in_flight_seconds", "s",
    "How long no request has been in flight; unknown if not counted, or if some were in flight since the last step.")
STUCK_OPEN_FILES = Fact(
    "stuck_open_files", "files",
    "How far the API server's open files have stayed, for 20 s, above their fewest since the last step.")
STUCK_OPEN_FILES_RISES = Fact(
    "stuck_open_files_rises", "rises", "How often since the last step they rose to stay: a pool opens at once.")
ANSWERS_WITHOUT_TOKEN = Fact(
    "answers_without_token", "answers",
    "Completions that ended as 2xx from ten seconds after the last step on: they had no token.")
CANARY_UNANSWERED = Fact(
    "canary_unanswered_seconds", "s",
    "How long the canary has waited for its token without a step; unknown if no canary is waiting.")
# fmt: on

# A canary that was answered vouches for an idle engine a little longer than until the next one.
CANARY_VOUCHES_SECONDS = 90.0
# A step may take a few seconds; a canary is for what takes longer.
CANARY_STILL_SECONDS = 10.0
# What rises and falls again within this is a health check, a scrape or a connection that was kept for a moment.
STAY_SECONDS = 20.0
# The answer to what the last step made may take its time on a slow network.
LATE_ANSWER_SECONDS = 10.0
# Of several API servers any may tell: one that has nothing says little of the others for so long.
GAP_SECONDS = 10.0
# As many readings at least, where several API servers take turns.
LEAST_NONE_READINGS = 4
# Scrapes and health checks move the count of an idle server by this much.
MOST_IDLE_FILES = 2.0
WITNESS_HOWTO = (
    "Start vLLM with --enable-server-load-tracking, and GET /load shows whether requests wait for an answer; or let "
    "the watchdog send a canary of one token a minute (`canary.enabled` of the target)"
)


class Moment(NamedTuple):
    """What one page says of requests in flight; None where it does not say.

    `at` is monotonic seconds, `moved` whether a step ended since the page before, `answers` the completions answered
    since the start, `canary` what the canary has seen.
    """

    at: float
    moved: bool
    load: int | None = None
    open_files: float | None = None
    answers: float | None = None
    canary: CanaryReading = CanaryReading()


class Idleness(NamedTuple):
    """Whether idleness is proven, in one sentence by what or how to come by a proof."""

    is_proven: bool
    text: str


@dataclass(slots=True)
class _Runs:
    """How long readings of `GET /load` since the last step found requests, and how long none."""

    begun_at: float | None = None
    found_at: float | None = None
    longest_seconds: float | None = None
    none_since: float | None = None
    none_readings: int = 0

    def note(self, load: int, at: float, gap_seconds: float) -> None:
        if load == 0:
            self.none_since = at if self.none_since is None else self.none_since
            self.none_readings += 1
            if self.found_at is not None and at - self.found_at >= gap_seconds:
                self.begun_at = self.found_at = None
            return
        self.none_since, self.none_readings = None, 0
        self.begun_at = at if self.begun_at is None else self.begun_at
        self.found_at = at
        self.longest_seconds = max(self.longest_seconds or 0.0, at - self.begun_at)


@dataclass(slots=True)
class _Files:
    """How the open files of a process stand since the last step; `lowest` is their fewest, `floor` what stayed."""

    lowest: float
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    floor: float | None = None
    rises: int = 0

    def note(self, files: float, at: float) -> None:
        self.lowest = min(self.lowest, files)
        self.recent.append((at, files))
        # One page older than the time to stay is kept: the time is covered, however far apart pages are.
        while len(self.recent) > 2 and self.recent[1][0] <= at - STAY_SECONDS:
            self.recent.popleft()
        if self.recent[0][0] > at - STAY_SECONDS:
            return
        floor = min(files for _, files in self.recent)
        self.rises += floor > (self.lowest if self.floor is None else self.floor)
        self.floor = floor

    @property
    def stuck(self) -> float | None:
        return None if self.floor is None else self.floor - self.lowest


@dataclass(slots=True)
class InFlight:
    """What a server's pages say of its requests in flight since its last step; takes every page, in order.

    `counts` is whether the server is known to count by how it was started.
    """

    counts: bool = False
    _seen: Moment | None = None
    _told_more: bool = False
    _runs: _Runs = field(default_factory=_Runs)
    _files: _Files | None = None
    _still_since: float = 0.0
    _saw_step: bool = False
    _answers: float | None = None

    @property
    def is_tracked(self) -> bool:
        """Whether a reading of 0 means that nothing is in flight."""
        return self.counts or self._told_more

    def begin_again(self) -> None:
        """Another process answers: what the one before it showed says nothing of it."""
        self._seen, self._told_more, self._saw_step = None, False, False

    def note(self, now: Moment) -> None:
        """Takes what a page says."""
        if now.moved or self._seen is None:
            self._runs, self._files, self._still_since, self._answers = _Runs(), None, now.at, None
            self._saw_step = now.moved
        self._seen = now
        if now.load is not None:
            self._told_more = self._told_more or now.load > 0
            self._runs.note(now.load, now.at, GAP_SECONDS if now.open_files is None else 0.0)
        else:
            self._runs.none_since, self._runs.none_readings = None, 0
        if now.open_files is not None:
            self._files = self._files or _Files(now.open_files)
            self._files.note(now.open_files, now.at)
        if self._answers is None and now.at - self._still_since >= LATE_ANSWER_SECONDS:
            self._answers = now.answers

    def facts(self) -> Iterator[Known]:
        """The facts of the signals of the server and of each of its engines."""
        now, runs, files = self._seen, self._runs, self._files
        # What is counted since the last step began before the first page where no step was seen.
        known = float if self._saw_step else AtLeast
        yield IN_FLIGHT_TRACKED, float(self.is_tracked)
        if now is None:
            return
        if self.is_tracked and now.load is not None:
            yield IN_FLIGHT, float(now.load)
        if runs.longest_seconds is not None:
            yield IN_FLIGHT_SECONDS, known(runs.longest_seconds)
        elif (since := self._none_since()) is not None:
            yield NONE_IN_FLIGHT_SECONDS, known(now.at - since)
        if files is not None and files.stuck is not None:
            yield STUCK_OPEN_FILES, known(files.stuck)
            yield STUCK_OPEN_FILES_RISES, known(files.rises)
        if now.answers is not None and self._answers is not None:
            yield ANSWERS_WITHOUT_TOKEN, known(now.answers - self._answers)

        if (waits := self._canary_waits_since()) is not None:
            yield CANARY_UNANSWERED, now.at - waits

    @property
    def wants_canary(self) -> bool:
        """Whether nothing has moved for a while, and nothing shows that no request is in flight."""
        now = self._seen
        if now is None or now.moved or now.at - self._still_since < CANARY_STILL_SECONDS:
            return False
        return not self.is_tracked or now.load != 0

    def _canary_waits_since(self) -> float | None:
        """Since when a canary waits; None where a step ended since then: it waits behind others, as users do."""
        now = self._seen
        waits = now.canary.waits_since if now is not None else None
        return waits if waits is not None and waits >= self._still_since else None

    def idleness(self) -> Idleness:
        """Whether a server on which nothing moves is proven to be idle, by the first witness there is."""
        now = self._seen
        if self.is_tracked and now is not None and now.load:
            return Idleness(False, f"Nothing moves, and GET /load reports {now.load} in flight.")
        if self._none_since() is not None:
            return Idleness(True, "Idle: GET /load reports no request in flight.")
        if self._files_are_level():
            return Idleness(
                True, "Idle: the API server's open files are as few as they were after its last step."
            )
        if now is not None and self._canary_vouches(now):
            return Idleness(True, "Idle: the canary's one token came within the last minute and a half.")
        return Idleness(False, f"Nothing moves, and nothing shows whether requests hang. {WITNESS_HOWTO}.")

    @staticmethod
    def _canary_vouches(now: Moment) -> bool:
        answered_at = now.canary.answered_at
        is_fresh = answered_at is not None and now.at - answered_at <= CANARY_VOUCHES_SECONDS
        return is_fresh and now.canary.waits_since is None

    def _none_since(self) -> float | None:
        """Since when readings tell 0 and can be believed; None where requests were in flight since the last step."""
        runs = self._runs
        if not self.is_tracked or self._seen is None or runs.longest_seconds is not None:
            return None
        # Without the series of one process there may be several API servers, and the next one may tell another number.
        least_readings = LEAST_NONE_READINGS if self._seen.open_files is None else 1
        return runs.none_since if runs.none_readings >= least_readings else None

    def _files_are_level(self) -> bool:
        """Whether no connection waits: none was taken since the last step that is still open, and none was answered."""
        files, now = self._files, self._seen
        if files is None or files.stuck is None or now is None or not self._saw_step:
            return False
        is_answered = self._answers is None or now.answers == self._answers
        return files.stuck <= MOST_IDLE_FILES and is_answered and self._runs.longest_seconds is None
