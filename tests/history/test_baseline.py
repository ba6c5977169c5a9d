"""The time an engine is compared with: before now, and before what is wrong began."""

from collections.abc import Iterator

from tests.pages import page
from watchdog.history.baseline import LEAST_FRESH_SECONDS, BaselineKeeper
from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.history.span import Span
from watchdog.model import Subject
from watchdog.scrape.exposition import SeriesCache, parse

ENGINE = Subject("t", "m", "0")


class Life:
    """An engine scraped each 5 s, and the keeper told after each whether something is wrong."""

    def __init__(self) -> None:
        self.history = History()
        self.keeper = BaselineKeeper()
        self.at = 0.0
        self._cache = SeriesCache(wanted)

    def run(self, seconds: float, active: bool = False) -> Iterator[Span | None]:
        """The span to compare with after each scrape of so long a time."""
        until = self.at + seconds
        while self.at < until:
            text = page(num_requests_running=1.0, generation_tokens_total=self.at)
            self.history.append(parse(text.encode(), self._cache), self.at)
            yield self.keeper.span(self.history, ENGINE)
            self.keeper.note(self.history, ENGINE, self.at, active)
            self.at += 5.0

    def after(self, seconds: float, active: bool = False) -> tuple[float, float] | None:
        """Where the last of these spans begins and ends."""
        *_, span = self.run(seconds, active)
        return None if span is None else (span.frames[0].at, span.frames[-1].at)


def test_while_all_is_well_it_is_what_was_before_now() -> None:
    life = Life()
    assert life.after(35) is None
    assert life.after(10) == (0, 10)
    assert life.after(100) == (0, 110)


def test_from_the_first_step_with_a_fault_it_stands_still() -> None:
    life = Life()
    life.after(205)
    assert life.after(5, active=True) == (0, 175)
    assert life.after(600, active=True) == (0, 175)
    assert life.after(600, active=True) == (0, 175)


def test_what_lasts_an_hour_is_the_new_normal() -> None:
    life = Life()
    life.after(205)
    begins = life.at
    assert life.after(3600 + 5, active=True) == (0, 175)
    # The scrape after the hour is over unfreezes; the next one compares with the ten minutes before it.
    life.after(5, active=True)
    found = life.after(5, active=True)
    assert found is not None
    assert found[0] > begins
    assert found[1] == life.at - 5 - 30


def test_after_a_fault_it_stays_the_time_before_until_there_is_a_minute_of_the_time_after() -> None:
    life = Life()
    life.after(205)
    life.after(300, active=True)
    over = life.at
    # A minute of baseline that ends half a minute ago.
    assert life.after(LEAST_FRESH_SECONDS + 30) == (0, 175)
    assert life.after(5) == (0, 175)
    assert life.after(5) == (over, over + LEAST_FRESH_SECONDS + 5)


def test_a_fault_that_comes_again_does_not_count_as_a_time_without_one() -> None:
    life = Life()
    life.after(205)
    life.after(100, active=True)
    life.after(60)
    life.after(5, active=True)
    over = life.at
    assert life.after(80) == (0, 175)
    assert life.after(25) == (over, life.at - 5 - 30)


def test_an_hour_of_a_fault_and_its_aftermath_is_enough() -> None:
    life = Life()
    life.after(205)
    life.after(3600 - 20, active=True)
    assert life.after(25) == (0, 175)
    life.after(5)
    # What came after the fault is too short yet, and what was before it too old.
    assert life.after(5) is None


def test_where_too_little_was_seen_there_is_nothing_to_freeze() -> None:
    life = Life()
    assert life.after(30, active=True) is None
    assert life.after(30, active=True) == (0, 10)  # the first that could be used
    assert life.after(300, active=True) == (0, 10)


def test_a_new_process_is_not_compared_with_the_one_before() -> None:
    life = Life()
    life.after(205)
    life.after(100, active=True)
    life.keeper.forget()
    assert life.keeper.frozen is None
    assert life.keeper.fresh_from is None
    found = life.keeper.span(life.history, ENGINE)
    assert found is not None
    assert found.frames[-1].at == life.at - 5 - 30


def test_after_a_fault_and_a_long_silence_nothing_is_left_to_compare_with() -> None:
    life = Life()
    life.after(205)
    life.after(60, active=True)
    life.after(150)
    assert life.keeper.frozen is None
    life.at += 2000
    assert life.after(10) is None
    assert life.after(60) is not None
