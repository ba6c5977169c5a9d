"""Where a command's scrapes come from: a recording, or a server that is watched for a while."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from watchdog.cli.console import complain, progress
from watchdog.cli.diagnose import is_file
from watchdog.cli.live import fetchers_of, settings_for, ticks
from watchdog.clock import steady_seconds
from watchdog.errors import ConfigError
from watchdog.model import Scrape, Target
from watchdog.scrape.fetch import Fetcher
from watchdog.scrape.recording import read
from watchdog.text import one_line


class Source(NamedTuple):
    """Scrapes in order, and whose they are."""

    target: Target
    scrapes: Iterator[Scrape]


@contextmanager
def open_source(what: str, config: Path | None, interval_seconds: float, seconds: float) -> Iterator[Source]:
    """The scrapes of a file, or of a server that is watched for `seconds`, one each `interval_seconds`.

    Ctrl-C ends the watching early. Raises ConfigError for a word that is neither, RecordingError for a file that
    cannot be read.
    """
    if is_file(what):
        recording, scrapes = read(Path(what), complain)
        with progress(f"reading {recording.name}", None):
            yield Source(Target(recording.name, one_line(what)), scrapes)
        return
    if not any(mark in what for mark in ".:"):
        raise ConfigError([f"{what!r} is neither a file here nor a URL such as http://localhost:8000"])
    [(target, fetcher)] = fetchers_of(settings_for([what], config, interval_seconds))
    with closing(fetcher):
        yield Source(target, _watched(target, fetcher, interval_seconds, seconds))


def _watched(target: Target, fetcher: Fetcher, interval_seconds: float, seconds: float) -> Iterator[Scrape]:
    fetcher.server_info()
    began = steady_seconds()
    with progress(f"watching {target.name}", seconds) as done:
        try:
            for at in ticks(interval_seconds, seconds):
                yield fetcher.fetch(at, time.time())
                done(steady_seconds() - began)
        except KeyboardInterrupt:
            # What was seen up to now is told.
            return
