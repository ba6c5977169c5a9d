"""The image's health check: it asks by itself, and leaves what it cannot tell to the command."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.servers import Server, answer, repeat, serving

STAND_IN = """#!/bin/sh
echo "$@" > {log}
exit {health}
"""


def alive(root: Path, directory: Path, port: int, health: int = 1) -> int:
    """The exit code, beside a command that would say `health`."""
    program = directory / "vllm-watchdog"
    program.write_text(STAND_IN.format(log=directory / "log", health=health))
    program.chmod(0o755)
    environment = {"PATH": f"{directory}:{os.environ['PATH']}", "WATCHDOG_WEB__PORT": str(port)}
    return subprocess.run(
        [root / "deploy" / "image" / "alive"], env=environment, timeout=30, check=False
    ).returncode


def test_a_watchdog_that_answers_is_alive_and_no_process_of_python_is_started(
    root: Path, tmp_path: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Server(serving(answer(b'{"status": "ok"}'))) as server:
        assert alive(root, tmp_path, server.port) == 0
    assert [head.split("\r\n")[0] for head in server.requests] == ["GET /healthz HTTP/1.0"]
    assert not (tmp_path / "log").exists()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 0.2


@pytest.mark.parametrize("health", [0, 1])
@pytest.mark.parametrize("says", [b"", answer(b"{}", "503 Service Unavailable"), b"\x15\x03\x01"])
def test_what_it_cannot_tell_the_command_says(root: Path, tmp_path: Path, says: bytes, health: int) -> None:
    with Server([repeat(lambda connection: connection.peer.sendall(says))]) as server:
        assert alive(root, tmp_path, server.port, health) == health
    assert (tmp_path / "log").read_text() == "health\n"


def test_nobody_who_listens_is_for_the_command_too(root: Path, tmp_path: Path) -> None:
    assert alive(root, tmp_path, 1) == 1
    assert (tmp_path / "log").read_text() == "health\n"
