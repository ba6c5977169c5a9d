"""What no server can mean (NaN, infinite, below zero) is unknown: never healthy by it, never an alarm from it."""

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.places import RECORDINGS
from tests.watching import diagnosis
from watchdog.model import Scrape, Severity, Snapshot, State, Verdict
from watchdog.scrape.recording import read, thin

IMPOSSIBLE = ("NaN", "+Inf", "-Inf", "-1", "-1e300")
CALM = ("healthy", "h200-healthy", "idle")


@cache
def recorded(name: str) -> tuple[Scrape, ...]:
    return tuple(thin(read(RECORDINGS / f"{name}.jsonl.xz")[1], 5.0))[:16]


@cache
def metrics(name: str) -> tuple[str, ...]:
    lines = recorded(name)[-1].body.decode().splitlines()
    return tuple(sorted({_metric(line) for line in lines if line and line[0] != "#"}))


def _metric(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def spoilt(scrape: Scrape, names: Collection[str], value: str) -> Scrape:
    """The same page with this value in all series of these names."""
    lines = scrape.body.decode().splitlines()
    told = (f"{line.rpartition(' ')[0]} {value}" if _metric(line) in names else line for line in lines)
    return replace(scrape, body="\n".join([*told, ""]).encode())


def watched(name: str, names: Collection[str], value: str, first: int) -> list[Snapshot]:
    one = diagnosis()
    scrapes = recorded(name)
    return [one.observe(spoilt(each, names if at >= first else (), value)) for at, each in enumerate(scrapes)]


def alarms(snapshots: list[Snapshot]) -> set[str]:
    incidents = (one for each in snapshots for one in each.incidents)
    return {
        one.key.rule for one in incidents if one.state is State.FIRING and one.severity is not Severity.INFO
    }


@pytest.mark.parametrize("value", IMPOSSIBLE)
@pytest.mark.parametrize("name", [*CALM, "kv-pool-exhausted"])
def test_a_page_of_nothing_else_proves_neither_health_nor_fault(name: str, value: str) -> None:
    spoils = {one for one in metrics(name) if one.startswith("vllm:")}
    for first in (0, 8):
        snapshots = watched(name, spoils, value, first)
        assert alarms(snapshots[first + 1 :]) == set()
        assert snapshots[-1].verdict in {Verdict.UNKNOWN, Verdict.STARTING}


@settings(max_examples=15, deadline=None)
@given(
    data=st.data(), name=st.sampled_from(CALM), value=st.sampled_from(IMPOSSIBLE), first=st.integers(0, 10)
)
def test_whatever_is_impossible_on_a_calm_page_is_no_alarm(
    data: st.DataObject, name: str, value: str, first: int
) -> None:
    spoils = data.draw(st.sets(st.sampled_from(metrics(name)), min_size=1))
    assert alarms(watched(name, spoils, value, first)) == set()
