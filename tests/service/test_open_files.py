"""Room for open files: what is raised, kept and said."""

import resource
from pathlib import Path

import pytest

from watchdog.service.open_files import (
    FEWEST_CONNECTIONS,
    MOST_OPEN_FILES,
    SPARE_FILES,
    OpenFiles,
    connections_allowed,
    open_files,
    open_files_notes,
    raise_open_files_limit,
)


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
        most = MOST_OPEN_FILES
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_descriptors_for_scrapes_and_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert connections_allowed(1, 400) == 400
    assert connections_allowed(600, 400) == 1024 - 600 - SPARE_FILES
    assert connections_allowed(2000, 400) == FEWEST_CONNECTIONS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connections_allowed(10**6, 400) == 400


def test_open_files_that_nearly_run_out_are_said_once_and_so_is_that_they_do_no_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    counts = iter([50, 89, 90, 97, 85, 79])
    files = OpenFiles(lambda: next(counts))
    notes = []
    for second in range(30):
        files.look(float(second))
        notes.append(files.note)
    assert [record.message for record in caplog.records] == [
        "open_files_nearly_exhausted",
        "open_files_enough_again",
    ]
    assert [note[:20] for note in notes[::5]] == [
        "",
        "",
        "90 files are open, o",
        "97 files are open, o",
        "85 files are open, o",
        "",
    ]


def test_open_files_are_counted() -> None:
    before = open_files()
    assert before is not None
    with Path("/dev/null").open(), Path("/dev/null").open():
        assert open_files() == before + 2
