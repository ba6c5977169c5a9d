"""`vllm-watchdog top`: what stands on the screen, what keys do, and a run in a real terminal."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.places import RECORDINGS
from tests.waiting import until
from tests.watching import shipped_rules
from watchdog.cli.top import DOWN, ESCAPE, UP, Screen
from watchdog.model import Target
from watchdog.replay.demo_server import demo_server
from watchdog.replay.together import Together, replay_together
from watchdog.report.sparkline import sparkline
from watchdog.scrape.recording import read, thin


def seen(*names: str) -> Together:
    """Servers as they stood at the end of recordings."""
    scrapes = [thin(read(RECORDINGS / f"{name}.jsonl.xz")[1], 5) for name in names]
    targets = [Target(name, "http://gpu:8000/metrics") for name in names]
    return replay_together(list(zip(targets, scrapes, strict=True)), shipped_rules())


def text_of(screen: Screen, columns: int = 120, lines: int = 40) -> list[str]:
    page = StringIO()
    Console(width=columns, height=lines, file=page).print(screen.drawn(columns, lines))
    return page.getvalue().splitlines()


@pytest.fixture
def screen() -> Screen:
    one = Screen()
    one.add(seen("healthy", "h200-kv-pool-exhausted"))
    return one


def test_the_worst_server_stands_first_with_its_cause(screen: Screen) -> None:
    lines = text_of(screen)
    assert "2 servers: 1 critical, 1 healthy" in lines[0]
    assert lines[2].startswith("h200-kv-pool-exhausted")
    assert "CRITICAL" in lines[2]
    assert lines[3].startswith("healthy")
    assert any(line.startswith("CRITICAL  h200-kv-pool-exhausted: ") for line in lines)


def test_the_course_of_the_chosen_server_follows_its_cause(screen: Screen) -> None:
    for _ in range(2):
        screen.add(seen("healthy", "h200-kv-pool-exhausted"))
    lines = text_of(screen, 140)
    [at] = [
        place for place, line in enumerate(lines) if line.startswith("CRITICAL  h200-kv-pool-exhausted: ")
    ]
    assert re.match(r"  course     waiting ███ [\d,]+   KV ███ \d+%   TTFT p95 ███ ", lines[at + 1])
    narrow = text_of(screen, 60)
    [at] = [place for place, line in enumerate(narrow) if line.startswith("  course     waiting ███")]
    assert narrow[at + 2].startswith("             TTFT p95 ███")


def test_keys_choose_a_server_and_show_it_alone(screen: Screen) -> None:
    for key in (DOWN, "\r"):
        screen.press(key)
    lines = text_of(screen)
    assert not any(line.startswith("h200") for line in lines)
    assert any(line.startswith("HEALTHY  healthy") for line in lines)
    for key in (ESCAPE, UP, UP):
        screen.press(key)
    assert any(line.startswith("CRITICAL  h200") for line in text_of(screen))
    screen.press("q")
    assert screen.is_over


@pytest.mark.parametrize(("columns", "lines"), [(60, 15), (80, 24), (200, 60)])
def test_it_fits_the_terminal(screen: Screen, columns: int, lines: int) -> None:
    drawn = text_of(screen, columns, lines)
    assert len(drawn) <= lines
    assert max(map(len, drawn)) <= columns


def test_trouble_with_the_source_is_told_with_the_time_of_what_is_shown(screen: Screen) -> None:
    screen.note("http://prometheus:9090: connection refused")
    assert re.match(r"vllm-watchdog  what is shown is of [\d:]+: http://prometheus:9090", text_of(screen)[0])
    screen.add(seen("healthy"))
    assert "1 server: 1 healthy" in text_of(screen)[0]


def test_a_line_of_bars_follows_the_numbers_and_shows_gaps() -> None:
    assert sparkline([0.0, 2.0, None, 4.0]) == "▁▅ █"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([1.0] * 30, 20) == "█" * 20


# A real terminal.


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """tmux on a socket of its own: give it words of tmux, it gives back what tmux printed."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("tmux is not installed")

    def tmux(*words: str) -> str:
        told = subprocess.run(
            [program, "-S", str(tmp_path / "socket"), *words], capture_output=True, text=True, check=False
        )
        return told.stdout

    yield tmux
    tmux("kill-server")


def test_a_real_terminal_shows_the_server_and_is_as_before_afterwards(terminal: Callable[..., str]) -> None:
    with demo_server() as server:
        command = f"{sys.executable} -m watchdog top {server.url} --interval 0.5; echo ended; cat"
        terminal("new-session", "-d", "-x", "100", "-y", "30", command)
        until(lambda: "1 server" in terminal("capture-pane", "-p"))
        assert "q: quit" in terminal("capture-pane", "-p")
        terminal("send-keys", "q")
        until(lambda: "ended" in terminal("capture-pane", "-p"))
        # The screen of before is back.
        assert "1 server" not in terminal("capture-pane", "-p")
