"""What measurements of a probe mean: pure arithmetic on made streams and pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.model import Severity
from watchdog.probe.budget import Budget, BudgetSpentError
from watchdog.probe.counts import Counts
from watchdog.probe.judgement import (
    Life,
    PrefixTwice,
    gap_finding,
    life_finding,
    life_of,
    prefill_of,
    prefix_findings,
    slow_parts,
)
from watchdog.probe.prefix import divergences
from watchdog.probe.stream import Streamed, ollama_split


def streamed(first: float, gap: float = 0.02, cached: int | None = None, count: int = 20) -> Streamed:
    return Streamed(
        status=200,
        first_token_seconds=first,
        gaps=(gap,) * count,
        prompt_tokens=1000,
        cached_tokens=cached,
    )


def counts(
    usage: float = 0.1, asleep: bool = False, config: dict[str, str] | None = None, **sums: float
) -> Counts:
    return Counts(sums, usage, asleep, {"block_size": "16", **(config or {})})


def ids(found: object) -> list[str]:
    return [finding.rule for _, finding in found]  # type: ignore[attr-defined]


# The slope


def test_the_slope_of_first_tokens_is_the_speed_of_prefill() -> None:
    prefill = prefill_of([(200, 0.05 + 200 / 4000), (2000, 0.05 + 2000 / 4000), (8000, 0.05 + 8000 / 4000)])
    assert prefill is not None
    assert prefill.tokens_per_second == pytest.approx(4000)
    assert prefill.fixed_seconds == pytest.approx(0.05)


def test_one_length_has_no_slope_and_a_flat_line_no_speed() -> None:
    assert prefill_of([(200, 0.1), (200, 0.2)]) is None
    flat = prefill_of([(200, 0.1), (2000, 0.1)])
    assert flat is not None
    assert flat.tokens_per_second is None


# Alive or not


def test_each_way_of_not_answering_has_its_own_name() -> None:
    still, moved = counts(steps=5, generation_tokens=9), counts(steps=6, generation_tokens=10)
    asleep = counts(asleep=True, steps=5, generation_tokens=9)
    assert life_of(True, False, still, moved) is Life.ALIVE
    assert life_of(True, False, still, still) is Life.STALE_GAUGES
    assert life_of(True, False, None, None) is Life.ALIVE
    assert life_of(False, True, still, still) is Life.REFUSED
    assert life_of(False, False, still, moved) is Life.QUEUED
    assert life_of(False, False, still, still) is Life.STALLED
    assert life_of(False, False, still, still, began=False) is Life.COMPILING
    assert life_of(False, False, still, asleep) is Life.ASLEEP
    assert life_of(False, False, None, None) is Life.LATE


@pytest.mark.parametrize("life", Life)
def test_what_is_not_alive_is_a_finding(life: Life) -> None:
    found = life_finding(life, "chat", 30.0)
    assert (found is None) == (life is Life.ALIVE)
    if found is not None:
        assert found[1].cause
        assert found[1].evidence


# The slow part


def test_the_queue_is_named_where_it_is_most_of_the_first_token() -> None:
    assert ids(slow_parts("chat", streamed(4.0), 3.5, None, None)) == ["probe-queue"]


def test_prefill_is_named_where_nothing_queues() -> None:
    assert ids(slow_parts("chat", streamed(4.0), 0.0, None, None)) == ["probe-prefill"]
    assert ids(slow_parts("chat", streamed(4.0), None, None, None)) == ["probe-prefill"]


def test_decode_is_measured_by_the_ceiling_of_the_gpu() -> None:
    # 50 tokens/s of 209 that an H100 allows for 16 GB; with nothing to compare, 50 is fast enough.
    assert ids(slow_parts("chat", streamed(0.05), 0.0, None, 209.0)) == ["probe-decode"]
    assert ids(slow_parts("chat", streamed(0.05), 0.0, None, None)) == []
    assert ids(slow_parts("chat", streamed(0.05, gap=0.2), 0.0, None, None)) == ["probe-decode"]


@given(st.floats(0.001, 0.3), st.floats(0.0001, 0.02))
def test_a_server_that_is_quick_is_left_alone(first: float, gap: float) -> None:
    assert ids(slow_parts("chat", streamed(first, gap), 0.0, None, 60.0)) == []


def test_gaps_that_grow_with_the_prompt() -> None:
    assert gap_finding("chat", streamed(0.1), streamed(0.5)) is None
    found = gap_finding("chat", streamed(0.1, 0.02), streamed(0.5, 0.05))
    assert found is not None
    assert found[1].severity is Severity.INFO


# The prefix


def twice(second: Streamed, hits: float | None, queried: float | None, page: Counts | None) -> PrefixTwice:
    return PrefixTwice(1000, streamed(1.0), second, hits, queried, page)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (twice(streamed(0.1), 992, 2000, counts()), "works"),
        (twice(streamed(0.1, cached=992), None, None, None), "works"),
        (twice(streamed(0.1), None, None, None), "works"),
        (twice(streamed(1.0), 0, 0, counts()), "off"),
        (twice(streamed(1.0), 0, 2000, counts(config={"enable_prefix_caching": "False"})), "off"),
        (twice(streamed(1.0), 0, 2000, counts(config={"block_size": "784"})), "block too large"),
        (twice(streamed(1.0), 0, 2000, counts(usage=0.97)), "evicted"),
        (twice(streamed(1.0), 0, 2000, counts()), "unknown"),
        (twice(streamed(1.0), None, None, None), "unknown"),
    ],
)
def test_what_the_cache_did(seen: PrefixTwice, word: str) -> None:
    found, findings = prefix_findings("chat", seen)
    assert found == word
    assert bool(findings) == (word not in {"works", "unknown"})


def test_where_two_prompts_part() -> None:
    [one] = divergences(["You are helpful. It is 12:01.", "You are helpful. It is 12:02."])
    assert (one.shared_characters, one.first_text, one.second_text) == (27, "1.", "2.")
    assert divergences(["a"]) == []
    assert divergences(["", ""])[0].shared_ratio == 1.0


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_what_is_shared_is_a_prefix_of_both(head: str, one: str, other: str) -> None:
    [found] = divergences([head + one, head + other])
    assert found.shared_characters >= len(head)
    assert (head + one)[: found.shared_characters] == (head + other)[: found.shared_characters]


# The budget


def test_nothing_is_asked_beyond_the_budget_or_behind_a_queue() -> None:
    budget = Budget(most_requests=2, most_tokens=100, most_waiting=2)
    budget.take(60, waiting=2)
    with pytest.raises(BudgetSpentError, match="tokens"):
        budget.take(60, waiting=0)
    with pytest.raises(BudgetSpentError, match="wait"):
        budget.take(1, waiting=3)
    budget.take(10, waiting=None)
    with pytest.raises(BudgetSpentError, match="2 requests"):
        budget.take(1, waiting=None)
    assert budget.cost == "2 requests, 70 tokens"


def test_the_servers_own_count_settles_an_estimate() -> None:
    budget = Budget()
    budget.take(100, None)
    budget.settle(100, 130)
    budget.settle(0, None)
    assert budget.tokens == 130


@given(
    st.dictionaries(
        st.sampled_from(["eval_duration", "eval_count", "load_duration"]), st.integers() | st.text()
    )
)
def test_any_account_of_ollama_is_taken(answer: dict[str, object]) -> None:
    split = ollama_split(answer)
    assert split is None or split.output_seconds is None or split.output_seconds >= 0
