"""What tests of several modules start from."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.commands import RECORDING, write_rule
from watchdog.replay.demo_server import ReplayServer
from watchdog.scrape.recording import read

# How long an example takes says nothing of it: other work on the machine may slow it down.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


@pytest.fixture
def restored_root_logger() -> Iterator[None]:
    """The root logger is as it was after a test that sets logging up."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with one sound rule in it."""
    folder = tmp_path / "rules"
    write_rule(folder)
    return folder


@pytest.fixture(scope="session")
def sick_server() -> Iterator[ReplayServer]:
    """The recording, stopped in the middle of its incident."""
    _, scrapes = read(RECORDING)
    with ReplayServer(list(scrapes)[100:101]) as server:
        yield server
