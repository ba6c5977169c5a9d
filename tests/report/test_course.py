"""How readings went: kept for eleven minutes whatever the pace, bounded in bytes, read while it is written."""

import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.a_service import NOW, healthy, readings, snapshot
from tests.places import RECORDINGS
from tests.watching import diagnosis
from watchdog.model import LatencyShare, Readings, Snapshot, Subject, VllmIdentity
from watchdog.report.course import LINES, SPAN_SECONDS, Course, Line
from watchdog.report.trend import Direction, trend
from watchdog.scrape.recording import read, thin

MODEL = "meta/llama-8b"
ELEVEN_MINUTES = 660.0


def step(at: float, engines: int = 1, waiting: float | None = None, **changes: object) -> Snapshot:
    def one(number: int) -> Readings:
        values = {**readings().values, "waiting_requests": at if waiting is None else waiting}
        return replace(readings(), subject=Subject("chat", MODEL, str(number)), values=values)

    made = snapshot(readings=tuple(one(number) for number in range(engines)), at=at, wall=NOW + at)
    return replace(made, **changes)  # type: ignore[arg-type] # fields by name


def size_bytes(course: Course) -> int:
    arrays = [course._times, *(line for lines in course._lines.values() for line in lines.values())]
    return sum(each.buffer_info()[1] * each.itemsize for each in arrays)


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
@pytest.mark.parametrize("engines", [1, 2, 8, 25])
def test_eleven_minutes_are_kept_in_thirty_kilobytes(interval: float, engines: int) -> None:
    course = Course()
    for number in range(int(1.2 * SPAN_SECONDS / interval)):
        course.note(step(number * interval, engines))
    line = course.line((MODEL, "0"), "waiting_requests")
    assert line is not None
    assert line.times[-1] - line.times[0] >= ELEVEN_MINUTES - interval
    assert line.times[-1] == NOW + (int(1.2 * SPAN_SECONDS / interval) - 1) * interval
    assert line.values[-1] == pytest.approx(line.times[-1] - NOW)
    assert size_bytes(course) < 30_000


@given(
    st.lists(
        st.tuples(st.floats(0.1, 120), st.integers(0, 30)),
        min_size=1,
        max_size=60,
    )
)
def test_whatever_comes_and_goes_all_lines_have_the_same_length(steps: list[tuple[float, int]]) -> None:
    course, at = Course(), 0.0
    for pause, engines in steps:
        at += pause
        course.note(step(at, engines))
        for engine in course.engines():
            for name in LINES:
                line = course.line(engine, name)
                assert line is None or len(line.times) == len(line.values)
                assert line is None or list(line.times) == sorted(line.times)
    assert size_bytes(course) < 30_000


def test_a_scrape_that_failed_is_a_gap_and_an_engine_that_went_is_forgotten() -> None:
    course = Course()
    course.note(step(0.0))
    course.note(step(10.0, 0))
    course.note(step(20.0))
    line = course.line((MODEL, "0"), "waiting_requests")
    assert line is not None
    assert line.values == [0.0, None, 20.0]
    assert line.known == [0.0, 20.0]
    assert (line.at(NOW + 15), line.at(NOW - 1)) == (0.0, None)
    for number in range(400):
        course.note(replace(step(30.0 + 5 * number), readings=healthy("chat").readings))
    assert course.engines() == [(MODEL, "0")]
    assert course.line((MODEL, "1"), "waiting_requests") is None
    assert course.line((MODEL, "0"), "preemptions_per_second") is None


def test_the_latency_budget_goes_with_it() -> None:
    course = Course()
    one = step(0.0)
    budget = {"queue": LatencyShare(1.5, 0.5), "decode": LatencyShare(1.5, 0.5)}
    course.note(replace(one, readings=(replace(one.readings[0], latency_budget=budget),)))
    queue = course.line((MODEL, "0"), "queue_seconds")
    assert queue is not None
    assert queue.values == [1.5]
    assert course.line((MODEL, "0"), "prefill_seconds") is None


def test_changes_of_version_and_configuration_are_marked() -> None:
    course = Course()
    course.note(step(0.0, vllm=VllmIdentity("0.24.0", config={"block_size": "16"})))
    course.note(step(5.0, vllm=VllmIdentity()))
    course.note(step(10.0, vllm=VllmIdentity("0.32.0", config={"block_size": "32", "new": "1"})))
    course.note(step(15.0, vllm=VllmIdentity("0.32.0", config={"block_size": "32"})))
    [mark] = course.marks()
    assert (mark.wall, mark.text) == (NOW + 10, "block_size 16 to 32, vLLM 0.24.0 to 0.32.0")


def test_it_is_read_while_it_is_written() -> None:
    course, stop = Course(), threading.Event()

    def write() -> None:
        at = 0.0
        while not stop.is_set():
            at += 5.0
            course.note(step(at, 2))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            line = course.line((MODEL, "1"), "waiting_requests")
            assert line is None or len(line.times) == len(line.values)
    finally:
        stop.set()
        writer.join()


def line_of(*values: float | None, seconds: float = 5.0) -> Line:
    return Line("x", [NOW + seconds * at for at in range(len(values))], list(values))


@pytest.mark.parametrize(
    ("queue", "first_token", "expected"),
    [
        ((0, 10, 40, 70, 100), (), (Direction.WORSE, "getting worse: queue +5.0/s")),
        ((100, 80, 60, 40, 20), (), (Direction.BETTER, "getting better: queue -4.0/s, empty in about 5.0 s")),
        ((100, 60, 0, 0, 0), (), (Direction.BETTER, "getting better: queue -5.0/s, empty now")),
        (
            (100, 90, 110, 95, 101),
            (),
            (Direction.STEADY, "steady: the queue is neither growing nor draining"),
        ),
        (
            (0, 0, 0, 1, 0),
            (1, 1, 2, 3, 4),
            (Direction.WORSE, "getting worse: TTFT p95 4.0 s, a minute ago 1.0 s"),
        ),
        ((), (4, 3, 2, 1, 1), (Direction.BETTER, "getting better: TTFT p95 1.0 s, a minute ago 4.0 s")),
        ((), (1, 1, 1, 1.1, 1.2), (Direction.STEADY, "steady: TTFT p95 1.2 s")),
    ],
)
def test_where_it_goes_is_told_by_the_queue_else_by_the_first_token(
    queue: tuple[float, ...], first_token: tuple[float, ...], expected: tuple[Direction, str]
) -> None:
    lines = [line_of(*each) if each else None for each in (queue, first_token)]
    assert trend(*lines) == expected


def test_where_it_goes_is_not_told_of_too_little() -> None:
    assert trend(None, None) is None
    assert trend(line_of(0.0, 100.0), None) is None
    assert trend(line_of(0.0, 10.0, 20.0, 30.0, 40.0, None), None) is None
    assert trend(None, line_of(0.0, 0.0, 0.0, 0.0, 0.0)) is None
    old = line_of(*[math.inf] * 3, *[1.0] * 13)
    assert trend(None, old) == (Direction.STEADY, "steady: TTFT p95 1.0 s")


def test_a_restart_of_a_real_server_is_marked() -> None:
    course, diagnosed = Course(), diagnosis()
    for scrape in thin(read(RECORDINGS / "restart.jsonl.xz")[1], 5):
        course.note(diagnosed.observe(scrape))
    assert [each.text for each in course.marks()] == ["the server restarted"]


def test_a_restart_of_one_engine_of_several_names_it() -> None:
    course = Course()
    course.note(step(0, engines=2, restarted=(Subject("chat", MODEL, "1"),)))
    assert [each.text for each in course.marks()] == ["engine 1 restarted"]
