"""Looks at a fleet one after the other, joined: each scrape once, each server under one name."""

from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf
from typing import NamedTuple

from watchdog.model import NO_LABELS, Scrape
from watchdog.scrape.samples import ADDRESS, Fleet, Labels

# Longer than looks ever overlap.
KEPT_SECONDS = 3600.0
_Identity = frozenset[tuple[str, str]]


class Scraped(NamedTuple):
    """A scrape, and whose: the server's name and its target labels."""

    name: str
    labels: Labels
    scrape: Scrape


class Continued:
    """Takes looks in the order of their times; a server keeps the name that it had when it was first seen.

    Scrapes before `begin` (unix seconds) are left out. `known` are the labels of servers that have a name already,
    `taken` says which names are somebody else's.
    """

    def __init__(
        self,
        begin: float = 0.0,
        known: Mapping[str, Labels] = NO_LABELS,  # type: ignore[assignment]
        taken: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._begin = begin
        self._taken = taken
        self._names: dict[_Identity, str] = {
            frozenset(labels.items()): name for name, labels in known.items()
        }
        self._last: dict[str, float] = {}
        self._lines: dict[str, int] = {}
        # Of servers that were forgotten: looks overlap, and what was over is not to begin again.
        self._over: dict[_Identity, float] = {}

    @property
    def newest(self) -> float | None:
        """When any server was last scraped, in unix seconds; None for never."""
        return max(self._last.values(), default=None)

    def last(self, name: str) -> float | None:
        """When a server was last scraped, in unix seconds; None for never."""
        return self._last.get(name)

    def new(self, fleet: Fleet, settled: float = inf) -> Iterator[Scraped]:
        """The scrapes from `begin` on that no look before had, server by server.

        One later than `settled` (unix seconds) that shows less than the one before it may be there in part: it and
        what follows are left for the next look.
        """
        present = {frozenset(server.labels.items()) for server in fleet.servers.values()}
        for name, server in fleet.servers.items():
            over = self._over.get(frozenset(server.labels.items()))
            if over is not None and server.times[-1] <= over:
                continue
            known = self._named(name, server.labels, present)
            if over is not None:
                self._last.setdefault(known, over)
            for scrape in server.scrapes(self._last.get(known, -inf)):
                if scrape.at < self._begin:
                    continue
                lines = scrape.body.count(b"\n")
                if scrape.failure is None:
                    if scrape.at > settled and lines < self._lines.get(known, 0):
                        break
                    self._lines[known] = lines
                self._last[known] = scrape.at
                yield Scraped(known, server.labels, scrape)

    def forget(self, name: str) -> None:
        """Gives a name free, of a server that is over: only what comes after its last scrape begins it again."""
        newest = self.newest or 0.0
        self._over = {identity: at for identity, at in self._over.items() if at > newest - KEPT_SECONDS}
        self._over |= {
            identity: self._last.get(name, -inf) for identity, one in self._names.items() if one == name
        }
        self._names = {identity: one for identity, one in self._names.items() if one != name}
        self._last.pop(name, None)
        self._lines.pop(name, None)

    def _named(self, name: str, labels: Labels, present: Collection[_Identity]) -> str:
        key = frozenset(labels.items())
        if key not in self._names:
            before = self._address_before(labels, present)
            if before is not None:
                self._names[key] = self._names.pop(before)
            else:
                taken = {*self._names.values(), *self._taken()}
                numbered = (f"{name} {number}" for number in range(2, len(taken) + 3))
                self._names[key] = (
                    name if name not in taken else next(one for one in numbered if one not in taken)
                )
        return self._names[key]

    def _address_before(self, labels: Labels, present: Collection[_Identity]) -> _Identity | None:
        """The same pod at an address at which it is not any more; None for none."""
        own = {pair for pair in labels.items() if pair[0] != ADDRESS}
        if "pod" not in labels:
            return None
        return next(
            (
                each
                for each in self._names
                if each not in present and {pair for pair in each if pair[0] != ADDRESS} == own
            ),
            None,
        )
