"""The sidecar's entry point, run for real with a stand-in for the command it keeps running."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STAND_IN = """#!/bin/sh
echo "$1" >> {log}
if [ "$1" = health ]; then exit {health}; fi
trap 'echo ended >> {log}; exit 0' TERM
trap 'echo reloaded >> {log}' HUP
i=0
while [ "$i" -lt {turns} ]; do sleep 0.05 & wait $!; i=$((i + 1)); done
exit 2
"""


class Beside:
    """A running serve-beside and what its stand-in wrote down."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for(self, line: str, times: int = 1) -> None:
        end = time.monotonic() + 10
        while self.lines().count(line) < times:
            assert time.monotonic() < end, self.lines()
            time.sleep(0.02)


Start = Callable[..., Beside]


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start_one(turns: int, health: int = 0) -> Beside:
        log = tmp_path / "log"
        program = tmp_path / "vllm-watchdog"
        program.write_text(STAND_IN.format(log=log, turns=turns, health=health))
        program.chmod(0o755)
        process = subprocess.Popen(
            [root / "deploy" / "image" / "serve-beside"],
            env={
                "PATH": f"{tmp_path}:{root / 'deploy' / 'image'}:{os.environ['PATH']}",
                # Nothing listens there, so that the stand-in is asked.
                "WATCHDOG_WEB__PORT": "1",
                "RESTART_PAUSE_SECONDS": "0.1",
                "CHECK_EVERY_SECONDS": "0.2",
            },
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.append(process)
        return Beside(process, log)

    yield start_one
    for process in started:
        # The whole group, so that no `sleep` of the script outlives the test.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_watchdog_that_exits_is_started_again_and_the_container_stays_up(start: Start) -> None:
    beside = start(turns=1)
    beside.wait_for("serve", times=3)
    assert beside.process.poll() is None


def test_the_end_of_the_container_ends_the_watchdog_in_good_order(start: Start) -> None:
    beside = start(turns=1000)
    beside.wait_for("serve")
    beside.process.send_signal(signal.SIGTERM)
    assert beside.process.wait(timeout=10) == 0
    assert beside.lines().count("ended") == 1


def test_a_hangup_reaches_the_watchdog_and_ends_nothing(start: Start) -> None:
    beside = start(turns=1000)
    beside.wait_for("serve")
    time.sleep(0.1)
    beside.process.send_signal(signal.SIGHUP)
    beside.wait_for("reloaded")
    assert beside.process.poll() is None
    assert beside.lines().count("serve") == 1


def test_a_watchdog_that_no_longer_answers_is_ended_and_started_again(start: Start) -> None:
    beside = start(turns=1000, health=1)
    beside.wait_for("serve", times=2)
    assert beside.lines().count("health") >= 3
    assert beside.process.poll() is None


def test_a_watchdog_that_answers_is_left_alone(start: Start) -> None:
    beside = start(turns=1000)
    beside.wait_for("health", times=4)
    assert beside.lines().count("serve") == 1
