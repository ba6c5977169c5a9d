"""The last 24 hours in a line of text: the worst of each ten minutes, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from tests.a_service import NOW
from watchdog.model import Verdict
from watchdog.report.day import SLOT_SECONDS, SLOTS, Day, day_text

VERDICTS = st.sampled_from(list(Verdict))


def test_the_worst_of_ten_minutes_stays_and_a_day_later_all_is_forgotten() -> None:
    day = Day()
    assert day.verdicts(NOW) == [None] * SLOTS
    assert day.note(Verdict.HEALTHY, NOW)
    assert not day.note(Verdict.HEALTHY, NOW + 1)
    assert day.note(Verdict.CRITICAL, NOW + 2)
    assert not day.note(Verdict.HEALTHY, NOW + 3)
    assert day.note(Verdict.HEALTHY, NOW + 2 * SLOT_SECONDS)
    assert day.verdicts(NOW + 3 * SLOT_SECONDS)[-4:] == [Verdict.CRITICAL, None, Verdict.HEALTHY, None]
    assert day.verdicts(NOW + 86400 + 3 * SLOT_SECONDS) == [None] * SLOTS
    # A clock that is set back takes what was seen along.
    assert day.note(Verdict.DEGRADED, NOW)
    assert day.verdicts(NOW)[-3:] == [Verdict.CRITICAL, None, Verdict.DEGRADED]


@given(st.lists(st.tuples(VERDICTS, st.floats(0, 90_000)), max_size=40))
def test_a_day_survives_being_written(steps: list[tuple[Verdict, float]]) -> None:
    day, wall = Day(), NOW
    for verdict, pause in steps:
        wall += pause
        day.note(verdict, wall)
    again = Day.read(day.text())
    assert again.verdicts(wall) == day.verdicts(wall)
    assert len(day.text()) < 160
    assert len(day.verdicts(wall)) == SLOTS
    if steps:
        assert day.verdicts(wall)[-1] is not None


@given(st.text())
def test_what_is_no_day_is_an_empty_one(text: str) -> None:
    assert len(Day.read(text).verdicts(NOW)) == SLOTS
    assert Day.read(f"12:{text}").verdicts(NOW) == [None] * SLOTS


def test_a_day_is_told_in_words() -> None:
    verdicts = [None] * 120 + [Verdict.HEALTHY] * 18 + [Verdict.CRITICAL] * 6
    assert day_text(verdicts) == "last 24 hours: critical 1h, healthy 3h, not known 20h"
