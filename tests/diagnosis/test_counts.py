"""No alarm from counts alone: many engines, many servers and any rate of requests, all of them well."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.watching import shipped_rules
from watchdog.facts.balance import Load, fleet_facts
from watchdog.facts.fact import by_name
from watchdog.facts.reachability import Reachability
from watchdog.model import Failure, Page, Reason, Scrape, Truth
from watchdog.rule.rule import evaluate

AMONG_MANY = ("dp-imbalance", "replica-imbalance")
WELL: Mapping[str, float] = {
    "kv_usage_mean_ratio": 0.2,
    "kv_usage_recent_min_ratio": 0.1,
    "waiting_recent_min": 0.0,
    "preemptions": 0.0,
}


def answer(rule: str, loads: list[Load]) -> Truth:
    found = shipped_rules().find(rule)
    assert found is not None
    return evaluate(found, by_name(fleet_facts(loads, [])).get).truth


def load(requests: float, running: float) -> Load:
    return Load(
        first_tokens=requests,
        generation_tokens_per_second=7.0 * requests,
        prompt_tokens_per_second=20.0 * requests,
        running_mean=running,
        running_last=running,
        finished_requests=requests,
        **WELL,
    )


@pytest.mark.parametrize("rule", AMONG_MANY)
@given(
    count=st.integers(2, 300),
    requests=st.floats(0, 10_000),
    running=st.floats(0, 1000),
    jitter=st.floats(0, 0.3),
)
def test_equal_shares_are_no_imbalance_whatever_their_number(
    rule: str, count: int, requests: float, running: float, jitter: float
) -> None:
    factors = [1 + jitter * (-1) ** number for number in range(count)]
    assert answer(rule, [load(requests * one, running * one) for one in factors]) is not Truth.YES


@settings(max_examples=60, derandomize=True)
@given(count=st.integers(2, 100), mean=st.floats(0.1, 30), seed=st.integers(0, 2**32))
def test_servers_behind_a_router_that_chooses_at_random_are_no_imbalance(
    count: int, mean: float, seed: int
) -> None:
    random, batches = Random(seed), [0] * count
    for _ in range(round(count * mean)):
        batches[random.randrange(count)] += 1
    loads = [load(2.0 * each, float(each)) for each in batches]
    assert answer("replica-imbalance", loads) is not Truth.YES


@pytest.mark.parametrize("rule", AMONG_MANY)
@given(count=st.integers(2, 100), requests=st.integers(40, 1000))
def test_one_that_gets_nothing_is_told_whatever_their_number(rule: str, count: int, requests: int) -> None:
    loads = [load(float(requests), 4.0)] * (count - 1)
    assert answer(rule, [*loads, load(0.0, 0.0)]) is Truth.YES


DAY_SECONDS = 86_400.0


def down_after(reason: Reason, interval: float) -> float:
    """Seconds from the first failed scrape until the server is said to be down."""
    reached, rule, at = Reachability(), shipped_rules().by_id("target-down"), 0.0
    while at < 600:
        reached.failed(Failure(reason, ""), Scrape(at, at, 0.0, 0, b""))
        if evaluate(rule, by_name(reached.facts(at)).get).truth is Truth.YES:
            return at
        at += interval
    return at


@settings(max_examples=10, derandomize=True)
@given(interval=st.sampled_from([2.0, 5.0, 15.0, 60.0]), seed=st.integers(0, 2**32))
def test_a_tenth_of_the_scrapes_lost_on_a_healthy_server_is_no_page(interval: float, seed: int) -> None:
    random, reached, rule = Random(seed), Reachability(), shipped_rules().by_id("target-down")
    well, at = Page((), ()), 0.0
    while at < DAY_SECONDS / 4:
        lost = random.random() < 0.1
        if lost:
            reached.failed(Failure(Reason.TIMEOUT, ""), Scrape(at, at, 0.0, 0, b""))
        else:
            reached.answered(well, at)
        if lost:
            assert evaluate(rule, by_name(reached.facts(at)).get).truth is Truth.NO
        at += interval


@given(st.floats(1, 30))
def test_a_refused_connection_is_believed_sooner_than_silence(interval: float) -> None:
    refused, silent = down_after(Reason.REFUSED, interval), down_after(Reason.TIMEOUT, interval)
    assert refused <= max(10.0, interval) + interval
    assert refused < silent <= max(20.0, 5 * interval) + interval
