"""Recordings of several servers run side by side: each by itself, and what is wrong among those of one model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from watchdog.diagnosis.fleet import FleetDiagnosis
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Incident, Scrape, Snapshot, Target
from watchdog.rule.rule_set import RuleSet

# Servers that are scraped at one interval are scraped within a second of each other.
STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Together:
    """What is known at the end: the last snapshot of each target in their order, and the incidents among them."""

    last: tuple[Snapshot, ...]
    fleet: tuple[Incident, ...] = ()


def replay_together(recordings: Sequence[tuple[Target, Iterable[Scrape]]], rules: RuleSet) -> Together:
    """Runs scrapes of several targets in the order of their times, as `serve` would have.

    What was not recorded at the same time is not compared.
    """
    diagnoses = [TargetDiagnosis(target, rules) for target, _ in recordings]
    last: dict[int, Snapshot] = {}
    among, fleet = FleetDiagnosis(rules), tuple[Incident, ...]()
    each = (_numbered(number, scrapes) for number, (_, scrapes) in enumerate(recordings))
    in_order = merge(*each, key=itemgetter(0))
    for _, step in groupby(in_order, key=lambda one: one[0] // STEP_SECONDS):
        for _, number, scrape in step:
            last[number] = diagnoses[number].observe(scrape)
        if len(recordings) > 1:
            fleet = among.observe(last.values(), scrape.at, scrape.wall).incidents
    return Together(tuple(last[number] for number in sorted(last)), fleet)


def _numbered(number: int, scrapes: Iterable[Scrape]) -> Iterator[tuple[float, int, Scrape]]:
    for scrape in scrapes:
        yield scrape.at, number, scrape
