"""The functions that signals are made of, each on made pages whose answer is known by hand."""

from collections.abc import Mapping, Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import LABELS, histogram, history_of, line, page
from watchdog.facts.fact import Fact
from watchdog.history.history import History
from watchdog.history.layout import Selector
from watchdog.history.number import AtLeast
from watchdog.history.span import life_span, now_span, recent_span
from watchdog.model import Subject
from watchdog.signals.functions import (
    Formula,
    View,
    age,
    bounded,
    change,
    climb,
    constant,
    fact,
    first,
    greatest_third,
    highest,
    increase,
    increase_of_any,
    increase_or_zero,
    interpolate,
    label,
    label_names,
    label_number,
    lasting_climb,
    lasting_rate,
    lately,
    leading_above,
    lowest,
    mean,
    mean_over_time,
    mean_while,
    names_in_window,
    newest,
    newest_label,
    quantile,
    rate,
    ratio,
    released_since,
    seconds_since_below,
    server_age,
    share_of_time,
    slope,
    time_share_above,
    whole_steps,
    window_seconds,
)

ENGINE = Subject("t", "m", "0")
RUNNING = Selector("vllm:num_requests_running")
WAITING = Selector("vllm:num_requests_waiting")
TOKENS = Selector("vllm:generation_tokens_total")
TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"


def view(history: History, **facts: float) -> View:
    return View(
        now_span(history, ENGINE),
        recent_span(history, ENGINE),
        life_span(history, ENGINE),
        facts=facts,
    )


def told(name: str) -> Formula:
    return fact(Fact(name, "things", "Something that was told."))


def value(formula: Formula, pages: Mapping[int, str] | Mapping[float, str]) -> float | None:
    return formula.value(view(history_of(pages.items())))


def gauges(running: Sequence[float], waiting: Sequence[float] | None = None) -> dict[float, str]:
    waiting = waiting or [0.0] * len(running)
    pairs = enumerate(zip(running, waiting, strict=True))
    return {
        5.0 * index: page(num_requests_running=one, num_requests_waiting=other)
        for index, (one, other) in pairs
    }


def ttft(counts: list[dict[float, float]], totals: list[float]) -> dict[float, str]:
    """Two pages 30 s apart with pages of the first kind between them."""
    first, last = (
        histogram("time_to_first_token_seconds", one, total) + page(num_requests_running=1.0)
        for one, total in zip(counts, totals, strict=True)
    )
    return {0.0: first, 15.0: first, 30.0: last}


def test_gauges_fold_over_the_window() -> None:
    pages = gauges([9, 1, 2, 3, 4, 5, 6, 7])
    assert value(mean_over_time(RUNNING), pages) == 4
    assert value(highest(RUNNING), pages) == 7
    assert value(lowest(RUNNING), pages) == 1
    assert value(lowest(RUNNING, "recent"), pages) == 5


def test_the_newest_value_is_known_from_the_first_page_on() -> None:
    assert value(newest(RUNNING), gauges([3])) == 3
    assert value(mean_over_time(RUNNING), gauges([3])) is None


def test_the_mean_while_others_wait_leaves_out_the_rest() -> None:
    pages = gauges([1, 1, 1, 1, 4, 4, 2], [0, 0, 0, 0, 5, 5, 5])
    assert value(mean_while(RUNNING, WAITING), pages) == pytest.approx(10 / 3)
    assert value(mean_while(RUNNING, WAITING), gauges([4] * 7)) is None


def test_shares_slopes_and_climbs() -> None:
    assert value(share_of_time(WAITING), gauges([1] * 4, [0, 0, 1, 2])) == 0.5
    assert value(slope(WAITING), gauges([1] * 7, [0, 10, 20, 30, 40, 50, 60])) == pytest.approx(2.0)
    assert value(climb(RUNNING), gauges([8, 3, 5, 9])) == 6


def test_a_rate_is_growth_over_the_time_between_pages() -> None:
    pages = {at: page(generation_tokens_total=10.0 * at) for at in range(0, 31, 5)}
    assert value(rate(TOKENS), pages) == 10
    assert value(increase(TOKENS), pages) == 300


def test_a_lasting_rate_ignores_a_burst() -> None:
    steady = {at: page(generation_tokens_total=10.0 * at) for at in range(0, 31, 5)}
    burst = {at: page(generation_tokens_total=300.0 if at >= 25 else 0.0) for at in range(0, 31, 5)}
    assert value(lasting_rate(TOKENS), steady) == 10
    assert value(lasting_rate(TOKENS), burst) == 0
    across = {at: page(generation_tokens_total=30.0 * min(10, max(0, at - 15))) for at in range(0, 31, 5)}
    assert value(lasting_rate(TOKENS), across) == 0  # 15 to 25 s: over the edge of two thirds


def test_progress_of_a_server_is_that_of_any_engine() -> None:
    other = LABELS.replace('engine="0"', 'engine="1"')
    still = page(generation_tokens_total=7.0)
    pages = {at: still + page(other, generation_tokens_total=10.0 * at) for at in range(0, 31, 5)}
    assert value(age(TOKENS), pages) == 30
    assert value(server_age(TOKENS), pages) == 0


def test_pages_of_one_moment_are_no_division_by_zero() -> None:
    def counting(times: list[float]) -> float | None:
        history = history_of(
            (at, page(generation_tokens_total=10.0 * index)) for index, at in enumerate(times)
        )
        return lasting_rate(TOKENS).value(view(history))

    assert counting([0, 30, 30]) == pytest.approx(1 / 3)
    assert counting([0, 15, 15, 30]) == pytest.approx(2 / 3)


def test_a_ratio_of_too_little_is_unknown() -> None:
    pages = {
        at: page(num_requests_running=1.0, prefix_cache_hits_total=at, prefix_cache_queries_total=2.0 * at)
        for at in range(0, 31, 5)
    }
    hits, queries = (increase(Selector(f"vllm:prefix_cache_{name}_total")) for name in ("hits", "queries"))
    assert value(ratio(hits, queries, 60), pages) == 0.5
    assert value(ratio(hits, queries, 61), pages) is None
    assert value(ratio(hits, constant(0.0)), pages) is None


def test_a_quantile_is_interpolated_inside_its_bucket() -> None:
    none, some = dict.fromkeys((0.1, 0.2, inf), 0.0), {0.1: 10.0, 0.2: 20.0, inf: 20.0}
    pages = ttft([none, some], [0.0, 2.0])
    assert value(quantile(0.5, TTFT), pages) == pytest.approx(0.1)
    assert value(quantile(0.75, TTFT), pages) == pytest.approx(0.15)
    assert value(mean(TTFT), pages) == pytest.approx(0.1)


def test_a_quantile_in_the_open_bucket_is_a_lower_bound() -> None:
    none, some = dict.fromkeys((0.1, inf), 0.0), {0.1: 1.0, inf: 20.0}
    found = value(quantile(0.5, TTFT), ttft([none, some], [0.0, 99.0]))
    assert isinstance(found, AtLeast)
    assert found == 0.1


def test_no_observations_are_unknown_and_not_zero() -> None:
    some = {0.1: 10.0, inf: 10.0}
    assert value(quantile(0.5, TTFT), ttft([some, some], [1.0, 1.0])) is None
    assert value(mean(TTFT), ttft([some, some], [1.0, 1.0])) is None


@pytest.mark.parametrize(
    "counts",
    [
        {0.1: 10.0, 0.2: 20.0},  # no +Inf
        {0.1: 20.0, 0.2: 10.0, inf: 20.0},  # falls with its bound
    ],
)
def test_a_histogram_that_cannot_be_right_gives_no_quantile(counts: dict[float, float]) -> None:
    none = dict.fromkeys(counts, 0.0)
    assert value(quantile(0.5, TTFT), ttft([none, counts], [0.0, 2.0])) is None


def test_a_bound_that_is_no_number_gives_no_quantile() -> None:
    text = line("time_to_first_token_seconds_bucket", 9.0, LABELS + ',le="abc"')
    pages = {at: text + page(num_requests_running=1.0) for at in (0.0, 15.0, 30.0)}
    assert value(quantile(0.5, TTFT), pages) is None


def test_rare_long_gaps_weigh_what_they_cost() -> None:
    # Nine stalls of over 2.5 s among 12,536 gaps of about 9 ms: no quantile up to p99.9 shows them.
    bounds = (0.01, 0.025, 0.3, 1.0, 2.5, 5.0, inf)
    none = dict.fromkeys(bounds, 0.0)
    some = dict(zip(bounds, (12000.0, 12527.0, 12527.0, 12527.0, 12527.0, 12536.0, 12536.0), strict=True))
    texts = [
        histogram("inter_token_latency_seconds", one, total) + page(num_requests_running=1.0)
        for one, total in ((none, 0.0), (some, 145.0))
    ]
    pages = {0.0: texts[0], 15.0: texts[0], 30.0: texts[1]}
    assert value(time_share_above(ITL, constant(0.3).value), pages) == pytest.approx(9 * 2.5 / 145)
    assert value(time_share_above(ITL, constant(6.0).value), pages) == 0
    found = value(quantile(0.999, ITL), pages)
    assert found is not None
    assert found < 0.03


def test_age_is_the_time_since_anything_moved() -> None:
    moving = {at: page(generation_tokens_total=min(at, 20.0)) for at in range(0, 61, 5)}
    assert value(age(TOKENS), moving) == 40
    assert value(age(TOKENS, Selector("vllm:prompt_tokens_total")), moving) == 40
    assert value(age(Selector("vllm:prompt_tokens_total")), moving) is None


def test_clients_that_left_are_seen_after_progress_stopped_however_long_ago() -> None:
    def held(
        connections: Sequence[float], running: Sequence[float], tokens: Sequence[float]
    ) -> dict[float, str]:
        return {
            5.0 * index: page(generation_tokens_total=token, num_requests_running=batch)
            + f"process_open_fds {30 + connection}\n"
            for index, (connection, batch, token) in enumerate(zip(connections, running, tokens, strict=True))
        }

    formula = released_since(Selector("process_open_fds"), (RUNNING,), (TOKENS,))
    assert value(formula, held([20, 20, 0] + [0] * 17, [20] * 20, [1, 2] + [3] * 18)) == 20
    # Requests that ended before the engine stopped took their connections with them: nobody left.
    assert value(formula, held([20, 20, 8] + [8] * 17, [20, 20] + [8] * 18, [1, 2] + [3] * 18)) == 0
    assert value(formula, held([20, 20, 26], [20] * 3, [1, 2, 2])) == -6
    assert value(formula, held([20, 0, 0], [20] * 3, [1, 1, 1])) is None
    assert (
        value(formula, {0.0: page(generation_tokens_total=1.0), 5.0: page(generation_tokens_total=2.0)})
        is None
    )
    assert value(formula, held([1], [1], [1])) is None


def test_connections_are_the_servers_so_requests_are_counted_over_all_its_engines() -> None:
    def server(stuck: float, other: float, tokens: float, files: float) -> str:
        own = page('model_name="m",engine="0"', num_requests_running=stuck, generation_tokens_total=tokens)
        beside = page('model_name="m",engine="1"', num_requests_running=other)
        return f"{own}{beside}process_open_fds {files}\n"

    formula = released_since(Selector("process_open_fds"), (RUNNING,), (TOKENS,))
    pages = {0.0: server(4, 9, 1, 33), 5.0: server(4, 9, 2, 33), 10.0: server(4, 3, 2, 27)}
    assert value(formula, pages) == 0


def test_labels_are_numbers_or_unknown() -> None:
    def pages(text: str) -> dict[float, str]:
        return {
            0.0: page(num_requests_running=1.0) + line("cache_config_info", 1.0, f'engine="0",x="{text}"')
        }

    formula = label(Selector("vllm:cache_config_info"), "x")
    assert value(formula, pages("16")) == 16
    assert value(formula, pages("True")) == 1
    assert value(formula, pages("False")) == 0
    assert value(formula, pages("None")) is None


def test_of_many_label_sets_the_newest_is_current() -> None:
    def lora(at: float, waiting: str) -> str:
        return line("lora_requests_info", at, f'max_lora="1",waiting_lora_adapters="{waiting}"')

    pages = {0.0: page(num_requests_running=1.0) + lora(5.0, "a,b") + lora(9.0, "") + lora(7.0, "a")}
    assert (
        value(newest_label(Selector("vllm:lora_requests_info"), "waiting_lora_adapters", label_names), pages)
        == 0
    )


def test_a_series_that_exists_only_once_used_counts_as_none_so_far() -> None:
    errors = Selector("vllm:request_success_total", (("finished_reason", "error"),))
    pages = {at: page(generation_tokens_total=at) for at in range(0, 31, 5)}
    assert value(increase_or_zero(errors, TOKENS), pages) == 0
    assert value(increase_or_zero(errors, Selector("vllm:prompt_tokens_total")), pages) is None


def test_facts_and_the_first_known() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    assert first(told("absent"), told("told")).value(view(history, told=7.0)) == 7


def test_lately_is_the_last_ten_seconds() -> None:
    stopped = {at: page(generation_tokens_total=10.0 * min(at, 25)) for at in range(0, 31, 5)}
    assert value(increase(TOKENS), stopped) == 250
    assert value(lately(increase(TOKENS)), stopped) == 50
    assert lately(increase(TOKENS)).value(View()) is None
    asked = lately(increase(TOKENS)).query()
    assert asked is not None
    assert "[10s]" in asked
    assert lately(lasting_rate(TOKENS)).query() is None


def test_the_greatest_third_is_what_happened_at_one_moment() -> None:
    at_once = {at: page(generation_tokens_total=0.0 if at < 15 else 60.0) for at in range(0, 31, 5)}
    steadily = {at: page(generation_tokens_total=2.0 * at) for at in range(0, 31, 5)}
    assert value(greatest_third(increase(TOKENS)), at_once) == 60
    assert value(greatest_third(increase(TOKENS)), steadily) == 20
    assert value(greatest_third(increase(TOKENS)), {0: page(generation_tokens_total=1.0)}) is None


def test_the_time_since_a_gauge_was_below_a_bound() -> None:
    running = Selector("vllm:num_requests_running")
    pages = {at: page(num_requests_running=0.0 if at == 40 else 5.0) for at in range(0, 101, 5)}
    assert value(seconds_since_below(running, 1.0), pages) == 60
    assert value(seconds_since_below(running, 0.0), pages) is None
    assert value(seconds_since_below(Selector("vllm:num_requests_waiting"), 1.0), pages) is None


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.floats(0.01, 0.99),
    st.floats(0.001, 10),
)
def test_quantiles_stay_within_the_bounds_of_their_bucket(
    counts: list[int], quantile: float, step: float
) -> None:
    total, buckets = 0, []
    for index, count in enumerate(counts, 1):
        total += count
        buckets.append((index * step, float(total)))
    buckets.append((inf, float(total)))
    found = interpolate(buckets, quantile) if total else None
    assert found is None or 0 <= found <= len(counts) * step * 1.000001


def test_a_request_holds_whole_blocks() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    looking = view(history, tokens=149.0, block=256.0)
    assert whole_steps(told("tokens"), told("block")).value(looking) == 256
    assert whole_steps(told("tokens"), told("absent")).value(looking) == 149
    assert whole_steps(told("absent"), told("block")).value(looking) is None


def test_whole_steps_of_what_is_no_number_are_that() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    formula = whole_steps(told("tokens"), told("block"))
    assert formula.value(view(history, tokens=inf, block=16.0)) == inf
    assert formula.value(view(history, tokens=1e308, block=5e-324)) == 1e308
    assert formula.value(view(history, tokens=100.0, block=-16.0)) == 100
    assert formula.value(view(history, tokens=100.0, block=0.0)) == 100


def test_one_engine_that_restarts_does_not_hide_that_the_others_work() -> None:
    def text(at: float) -> str:
        first = page(generation_tokens_total=10.0 * at)
        second = 5000.0 if at < 40 else at - 40
        return first + page('model_name="m",engine="1"', generation_tokens_total=second)

    for end in range(40, 121, 5):
        pages = {float(at): text(at) for at in range(0, end + 1, 5)}
        # The fall itself is no progress; what comes after it is.
        assert value(server_age(TOKENS), pages) == (0 if end > 40 else end)


def test_arithmetic_and_what_is_unknown_in_it() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    looking = view(history, six=6.0, two=2.0, none=0.0)
    six, two, none, absent = (told(name) for name in ("six", "two", "none", "absent"))
    assert [formula.value(looking) for formula in (six + two, six - two, six * two, six / two)] == [
        8,
        4,
        12,
        3,
    ]
    assert (six / none).value(looking) is None
    assert (none / six).value(looking) == 0
    for formula in (six + absent, absent - two, six * absent, absent / two):
        assert formula.value(looking) is None
    assert (1.0 - six).value(looking) == -5
    assert (3.0 / six).value(looking) == 0.5


def test_bounds_and_the_first_that_is_known() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    looking = view(history, six=6.0, two=2.0)
    six, two, absent = (told(name) for name in ("six", "two", "absent"))
    assert bounded(six, 0, 1).value(looking) == 1
    assert bounded(six, 7).value(looking) == 7
    assert bounded(six, 5).value(looking) == 6
    assert bounded(absent, 0, 1).value(looking) is None
    assert first(absent, two, six).value(looking) == 2
    assert (
        first(
            absent,
        ).value(looking)
        is None
    )


def test_of_several_counters_those_that_are_known_are_summed() -> None:
    pages = {at: page(generation_tokens_total=10.0 * at, prompt_tokens_total=at) for at in range(0, 31, 5)}
    prompt, absent = Selector("vllm:prompt_tokens_total"), Selector("vllm:mm_cache_hits_total")
    assert value(increase_of_any(TOKENS, prompt), pages) == 330
    assert (
        value(increase_of_any(absent, prompt), pages) == value(increase_of_any(prompt, absent), pages) == 30
    )
    assert value(increase_of_any(absent), pages) is None


def test_a_formula_says_which_samples_it_reads() -> None:
    one, other = mean_over_time(RUNNING), increase(TOKENS)
    assert (one + other).reads == {RUNNING.metric, TOKENS.metric}
    assert first(one, other).reads == {RUNNING.metric}
    assert increase_of_any(RUNNING, TOKENS).reads == {RUNNING.metric}
    assert server_age(TOKENS).reads == bounded(other, 0).reads == {TOKENS.metric}
    assert ratio(one, other).reads == (one - other).reads
    assert mean_while(RUNNING, WAITING).reads == {RUNNING.metric, WAITING.metric}
    assert increase_or_zero(TOKENS, RUNNING).reads == {RUNNING.metric}
    assert age(TOKENS, RUNNING).reads == {TOKENS.metric, RUNNING.metric}
    assert released_since(RUNNING, (WAITING,), (TOKENS,)).reads == {RUNNING.metric, WAITING.metric}
    assert mean(TTFT).reads == {TTFT + "_count"}
    assert (
        quantile(0.5, TTFT).reads == time_share_above(TTFT, constant(1.0).value).reads == {TTFT + "_bucket"}
    )
    assert constant(1.0).reads == told("x").reads == window_seconds().reads == frozenset()


def test_before_enough_was_seen_every_formula_is_unknown() -> None:
    empty = View()
    formulas: tuple[Formula, ...] = (
        mean_over_time(RUNNING),
        highest(RUNNING),
        lowest(RUNNING),
        newest(RUNNING),
        lowest(RUNNING, "recent"),
        highest(RUNNING, "life"),
        mean_while(RUNNING, WAITING),
        share_of_time(RUNNING),
        climb(RUNNING),
        slope(RUNNING),
        change(RUNNING),
        increase(TOKENS),
        increase_or_zero(TOKENS, TOKENS),
        rate(TOKENS),
        lasting_rate(TOKENS),
        lasting_climb(RUNNING),
        window_seconds(),
        ratio(increase(TOKENS), increase(TOKENS)),
        mean(TTFT),
        quantile(0.5, TTFT),
        time_share_above(TTFT, constant(0.1).value),
        age(TOKENS),
        server_age(TOKENS),
        released_since(RUNNING, (WAITING,), (TOKENS,)),
        label(RUNNING, "x"),
        newest_label(RUNNING, "x", label_number),
        newest_label(RUNNING, "x", label_names),
        names_in_window(RUNNING, "x"),
        increase_of_any(TOKENS),
    )
    for formula in formulas:
        assert formula.value(empty) is None, formula
        # Nor is anything known where the page lacks the metric.
        if formula.reads:
            other = history_of((at, page(num_preemptions_total=1.0)) for at in range(0, 121, 5))
            assert formula.value(view(other)) is None, formula


def test_gauges_from_end_to_end() -> None:
    pages = gauges([9, 1, 2, 8, 4, 5, 3])
    assert value(change(RUNNING), pages) == -6
    assert value(highest(RUNNING, "life"), gauges([1, 7] + [2] * 20)) == 7
    assert value(highest(RUNNING, "life"), gauges([3])) == 3
    assert value(window_seconds(), pages) == 30
    assert value(window_seconds(), gauges([1, 1])) is None


def test_a_change_lasts_only_where_each_part_has_it() -> None:
    assert value(lasting_climb(WAITING), gauges([1] * 7, [0, 0, 0, 2, 4, 9, 14])) == 4
    assert value(lasting_climb(WAITING), gauges([1] * 7, [0, 0, 0, 0, 0, 0, 99])) == 0
    assert value(lasting_climb(WAITING), gauges([1] * 7, [9, 9, 9, 9, 9, 5, 4])) == -5
    unknown = gauges([1] * 7, [0, 0, 0, 2, 4, 9, float("nan")])
    assert value(lasting_climb(WAITING), unknown) is None


def test_a_mean_while_others_wait_is_of_two_pages_at_least() -> None:
    assert value(mean_while(RUNNING, WAITING), gauges([4] * 7, [0] * 5 + [3, 3])) == 4
    assert value(mean_while(RUNNING, WAITING), gauges([4] * 7, [0] * 6 + [3])) is None


def test_a_slope_is_of_three_pages_at_least_and_takes_each_for_what_it_is_worth() -> None:
    nan = float("nan")
    assert value(slope(WAITING), gauges([1] * 4, [0, 10, 20, 90])) == pytest.approx(5.6)
    assert value(slope(WAITING), gauges([1] * 4, [nan, 30, 20, 10])) == pytest.approx(-2)
    assert value(slope(WAITING), gauges([1] * 4, [nan, nan, 20, 10])) is None
    history = history_of((0.0, page(num_requests_waiting=float(number))) for number in range(5))
    assert slope(WAITING).value(View(life_span(history, ENGINE), None, None)) is None


def test_means_and_quantiles_want_enough_observations() -> None:
    none = dict.fromkeys((0.1, 0.2, inf), 0.0)
    four = {0.1: 1.0, 0.2: 4.0, inf: 4.0}
    pages = ttft([none, four], [0.0, 2.0])
    assert value(mean(TTFT), pages) is None
    assert value(mean(TTFT, 4.0), pages) == 0.5
    assert value(quantile(0.5, TTFT), pages) is None
    assert value(quantile(0.25, TTFT, 4.0), pages) == pytest.approx(0.1)  # right at a bound
    assert value(quantile(0.5, TTFT, 4.0), pages) == pytest.approx(0.1 + 0.1 / 3)


def test_a_quantile_skips_buckets_without_observations() -> None:
    assert interpolate([(1.0, 0.0), (2.0, 0.0), (3.0, 10.0), (inf, 10.0)], 0.5) == 2.5
    assert interpolate([(1.0, 10.0), (2.0, 10.0), (inf, 10.0)], 1.0) == 1.0
    assert interpolate([(-1.0, 10.0), (inf, 10.0)], 0.5) == -1.0
    assert interpolate([(inf, 10.0)], 0.5) is None
    assert interpolate([(1.0, 0.0), (inf, 10.0)], 0.0) is not None


def test_little_time_in_all_says_nothing_of_its_share() -> None:
    none = dict.fromkeys((0.1, 1.0, inf), 0.0)
    some = {0.1: 0.0, 1.0: 0.0, inf: 2.0}
    assert value(time_share_above(TTFT, constant(0.5).value), ttft([none, some], [0.0, 0.99])) is None
    assert value(time_share_above(TTFT, constant(0.5).value), ttft([none, some], [0.0, 4.0])) == 0.5
    assert (
        value(time_share_above(TTFT, constant(0.5).value), ttft([none, some], [0.0, 1.0])) == 1.0
    )  # never more than all
    assert value(time_share_above(TTFT, told("absent").value), ttft([none, some], [0.0, 4.0])) is None


def test_the_newest_of_many_label_sets_tells_its_number() -> None:
    def lora(at: float, most: str) -> str:
        return line("lora_requests_info", at, f'max_lora="{most}",waiting_lora_adapters=""')

    formula = newest_label(Selector("vllm:lora_requests_info"), "max_lora", label_number)
    assert value(formula, {0.0: page(num_requests_running=1.0) + lora(5.0, "1") + lora(9.0, "4")}) == 4
    assert value(formula, {0.0: page(num_requests_running=1.0) + lora(5.0, "None")}) is None


def test_names_that_took_turns_in_a_list_are_counted_once_each() -> None:
    def lora(running: str, waiting: str) -> str:
        names = f'max_lora="1",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
        return page(num_requests_running=1.0) + line("lora_requests_info", 1.0, names)

    selector = Selector("vllm:lora_requests_info")
    formula = names_in_window(selector, "running_lora_adapters", "waiting_lora_adapters")
    # With an empty batch vLLM names none, though requests wait.
    listed = [("a", "a"), ("", ""), ("b", "a, b"), ("b,", " ,")]
    assert value(formula, {5.0 * index: lora(*names) for index, names in enumerate(listed)}) == 2
    assert value(formula, {5.0 * index: lora("", "") for index in range(4)}) == 0
    # One that was named before the window is gone.
    later = {0.0: lora("c", "")} | {60.0 + 5.0 * index: lora("a", "") for index in range(8)}
    assert value(formula, later) == 1


@pytest.mark.parametrize(
    ("text", "number"), [("16", 16), ("1e3", 1000), ("inf", None), ("nan", None), ("", None), ("true", None)]
)
def test_a_label_that_is_a_number(text: str, number: float | None) -> None:
    assert label_number(text) == number
    assert label_number(None) is None


def test_what_clients_gave_up_counts_only_just_after_progress_stopped() -> None:
    def text(at: float) -> str:
        connections = 20 if at <= 10 else 15 if at <= 35 else 0
        return page(generation_tokens_total=min(at, 10.0), num_requests_running=20.0) + (
            f"process_open_fds {30 + connections}\n"
        )

    formula = released_since(Selector("process_open_fds"), (RUNNING,), (TOKENS,))
    assert value(formula, {float(at): text(at) for at in range(0, 121, 5)}) == 5


def test_five_observations_are_enough_by_themselves() -> None:
    none, some = dict.fromkeys((0.1, inf), 0.0), {0.1: 5.0, inf: 5.0}
    assert value(mean(TTFT), ttft([none, some], [0.0, 2.0])) == pytest.approx(0.4)
    assert value(quantile(0.5, TTFT), ttft([none, some], [0.0, 2.0])) == pytest.approx(0.05)


def test_buckets_are_found_again_where_a_page_changed_its_shape() -> None:
    def text(count: float, before: str) -> str:
        counts = {0.1: count, 0.2: 2 * count, inf: 2 * count}
        made = histogram("time_to_first_token_seconds", counts, count)
        return before + made + page(num_requests_running=1.0)

    extra = line("num_preemptions_total", 900.0)
    pages = {0.0: text(0.0, extra), 15.0: text(0.0, extra), 30.0: text(10.0, "")}
    assert value(quantile(0.75, TTFT), pages) == pytest.approx(0.15)
    assert value(mean(TTFT), pages) == pytest.approx(0.5)
    assert value(increase(Selector(TTFT + "_count")), pages) == 20


def test_an_increase_of_what_is_there_is_its_own() -> None:
    errors = Selector("vllm:request_success_total", (("finished_reason", "error"),))
    labels = LABELS + ',finished_reason="error"'
    pages = {
        at: page(generation_tokens_total=at) + line("request_success_total", 2.0 * at, labels)
        for at in range(0, 31, 5)
    }
    assert value(increase_or_zero(errors, TOKENS), pages) == 60


def test_a_series_that_appears_has_moved_unless_it_is_at_zero() -> None:
    def pages(late: float) -> dict[float, str]:
        extra = line("prompt_tokens_total", late)
        return {
            float(at): page(num_requests_running=1.0) + (extra if at >= 20 else "") for at in range(0, 61, 5)
        }

    prompts = age(Selector("vllm:prompt_tokens_total"))
    assert value(prompts, pages(0.0)) == 60
    assert value(prompts, pages(1.0)) == 40
    assert value(prompts, pages(7.0)) == 40


def test_the_fewest_pages_that_tell_something() -> None:
    still = {0.0: page(generation_tokens_total=1.0), 5.0: page(generation_tokens_total=1.0)}
    assert value(age(TOKENS), still) == 5
    assert value(age(TOKENS), {0.0: still[0.0]}) is None
    climbing = {15.0 * at: page(num_requests_waiting=10.0 * at) for at in range(3)}
    assert value(lasting_climb(WAITING), climbing) == 10
    assert (
        value(lasting_rate(TOKENS), {15.0 * at: page(generation_tokens_total=30.0 * at) for at in range(3)})
        == 2
    )
    assert (
        value(lasting_climb(WAITING), {30.0 * at: page(num_requests_waiting=10.0 * at) for at in range(2)})
        is None
    )

    def held(connections: float, token: float) -> str:
        return (
            page(generation_tokens_total=token, num_requests_running=3.0)
            + f"process_open_fds {connections}\n"
        )

    formula = released_since(Selector("process_open_fds"), (RUNNING,), (TOKENS,))
    assert value(formula, {0.0: held(20, 1), 5.0: held(12, 2)}) == 8
    assert whole_steps(increase(TOKENS), constant(1.0)).reads == {TOKENS.metric}


def test_the_last_value_is_that_of_the_last_page() -> None:
    assert value(newest(RUNNING), gauges([3, 4, 9])) == 9
    unknown = gauges([3, 4, float("nan")])
    assert value(newest(RUNNING), unknown) is None

    def lora(names: str) -> str:
        return page(num_requests_running=1.0) + line(
            "lora_requests_info", 1.0, f'waiting_lora_adapters="{names}"'
        )

    formula = newest_label(Selector("vllm:lora_requests_info"), "waiting_lora_adapters", label_names)
    assert value(formula, {0.0: lora(""), 5.0: lora("a,b"), 10.0: lora("a,b,c")}) == 3


def test_a_series_of_the_last_page_only_counts_from_zero() -> None:
    errors = Selector("vllm:request_success_total", (("finished_reason", "error"),))
    extra = line("request_success_total", 3.0, LABELS + ',finished_reason="error"')
    pages = {at: page(generation_tokens_total=at) + (extra if at == 30 else "") for at in range(0, 31, 5)}
    assert value(increase_or_zero(errors, TOKENS), pages) == 3


@pytest.mark.parametrize("stopped", [20, 25, 40, 55, 60])
def test_a_server_is_still_since_the_last_of_its_engines_moved(stopped: int) -> None:
    def text(at: float) -> str:
        first = page(generation_tokens_total=min(at, 10.0))
        return first + page('model_name="m",engine="1"', generation_tokens_total=min(at, float(stopped)))

    pages = {float(at): text(at) for at in range(0, 61, 5)}
    assert value(server_age(TOKENS), pages) == 60 - stopped
    assert value(age(TOKENS), pages) == 50


def test_small_denominators_and_steps_count_where_nothing_else_is_asked() -> None:
    history = history_of([(0.0, page(num_requests_running=1.0))])
    assert ratio(constant(1.0), constant(0.5)).value(view(history)) == 2
    assert whole_steps(constant(99.5), constant(1.0)).value(view(history)) == 100
    assert whole_steps(constant(99.5), constant(0.5)).value(view(history)) == 99.5
    assert interpolate([(1.0, 10.0), (inf, 10.0)], 0.5) == 0.5


def test_the_first_positions_of_a_draft_count_until_one_is_too_rarely_used() -> None:
    name, drafts = "spec_decode_num_accepted_tokens_per_pos_total", "spec_decode_num_drafts_total"
    positions = [increase(Selector(f"vllm:{name}", (("position", str(at)),))) for at in range(6)]
    shares = [ratio(one, increase(Selector(f"vllm:{drafts}")), 50.0) for one in positions]

    def counted(*used: int) -> float | None:
        """Of a hundred drafts."""

        def text(share: float) -> str:
            told = [line(name, share * one, f'{LABELS},position="{at}"') for at, one in enumerate(used)]
            return "".join(told) + page(num_requests_running=1) + line(drafts, 100 * share)

        return value(leading_above(shares, 0.3), {5 * step: text(step / 6) for step in range(7)})

    assert counted(90, 40, 10, 35) == counted(90, 40) == 2
    assert counted(20, 10) == 0
    assert counted() is None
