"""The past of an engine in short stretches: what is kept, what is left out, and what is alike."""

from collections.abc import Mapping, Sequence
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import page
from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.history.span import Span
from watchdog.history.stretches import (
    FINE_SECONDS,
    KEPT_SECONDS,
    LONGEST_HURT_SECONDS,
    MOST_COMPARED,
    Stretches,
)
from watchdog.model import Subject
from watchdog.scrape.exposition import SeriesCache, parse

ENGINE = Subject("t", "m", "0")
RATE, LATENCY, PROMPT = "first_tokens_per_second", "ttft_p50_seconds", "prompt_tokens_mean"


class Life:
    """An engine scraped each 5 s whose signals are what the test says they are."""

    def __init__(self, interval_seconds: float = 5.0) -> None:
        self.history = History()
        self.stretches = Stretches((RATE, LATENCY, PROMPT), RATE)
        self.at = 0.0
        self._interval_seconds = interval_seconds
        self._cache = SeriesCache(wanted)
        self._values: dict[float, dict[str, float | None]] = {}

    def run(
        self,
        seconds: float,
        hurts: bool = False,
        rate: float = 2.0,
        latency: float = 0.1,
        prompt: float = 500.0,
    ) -> None:
        until = self.at + seconds
        while self.at < until:
            text = page(num_requests_running=1.0, generation_tokens_total=self.at)
            self.history.append(parse(text.encode(), self._cache), self.at)
            self._values[self.at] = {RATE: rate, LATENCY: latency, PROMPT: prompt}
            self.stretches.note(self.history, ENGINE, self.at, hurts, self._measure)
            self.at += self._interval_seconds

    def _measure(self, span: Span, names: Sequence[str]) -> Mapping[str, float | None]:
        figures = self._values[span.frames[-1].at]
        return {name: figures[name] for name in names}

    @property
    def edges(self) -> list[tuple[float, float]]:
        return list(zip(self.stretches.begins, self.stretches.ends, strict=True))

    def latency_under(self, **now: float) -> float | None:
        likeness = dict.fromkeys(now, 2.0)
        return self.stretches.value(LATENCY, self.stretches.like(now, likeness))


def test_a_busy_server_has_a_stretch_each_quarter_of_a_minute_once_it_is_half_a_minute_old() -> None:
    life = Life()
    life.run(45)
    assert life.edges == []
    life.run(40)
    assert life.edges == [(0, 15), (15, 30), (30, 45)]


def test_a_quiet_server_has_one_a_minute() -> None:
    life = Life()
    life.run(155, rate=0.1)
    assert life.edges == [(0, 60), (60, 120)]


def test_scrapes_a_minute_apart_make_a_stretch_each() -> None:
    life = Life(interval_seconds=60.0)
    life.run(300)
    assert life.edges == [(0, 60), (60, 120), (120, 180)]


def test_what_hurts_and_the_half_minute_before_it_are_left_out() -> None:
    life = Life()
    life.run(100)
    life.run(60, hurts=True, latency=9.0)
    life.run(100, latency=0.2)
    assert life.edges[-1][1] > 200
    assert not any(70.6 < begin < 155 for begin, _ in life.edges)
    assert {round(value, 3) for value in life.stretches.columns[LATENCY]} == {0.1, 0.2}


def test_an_onset_cuts_the_open_stretch_so_that_a_young_server_has_a_past() -> None:
    life = Life()
    life.run(45)
    life.run(5, hurts=True)
    assert life.edges == [(0, 15)]


def test_what_hurts_for_an_hour_is_the_new_normal() -> None:
    life = Life()
    life.run(100)
    life.run(LONGEST_HURT_SECONDS - 10, hurts=True, latency=3.0)
    assert life.latency_under(prompt_tokens_mean=500) == pytest.approx(0.1)
    life.run(300, hurts=True, latency=3.0)
    assert life.latency_under(prompt_tokens_mean=500) == pytest.approx(3.0)


def test_the_newest_stretches_of_a_like_load_are_compared_and_others_are_not() -> None:
    life = Life()
    life.run(300, prompt=500, latency=0.1)
    life.run(300, prompt=5000, latency=1.0)
    assert life.latency_under(prompt_tokens_mean=600) == pytest.approx(0.1)
    assert life.latency_under(prompt_tokens_mean=4000) == pytest.approx(1.0)
    assert life.latency_under(prompt_tokens_mean=50_000) is None
    assert life.latency_under(prompt_tokens_mean=600, first_tokens_per_second=20) is None


def test_without_a_likeness_the_newest_count_whatever_they_carried() -> None:
    life = Life()
    life.run(300, prompt=500, latency=0.1)
    life.run(300, prompt=5000, latency=1.0)
    assert len(life.stretches.like({}, {})) == MOST_COMPARED
    assert life.stretches.value(LATENCY, life.stretches.like({}, {})) == pytest.approx(1.0)


def test_one_stretch_that_caught_a_change_does_not_move_what_is_compared_with() -> None:
    life = Life()
    life.run(300, latency=0.1)
    life.run(15, latency=5.0)
    life.run(60, latency=0.1)
    assert life.latency_under(prompt_tokens_mean=500) == pytest.approx(0.1)


def test_a_load_that_is_unknown_is_not_compared_and_where_all_is_unknown_nothing_is_alike() -> None:
    life = Life()
    life.run(200)
    both = {PROMPT: 2.0, RATE: 2.0}
    assert life.stretches.like({PROMPT: 500.0, RATE: None}, both)
    assert not life.stretches.like({PROMPT: None, RATE: None}, both)
    assert not life.stretches.like({PROMPT: None, RATE: 90.0}, both)
    assert not life.stretches.like({PROMPT: float("inf"), RATE: 0.0}, both)


def test_the_lowest_value_leaves_out_what_only_one_of_many_stretches_had() -> None:
    life = Life()
    life.run(600, latency=0.2)
    life.run(15, latency=0.001)
    life.run(90, latency=0.2)
    assert life.stretches.lowest(LATENCY) == pytest.approx(0.2)


def test_hours_of_a_busy_server_take_a_few_hundred_stretches_and_what_is_old_goes() -> None:
    life = Life(interval_seconds=15.0)
    life.run(FINE_SECONDS, latency=0.1)
    assert 200 < len(life.edges) <= 240
    life.run(KEPT_SECONDS, latency=0.3)
    assert len(life.edges) < 700
    assert life.edges[-1][1] - life.edges[0][0] < KEPT_SECONDS + 20 * 60
    assert max(end - begin for begin, end in life.edges) <= 61.2


@given(st.lists(st.tuples(st.floats(10, 400), st.booleans(), st.floats(0.01, 5)), min_size=1, max_size=8))
def test_stretches_never_overlap_and_columns_stay_in_step(parts: list[tuple[float, bool, float]]) -> None:
    life = Life(interval_seconds=10.0)
    for seconds, hurts, latency in parts:
        life.run(seconds, hurts=hurts, latency=latency)
    assert all(begin < end for begin, end in life.edges)
    assert all(one[1] <= other[0] for one, other in zip(life.edges, life.edges[1:], strict=False))
    lengths = {len(column) for column in life.stretches.columns.values()}
    assert lengths == {len(life.edges)}
    assert not any(isnan(value) for value in life.stretches.columns[LATENCY])
