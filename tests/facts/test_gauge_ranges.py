"""Gauges that show what cannot be are unknown, and only they."""

from dataclasses import replace
from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from tests.pages import LABELS, history_of, page, scrape
from tests.watching import diagnosis
from watchdog.facts.fact import by_name
from watchdog.facts.gauge_ranges import MARGIN, GaugeRanges
from watchdog.history.layout import Layout
from watchdog.model import Page


def of(**values: float) -> tuple[Page, Layout]:
    (frame,) = history_of([(0.0, page(LABELS, **values))]).frames
    return Page(frame.layout.series, tuple(frame.values)), frame.layout


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=20))
def test_a_share_is_believed_until_it_was_out_of_range(shown: list[float]) -> None:
    one, (first, layout) = GaugeRanges(), of(kv_cache_usage_perc=0.5)
    was_out = False
    for value in shown:
        was_out = was_out or not -MARGIN <= value <= 1 + MARGIN
        (found,) = one.checked(replace(first, values=(value,))).values
        assert isnan(found) if was_out else 0 <= found <= 1 and abs(found - value) <= MARGIN
    assert by_name(one.engine_facts(layout, "m", "0"))["kv_usage_out_of_range"] == was_out


def test_other_series_stay_as_they_are_and_a_new_life_is_believed_again() -> None:
    one = GaugeRanges()
    taken, layout = of(kv_cache_usage_perc=-0.36, num_requests_running=4.0, generation_tokens_total=7.0)
    values = one.checked(taken).values
    assert sum(isnan(value) for value in values) == 1
    assert sorted(value for value in values if not isnan(value)) == [4, 7]
    assert by_name(one.engine_facts(layout, "m", "0"))["kv_usage_impossible_ratio"] == -0.36
    assert by_name(one.engine_facts(layout, "m", "7")) == {}
    one.begin_again()
    page_in_range, _ = of(kv_cache_usage_perc=0.4)
    assert one.checked(page_in_range) is page_in_range


def test_a_page_without_gauges_is_the_same_page() -> None:
    taken, layout = of(generation_tokens_total=7.0)
    one = GaugeRanges()
    assert one.checked(taken) is taken
    assert by_name(one.engine_facts(layout, "m", "0")) == {}


def test_the_fault_of_the_metric_is_told_and_nothing_is_shown_of_it() -> None:
    last = diagnosis().observe(scrape(0.0, page(kv_cache_usage_perc=-0.36, num_requests_running=1.0)))
    assert last.readings[0].values["kv_usage_ratio"] is None
    assert [one.key.rule for one in last.incidents] == ["kv-gauge-impossible"]
