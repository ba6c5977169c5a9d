"""Growth of pool and queue: when they are full, as an interval, and how many replicas a load wants."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.growth import Moment, growth, outlook, replicas_wanted, time_until


def line(slope: float, start: float = 0.0, noise: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    chance = random.Random(seed)
    return [(2.0 * tick, start + slope * 2.0 * tick + chance.gauss(0, noise)) for tick in range(30)]


def test_a_straight_line_is_full_when_it_gets_there() -> None:
    seen = growth(line(0.01))
    assert seen is not None
    until = time_until(1.0, seen)
    assert until is not None
    assert until.soonest_seconds == pytest.approx(42.0)
    assert until.latest_seconds == pytest.approx(42.0)


def test_the_true_growth_lies_in_the_interval_nearly_always() -> None:
    seen = [growth(line(0.01, noise=0.1, seed=seed)) for seed in range(200)]
    hits = [each is not None and each.least_per_second <= 0.01 <= each.most_per_second for each in seen]
    assert sum(hits) >= 180


def test_noise_alone_is_no_growth() -> None:
    forecasts = 0
    for seed in range(200):
        seen = growth(line(0.0, start=0.5, noise=0.05, seed=seed))
        assert seen is not None
        forecasts += time_until(1.0, seen) is not None
    assert forecasts <= 12


def test_too_few_points_tell_nothing() -> None:
    assert growth(line(0.1)[:7]) is None
    assert growth([(5.0, 1.0)] * 20) is None


def test_what_is_full_is_full_now() -> None:
    seen = growth(line(0.0, start=1.0))
    assert seen is not None
    assert time_until(1.0, seen) is not None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=40))
def test_any_points_are_taken(points: list[tuple[float, float]]) -> None:
    seen = growth(points)
    if seen is not None:
        assert seen.least_per_second <= seen.most_per_second
        until = time_until(1e7, seen)
        assert until is None or until.soonest_seconds >= 0


@pytest.mark.parametrize(
    ("arrivals", "finished", "stands", "fullest", "replicas"),
    [
        (12.0, 4.0, True, 1.0, 4),  # three times what one does, each at 80 %
        (4.0, 4.0, True, 1.0, 2),
        (1.0, 4.0, True, 1.0, 1),  # a backlog that drains
        (4.0, None, True, 1.0, None),
        (4.0, 4.0, False, 0.3, 1),
        (4.0, 4.0, False, 0.9, 2),
        (4.0, 4.0, False, None, None),
    ],
)
def test_replicas(
    arrivals: float, finished: float | None, stands: bool, fullest: float | None, replicas: int | None
) -> None:
    assert replicas_wanted(arrivals, finished, stands, fullest) == replicas


def test_an_outlook_of_a_queue_that_grows() -> None:
    moments = [Moment(2.0 * tick, 0.99, 10.0 + tick, 20.0) for tick in range(30)]
    seen = outlook(moments, 3.0, 2.5, None, queue_bound=100.0)
    assert seen.queue is not None
    assert seen.queue_full is not None
    assert seen.queue_full.soonest_seconds == pytest.approx(122.0)
    assert seen.replicas == 2
    calm = outlook([Moment(each.at, 0.2, 0.0, 60.0) for each in moments], 3.0, 3.0, 64.0)
    assert (calm.queue, calm.pool_full, calm.replicas) == (None, None, 2)
    assert outlook([], None, None, None).replicas is None
