"""Jobs at an interval, each never twice at once, unharmed by clocks that jump and by a process that slept."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from watchdog.service.pace import Counts
from watchdog.service.walkers import Walkers

# The wall clock may creep by this much against the steady clock before jobs are set anew.
CLOCK_STEP_SECONDS = 1.0
# Jobs come in bursts: a core that stays awake and warm does the second one in little more than half the time.
LEAST_BURST = 25
MOST_BURSTS = 20

log = logging.getLogger(__name__)


def share_of(index: int, count: int) -> float:
    """The share of an interval after which job `index` of `count` begins: many in bursts, few at once."""
    bursts = max(1, min(MOST_BURSTS, count // LEAST_BURST))
    return (index % bursts) / bursts


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


@dataclass(frozen=True, slots=True)
class _Beat:
    """Jobs that come due together."""

    interval_seconds: float
    share: float
    jobs: dict[str, Callable[[], None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.interval_seconds!r}+{self.share!r}"

    @property
    def begin(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.interval_seconds * self.share)


class Schedule:
    """Jobs, their clock and the threads that run them.

    `skipped` counts the ticks of a job that came while its last run lasted or was still due. `watch_clock` is to
    be called every second or so: it notices when the wall clock was set.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._beats: dict[str, _Beat] = {}
        self._beat_of: dict[str, _Beat] = {}
        self._skipped: Counter[str] = Counter()
        self._due = self._left_out = 0
        self._lock = threading.Lock()
        self._walkers = Walkers()
        # It only gives the beat: what it runs, in its own thread, puts jobs in the walkers' line.
        self._scheduler = BackgroundScheduler(
            executors={"default": DebugExecutor()},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
            timezone=UTC,
        )

    @property
    def skipped(self) -> Mapping[str, int]:
        """Skipped ticks by job."""
        with self._lock:
            return dict(self._skipped)

    @property
    def counts(self) -> Counts:
        """How many ticks came due, were skipped and began late, of all jobs since the start."""
        return Counts(self._due, self._left_out, self._walkers.late)

    def start(self) -> None:
        """Begins to run what was added."""
        self._scheduler.start()

    def stop(self) -> None:
        """Starts nothing more; what runs is left to end by itself."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        self._walkers.stop()

    def add(self, name: str, job: Callable[[], None], interval_seconds: float, share: float = 0.0) -> None:
        """Runs `job` each interval, first after `share` (0 to 1) of one, together with others of that share."""
        self._take_out(name)
        beat = _Beat(interval_seconds, share)
        with self._lock:
            known = self._beats.setdefault(beat.name, beat)
            known.jobs[name] = job
            self._beat_of[name] = known
        if known is beat:
            trigger = SteadyTrigger(beat.begin, interval_seconds)
            self._scheduler.add_job(lambda: self._tick(beat), trigger, id=beat.name, name=beat.name)

    def remove(self, name: str) -> None:
        """Forgets a job; a run that is under way ends by itself."""
        self._take_out(name)
        self._walkers.withdraw(name)
        with self._lock:
            self._skipped.pop(name, None)

    def watch_clock(self) -> bool:
        """Reschedules all jobs after a jump of the wall clock, and says whether there was one.

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
        with self._lock:
            beats = list(self._beats.values())
        for index, beat in enumerate(beats):
            begin = datetime.now(UTC) + timedelta(seconds=beat.interval_seconds * index / len(beats))
            self._scheduler.modify_job(beat.name, next_run_time=begin)
        return True

    def _take_out(self, name: str) -> None:
        with self._lock:
            beat = self._beat_of.pop(name, None)
            if beat is None:
                return
            del beat.jobs[name]
            if beat.jobs:
                return
            del self._beats[beat.name]
        self._scheduler.remove_job(beat.name)

    def _tick(self, beat: _Beat) -> None:
        with self._lock:
            due = list(beat.jobs.items())
        self._due += len(due)
        for name, job in due:
            if not self._walkers.offer(name, job, beat.interval_seconds):
                with self._lock:
                    self._skipped[name] += 1
                self._left_out += 1
                log.debug("tick_skipped", extra={"target": name})
