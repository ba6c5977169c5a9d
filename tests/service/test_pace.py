"""Whether the watching keeps its pace."""

import pytest

from watchdog.service.pace import Counts, Pace


def test_a_lost_pace_is_said_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pace = Pace()
    due = skipped = late = 0
    for second in range(300):
        due += 200
        if 60 <= second < 180:
            skipped, late = skipped + 20, late + 5
        pace.look(Counts(due, skipped, late), float(second))
        if second == 170:
            assert pace.note.startswith(
                "1200 of the last minute's 12000 scrapes were left out and 300 began late"
            )
    assert [record.message for record in caplog.records] == ["pace_lost", "pace_kept_again"]
    assert pace.note == ""


def test_one_that_is_left_out_now_and_then_is_nothing() -> None:
    pace = Pace()
    for second in range(300):
        pace.look(Counts(200 * second, second // 10, second // 10), float(second))
        assert pace.note == ""


def test_nothing_due_is_no_lost_pace() -> None:
    pace = Pace()
    pace.look(Counts(), 0.0)
    pace.look(Counts(), 1.0)
    assert pace.note == ""
