"""Hours of simulated servers: what hurts is named, nothing false fires, whatever came before."""

from functools import cache

import pytest

from tests.lives.simulated_life import Life
from tests.lives.weeks import Story, story

SEEDS = (101, 102)


@cache
def told(seed: int) -> Story:
    return story(Life(seed, hours=3))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_users_feel_is_named_in_time(seed: int) -> None:
    assert [one for one in told(seed).hurtful if not one.named] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_alarm_is_false(seed: int) -> None:
    assert told(seed).false == []


def test_the_same_seed_gives_the_same_life() -> None:
    first, second = (list(Life(105, hours=0.2).moments()) for _ in range(2))
    assert first == second
