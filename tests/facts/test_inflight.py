"""Requests in flight: what shows that they hang, and what proves that none does."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.fact import by_name
from watchdog.facts.inflight import InFlight, Moment


def told(moments: Iterable[Moment], counts: bool = False) -> InFlight:
    """What is known after a step at 0 s and these pages."""
    one = InFlight(counts)
    one.note(Moment(-5.0, False, open_files=40.0, answers=9.0))
    one.note(Moment(0.0, True, open_files=40.0, answers=9.0))
    for moment in moments:
        one.note(moment)
    return one


def still(
    loads: Iterable[int | None], files: Iterable[float | None] = (), every: float = 5.0
) -> list[Moment]:
    """Pages on which nothing moved, with these readings."""
    found = list(loads)
    opened = [*files, *[None] * len(found)]
    return [
        Moment(every * number, False, load, opened[number - 1]) for number, load in enumerate(found, start=1)
    ]


def facts(moments: Iterable[Moment], counts: bool = False) -> dict[str, float]:
    return by_name(told(moments, counts).facts())


def test_zero_says_nothing_of_a_server_that_may_not_count() -> None:
    found = facts(still([0] * 6))
    assert found["in_flight_tracked"] == 0
    assert {"in_flight", "in_flight_seconds", "none_in_flight_seconds"}.isdisjoint(found)


def test_a_server_that_once_told_more_than_zero_counts() -> None:
    one = told(still([2, 0, 0]))
    assert one.is_tracked
    one.note(Moment(20.0, True, 0, 40.0))
    one.note(Moment(25.0, False, 0, 40.0))
    found = by_name(one.facts())
    assert (found["in_flight"], found["none_in_flight_seconds"]) == (0, 5)
    one.begin_again()
    assert not one.is_tracked


def test_a_server_that_is_known_to_count_is_believed_at_once() -> None:
    found = facts(still([0, 0], [40.0, 40.0]), counts=True)
    assert (found["in_flight_tracked"], found["in_flight"], found["none_in_flight_seconds"]) == (1, 0, 5)


def test_requests_in_flight_are_timed_from_the_first_reading_on_and_remembered_until_a_step() -> None:
    one = told(still([1, 3, 7, 0], [41.0, 43.0, 47.0, 40.0]))
    found = by_name(one.facts())
    assert (found["in_flight"], found["in_flight_seconds"]) == (0, 10)
    assert "none_in_flight_seconds" not in found
    one.note(Moment(25.0, True, 0, 40.0))
    assert "in_flight_seconds" not in by_name(one.facts())


def test_requests_that_come_one_by_one_and_are_done_without_a_step_are_no_stall() -> None:
    assert facts(still([1, 0] * 8, [41.0, 40.0] * 8))["in_flight_seconds"] == 0


def test_several_api_servers_answer_in_turn() -> None:
    """The page has no series of one process; 0 between other numbers is another server's."""
    found = facts(still([2, 0, 3, 0, 4, 0, 5]))
    assert found["in_flight_seconds"] == 30


def test_none_is_in_flight_behind_several_api_servers_only_after_several_readings() -> None:
    assert "none_in_flight_seconds" not in facts(still([0] * 3), counts=True)
    assert facts(still([0] * 4), counts=True)["none_in_flight_seconds"] == 15


def test_a_reading_that_failed_is_no_zero() -> None:
    found = facts(still([0, 0, None], [40.0] * 3), counts=True)
    assert "in_flight" not in found
    assert "none_in_flight_seconds" not in found


def test_connections_that_come_one_by_one_and_stay_are_stuck() -> None:
    files = [40.0, 41, 41, 42, 42, 43, 43, 44, 44, 45, 45, 46, 46, 46, 46, 46]
    found = facts(still([None] * len(files), files))
    assert (found["stuck_open_files"], found["stuck_open_files_rises"]) == (6, 6)


def test_a_pool_of_connections_that_opens_at_once_rises_once() -> None:
    found = facts(still([None] * 10, [40.0, *[72.0] * 9]))
    assert (found["stuck_open_files"], found["stuck_open_files_rises"]) == (32, 1)


def test_connections_that_were_kept_open_after_the_last_step_close_and_count_for_nothing() -> None:
    found = facts(still([None] * 10, [90.0, *[40.0] * 9]))
    assert found["stuck_open_files"] == 0


@pytest.mark.parametrize("every", [1.0, 5.0, 15.0, 20.0])
def test_what_comes_and_goes_is_not_stuck_at_any_pace(every: float) -> None:
    files = [40.0, 43.0, 41.0] * 20
    found = facts(still([None] * len(files), files, every))
    assert found["stuck_open_files"] <= (1 if every < 20.0 else 2)


def test_answers_that_end_without_a_step_are_counted_from_ten_seconds_on() -> None:
    pages = [Moment(5.0 * number, False, None, 40.0, 9.0 + min(number, 6)) for number in range(1, 9)]
    assert facts(pages)["answers_without_token"] == 4
    assert "answers_without_token" not in facts(pages[:1])


def test_idleness_is_proven_by_what_the_server_counts() -> None:
    idle = told(still([0, 0], [40.0, 40.0]), counts=True).idleness()
    assert idle.is_proven
    assert "GET /load" in idle.text
    busy = told(still([0, 3], [40.0, 43.0]), counts=True).idleness()
    assert not busy.is_proven
    assert "3 in flight" in busy.text


def test_idleness_is_proven_by_open_files_at_their_level() -> None:
    assert told(still([None] * 6, [40.0, 41.0, 40.0, 42.0, 40.0, 41.0])).idleness().is_proven
    assert not told(still([None] * 2, [40.0, 41.0])).idleness().is_proven, "not long enough"
    assert not told(still([None] * 12, [40.0, *range(41, 52)])).idleness().is_proven


def test_idleness_of_a_server_of_which_no_step_was_ever_seen_is_not_proven_by_its_files() -> None:
    one = InFlight()
    for number in range(10):
        one.note(Moment(5.0 * number, False, None, 71.0))
    idleness = one.idleness()
    assert not idleness.is_proven
    assert "--enable-server-load-tracking" in idleness.text


def test_requests_that_left_without_an_answer_leave_a_doubt() -> None:
    pages = still([4, 4, 4, 4, 4, 0, 0], [44.0] * 5 + [40.0] * 2)
    assert not told(pages, counts=True).idleness().is_proven


@given(
    st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 9), st.none() | st.integers(30, 90))),
    st.booleans(),
)
def test_idleness_is_never_proven_while_requests_are_in_flight(
    pages: list[tuple[bool, int | None, int | None]], counts: bool
) -> None:
    one = InFlight(counts)
    for number, (moved, load, files) in enumerate(pages):
        one.note(Moment(5.0 * number, moved, load, None if files is None else float(files)))
        if load:
            assert not one.idleness().is_proven
        assert all(value >= 0 for value in by_name(one.facts()).values())
