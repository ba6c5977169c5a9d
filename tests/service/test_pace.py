"""Whether the watching keeps its pace, and has room for its open files."""

import resource

import pytest

from watchdog.service import pace as module
from watchdog.service.pace import Counts, Pace, open_files_notes, raise_open_files_limit


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


def test_a_limit_of_open_files_without_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert list(open_files_notes(500)) == []
    [note] = open_files_notes(1000)
    assert note.startswith("1024 files may be open, and 1000 targets need 1200")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert list(open_files_notes(10**6)) == []


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        raise_open_files_limit()
        most = module.MOST_OPEN_FILES
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
