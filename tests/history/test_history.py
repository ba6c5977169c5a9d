"""History: windows, resets, series that come late, bounded memory."""

from collections.abc import Iterator, Sequence
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import LABELS, history_of, line, page
from watchdog.history.history import MOST_FRAMES, MOST_VALUES, History, Reset
from watchdog.history.layout import MOST_ENGINES, Selector
from watchdog.history.names import wanted
from watchdog.history.span import (
    ENOUGH_REQUESTS,
    RUSH_SECONDS,
    WIDEST_SECONDS,
    Span,
    as_now,
    life_span,
    now_span,
    recent_span,
    request_span,
    span_between,
)
from watchdog.model import Subject
from watchdog.scrape.exposition import SeriesCache, parse

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


@pytest.mark.parametrize(("interval", "frames"), [(1, 11), (5, 3), (15, 2)])
def test_recent_is_ten_seconds_or_two_pages(interval: int, frames: int) -> None:
    span = recent_span(history_of((at, counting(at)) for at in range(0, 61, interval)), ENGINE)
    assert span is not None
    assert span.seconds == max(10, interval)
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


def test_the_ring_is_bounded() -> None:
    history = history_of((at, counting(at)) for at in range(3 * MOST_FRAMES))
    assert len(history.frames) <= MOST_FRAMES + 16
    assert len(history.times) == len(history.frames)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
def test_no_increase_is_ever_negative(values: list[float]) -> None:
    texts = ((5.0 * index, page(generation_tokens_total=value)) for index, value in enumerate(values))
    history = history_of(texts)
    for span in (now_span(history, ENGINE), life_span(history, ENGINE)):
        grown = None if span is None else span.increase(TOKENS)
        assert grown is None or (grown >= 0 and not isnan(grown))


def engines_of(count: int, first: int = 0) -> str:
    return "".join(
        page(f'model_name="m",engine="{number}"', num_requests_running=1.0)
        for number in range(first, first + count)
    )


def test_only_so_many_engines_of_a_page_are_looked_at_and_the_rest_is_counted() -> None:
    history = history_of([(0, engines_of(MOST_ENGINES))])
    assert len(history.subjects()) == MOST_ENGINES
    assert history.frames[-1].layout.surplus_engines == 0
    more = history_of([(0, engines_of(MOST_ENGINES + 3))])
    assert more.subjects() == history.subjects()
    assert more.frames[-1].layout.surplus_engines == 3


@pytest.mark.parametrize(
    ("labels", "belongs"),
    [
        ('model_name="m",engine="0"', True),
        ('model_name="m"', True),
        ('engine="0"', True),
        ('other="x"', True),
        ('model_name="m",engine="1"', False),
        ('model_name="n",engine="0"', False),
        ('model_name="n"', False),
        ('engine="1"', False),
        ('model_name="m",engine=""', False),
        ('model_name="",engine="0"', False),
    ],
)
def test_a_series_belongs_to_each_engine_that_its_labels_do_not_exclude(labels: str, belongs: bool) -> None:
    history = history_of([(0, counting(0) + line("num_preemptions_total", 7.0, labels))])
    layout = history.frames[-1].layout
    selector = Selector("vllm:num_preemptions_total")
    assert bool(layout.columns(selector, "m", "0")) is belongs
    assert layout.columns(selector, "", "")


def test_matchers_choose_among_the_series_of_an_engine() -> None:
    text = "".join(
        line("request_success_total", value, f'{LABELS},finished_reason="{reason}"')
        for reason, value in (("stop", 5.0), ("abort", 2.0))
    )
    span = life_span(history_of([(0, counting(0) + text)]), ENGINE)
    assert span is not None
    assert span.gauge(Selector("vllm:request_success_total")) == [7]
    assert span.gauge(Selector("vllm:request_success_total", (("finished_reason", "abort"),))) == [2]


def churning(monkeypatch: pytest.MonkeyPatch, most_values: int) -> Iterator[History]:
    """A history after each page of 20 engines that no page had before."""
    monkeypatch.setattr("watchdog.history.history.MOST_VALUES", most_values)
    cache, history = SeriesCache(wanted), History()
    for number in range(60):
        history.append(parse(engines_of(20, number * 20).encode(), cache), 5.0 * number)
        yield history


@pytest.mark.slow
def test_pages_that_change_their_shape_all_the_time_do_not_take_all_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for history in churning(monkeypatch, 600_000):
        layouts = {id(frame.layout): frame.layout for frame in history.frames}.values()
        assert sum(layout.weight for layout in layouts) <= 600_000
        assert len(history.times) == len(history.frames)
    assert 2 <= len(history.frames) < 12
    assert history.frames[-1].at == 295.0


@pytest.mark.slow
def test_the_two_newest_pages_stay_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [len(history.frames) for history in churning(monkeypatch, 10)]
    assert frames == [1] + [2] * 59


def test_pages_of_one_shape_are_many_before_they_are_too_much() -> None:
    history = history_of((at, counting(at)) for at in range(2 * MOST_FRAMES))
    assert not history.overfull
    assert MOST_VALUES > 132 * 50_000  # five seconds apart the largest page fills the whole ring


def test_that_pages_went_for_want_of_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [history.overfull for history in churning(monkeypatch, 600_000)]
    assert not any(told[:10])
    assert any(told)
    assert not all(told[20:])


def test_a_shape_of_its_own_makes_a_page_dear() -> None:
    layout = history_of([(0, engines_of(3))]).frames[-1].layout
    assert layout.weight > 60 * 3 + 2000 * 3


def test_the_whole_target_has_a_life_from_its_first_page_on() -> None:
    history = history_of((at, "process_open_fds 12\n") for at in range(3, 50, 5))
    span = life_span(history, Subject("t"))
    assert span is not None
    assert span.seconds == 45
    assert history.subjects() == ()
    assert life_span(history, ENGINE) is None
    assert life_span(history_of([]), Subject("t")) is None


def test_a_series_seen_again_keeps_the_time_it_was_first_seen_while_that_is_remembered() -> None:
    extra = line("num_preemptions_total", 1.0)
    history = history_of((at, counting(at) + (extra if at % 20 else "")) for at in range(0, 101, 5))
    key = ("vllm:num_preemptions_total", frozenset({("model_name", "m"), ("engine", "0")}))
    assert history.first_seen(key) == 5
    assert history.first_seen(("vllm:other", frozenset())) is None


def test_an_engine_that_comes_back_counts_from_when_it_was_seen() -> None:
    other = page('model_name="m",engine="1"', generation_tokens_total=5000.0)
    history = history_of((at, counting(at) + (other if at >= 20 else "")) for at in range(0, 61, 5))
    assert history.epoch("m", "1") == 20
    span = now_span(history, Subject("t", "m", "1"))
    assert span is not None
    assert span.increase(TOKENS) == 0


def test_a_window_needs_two_pages_and_a_series_on_the_last() -> None:
    history = history_of((at, counting(at)) for at in range(0, 61, 5))
    span = now_span(history, ENGINE)
    assert span is not None
    assert span.increase(Selector("vllm:num_preemptions_total")) is None
    assert Span(history, span.frames[:1], ENGINE).increase(TOKENS) is None
    assert Span(history, [], ENGINE).seconds == 0


def test_a_series_of_the_whole_process_that_is_born_inside_the_window_counts_from_zero() -> None:
    text = 'http_requests_total{handler="/"} 9\n'
    history = history_of((at, counting(at) + (text if at >= 40 else "")) for at in range(0, 61, 5))
    span = now_span(history, Subject("t"))
    assert span is not None
    assert span.increase(Selector("http_requests_total")) == 9


def test_eleven_minutes_are_remembered_at_one_page_a_second_and_at_one_in_five() -> None:
    for interval in (1, 5):
        life = life_span(history_of((at, counting(at)) for at in range(0, 1500, interval)), ENGINE)
        assert life is not None
        assert 640 <= life.seconds <= 760


def test_a_span_between_two_times_has_their_pages_and_never_those_before_a_restart() -> None:
    history = history_of((at, counting(at if at < 100 else at - 100)) for at in range(0, 201, 5))
    span = span_between(history, ENGINE, 50.0, 170.0)
    assert span is not None
    assert (span.frames[0].at, span.frames[-1].at) == (100, 170)
    assert span_between(history, ENGINE, 50.0, 100.0) is None
    assert span_between(history, Subject("t", "other", "0"), 0.0, 200.0) is None


def test_after_hours_the_target_and_its_engines_are_still_known() -> None:
    history = history_of((at, counting(at)) for at in range(0, 3000, 5))
    assert history.epoch("", "") == 0
    assert history.epoch("m", "0") == 0
    for subject in (ENGINE, Subject("t")):
        assert now_span(history, subject) is not None


def test_an_engine_is_remembered_for_as_long_as_its_pages_are() -> None:
    other = page('model_name="m",engine="1"', num_requests_running=1.0)
    for gone_for, known in ((300, True), (2000, False)):
        history = history_of(
            (at, counting(at) + (other if at < 100 else "")) for at in range(0, 100 + gone_for, 5)
        )
        assert (history.epoch("m", "1") is not None) is known


def test_a_new_process_is_a_new_life_of_the_target_and_of_every_engine() -> None:
    def text(at: float) -> str:
        return f"process_start_time_seconds {1000 if at < 60 else 2000}\n" + counting(at)

    cache, history = SeriesCache(wanted), History()
    resets = [history.append(parse(text(at).encode(), cache), float(at)) for at in range(0, 121, 5)]
    assert [reset for each in resets for reset in each] == [Reset("", "", 60), Reset("m", "0", 60)]
    assert history.epoch("", "") == history.epoch("m", "0") == 60


FIRST = Selector("vllm:time_to_first_token_seconds_count")


def coming(times: Sequence[float], until: float) -> History:
    """An engine on which requests get their first token at these times, scraped each 5 s."""
    return history_of(
        (at, page(time_to_first_token_seconds_count=float(sum(one <= at for one in times))))
        for at in range(0, int(until) + 1, 5)
    )


def widened(times: Sequence[float], until: float) -> Span | None:
    now = now_span(coming(times, until), ENGINE)
    return request_span(now, FIRST)


def test_where_few_requests_come_the_window_of_requests_holds_ten_of_them() -> None:
    span = widened([10.0 * step for step in range(1, 40)], 300)
    assert span is not None
    assert (span.seconds, span.increase(FIRST)) == (95, 10)


def test_where_many_come_or_none_any_more_it_is_that_of_now() -> None:
    dense, over = [float(step) for step in range(1, 300)], [10.0 * step for step in range(1, 27)]
    for times in (dense, over):
        span = widened(times, 300)
        assert span is not None
        assert span.seconds == 30


def test_it_widens_to_three_minutes_and_not_beyond_a_restart() -> None:
    rare = widened([29.0 * step for step in range(1, 20)], 300)
    assert rare is not None
    assert rare.seconds == WIDEST_SECONDS
    young = widened([250.0, 290.0], 300)
    assert young is not None
    assert young.seconds == WIDEST_SECONDS
    times = [10.0 * step for step in range(1, 40)]
    history = history_of(
        (
            at,
            page(
                time_to_first_token_seconds_count=float(sum(240 * (at >= 240) < one <= at for one in times))
            ),
        )
        for at in range(0, 301, 5)
    )
    again = request_span(now_span(history, ENGINE), FIRST)
    assert again is not None
    assert again.frames[0].at == 240


@pytest.mark.parametrize("rush_seconds", [1, 10, 60])
def test_a_rush_that_is_over_says_nothing_of_what_comes_now(rush_seconds: int) -> None:
    rush = [200 + rush_seconds * step / 40 for step in range(40)]
    span = widened([*rush, 270.0, 290.0], 300)
    assert span is not None
    assert span.frames[0].at >= 200 + rush_seconds - RUSH_SECONDS
    assert (span.increase(FIRST) or 0) < ENOUGH_REQUESTS + 2


@given(
    st.lists(st.floats(0, 300), max_size=60).map(sorted),
    st.integers(40, 300),
)
def test_it_never_lacks_what_the_window_of_now_holds_nor_takes_more_than_it_needs(
    times: list[float], until: int
) -> None:
    now = now_span(coming(times, until), ENGINE)
    span = request_span(now, FIRST)
    assert now is not None
    assert span is not None
    assert span.frames[-1] is now.frames[-1]
    assert now.seconds <= span.seconds <= max(WIDEST_SECONDS, now.seconds)
    if span.seconds > now.seconds:
        shorter = Span(span.history, span.frames[1:], ENGINE).increase(FIRST)
        assert shorter is None or shorter < ENOUGH_REQUESTS


def test_the_newest_part_of_the_window_stands_for_all_of_it() -> None:
    """Thirty requests in the last ten seconds of a window that had hardly any before count as ninety."""
    times = [*(float(step) for step in range(1, 60, 15)), *(60 + 1 / 3 * step for step in range(1, 31))]
    history = coming(times, 70)
    now, recent = now_span(history, ENGINE), recent_span(history, ENGINE)
    span = as_now(now, recent, FIRST)
    assert now is not None
    assert span is not None
    assert (span.seconds, span.frames) == (now.seconds, now.frames[-3:])
    assert span.increase(FIRST) == 90


@pytest.mark.parametrize(
    ("interval", "times"),
    [(5, [float(step) for step in range(1, 60)]), (5, [68.0, 69.0]), (30, [step / 4 for step in range(400)])],
)
def test_a_newest_part_of_few_requests_or_hardly_shorter_than_the_window_stands_for_nothing(
    interval: int, times: list[float]
) -> None:
    counted = ((at, float(sum(one <= at for one in times))) for at in range(0, 91, interval))
    history = history_of((at, page(time_to_first_token_seconds_count=count)) for at, count in counted)
    assert as_now(now_span(history, ENGINE), recent_span(history, ENGINE), FIRST) is None
