"""All places where servers are found, and the one list of targets that they and the settings make together."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from pydantic import ValidationError

from watchdog.discovery.finder import Finder
from watchdog.discovery.found import Found
from watchdog.discovery.lists import FileFinder, HttpFinder
from watchdog.http.url import canonical_url
from watchdog.model import Pod
from watchdog.notify.announcements import Ledger
from watchdog.report.metrics import Looks
from watchdog.schema import problems
from watchdog.settings.discovery import (
    DiscoverySettings,
    FileDiscoverySettings,
    FindSettings,
    HttpDiscoverySettings,
    KubernetesDiscoverySettings,
)
from watchdog.settings.target import TargetSettings
from watchdog.settings.watchdogs import WatchdogSettings
from watchdog.text import one_line

MOST_LEFT_OUT_TOLD = 3
LEDGER = "discovery"

log = logging.getLogger(__name__)


class Discovery:
    """The finders of one configuration. `targets` is for one thread at a time; the rest is for any."""

    def __init__(self, settings: DiscoverySettings, ledgers: Callable[[str], Ledger]) -> None:
        self._ledgers = ledgers
        self._finders = {each.name: _finder(each, ledgers) for each in settings.all}
        self._running = False
        self._taken: tuple[tuple[Found, ...], ...] = ()
        self._made: dict[tuple[Finder, str, str], TargetSettings | str] = {}
        self._finder_of: dict[str, Finder] = {}
        self._pods: Mapping[str, Pod] = {}
        self._left_out: tuple[str, ...] = ()

    def targets(self, given: Sequence[TargetSettings]) -> list[TargetSettings]:
        """Those given in the settings, then those found; of two with one name or page the first counts."""
        self._taken = self._now()
        targets = list(given)
        finder_of: dict[str, Finder] = {}
        pods: dict[str, Pod] = {}
        left_out: list[str] = []
        names = {each.name for each in given}
        pages = {canonical_url(each.url) for each in given}
        made: dict[tuple[Finder, str, str], TargetSettings | str] = {}
        for finder, found in zip(self._finders.values(), self._taken, strict=True):
            for each in found if finder.settings.finds == "servers" else ():
                identity = (finder, each.name, each.text())
                target = made[identity] = self._made.get(identity) or _target(each, finder.settings)
                if isinstance(target, str):
                    left_out.append(target)
                elif canonical_url(target.url) in pages:
                    continue
                elif target.name in names:
                    left_out.append(f"{target.name}: another server has this name")
                else:
                    targets.append(target)
                    names.add(target.name)
                    pages.add(canonical_url(target.url))
                    finder_of[target.name] = finder
                    if each.pod is not None:
                        pods[target.name] = each.pod
        self._made, self._finder_of, self._pods = made, finder_of, pods
        self._tell(tuple(left_out))
        return targets

    def watchdogs(self, given: Sequence[WatchdogSettings]) -> list[WatchdogSettings]:
        """The watchdogs given in the settings, then those found; of two with one name the first counts."""
        found = {each.name: each for each in given}
        for finder in self._finders.values():
            for each in finder.found if finder.settings.finds == "watchdogs" else ():
                with suppress(ValidationError):
                    found.setdefault(each.name, each.watchdog(finder.settings))
        return list(found.values())

    @property
    def is_new(self) -> bool:
        """Whether other servers are found than when `targets` was asked last."""
        return any(now is not then for now, then in zip(self._now(), self._taken, strict=True))

    @property
    def pods(self) -> Mapping[str, Pod]:
        """The pod of each target that is one, by the target's name."""
        return self._pods

    @property
    def is_used(self) -> bool:
        """Whether there is any place to look at."""
        return bool(self._finders)

    @property
    def has_answered(self) -> bool:
        """Whether the first look at each place has ended, well or badly."""
        return all(finder.answered for finder in self._finders.values())

    @property
    def looks(self) -> Sequence[Looks]:
        """What is counted of each place."""
        return [finder.looks for finder in self._finders.values()]

    def notes(self) -> Iterator[str]:
        """What is wrong, for people."""
        yield from (finder.note for finder in self._finders.values() if finder.note)
        if self._left_out:
            yield _of_left_out(self._left_out)

    def hurry(self, name: str) -> None:
        """Has the place look again where that target was found: it may be gone."""
        finder = self._finder_of.get(name)
        if finder is not None:
            finder.hurry()

    def start(self) -> None:
        """Begins to look."""
        self._running = True
        for finder in self._finders.values():
            finder.start()

    def stop(self) -> None:
        """Looks no more; what was found stays."""
        self._running = False
        for finder in self._finders.values():
            finder.stop()

    def change(self, settings: DiscoverySettings) -> None:
        """Goes over to other settings: a place with the same ones goes on, and may be found empty once."""
        before = self._finders
        self._finders = {
            each.name: kept
            if (kept := before.get(each.name)) is not None and kept.settings == each
            else _finder(each, self._ledgers)
            for each in settings.all
        }
        for name, finder in before.items():
            if self._finders.get(name) is finder:
                finder.hurry(takes_empty=True)
                continue
            finder.stop()
            if name not in self._finders:
                finder.forget()
        for name, finder in self._finders.items():
            if self._running and before.get(name) is not finder:
                finder.start()

    def _now(self) -> tuple[tuple[Found, ...], ...]:
        return tuple(finder.found for finder in self._finders.values())

    def _tell(self, left_out: tuple[str, ...]) -> None:
        if left_out and left_out != self._left_out:
            log.warning("servers_left_out", extra={"count": len(left_out), "why": _of_left_out(left_out)})
        self._left_out = left_out


def _finder(settings: FindSettings, ledgers: Callable[[str], Ledger]) -> Finder:
    ledger = ledgers(f"{LEDGER} {settings.name}")
    if isinstance(settings, FileDiscoverySettings):
        return FileFinder(settings, ledger)
    if isinstance(settings, HttpDiscoverySettings):
        return HttpFinder(settings, ledger)
    assert isinstance(settings, KubernetesDiscoverySettings)  # noqa: S101 - there is no other kind
    # The library is there for who asked for it, and nobody else pays for it.
    from watchdog.discovery.pods import PodFinder  # noqa: PLC0415

    return PodFinder(settings, ledger)


def _target(found: Found, settings: FindSettings) -> TargetSettings | str:
    """It as a target, or in a sentence why it can be none."""
    try:
        return found.settings(settings)
    except ValidationError as error:
        first = next(problems(error))
        where = ".".join(map(str, first.path))
        return one_line(f"{found.name}: {where} {first.message}", 200)


def _of_left_out(left_out: Sequence[str]) -> str:
    more = f" and {len(left_out) - MOST_LEFT_OUT_TOLD} more" if len(left_out) > MOST_LEFT_OUT_TOLD else ""
    return f"servers found and not watched: {'; '.join(left_out[:MOST_LEFT_OUT_TOLD])}{more}"
