"""Targets that serve one model, held against each other: the shipped rules of fleet scope."""

from dataclasses import replace

import pytest

from tests.a_service import NOW, healthy, readings
from tests.watching import shipped_rules
from watchdog.diagnosis.fleet import FLEET, OLDEST_SECONDS, FleetDiagnosis
from watchdog.diagnosis.readings import READINGS
from watchdog.model import Incident, Snapshot, State, Transition

BUSY = {
    "window_first_tokens": 60.0,
    "generation_tokens_per_second": 900.0,
    "running_mean_requests": 18.0,
    "standing_queue_requests": 6.0,
    "prefix_hit_ratio": 0.8,
}
IDLE = dict.fromkeys(BUSY, 0.0) | {"prefix_hit_ratio": 0.1}


def server(name: str, *engines: dict[str, float], at: float = 0.0, up: bool = True) -> Snapshot:
    each = [
        replace(readings(name, str(number)), values=dict.fromkeys(READINGS) | values)
        for number, values in enumerate(engines)
    ]
    return replace(healthy(name), at=at, up=up, readings=tuple(each))


def watched(*servers: Snapshot, steps: int = 330) -> tuple[tuple[Incident, ...], list[Transition]]:
    """The fleet's incidents after so many steps, a second apart, and all that changed."""
    fleet, changes = FleetDiagnosis(shipped_rules()), list[Transition]()
    for step in range(steps + 1):
        fresh = [replace(each, at=each.at + step) for each in servers]
        standing = fleet.observe(fresh, float(step), NOW + step)
        changes += standing.transitions
    return standing.incidents, changes


def firing(*servers: Snapshot) -> set[str]:
    return {each.key.rule for each in watched(*servers)[0] if each.state is State.FIRING}


@pytest.mark.slow
def test_a_server_that_gets_nothing_is_told() -> None:
    [imbalance] = [
        each
        for each in watched(server("a", BUSY), server("b", BUSY), server("c", IDLE))[0]
        if each.key.rule == "replica-imbalance"
    ]
    assert (imbalance.key.target, imbalance.key.model_name) == (FLEET, "meta/llama-8b")
    assert imbalance.state is State.FIRING
    assert imbalance.cause.startswith("Of 3 servers of this model the busiest did 50% of the work")
    assert "standing queues: 6 and 0" in imbalance.cause


@pytest.mark.slow
def test_servers_that_share_the_work_are_no_incident() -> None:
    assert watched(server("a", BUSY), server("b", BUSY)) == ((), [])


def test_caches_that_hit_unequally_are_told() -> None:
    unlucky = BUSY | {"prefix_hit_ratio": 0.1}
    assert firing(server("a", BUSY), server("b", unlucky)) == {"prefix-hit-skew"}


def test_the_engines_of_a_server_count_together() -> None:
    halves = [{name: value / 2 for name, value in BUSY.items()} | {"prefix_hit_ratio": 0.8}] * 2
    assert firing(server("a", *halves), server("b", BUSY)) == set()
    idle_engine = IDLE | {"prefix_hit_ratio": 0.8}
    assert firing(server("a", BUSY, idle_engine), server("b", BUSY)) == set()


def test_other_models_are_not_compared() -> None:
    other = server("b", IDLE)
    [engine] = other.readings
    other = replace(other, readings=(replace(engine, subject=engine.subject._replace(model_name="other")),))
    assert firing(server("a", BUSY), other) == set()


def test_a_server_that_does_not_answer_or_was_not_seen_lately_is_not_compared() -> None:
    assert firing(server("a", BUSY), server("b", IDLE, up=False)) == set()
    assert firing(server("a", BUSY), server("b", IDLE, at=-OLDEST_SECONDS - 1)) == set()


def test_what_one_server_does_not_tell_is_unknown() -> None:
    silent: dict[str, float] = {}
    assert firing(server("a", BUSY), server("b", silent)) == set()
