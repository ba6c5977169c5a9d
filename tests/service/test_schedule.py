"""Jobs at an interval: single flight, skips, clocks that jump."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from watchdog.service.schedule import Schedule, SteadyTrigger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_first_tick_is_the_begin_and_the_next_an_interval_later() -> None:
    trigger = SteadyTrigger(NOON, 5)
    first = trigger.get_next_fire_time(None, NOON - timedelta(seconds=3))
    assert first == NOON
    assert trigger.get_next_fire_time(first, NOON) == NOON + timedelta(seconds=5)


@pytest.mark.parametrize("slept", [timedelta(minutes=10), timedelta(days=56 * 365), timedelta(seconds=5)])
def test_missed_ticks_are_passed_over_as_one_and_keep_the_grid(slept: timedelta) -> None:
    trigger = SteadyTrigger(NOON, 5)
    following = trigger.get_next_fire_time(NOON, NOON + slept)
    assert timedelta(0) < following - (NOON + slept) <= timedelta(seconds=5)
    assert (following - NOON) % timedelta(seconds=5) == timedelta(0)


def test_a_job_that_outlasts_its_interval_never_runs_twice_at_once() -> None:
    schedule, release = Schedule(), threading.Event()
    lock, now, most = threading.Lock(), 0, 0

    def job() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        release.wait(5)
        with lock:
            now -= 1

    schedule.add("slow", job, 0.05)
    schedule.start()
    deadline = time.monotonic() + 5
    while schedule.skipped.get("slow", 0) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    release.set()
    schedule.stop()
    assert schedule.skipped["slow"] >= 3
    assert most == 1


def test_a_job_that_raises_runs_again() -> None:
    schedule, runs = Schedule(), []

    def job() -> None:
        runs.append(1)
        raise ValueError("a bug")

    schedule.add("bad", job, 0.02)
    schedule.start()
    deadline = time.monotonic() + 5
    while len(runs) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    schedule.stop()
    assert len(runs) >= 3


def test_removed_jobs_run_no_more() -> None:
    schedule, runs = Schedule(), []
    schedule.add("one", lambda: runs.append(1), 0.02)
    schedule.start()
    schedule.remove("one")
    schedule.remove("one")
    time.sleep(0.1)
    count = len(runs)
    time.sleep(0.1)
    schedule.stop()
    assert len(runs) == count


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_brings_every_job_up_at_once(step: float) -> None:
    wall = 1_000_000.0
    ran = threading.Event()
    schedule = Schedule(wall=lambda: wall, steady=lambda: 500.0)
    # As after a step back: the next tick lies an hour ahead.
    schedule.add("one", ran.set, 3600.0, share=1.0)
    schedule.start()
    assert not schedule.watch_clock()
    wall += step
    assert schedule.watch_clock()
    assert ran.wait(5)
    schedule.stop()


def test_a_clock_that_is_slewed_is_no_jump() -> None:
    wall = 1_000_000.0
    schedule = Schedule(wall=lambda: wall, steady=lambda: 500.0)
    for _ in range(10):
        wall += 0.3
        assert not schedule.watch_clock()
