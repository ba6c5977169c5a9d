"""Jobs at an interval, each never twice at once, unharmed by clocks that jump and by a process that slept."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, JobSubmissionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

# A thread waits for a server most of its time; so many targets may hang at once before others are late.
MAX_THREADS = 128
# The wall clock may creep by this much against the steady clock before jobs are set anew.
CLOCK_STEP_SECONDS = 1.0

log = logging.getLogger(__name__)


class SteadyTrigger(BaseTrigger):  # type: ignore[misc]  # the library has no types
    """Every `interval_seconds` from `begin` on; ticks that lie in the past are passed over as one.

    APScheduler's own trigger lists each tick that was missed: after a laptop's weekend, or a boot at 1970
    that learns the date, that is a list of millions.
    """

    def __init__(self, begin: datetime, interval_seconds: float) -> None:
        self.begin = begin
        self.interval = timedelta(seconds=interval_seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """The first tick after both `now` and the last one; the begin, if it was not reached yet."""
        if previous_fire_time is None:
            return self.begin
        following = previous_fire_time + self.interval
        if following > now:
            return following
        return following + self.interval * ((now - following) // self.interval + 1)


class Schedule:
    """A pool of threads and a clock; `skipped` counts the ticks of a job that came while its last run lasted.

    `watch_clock` is to be called every second or so: it notices when the wall clock was set.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._intervals: dict[str, float] = {}
        self._skipped: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(MAX_THREADS)},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._scheduler.add_listener(self._skip, EVENT_JOB_MAX_INSTANCES)

    @property
    def skipped(self) -> Mapping[str, int]:
        """Skipped ticks by job."""
        with self._lock:
            return dict(self._skipped)

    def start(self) -> None:
        """Begins to run what was added."""
        self._scheduler.start()

    def stop(self) -> None:
        """Starts nothing more; what runs is left to end by itself."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def add(self, name: str, job: Callable[[], None], interval_seconds: float, share: float = 0.0) -> None:
        """Runs `job` each interval, first after `share` (0 to 1) of one, so that many are spread over it."""
        self._intervals[name] = interval_seconds
        begin = datetime.now(UTC) + timedelta(seconds=interval_seconds * share)
        trigger = SteadyTrigger(begin, interval_seconds)
        self._scheduler.add_job(job, trigger, id=name, name=name, replace_existing=True)

    def remove(self, name: str) -> None:
        """Forgets a job; a run that is under way ends by itself."""
        if self._intervals.pop(name, None) is not None:
            self._scheduler.remove_job(name)
        with self._lock:
            self._skipped.pop(name, None)

    def watch_clock(self) -> bool:
        """Sets all jobs anew after a jump of the wall clock, and says whether there was one.

        APScheduler keeps wall times: after a step back by an hour it would run nothing for an hour.
        """
        offset = self._wall() - self._steady()
        step = offset - self._offset
        if abs(step) < CLOCK_STEP_SECONDS:
            # The clock is slewed, not set: follow it, or small steps add up to a large one.
            self._offset = offset
            return False
        self._offset = offset
        log.warning("wall_clock_jumped", extra={"step_seconds": round(step, 3)})
        count = len(self._intervals)
        for index, (name, interval_seconds) in enumerate(self._intervals.items()):
            begin = datetime.now(UTC) + timedelta(seconds=interval_seconds * index / count)
            self._scheduler.modify_job(name, next_run_time=begin)
        return True

    def _skip(self, event: JobSubmissionEvent) -> None:
        with self._lock:
            self._skipped[event.job_id] += 1
        log.debug("tick_skipped", extra={"target": event.job_id})
