"""What the scrapes themselves say: whether a target answers, with what, and since when not."""

import pytest

from tests.pages import page
from watchdog.facts.fact import by_name
from watchdog.facts.reachability import Reachability
from watchdog.history.names import wanted
from watchdog.model import Failure, Page, Reason, Scrape
from watchdog.scrape.exposition import SeriesCache, parse


def page_of(text: str) -> Page:
    return parse(text.encode(), SeriesCache(wanted))


VLLM = page_of(page(num_requests_running=1.0, num_requests_waiting=0.0) + "process_open_fds 9\n")
BARE = page_of("process_open_fds 9\n")
WEB = page_of('http_requests_total{handler="/"} 9\nprocess_open_fds 9\n')


def fail(
    one: Reachability,
    at: float,
    reason: Reason = Reason.REFUSED,
    status: int = 0,
    while_connecting: bool = False,
) -> None:
    failure = Failure(reason, "because", while_connecting)
    one.failed(failure, Scrape(at, at, 0.01, status, b"", failure))


def facts(one: Reachability, at: float) -> dict[str, float]:
    return by_name(one.facts(at))


def some(one: Reachability, at: float, *names: str) -> list[float | None]:
    told = facts(one, at)
    return [told.get(name) for name in names]


def test_a_page_of_vllm() -> None:
    one = Reachability()
    one.answered(VLLM, 100.0)
    assert facts(one, 100.0) == {
        "failed_scrapes": 0,
        "failing_seconds": 0,
        "failure_refused": 0,
        "failure_timeout": 0,
        "failure_connecting": 0,
        "failure_invalid": 0,
        "page_empty": 0,
        "page_not_metrics": 0,
        "page_series": 3,
        "page_vllm_series": 2,
        "seconds_without_vllm": 0,
        "vllm_seen": 1,
        "page_without_vllm_has_http": 0,
        "page_of_other_program": 0,
        "page_python_alone": 0,
    }


def test_failures_in_a_row_are_counted_and_timed_from_the_first_to_the_last() -> None:
    one = Reachability()
    for at in (100.0, 105.0, 112.0):
        fail(one, at)
    assert some(one, 500.0, "failed_scrapes", "failing_seconds") == [3, 12]
    one.answered(VLLM, 120.0)
    assert some(one, 120.0, "failed_scrapes", "failing_seconds") == [0, 0]
    fail(one, 200.0)
    fail(one, 203.0)
    assert some(one, 203.0, "failed_scrapes", "failing_seconds") == [2, 3]


@pytest.mark.parametrize(
    ("reason", "status", "told"),
    [
        (Reason.REFUSED, 0, {"failure_refused"}),
        (Reason.TIMEOUT, 0, {"failure_timeout"}),
        (Reason.STATUS, 503, {"failure_status"}),
        (Reason.TLS, 0, set()),
        (Reason.PARSE, 0, {"failure_invalid", "page_not_metrics"}),
        (Reason.ENCODING, 0, {"failure_invalid"}),
        (Reason.EMPTY, 0, {"page_empty"}),
    ],
)
def test_each_reason_is_told_by_its_fact_while_it_lasts(reason: Reason, status: int, told: set[str]) -> None:
    one = Reachability()
    fail(one, 5.0, reason, status)
    found = facts(one, 5.0)
    assert {name for name, value in found.items() if value} == {"failed_scrapes", *told}
    assert found.get("failure_status") == (status or None)
    assert "page_series" not in found
    assert "seconds_without_vllm" not in found
    one.answered(VLLM, 10.0)
    assert not {name for name, value in facts(one, 10.0).items() if value} & told


def test_a_connection_that_was_never_made_is_told() -> None:
    one = Reachability()
    fail(one, 5.0, Reason.TIMEOUT, while_connecting=True)
    assert some(one, 5.0, "failure_timeout", "failure_connecting") == [1, 1]
    fail(one, 10.0, Reason.TIMEOUT)
    assert some(one, 10.0, "failure_connecting") == [0]


@pytest.mark.parametrize(
    "reason", [Reason.PARSE, Reason.UTF8, Reason.ENCODING, Reason.TOO_LARGE, Reason.EMPTY]
)
def test_who_answers_200_with_something_else_is_not_down_but_without_vllm(reason: Reason) -> None:
    one = Reachability()
    one.answered(VLLM, 0.0)
    fail(one, 5.0, reason, 200)
    fail(one, 15.0, reason, 200)
    assert some(one, 15.0, "failed_scrapes", "page_series", "page_vllm_series") == [0, 0, 0]
    assert some(one, 15.0, "seconds_without_vllm", "vllm_seen") == [10, 1]
    assert some(one, 15.0, "failure_invalid") == [float(reason is not Reason.EMPTY)]
    one.answered(VLLM, 20.0)
    assert some(one, 20.0, "seconds_without_vllm", "failure_invalid", "page_empty") == [0, 0, 0]


def test_a_page_without_vllm_counts_from_the_first_of_them() -> None:
    one = Reachability()
    one.answered(WEB, 100.0)
    one.answered(BARE, 130.0)
    assert some(one, 130.0, "seconds_without_vllm", "vllm_seen", "page_series") == [30, 0, 1]
    one.answered(VLLM, 140.0)
    one.answered(BARE, 150.0)
    assert some(one, 155.0, "seconds_without_vllm", "vllm_seen") == [5, 1]


def test_only_a_page_with_an_http_layer_and_without_vllm_is_told_as_such() -> None:
    one = Reachability()
    one.answered(WEB, 0.0)
    assert some(one, 0.0, "page_without_vllm_has_http") == [1]
    one.answered(BARE, 5.0)
    assert some(one, 5.0, "page_without_vllm_has_http") == [0]
    one.answered(page_of(page(num_requests_running=1.0) + 'http_requests_total{handler="/"} 9\n'), 10.0)
    assert some(one, 10.0, "page_without_vllm_has_http") == [0]


@pytest.mark.parametrize(
    ("text", "other", "python", "samples"),
    [
        ("sglang:num_running_reqs 3\nsglang:token_usage 0.2\npython_info 1\n", 1, 0, 3),
        ('vllm:num_requests_running{server="http://a"} 3\nprocess_open_fds 9\n', 1, 0, 2),
        ("tgi_queue_size 0\n", 1, 0, 1),
        ("python_info 1\nprocess_open_fds 9\n", 0, 1, 2),
        ('http_requests_total{handler="/"} 9\npython_info 1\n', 0, 0, 2),
        ("my_app_total 1\n", 0, 0, 1),
    ],
)
def test_whose_page_it_is_without_vllm(text: str, other: float, python: float, samples: float) -> None:
    one = Reachability()
    one.answered(page_of(text), 0.0)
    names = ("page_of_other_program", "page_python_alone", "page_series", "page_vllm_series")
    assert some(one, 0.0, *names) == [other, python, samples, 0]
    fail(one, 5.0, Reason.EMPTY, 200)
    assert some(one, 5.0, *names) == [0, 0, 0, 0]


def test_a_target_that_is_down_is_not_without_vllm() -> None:
    one = Reachability()
    one.answered(BARE, 0.0)
    fail(one, 60.0)
    one.answered(BARE, 70.0)
    assert some(one, 75.0, "seconds_without_vllm") == [5]


def test_an_answer_that_is_of_no_use_ends_a_row_of_failures() -> None:
    one = Reachability()
    fail(one, 0.0)
    fail(one, 5.0, Reason.EMPTY, 200)
    fail(one, 10.0)
    assert some(one, 10.0, "failed_scrapes", "failing_seconds") == [1, 0]


@pytest.mark.parametrize("reason", [Reason.TRUNCATED, Reason.TIMEOUT, Reason.PROTOCOL])
def test_a_page_that_began_with_200_and_never_came_is_no_answer(reason: Reason) -> None:
    one = Reachability()
    fail(one, 0.0, reason, 200)
    fail(one, 5.0, reason, 200)
    assert some(one, 5.0, "failed_scrapes", "failing_seconds", "page_series") == [2, 5, None]


def test_a_page_of_no_use_under_another_status_is_no_answer() -> None:
    one = Reachability()
    fail(one, 0.0, Reason.EMPTY, 204)
    assert some(one, 0.0, "failed_scrapes", "failure_status") == [1, 204]


@pytest.mark.parametrize(
    ("strangers", "notes"),
    [
        (
            {"sglang": 2, "python": 3},
            ["another program answers here, with other metrics: 2 of SGLang, 3 of python_*"],
        ),
        ({"python": 3}, []),
        ({}, []),
    ],
)
def test_another_program_is_named_from_its_first_page_on(strangers: dict[str, int], notes: list[str]) -> None:
    one = Reachability()
    one.answered(Page((), (), strangers=strangers), 0.0)
    assert list(one.notes) == notes
    one.answered(VLLM, 10.0)
    assert list(one.notes) == []
