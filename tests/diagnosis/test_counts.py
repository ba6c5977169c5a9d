"""No alarm from counts alone: many engines, many servers and any rate of requests, all of them well."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.watching import shipped_rules
from watchdog.facts.balance import Load, fleet_facts
from watchdog.facts.fact import by_name
from watchdog.model import Truth
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
