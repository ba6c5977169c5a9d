"""Scrapes read one after the other: pages, failures, and how many of each."""

from tests.pages import failed, page, scrape
from watchdog.diagnosis.pages import PageReader
from watchdog.model import Reason

PAGE = page(num_requests_running=1.0)


def reader() -> PageReader:
    return PageReader(max_series=100, max_line_bytes=10_000)


def test_a_scrape_is_a_page_or_a_failure_and_never_both() -> None:
    one = reader()
    for each in (scrape(0.0, PAGE), failed(5.0), scrape(10.0, "<html>"), scrape(15.0, "")):
        taken = one.read(each)
        assert (taken.page is None) != (taken.failure is None)
    assert one.scrapes == 4
    assert one.failures == {Reason.REFUSED: 1, Reason.PARSE: 1, Reason.EMPTY: 1}


def test_a_page_knows_whether_scrapes_failed_since_the_page_before() -> None:
    one = reader()
    scrapes = [scrape(0.0, PAGE), failed(5.0), failed(10.0), scrape(15.0, PAGE), scrape(20.0, PAGE)]
    assert [one.read(each).after_failure for each in scrapes] == [False, False, True, True, False]


def test_the_last_success_is_the_wall_time_of_the_last_page() -> None:
    one = reader()
    assert one.last_success_wall is None
    one.read(scrape(0.0, PAGE, wall=100.0))
    one.read(failed(5.0))
    assert one.last_success_wall == 100.0
