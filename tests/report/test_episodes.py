"""The story of an incident: each time it held, what changed of the server, and the window that shows it."""

from dataclasses import replace

from tests.a_service import NOW, incident
from watchdog.model import State, Transition
from watchdog.report.course import Mark
from watchdog.report.episodes import Episode, story


def ended(begin: float, end: float) -> Transition:
    over = incident(state=State.RESOLVED, pending_since=begin, firing_since=begin + 5, resolved_at=end)
    return Transition(over, State.FIRING, end)


def test_an_incident_without_a_store_is_a_story_of_one_episode() -> None:
    told = story(incident(), [], [], NOW)
    assert told.episodes == [Episode(NOW - 205, NOW - 200, None)]
    assert told.begin < NOW - 205
    assert told.end == NOW
    assert told.text == "fired once, for 3m 25s"


def test_earlier_times_of_the_last_day_are_told_and_what_is_older_is_not() -> None:
    timeline = [ended(NOW - 90_000, NOW - 89_000), ended(NOW - 7200, NOW - 7000)]
    marks = [Mark(NOW - 100_000, "old"), Mark(NOW - 6990, "the server restarted")]
    told = story(incident(), timeline, marks, NOW)
    assert [each.ended for each in told.episodes] == [NOW - 7000, None]
    assert [each.text for each in told.marks] == ["the server restarted"]
    assert told.text == "fired 2 times, 6m 45s in all, the last for 3m 25s; 1 change of the server"


def test_a_past_incident_is_shown_until_its_end_and_once() -> None:
    over = ended(NOW - 9000, NOW - 8990)
    told = story(over.incident, [over], [], NOW)
    assert told.episodes == [Episode(NOW - 9000, NOW - 8995, NOW - 8990)]
    assert NOW - 8990 < told.end < NOW - 8900
    # Seconds are shown in a window of two minutes: a hair on the edge is no picture.
    assert told.end - told.begin >= 119


def test_what_is_only_pending_says_so() -> None:
    pending = incident(state=State.PENDING, firing_since=None)
    assert story(pending, [], [], NOW).text == "pending, did not fire"
    assert story(replace(pending, pending_since=NOW), [], [], NOW).end == NOW
