"""Looks at a fleet one after the other, joined: each scrape once, each server under one name."""

from collections.abc import Iterator
from typing import NamedTuple

from watchdog.model import Scrape
from watchdog.scrape.samples import Fleet, Labels


class Scraped(NamedTuple):
    """A scrape, and whose: the server's name and its target labels."""

    name: str
    labels: Labels
    scrape: Scrape


class Continued:
    """Takes looks in the order of their times; a server keeps the name that it had when it was first seen."""

    def __init__(self, begin: float = 0.0) -> None:
        self._begin = begin
        self._names: dict[frozenset[tuple[str, str]], str] = {}
        self._last: dict[str, float] = {}

    def new(self, fleet: Fleet) -> Iterator[Scraped]:
        """The scrapes from `begin` on that no look before had, server by server."""
        for name, server in fleet.servers.items():
            known = self._named(name, server.labels)
            for scrape in server.scrapes():
                if scrape.at > self._last.get(known, -1.0) and scrape.at >= self._begin:
                    self._last[known] = scrape.at
                    yield Scraped(known, server.labels, scrape)

    def _named(self, name: str, labels: Labels) -> str:
        key = frozenset(labels.items())
        if key not in self._names:
            taken = set(self._names.values())
            numbered = (f"{name} {number}" for number in range(2, len(taken) + 3))
            self._names[key] = (
                name if name not in taken else next(one for one in numbered if one not in taken)
            )
        return self._names[key]
