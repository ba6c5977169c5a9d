"""Alerts are sent in the time of whoever receives them, however wrong our clock or theirs is."""

import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.pagers import Inbox, Ledgers, Pager, Reply, Senders, incident, resolved, running, senders, unix
from tests.waiting import until
from watchdog.clock import steady_seconds
from watchdog.http.post import _unix_seconds
from watchdog.notify.receiver_clock import AGREE_WITHIN_SECONDS, ReceiverClock

DAY = 86_400.0
OFF = pytest.mark.parametrize("off", [DAY, -DAY, 3600.0, -3600.0])


def observe(notifiers: Senders, off: float, *incidents: object) -> None:
    notifiers.observe(incidents, steady_seconds(), time.time() + off)  # type: ignore[arg-type]


def has_sent(notifiers: Senders, count: int) -> bool:
    return notifiers.statistics()[0].sent == count


def dated(pager: Inbox) -> Inbox:
    pager.date = time.time
    return pager


@OFF
def test_a_clock_that_is_off_ends_no_alert_and_keeps_its_start(
    off: float, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers = Ledgers()
    with dated(Pager()) as pager:
        assert isinstance(pager, Pager)
        one = incident(since=time.time() - 60)
        for life_off in (0.0, off, 0.0):
            with running(senders({"urls": [pager.url]}, ledgers=ledgers)) as it:
                observe(it, life_off, one)
                until(partial(has_sent, it, 1))
                assert pager.firing() == {"VllmKvPoolExhausted"}
        starts = {unix(each["startsAt"]) for post in pager.posts for each in post.json}
        assert max(starts) - min(starts) < 0.01
        ends = [unix(each["endsAt"]) - time.time() for post in pager.posts for each in post.json]
        assert all(abs(each - 240) < 30 for each in ends)
        with running(senders({"urls": [pager.url]}, ledgers=ledgers)) as it:
            observe(it, off, resolved(time.time() + off - 1, since=one.firing_since))
            until(partial(has_sent, it, 1))
            assert pager.firing() == set()
    assert pager.page_log == [("VllmKvPoolExhausted", "firing"), ("VllmKvPoolExhausted", "resolved")]
    assert [each.msg for each in caplog.records].count("clocks_differ") == 2


@OFF
def test_a_clock_that_is_set_while_it_fires_changes_nothing_at_the_receiver(off: float) -> None:
    with dated(Pager()) as pager, running(senders({"urls": [pager.url], "resend_seconds": 1})) as it:
        assert isinstance(pager, Pager)
        one = incident(since=time.time())
        for count, life_off in enumerate((0.0, off, 0.0, off), 1):
            it.observe([one], steady_seconds() + count, time.time() + life_off + count)
            until(partial(has_sent, it, count))
            assert pager.firing() == {"VllmKvPoolExhausted"}
        assert len({each["startsAt"] for post in pager.posts for each in post.json}) == 1
    assert pager.page_log == [("VllmKvPoolExhausted", "firing")]


def test_what_begins_by_a_wrong_clock_begins_by_the_receivers() -> None:
    for off in (DAY, -DAY):
        with dated(Pager()) as pager, running(senders({"urls": [pager.url]})) as it:
            observe(it, off, incident(since=time.time() + off - 30))
            [post] = pager.wait_for(1)
            assert abs(unix(post.json[0]["startsAt"]) - (time.time() - 30)) < AGREE_WITHIN_SECONDS


def test_a_receiver_that_does_not_tell_the_time_is_sent_ours() -> None:
    with Pager() as pager, running(senders({"urls": [pager.url]})) as it:
        since = time.time() - 10
        observe(it, 0.0, incident(since=since))
        [post] = pager.wait_for(1)
    assert abs(unix(post.json[0]["startsAt"]) - since) < 0.01


def test_a_page_that_answers_for_it_tells_no_time() -> None:
    page = Reply(200, b"<html>Sign in</html>", "text/html")
    with Inbox(lambda _: page, lambda: time.time() + DAY) as login:
        with running(senders({"urls": [login.url]})) as it:
            login.date = None
            observe(it, 0.0, incident(since=time.time()))
            login.wait_for(1)
            login.date = lambda: time.time() + DAY
            posts = login.wait_for(2)
        assert all(abs(unix(post.json[0]["startsAt"]) - time.time()) < 60 for post in posts)


@given(
    off=st.floats(-1e8, 1e8),
    asked_after=st.floats(0, 1e6),
    took=st.floats(0, 10),
    drift=st.floats(-1, 1),
)
@hypothesis_settings(max_examples=200, deadline=None)
def test_it_is_right_to_within_what_an_answer_can_tell(
    off: float, asked_after: float, took: float, drift: float
) -> None:
    wall = 1.7e9
    clock = ReceiverClock("r")
    assert clock.is_in_doubt(0.0, wall)
    for at in (asked_after, asked_after + 60):
        theirs = wall + at + took / 2 + off + drift
        clock.learn(float(int(theirs)), at, at + took, at, wall + at)
        assert not clock.is_in_doubt(at + 5, wall + at + 5)
        ahead = clock.ahead_seconds(at, wall + at)
        assert abs(ahead - off) <= AGREE_WITHIN_SECONDS + took + 3
        if abs(off) > AGREE_WITHIN_SECONDS + took + 3:
            assert ahead != 0.0
        if abs(off + drift) < 3:
            assert ahead == 0.0
    assert clock.is_in_doubt(at, wall + at + 3600)


@pytest.mark.parametrize("date", ["", "yesterday", "Tue, 99 Foo 2026", "Tue, 01 Dec 99999999 15:44:21 GMT"])
def test_a_date_that_is_none_is_no_time(date: str) -> None:
    assert _unix_seconds(date) is None
    assert _unix_seconds("Tue, 01 Dec 2026 15:44:21 GMT") == _unix_seconds("Tue, 01 Dec 2026 15:44:21 -0000")
