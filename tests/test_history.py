"""History: windows, resets, series that come late, bounded memory."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import LABELS, history_of, line, page
from watchdog.model import Subject
from watchdog.signals.history import (
    MOST_FRAMES,
    Selector,
    baseline_span,
    life_span,
    now_span,
    recent_span,
)

ENGINE = Subject("t", "m", "0")
TOKENS = Selector("vllm:generation_tokens_total")
RUNNING = Selector("vllm:num_requests_running")


def counting(at: float) -> str:
    return page(generation_tokens_total=100.0 * at, num_requests_running=2.0)


def test_an_increase_is_the_growth_between_the_ends_of_the_window() -> None:
    history = history_of((at, counting(at)) for at in range(0, 61, 5))
    span = now_span(history, ENGINE)
    assert span is not None
    assert span.seconds == 30
    assert span.increase(TOKENS) == 3000


def test_nothing_is_known_before_half_a_window_was_seen() -> None:
    assert now_span(history_of((at, counting(at)) for at in (0, 5, 10)), ENGINE) is None
    assert now_span(history_of((at, counting(at)) for at in (0, 5, 10, 15)), ENGINE) is not None


def test_the_window_starts_at_the_page_at_or_before_its_edge() -> None:
    span = now_span(history_of((at, counting(at)) for at in range(0, 91, 7)), ENGINE)
    assert span is not None
    assert 30 <= span.seconds < 37


def test_a_long_gap_is_no_window() -> None:
    history = history_of((at, counting(at)) for at in (0, 5, 10, 15, 20, 620))
    assert now_span(history, ENGINE) is None
    assert recent_span(history, ENGINE) is None


@pytest.mark.parametrize(("interval", "frames"), [(1, 16), (5, 4), (15, 2)])
def test_recent_is_fifteen_seconds_whatever_the_interval(interval: int, frames: int) -> None:
    span = recent_span(history_of((at, counting(at)) for at in range(0, 61, interval)), ENGINE)
    assert span is not None
    assert span.seconds == 15
    assert len(span.frames) == frames


def test_a_counter_that_falls_begins_a_new_life() -> None:
    values = [(0, 500.0), (5, 600.0), (10, 10.0), (15, 20.0), (20, 30.0), (25, 40.0)]
    history = history_of((at, page(generation_tokens_total=value)) for at, value in values)
    span = now_span(history, ENGINE)
    assert span is not None
    assert span.increase(TOKENS) == 30
    assert history.epoch("m", "0") == 10


def test_a_new_start_time_is_a_restart_even_where_counters_have_passed_their_old_values() -> None:
    def text(started: float, tokens: float) -> str:
        return f"process_start_time_seconds {started}\n" + page(generation_tokens_total=tokens)

    history = history_of(
        [(0, text(1000, 5)), (5, text(1000, 6)), (10, text(1008, 900)), (15, text(1008, 990))]
    )
    assert history.epoch("m", "0") == 10


def test_a_slewed_clock_is_no_restart() -> None:
    history = history_of(
        (at, f"process_start_time_seconds {1000 + at / 100}\n" + counting(at)) for at in range(0, 30, 5)
    )
    assert history.epoch("m", "0") == 0


def test_one_engine_of_several_begins_anew_alone() -> None:
    def text(first: float, second: float) -> str:
        one = page(generation_tokens_total=first)
        return one + page('model_name="m",engine="1"', generation_tokens_total=second)

    history = history_of([(0, text(10, 100)), (5, text(20, 3)), (10, text(30, 4))])
    assert history.epoch("m", "0") == 0
    assert history.epoch("m", "1") == 5


def test_a_series_born_inside_the_window_counts_from_zero() -> None:
    reason = LABELS + ',finished_reason="stop"'
    history = history_of(
        (at, counting(at) + (line("request_success_total", 7.0, reason) if at >= 20 else ""))
        for at in range(0, 31, 5)
    )
    span = now_span(history, ENGINE)
    assert span is not None
    assert span.increase(Selector("vllm:request_success_total")) == 7


def test_a_series_that_went_and_came_back_is_unknown_and_never_its_lifetime_total() -> None:
    extra = line("num_preemptions_total", 5000.0)
    history = history_of((at, counting(at) + (extra if at < 10 or at > 20 else "")) for at in range(0, 46, 5))
    span = now_span(history, ENGINE)
    assert span is not None
    assert span.increase(Selector("vllm:num_preemptions_total")) is None


def test_old_and_new_names_side_by_side_are_read_once() -> None:
    history = history_of([(0, page(gpu_cache_usage_perc=0.5, kv_cache_usage_perc=0.5))])
    span = life_span(history, ENGINE)
    assert span is not None
    assert span.gauge(Selector("vllm:kv_cache_usage_perc")) == [0.5]


def test_an_unknown_value_makes_the_increase_unknown() -> None:
    texts = [(at, page(generation_tokens_total=float("nan") if at == 30 else at)) for at in range(0, 31, 5)]
    span = now_span(history_of(texts), ENGINE)
    assert span is not None
    assert span.increase(TOKENS) is None


def test_series_without_engine_labels_belong_to_every_engine() -> None:
    history = history_of([(0, counting(0) + "process_open_fds 12\n")])
    span = life_span(history, ENGINE)
    assert span is not None
    assert span.gauge(Selector("process_open_fds")) == [12]


def test_the_baseline_ends_where_now_begins() -> None:
    history = history_of((at, counting(at)) for at in range(0, 61, 5))
    now, baseline = now_span(history, ENGINE), baseline_span(history, ENGINE)
    assert now is not None
    assert baseline is not None
    assert baseline.frames[-1] is now.frames[0]


def test_the_ring_is_bounded() -> None:
    history = history_of((at, counting(at)) for at in range(3 * MOST_FRAMES))
    assert len(history.frames) <= MOST_FRAMES + 16
    assert len(history.times) == len(history.frames)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
def test_no_increase_is_ever_negative(values: list[float]) -> None:
    texts = ((5.0 * index, page(generation_tokens_total=value)) for index, value in enumerate(values))
    history = history_of(texts)
    for span in (now_span(history, ENGINE), life_span(history, ENGINE), baseline_span(history, ENGINE)):
        grown = None if span is None else span.increase(TOKENS)
        assert grown is None or (grown >= 0 and not isnan(grown))
