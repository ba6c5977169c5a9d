"""The line of due jobs: single flight, order, and that what hangs costs its own place only."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.waiting import until
from watchdog.service import walkers as module
from watchdog.service.walkers import Walkers

INTERVAL_SECONDS = 5.0


class Line(Walkers):
    """Jobs at one interval, whatever they return."""

    def put(self, name: str, job: Callable[[], object]) -> bool:
        def run() -> None:
            job()

        return self.offer(name, run, INTERVAL_SECONDS)


@pytest.fixture
def walkers() -> Iterator[Line]:
    walkers = Line()
    yield walkers
    walkers.stop()
    until(lambda: walkers._threads == 0)


def test_jobs_run_in_the_order_in_which_they_became_due(
    walkers: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", 1)
    monkeypatch.setattr(module, "STANDS_SECONDS", 1e6)
    monkeypatch.setattr(module, "HELD_UP_SECONDS", 1e6)
    ran: list[int] = []
    for number in range(200):
        assert walkers.put(f"job {number}", partial(ran.append, number))
    until(lambda: len(ran) == 200)
    assert ran == list(range(200))
    assert walkers._threads <= module.SPARE


def test_a_job_that_is_due_or_runs_is_not_taken_again(walkers: Line) -> None:
    begun, release = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        release.wait(10)

    assert walkers.put("one", job)
    begun.wait(10)
    assert not walkers.put("one", job)
    release.set()
    until(lambda: walkers.put("one", lambda: None))


def test_what_is_withdrawn_is_not_begun(walkers: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 1)
    monkeypatch.setattr(module, "STANDS_SECONDS", 1e6)
    monkeypatch.setattr(module, "HELD_UP_SECONDS", 1e6)
    begun, release, ran = threading.Event(), threading.Event(), []

    def hold() -> None:
        begun.set()
        release.wait(10)

    walkers.put("holds", hold)
    begun.wait(10)
    walkers.put("withdrawn", lambda: ran.append("withdrawn"))
    walkers.put("stays", lambda: ran.append("stays"))
    walkers.withdraw("withdrawn")
    release.set()
    until(lambda: bool(ran))
    assert ran == ["stays"]


def test_a_third_that_hangs_leaves_the_others_their_pace(walkers: Line) -> None:
    release, ran = threading.Event(), Counter[int]()
    hangs = [number % 10 < 3 for number in range(500)]
    began = time.monotonic()
    for number, does_hang in enumerate(hangs):

        def job(number: int = number, does_hang: bool = does_hang) -> None:
            if does_hang:
                release.wait(60)
            else:
                ran.update([number])

        walkers.put(str(number), job)
    until(lambda: len(ran) == 350, seconds=30)
    # Known by now, they are passed by at once.
    release.set()
    until(lambda: not walkers._running)
    assert time.monotonic() - began < 30


def test_servers_that_all_take_their_time_are_asked_side_by_side(walkers: Line) -> None:
    """200 that answer after 50 ms are 10 s of waiting."""
    done, lock, now, most = 0, threading.Lock(), 0, 0

    def job() -> None:
        nonlocal done, now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
            done += 1

    for number in range(200):
        walkers.put(str(number), job)
    until(lambda: done == 200, seconds=30)
    assert 4 < most <= module.MANY


def test_what_hung_once_waits_in_a_line_of_its_own(walkers: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_SHARE", 0.0)
    monkeypatch.setattr(module, "MAX_HELD_UP", 3)
    release, ran = threading.Event(), threading.Event()
    for number in range(10):
        walkers.put(str(number), lambda: None)
    until(lambda: len(walkers._slow) == 10)
    for number in range(10):
        walkers.put(str(number), lambda: release.wait(10))
    walkers.put("prompt", ran.set)
    assert ran.wait(10)
    assert len(walkers._running) <= 3
    release.set()
    until(lambda: not walkers._running and not walkers._slow_line)


def test_threads_without_work_go_home(walkers: Line) -> None:
    release = threading.Event()
    for number in range(60):
        walkers.put(str(number), lambda: release.wait(30))
    until(lambda: len(walkers._running) == 60, seconds=30)
    release.set()
    until(lambda: walkers._threads <= module.SPARE + 1)


def test_a_job_that_raises_ends_nothing(walkers: Line, caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()

    def fail() -> None:
        raise ValueError("a bug")

    walkers.put("bad", fail)
    walkers.put("good", ran.set)
    assert ran.wait(10)
    until(lambda: "job_raised" in caplog.text)
