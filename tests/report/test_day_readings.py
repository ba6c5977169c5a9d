"""The readings of 24 hours: the greatest of ten minutes stays, whatever the clock does, and outlives a process."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.a_service import NOW, readings, snapshot
from watchdog.model import Snapshot
from watchdog.report.course import Mark
from watchdog.report.day import SLOT_SECONDS, SLOTS
from watchdog.report.day_readings import LINES, MOST_MARKS, DayReadings

BEGIN = NOW - NOW % SLOT_SECONDS


def step(wall: float, **values: float | None) -> Snapshot:
    return snapshot(wall=wall, readings=(replace(readings(), values=dict.fromkeys(LINES) | values),))


def test_the_greatest_of_ten_minutes_stays_and_a_day_later_all_is_forgotten() -> None:
    day = DayReadings()
    assert day.line("waiting_requests", BEGIN) is None
    assert day.note(step(BEGIN, waiting_requests=3.0))
    # A kill may lose ten minutes: what changes within them is not written at each step.
    assert not day.note(step(BEGIN + 5, waiting_requests=9.0))
    assert not day.note(step(BEGIN + 10, waiting_requests=None))
    assert day.note(step(BEGIN + 2 * SLOT_SECONDS, waiting_requests=1.0))
    line = day.line("waiting_requests", BEGIN + 3 * SLOT_SECONDS)
    assert line is not None
    assert list(line.values[-4:]) == [9.0, None, 1.0, None]
    assert line.times[-1] == BEGIN + 3 * SLOT_SECONDS
    assert day.line("kv_usage_ratio", BEGIN) is None
    assert day.line("waiting_requests", BEGIN + 86400 + 3 * SLOT_SECONDS) is None


def test_a_server_that_is_down_has_no_readings() -> None:
    day = DayReadings()
    day.note(replace(step(BEGIN, waiting_requests=3.0), up=False))
    assert day.line("waiting_requests", BEGIN) is None


def test_changes_are_kept_once_for_a_day_also_those_of_an_earlier_process() -> None:
    day = DayReadings()
    old, new = Mark(BEGIN - 90_000, "old"), Mark(BEGIN, "the server restarted")
    assert day.note(step(BEGIN), [old, new])
    assert not day.note(step(BEGIN + 5), [old, new])
    again = DayReadings.read(day.text())
    later = Mark(BEGIN + 60, "dtype auto to fp8")
    assert again.note(step(BEGIN + 60), [later])
    assert [each.text for each in again.marks(BEGIN + 60)] == ["the server restarted", "dtype auto to fp8"]
    again.note(step(BEGIN + 61), [later, *(Mark(BEGIN + 61 + number, "x") for number in range(60))])
    assert len(again.marks(BEGIN + 61)) == MOST_MARKS


@given(
    st.lists(
        st.tuples(
            st.floats(-30_000, 90_000),
            st.floats(0, 1e9) | st.none() | st.just(float("nan")),
        ),
        max_size=30,
    )
)
def test_a_day_survives_being_written(steps: list[tuple[float, float | None]]) -> None:
    day, wall = DayReadings(), BEGIN
    for pause, value in steps:
        wall = max(BEGIN, wall + pause)
        day.note(step(wall, waiting_requests=value, kv_usage_ratio=0.123456))
    before = day.line("waiting_requests", wall)
    after = DayReadings.read(day.text()).line("waiting_requests", wall)
    assert len(day.text()) < 5_000
    if before is None:
        assert after is None
    else:
        assert after is not None
        assert len(before.values) == SLOTS
        assert [each is None for each in after.values] == [each is None for each in before.values]
        assert after.known == pytest.approx(before.known, rel=0.01)


@given(
    st.text(max_size=40)
    | st.sampled_from(["12:{}", '12:{"lines":{"waiting_requests":[1]},"marks":[]}', "12:[]"])
)
def test_any_other_text_is_an_empty_day(text: str) -> None:
    assert DayReadings.read(text).line("waiting_requests", NOW) is None
