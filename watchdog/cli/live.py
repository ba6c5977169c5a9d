"""Scraping from the command line: fetchers for URLs and for configured targets, and a clock that ticks."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from watchdog.clock import steady_seconds
from watchdog.model import Target
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.settings.model import Settings, load


def settings_for(urls: Sequence[str], config: Path | None, interval_seconds: float | None) -> Settings:
    """The settings with these URLs as their targets, or as they are if none is given; raises ConfigError."""
    overrides = {"targets": list(urls) or None, "scrape.interval_seconds": interval_seconds}
    return load(config, overrides, os.environ)


def limits_of(settings: Settings, name: str) -> FetchLimits:
    """How long and how large a scrape of the target of that name may be."""
    return FetchLimits(settings.deadline_seconds(name), settings.scrape.max_body_bytes)


def fetchers_of(settings: Settings) -> list[tuple[Target, Fetcher]]:
    """Each target and its fetcher, which is to be closed."""
    return [
        (target, Fetcher(endpoint, limits_of(settings, target.name)))
        for target, endpoint in settings.target_list()
    ]


def ticks(interval_seconds: float, total_seconds: float | None) -> Iterator[float]:
    """Steady times, an interval apart, the first at once; a tick that was overrun is left out."""
    began = due = steady_seconds()
    while total_seconds is None or due - began <= total_seconds:
        time.sleep(max(0.0, due - steady_seconds()))
        yield steady_seconds()
        late_seconds = max(0.0, steady_seconds() - due)
        due += interval_seconds * (late_seconds // interval_seconds + 1)
