"""Recordings whose writer is told to end, killed, or left without disk: what was scraped before is readable."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import RECORDING, command, only_rules_of, write_rule
from tests.waiting import until
from watchdog.errors import RecordingError
from watchdog.model import Scrape
from watchdog.replay.demo_server import ReplayServer
from watchdog.scrape.recording import read


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("jsonl", signal.SIGKILL),
        ("jsonl.gz", signal.SIGTERM),
        ("jsonl.xz", signal.SIGTERM),
        ("jsonl.xz", signal.SIGHUP),
        ("jsonl.xz", signal.SIGKILL),
    ],
)
def test_a_recording_holds_every_scrape_however_it_ends(tmp_path: Path, kind: str, end: int) -> None:
    _, scrapes = read(RECORDING)
    path = tmp_path / f"incident.{kind}"
    with ReplayServer(list(scrapes), begin_seconds=100) as server:
        words = [
            sys.executable,
            "-m",
            "watchdog",
            "record",
            server.url,
            "-o",
            str(path),
            "--interval",
            "0.05",
        ]
        process = subprocess.Popen(words, stderr=subprocess.PIPE)
        until(lambda: path.is_file() and len(whole_scrapes(path)) >= 3)
        process.send_signal(end)
        _, told = process.communicate(timeout=30)
    recorded = whole_scrapes(path)
    assert len(recorded) >= 3
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if end == signal.SIGKILL:
        return
    assert process.returncode == 0
    # The signal may come between a write and its count.
    assert len(recorded) - int(told.decode().split()[1]) in (0, 1)
    assert len(path.read_bytes()) < sum(len(each.body) for each in recorded) or kind == "jsonl"


def whole_scrapes(path: Path) -> list[Scrape]:
    """The scrapes of a recording that may still be written."""
    try:
        return list(read(path, lambda _: None)[1])
    except RecordingError:
        return []


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.xz"])
def test_a_full_disk_leaves_a_recording_that_is_read_up_to_there(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rule(tmp_path / "rules")
    only_rules_of(tmp_path / "rules", monkeypatch)
    _, scrapes = read(RECORDING)
    path = tmp_path / f"incident.{kind}"
    blocks = 220 if kind == "jsonl" else 40
    with ReplayServer(list(scrapes), begin_seconds=100) as server:
        record = f"{sys.executable} -m watchdog record {server.url} -o {path} --interval 0.05"
        full = ["bash", "-c", f"ulimit -f {blocks} && exec {record}"]
        ended = subprocess.run(full, capture_output=True, timeout=60, check=False)
    kept = len(whole_scrapes(path))
    assert kept >= 3
    assert (ended.returncode, f"; the {kept} scrapes before are kept" in ended.stderr.decode()) == (2, True)
    breaks_off = f"breaks off after {kept} scrapes; it is read up to there"
    for words in [("replay", path), ("diagnose", path), ("rules", "score", path)]:
        assert breaks_off in command(capsys, *words).err
