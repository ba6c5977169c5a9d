"""The pool's size from what live requests hold, where no label tells it."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.fact import by_name
from watchdog.facts.pool import InferredPools
from watchdog.model import Subject

ENGINE = Subject("server", "m", "0")
POOL = 50_000.0
CALM = {
    "pool_tokens": None,
    "inferred_pool_tokens": None,
    "unfinished_tokens": 0.0,
    "unfinished_requests": 0.0,
    "prefix_queries_tokens_ever": 0.0,
    "prefix_hit_tokens_ever": 0.0,
    "running_last": 0.0,
    "waiting_last": 0.0,
    "kv_usage_last_ratio": 0.0,
}


def busy(requests: float, tokens_each: float = 800.0, **changes: float | None) -> dict[str, float | None]:
    tokens = requests * tokens_each
    return {
        **CALM,
        "unfinished_tokens": tokens,
        "unfinished_requests": requests,
        "running_last": requests,
        "kv_usage_last_ratio": tokens / POOL,
        **changes,
    }


def learned(pages: Iterable[dict[str, float | None]]) -> float | None:
    pools = InferredPools()
    for signals in pages:
        pools.note(ENGINE, signals.get)
    facts = by_name(pools.engine_facts(ENGINE))
    assert facts.get("pool_tokens") == facts.get("inferred_pool_tokens")
    return facts.get("pool_tokens")


@given(st.lists(st.integers(2, 60), min_size=5, max_size=40), st.integers(100, 800))
def test_live_tokens_over_their_share_are_the_pool(batches: list[int], tokens_each: int) -> None:
    pages = [busy(requests, tokens_each) for requests in batches]
    enough = sum(requests * tokens_each / POOL >= 0.01 for requests in batches) >= 5
    assert learned(pages) == (pytest.approx(POOL, rel=0.05) if enough else None)


def test_a_few_pages_are_not_believed() -> None:
    assert learned([busy(20)] * 4) is None


def test_what_clients_left_behind_is_no_part_of_it() -> None:
    left = {"unfinished_tokens": 20 * 800 + 90_000.0, "unfinished_requests": 20 + 100.0}
    assert learned([busy(20, **left)] * 9) is None
    empty = CALM | {"unfinished_tokens": 90_000.0, "unfinished_requests": 100.0}
    assert learned([empty, *[busy(20, **left)] * 9]) == POOL


def test_from_the_moment_clients_leave_it_is_not_learned_further() -> None:
    gone = busy(20, unfinished_requests=25.0, unfinished_tokens=25 * 800.0)
    assert learned([*[busy(20)] * 5, *[gone] * 50]) == POOL


def test_requests_that_wait_may_be_preempted_and_hold_nothing() -> None:
    assert learned([busy(20, waiting_last=3.0)] * 9) is None


def test_a_shared_prefix_is_held_once_and_counted_each_time() -> None:
    assert learned([busy(20, prefix_queries_tokens_ever=9000.0, prefix_hit_tokens_ever=4000.0)] * 9) is None


def test_pages_that_disagree_say_nothing() -> None:
    assert learned([busy(20), busy(20, kv_usage_last_ratio=0.9)] * 5) is None


def test_where_a_label_tells_it_or_a_figure_is_missing_nothing_is_learned() -> None:
    assert learned([busy(20, pool_tokens=64_000.0)] * 9) is None
    assert learned([busy(20, kv_usage_last_ratio=None)] * 9) is None


def test_a_new_life_of_the_engine_is_learned_anew() -> None:
    pools = InferredPools()
    for _ in range(9):
        pools.note(ENGINE, busy(20).get)
    pools.forget(ENGINE)
    assert not by_name(pools.engine_facts(ENGINE))
