"""What is shown of an engine: the limit that binds, where the time went, and what follows from two readings."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.diagnosis.readings import LIMITS, READINGS, latency_budget, read
from watchdog.history.number import AtMost
from watchdog.model import LatencyShare, Limit, Subject
from watchdog.signals.catalogue import signal_names

ENGINE = Subject("t", "m", "0")
QUEUE = {"waiting_recent_min": 3.0, "waiting_share_of_time": 0.9}


@pytest.mark.parametrize(
    ("signals", "named", "limit"),
    [
        ({}, None, ("unknown", None)),
        ({"waiting_recent_min": 0.0}, None, ("unknown", None)),
        ({"waiting_share_of_time": 0.5}, None, ("unknown", None)),
        (QUEUE | {"waiting_recent_min": 0.0}, None, ("none", pytest.approx(0.1))),
        # A queue that no rule explains is no proof of anything.
        (QUEUE, None, ("unknown", None)),
        (QUEUE, Limit.KV_POOL, ("kv_pool", 0.9)),
        ({}, Limit.SEQUENCES, ("sequences", None)),
        (QUEUE | {"waiting_recent_min": 0.0, "waiting_share_of_time": 0.0}, Limit.COMPUTE, ("compute", None)),
        ({}, Limit.STALLED, ("stalled", 1.0)),
    ],
)
def test_the_limit_is_what_the_rules_say_and_none_where_nothing_waits(
    signals: Mapping[str, float], named: Limit | None, limit: tuple[str, float | None]
) -> None:
    found = read(ENGINE, signals.get, named)
    assert (found.limit, found.limit_share) == limit
    assert found.limit in LIMITS


def budget(ttft: float, prefill: float, decode: float) -> dict[str, LatencyShare]:
    means = {"ttft_mean_seconds": ttft, "prefill_mean_seconds": prefill, "decode_mean_seconds": decode}
    return latency_budget(means.get)


def test_the_time_of_the_mean_request_goes_to_queue_prefill_and_decode() -> None:
    assert budget(4.0, 1.0, 4.0) == {
        "queue": LatencyShare(3.0, 0.375, 0.75),
        "prefill": LatencyShare(1.0, 0.125, 0.25),
        "decode": LatencyShare(4.0, 0.5, None),
    }


def test_prefill_never_takes_more_than_the_time_to_the_first_token() -> None:
    assert budget(1.0, 5.0, 1.0)["queue"] == LatencyShare(0.0, 0.0, 0.0)
    assert budget(1.0, 5.0, 1.0)["prefill"] == LatencyShare(1.0, 0.5, 1.0)


def test_nothing_has_a_pace_once_no_step_has_ended_for_a_while() -> None:
    signals = {"generation_tokens_per_second": 40.0, "finished_per_second": 2.0, "arrivals_per_second": 3.0}
    moving = read(ENGINE, (signals | {"seconds_since_progress": 5.0}).get).values
    still = read(ENGINE, (signals | {"seconds_since_progress": 25.0}).get).values
    assert moving["generation_tokens_per_second"] == 40
    assert (still["generation_tokens_per_second"], still["finished_requests_per_second"]) == (0, 0)
    assert still["prompt_tokens_per_second"] is None
    assert still["arrivals_per_second"] == 3


def test_what_no_queue_explains_went_by_before_the_engine() -> None:
    signals = {
        "ttft_mean_seconds": 20.0,
        "prefill_mean_seconds": 0.02,
        "decode_mean_seconds": 1.0,
        "queue_mean_seconds": 0.0028,
        "waiting_max": 0.0,
        "first_tokens_per_second": 10.0,
    }
    parts = latency_budget(signals.get)
    assert list(parts) == ["before_engine", "queue", "prefill", "decode"]
    assert parts["queue"].seconds == pytest.approx(0.0028)
    assert parts["before_engine"].seconds == pytest.approx(19.9772)
    assert sum(part.share for part in parts.values()) == pytest.approx(1)
    # A queue that grows books its time late: the line that was seen explains it.
    assert list(latency_budget((signals | {"waiting_max": 200.0}).get)) == ["queue", "prefill", "decode"]
    for unknown in ("queue_mean_seconds", "waiting_max", "first_tokens_per_second"):
        assert "before_engine" not in latency_budget({**signals, unknown: None}.get)


@given(*[st.floats(0.0, 1e3)] * 5, st.floats(0.0, 100.0))
def test_the_parts_are_the_whole_and_none_is_below_zero(
    ttft: float, prefill: float, decode: float, queue: float, waiting: float, pace: float
) -> None:
    signals = {
        "ttft_mean_seconds": ttft,
        "prefill_mean_seconds": prefill,
        "decode_mean_seconds": decode,
        "queue_mean_seconds": queue,
        "waiting_max": waiting,
        "first_tokens_per_second": pace,
    }
    parts = latency_budget(signals.get)
    assert all(part.seconds >= 0 and 0 <= part.share <= 1 for part in parts.values())
    assert sum(part.seconds for part in parts.values()) == pytest.approx(ttft + decode if parts else 0)


def test_a_share_of_nothing_is_none() -> None:
    assert budget(0.0, 0.0, 0.0) == {}
    assert budget(0.0, 0.0, 2.0)["queue"] == LatencyShare(0.0, 0.0, None)
    assert budget(0.0, 0.0, 2.0)["decode"] == LatencyShare(2.0, 1.0, None)


@pytest.mark.parametrize("missing", ["ttft_mean_seconds", "prefill_mean_seconds", "decode_mean_seconds"])
def test_without_one_part_there_is_no_budget(missing: str) -> None:
    means = {"ttft_mean_seconds": 1.0, "prefill_mean_seconds": 1.0, "decode_mean_seconds": 1.0}
    assert latency_budget({name: value for name, value in means.items() if name != missing}.get) == {}


def test_readings_follow_from_signals_and_from_each_other() -> None:
    signals = {
        "running_last": 5.0,
        "kv_usage_last_ratio": 0.25,
        "pool_tokens": 1000.0,
        "single_stream_tokens_per_second": 30.0,
        "decode_ceiling_tokens_per_second": 120.0,
    }
    found = read(ENGINE, signals.get)
    assert found.subject == ENGINE
    assert found.values["running_requests"] == 5
    assert found.values["kv_used_tokens"] == 250
    assert found.values["decode_ceiling_ratio"] == 0.25
    assert found.values["waiting_requests"] is None
    assert (found.limit, found.limit_share, found.latency_budget) == ("unknown", None, {})


@pytest.mark.parametrize(
    ("missing", "reading"),
    [
        ("kv_usage_last_ratio", "kv_used_tokens"),
        ("pool_tokens", "kv_used_tokens"),
        ("single_stream_tokens_per_second", "decode_ceiling_ratio"),
        ("decode_ceiling_tokens_per_second", "decode_ceiling_ratio"),
    ],
)
def test_what_follows_from_two_needs_both(missing: str, reading: str) -> None:
    names = (
        "kv_usage_last_ratio",
        "pool_tokens",
        "single_stream_tokens_per_second",
        "decode_ceiling_tokens_per_second",
    )
    assert read(ENGINE, dict.fromkeys(names, 2.0).get).values[reading] is not None
    signals = {name: 2.0 for name in names if name != missing}
    assert read(ENGINE, signals.get).values[reading] is None
    assert read(ENGINE, (signals | {missing: 0.0}).get).values[reading] in {None, 0.0}


def test_every_reading_is_a_known_signal_with_a_sentence() -> None:
    for name, (signal, text) in READINGS.items():
        assert not signal or signal in signal_names(), name
        assert text.endswith(".")


def test_a_stream_that_is_at_most_so_fast_is_at_most_that_part_of_the_ceiling() -> None:
    signals = {"single_stream_tokens_per_second": AtMost(0.4), "decode_ceiling_tokens_per_second": 80.0}
    found = read(ENGINE, signals.get).values["decode_ceiling_ratio"]
    assert (type(found), found) == (AtMost, 0.005)
