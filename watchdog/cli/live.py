"""Watching from the command line: servers by URL or from the settings, and a clock that ticks."""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from watchdog.clock import steady_seconds
from watchdog.diagnosis.fleet import FleetDiagnosis
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Incident, Snapshot, Target
from watchdog.replay.together import Together
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.settings.model import ScrapeSettings, Settings, load

MAX_THREADS = 32
_NAMED_AT_MOST = 3


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


class _WatchedServer:
    """One server while it is watched."""

    def __init__(self, target: Target, fetcher: Fetcher, rules: RuleSet, limits: ScrapeSettings) -> None:
        self.last: Snapshot | None = None
        self.fetcher = fetcher
        self._diagnosis = TargetDiagnosis(target, rules, limits.max_series, limits.max_line_bytes)

    def step(self) -> None:
        suspects = self.last is not None and self.last.suspects_api_server
        self.last = self._diagnosis.observe(self.fetcher.fetch(steady_seconds(), time.time(), suspects))


class Watched:
    """Several servers that are watched side by side, and what is wrong among them."""

    def __init__(
        self, servers: Sequence[_WatchedServer], rules: RuleSet, threads: ThreadPoolExecutor
    ) -> None:
        self._servers, self._threads = servers, threads
        self._among = FleetDiagnosis(rules)
        self._fleet: tuple[Incident, ...] = ()
        self.names = ""

    @property
    def seen(self) -> Together:
        """What is known now; of a step that was broken off, what it had reached."""
        return Together(tuple(each.last for each in self._servers if each.last is not None), self._fleet)

    def step(self) -> Together:
        """Scrapes each of them once, at the same time."""
        list(self._threads.map(_WatchedServer.step, self._servers))
        self._fleet = self._among.observe(self.seen.last, steady_seconds(), time.time()).incidents
        return self.seen


@contextmanager
def watch(settings: Settings, rules: RuleSet) -> Iterator[Watched]:
    """The targets of the settings, ready to be scraped; their connections are closed at the end."""
    fetchers = fetchers_of(settings)
    with ExitStack() as stack:
        for _, fetcher in fetchers:
            stack.enter_context(closing(fetcher))
        threads = stack.enter_context(ThreadPoolExecutor(min(MAX_THREADS, len(fetchers))))
        list(threads.map(lambda each: each[1].server_info(), fetchers))
        servers = [_WatchedServer(target, fetcher, rules, settings.scrape) for target, fetcher in fetchers]
        watched = Watched(servers, rules, threads)
        watched.names = ", ".join(target.name for target, _ in fetchers[:_NAMED_AT_MOST])
        yield watched
