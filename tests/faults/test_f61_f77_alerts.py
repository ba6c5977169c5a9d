"""Faults between an incident and the pager: restarts, disks, and Alertmanagers that do not do their part."""

import itertools
import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Set
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pagers import WALL, Inbox, Pager, Post, Reply, Senders, incident, resolved, running, senders, unix
from tests.servers import closed_port
from tests.state.kill_drill import POINTS, SCRIPT, STEP_SECONDS, finding, live, rule_set
from tests.waiting import until
from watchdog.diagnosis.incidents import IncidentBook
from watchdog.model import Evidence, Key, Severity, State, Transition, Truth
from watchdog.notify.announcements import Ledger, memory_ledger
from watchdog.notify.outbox import Delivery, Outbox, Parcel, stop_all
from watchdog.rule.rule import evaluate
from watchdog.rule.rule_set import load
from watchdog.state.database import SCHEMA_VERSION
from watchdog.state.store import FILE_NAME, Store

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["tests.state.kill_drill"])


def sender(*urls: str, ledgers: Callable[[str], Ledger] = memory_ledger, **others: Any) -> Senders:
    return senders({"urls": list(urls), **others}, external_url="http://w", ledgers=ledgers)


def told(alertmanager: Senders, position: int = 0) -> int:
    return alertmanager.statistics()[position].sent


def eventually_told(alertmanager: Senders, count: int) -> None:
    until(lambda: told(alertmanager) == count)


# F61: a crash or SIGKILL while it fires.


def run_life(folder: Path, url: str, first_step: int, kill_at: tuple[int, str] | None) -> None:
    process = FORK.Process(target=live, args=(folder, url, first_step, kill_at))
    process.start()
    process.join(30)
    assert process.exitcode == (0 if kill_at is None else -9)


def alert_story(posts: list[Post], rule: str) -> list[tuple[str, bool]]:
    """Start and state of each alert of a rule as an Alertmanager saw them, repetitions left out."""
    story: list[tuple[str, bool]] = []
    for post in posts:
        for alert in post.json if post.path != "/hook" else []:
            firing = unix(alert["endsAt"]) > WALL + len(SCRIPT) * STEP_SECONDS
            entry = (alert["startsAt"], firing)
            if alert["labels"]["rule"] == rule and story[-1:] != [entry]:
                story.append(entry)
    return story


def hook_story(posts: list[Post]) -> list[list[tuple[str, str]]]:
    """What fired and what had ended in each message of the webhook."""
    return [
        sorted((alert["labels"]["rule"], alert["status"]) for alert in post.json["alerts"])
        for post in posts
        if post.path == "/hook"
    ]


WHOLE_HOOK_STORY = [
    [("symptom", "firing")],
    [("symptom", "firing"), ("the-cause", "firing")],
    [("symptom", "resolved"), ("the-cause", "resolved")],
]


def test_f61_an_uninterrupted_life_pages_once_for_each_cause(tmp_path: Path) -> None:
    with Inbox() as inbox:
        run_life(tmp_path, inbox.url, 0, None)
        assert alert_story(inbox.posts, "symptom") == [
            ("2023-11-14T22:13:30.000Z", True),
            ("2023-11-14T22:13:30.000Z", False),
        ]
        assert alert_story(inbox.posts, "the-cause") == [
            ("2023-11-14T22:13:45.000Z", True),
            ("2023-11-14T22:13:45.000Z", False),
        ]
        assert hook_story(inbox.posts) == WHOLE_HOOK_STORY


@pytest.mark.parametrize("step", range(1, 13))
def test_f61_killed_at_any_point_and_back_in_ten_seconds_tells_the_same_story(
    step: int, tmp_path: Path
) -> None:
    for point in POINTS:
        folder = tmp_path / point.replace(" ", "-")
        with Inbox() as inbox:
            run_life(folder, inbox.url, 0, (step, point))
            run_life(folder, inbox.url, step + 2, None)
            posts = list(inbox.posts)
        # Killed before anybody knew that the symptom led, which is at the third step: when we are back its cause is
        # about to fire, leads, and is all to be told.
        untold = {"symptom"} if step == 1 or (step, point) == (2, "before the record") else set()
        for rule in {"symptom", "the-cause"} - untold:
            story = alert_story(posts, rule)
            assert [firing for _, firing in story] == [True, False], (point, rule, story)
            # The same start from the first word to the last.
            assert len({start for start, _ in story}) == 1, (point, rule, story)
        messages = hook_story(posts)
        # The one message that was under way may come a second time: at least once, never an end in between.
        once = [each for each, _ in itertools.groupby(messages)]
        assert len(messages) - len(once) <= 1, (point, messages)
        assert is_same_story(once, untold), (point, messages)


def is_same_story(messages: list[list[tuple[str, str]]], untold: Set[str]) -> bool:
    """Whether each alert fires and then ends, once; what falls into the downtime may share a message."""
    states: dict[str, list[str]] = {"symptom": [], "the-cause": []}
    for message in messages:
        for rule, status in message:
            if states[rule][-1:] != [status]:
                states[rule].append(status)
    return all(each == ([] if rule in untold else ["firing", "resolved"]) for rule, each in states.items())


# F62: a restart while it pends.


@pytest.fixture
def book(tmp_path: Path) -> IncidentBook:
    return IncidentBook(rule_set(tmp_path / "rules", hold="30s", slow=""))


def pend(book: IncidentBook, store: Store, first: float, last: float) -> list[State]:
    for at in range(int(first), int(last) + 1, 5):
        standing = book.update([finding("slow", Truth.YES)], at, WALL + at)
        store.record(standing.transitions)
        store.checkpoint(standing.incidents, WALL + at, at, ["gpu-0"])
    return [each.state for each in standing.incidents]


def restart(book: IncidentBook, path: Path, at: float) -> Store:
    store = Store(path)
    restored = store.open(WALL + at)
    book.restore(restored.incidents, at)
    return store


def test_f62_a_restart_keeps_pending_time_and_downtime_does_not_count(
    book: IncidentBook, tmp_path: Path
) -> None:
    path = tmp_path / FILE_NAME
    with closing(Store(path)) as store:
        store.open(WALL)
        pend(book, store, 0, 20)
    after = IncidentBook(rule_set(tmp_path / "rules", hold="30s", slow=""))
    with closing(restart(after, path, 620)) as store:
        assert pend(after, store, 620, 625) == [State.PENDING]
        assert pend(after, store, 630, 630) == [State.FIRING]


def test_f62_after_more_than_an_hour_it_starts_afresh(book: IncidentBook, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(Store(path)) as store:
        store.open(WALL)
        pend(book, store, 0, 25)
    after = IncidentBook(rule_set(tmp_path / "rules", hold="30s", slow=""))
    with closing(restart(after, path, 25 + 3601)) as store:
        assert pend(after, store, 3630, 3655) == [State.PENDING]
        assert pend(after, store, 3660, 3660) == [State.FIRING]


# F63: what can be wrong with the file.


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "state" / FILE_NAME
    with closing(Store(path)) as store:
        store.open(WALL)
        store.record([Transition(incident(f"r{number}"), None, WALL) for number in range(200)])
    return path


@pytest.mark.parametrize(
    "fault", ["truncated", "garbage", "newer", "foreign", "empty", "a folder", "a dead link"]
)
def test_f63_a_file_that_cannot_be_used_never_stops_the_start(fault: str, kept: Path) -> None:
    spoil(kept, fault)
    with closing(Store(kept)) as store:
        assert store.open(WALL).incidents == ()
        store.record([Transition(incident(), None, WALL)])
        assert store.query() == (incident(),)
        assert str(store.health.mode) == ("in memory" if fault in {"a folder", "a dead link"} else "on disk")
        assert (store.health.set_aside is not None) == (fault in {"truncated", "garbage", "newer", "foreign"})


def spoil(path: Path, fault: str) -> None:
    whole = path.read_bytes()
    if fault == "newer":
        path.write_bytes(whole[:60] + (SCHEMA_VERSION + 1).to_bytes(4) + whole[64:])
    elif fault == "foreign":
        path.write_bytes(whole[:68] + b"else" + whole[72:])
    elif fault == "truncated":
        path.write_bytes(whole[: len(whole) // 3])
    elif fault == "a folder":
        path.unlink()
        path.mkdir()
    elif fault == "a dead link":
        path.unlink()
        path.symlink_to("/nowhere/to/be/found")
    else:
        path.write_bytes(b"garbage" * 999 if fault == "garbage" else b"")


def test_f63_a_disk_that_fills_up_never_fails_the_cycle(kept: Path) -> None:
    with closing(Store(kept)) as store:
        assert len(store.open(WALL).incidents) == 200
        connection = store._database._connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 1")
        for number in range(200):
            one = incident(f"more{number}")
            store.record([Transition(one, None, WALL)])
            store.checkpoint([one], WALL, number, ["gpu-0"])
        assert (str(store.health.mode), store.health.warning) == ("in memory", "database or disk is full")
        assert len(store.query(limit=999)) == 400


# F64: what no longer exists.


def test_f64_what_belongs_to_a_rule_or_target_that_is_gone_ends_once(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with Pager(lambda: WALL + 50) as pager:
        with closing(Store(path)) as store:
            store.open(WALL)
            both = [incident("gone"), incident("stays", target="gpu-1")]
            store.record([Transition(each, None, WALL) for each in both])
            store.checkpoint(both, WALL, 0)
            with running(sender(pager.url, ledgers=store.ledger)) as alertmanager:
                alertmanager.observe(both, 0, WALL)
        with closing(Store(path)) as store:
            restored = store.open(WALL + 30)
            kept, ends = restored.split(lambda key: key.rule != "gone", WALL + 30)
            store.record(ends)
            with running(sender(pager.url, ledgers=store.ledger)) as alertmanager:
                alertmanager.observe([*kept, *(each.incident for each in ends)], 30, WALL + 30)
        with closing(Store(path)) as store:
            assert [each.key.rule for each in store.open(WALL + 40).incidents] == ["stays"]
    assert sorted(pager.page_log) == [
        ("VllmGone", "firing"),
        ("VllmGone", "resolved"),
        ("VllmStays", "firing"),
    ]


# F65: a rule that goes wrong.


def test_f65_a_rule_whose_arithmetic_goes_wrong_is_unknown_and_costs_no_other(tmp_path: Path) -> None:
    rule_set(tmp_path, fine="")
    text = (tmp_path / "fine.yaml").read_text().replace("id: fine", "id: odd")
    clause = "1 / (up - up) + 1e300 * 1e300 * up - up / 1e-320 > 0"
    (tmp_path / "odd.yaml").write_text(text.replace("up > 0", clause))
    loaded = load([tmp_path], {"up"}, allow_untested=True)
    for value in (1.0, 0.0, -1e308, 1e308, float("inf"), float("nan"), None):
        verdicts = {rule.id: evaluate(rule, {"up": value}.get).truth for rule in loaded.rules}
        assert verdicts["odd"] is Truth.UNKNOWN
        if value is not None and abs(value) < float("inf"):
            assert verdicts["fine"] is (Truth.YES if value > 0 else Truth.NO)


# F66: ten thousand incidents.


def test_f66_ten_thousand_incidents_are_capped_and_what_fires_is_never_dropped(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(Store(path)) as store:
        store.open(WALL)
        store.record([Transition(incident("fires", since=WALL - 9), None, WALL)])
        for start in range(0, 10_500, 500):
            numbers = range(start, start + 500)
            store.record(
                [
                    Transition(resolved(WALL + number, f"r{number}"), State.FIRING, WALL + number)
                    for number in numbers
                ]
            )
        found = store.query(limit=99_999)
        assert len(found) == 10_000
        assert found[0].key.rule == "r10499"
        assert found[-1].key.rule == "fires"
    size = path.stat().st_size
    with closing(Store(path)) as store:
        store.open(WALL)
        store.record(
            [Transition(resolved(WALL + 1e6, f"s{n}"), State.FIRING, WALL + 1e6) for n in range(200)]
        )
        assert store.query(limit=99_999)[-1].key.rule == "fires"
    # Room that became free is used again.
    assert path.stat().st_size < 1.1 * size


# F67: down for ten minutes.


def test_f67_after_an_outage_what_fires_and_what_ended_meanwhile_is_told_once() -> None:
    clock = [WALL]
    ends, stays, begins = incident("ends"), incident("stays", target="b"), incident("begins", target="c")
    with Pager(lambda: clock[0]) as pager, running(sender(pager.url)) as alertmanager:
        alertmanager.observe([ends, stays], 0, WALL)
        until(lambda: told(alertmanager) == 2)
        pager.down()
        for second in range(5, 605, 5):
            clock[0] = WALL + second
            over = [resolved(WALL + 100, "ends") if second >= 100 else ends]
            later = [replace(begins, firing_since=WALL + 200)] if second >= 200 else []
            alertmanager.observe([*over, stays, *later], second, clock[0])
        until(lambda: alertmanager.statistics()[0].errors > 0)
        pager.up()
        until(lambda: len(pager.page_log) >= 4)
        alertmanager.observe([stays, replace(begins, firing_since=WALL + 200)], 660, WALL + 660)
        until(lambda: alertmanager.statistics()[0].queue_length == 0)
        assert pager.firing() == {"VllmStays", "VllmBegins"}
    assert sorted(pager.page_log) == [
        ("VllmBegins", "firing"),
        ("VllmEnds", "firing"),
        ("VllmEnds", "resolved"),
        ("VllmStays", "firing"),
    ]
    assert len(pager.alerts) == 3


# F68: restarted without its data.


def test_f68_an_alertmanager_that_forgot_all_knows_again_within_a_resend() -> None:
    with Pager(lambda: WALL) as pager, running(sender(pager.url)) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        until(pager.firing)
        pager.down()
        pager.forget()
        pager.up()
        for second in range(5, 65, 5):
            alertmanager.observe([incident()], second, WALL + second)
        until(pager.firing)
    assert [alert["startsAt"] for alert in pager.alerts.values()] == ["2023-11-14T22:13:20.000Z"]


# F69: one of two.


@pytest.mark.parametrize("fault", ["hangs", "down"])
def test_f69_one_alertmanager_that_hangs_or_is_down_costs_the_other_nothing(fault: str) -> None:
    with Pager(lambda: WALL) as good, Inbox(lambda _: Reply(wait_seconds=60)) as slow, closed_port() as port:
        bad = slow.url if fault == "hangs" else f"http://127.0.0.1:{port}"
        with running(sender(bad, good.url, timeout_seconds=1), drain_seconds=0) as alertmanager:
            for second in range(0, 65, 5):
                alertmanager.observe([incident()], second, WALL + second)
            until(lambda: told(alertmanager, 1) >= 1, seconds=0.5)
            until(lambda: alertmanager.statistics()[0].errors >= 1)
            assert alertmanager.statistics()[1].errors == 0
    assert good.page_log == [("VllmKvPoolExhausted", "firing")]


# F70: a bad alert among good ones.


def test_f70_a_refused_alert_is_found_counted_and_left_alone_while_the_rest_arrives() -> None:
    incidents = [incident(f"r{number}", target=f"t{number}") for number in range(20)]

    def is_bad(alert: Any) -> bool:
        return bool(alert["labels"]["rule"] == "r13")

    with Pager(lambda: WALL, is_bad) as pager, ExitStack() as stack:
        alertmanager = sender(pager.url)
        # All of them in one batch.
        alertmanager.observe(incidents, 0, WALL)
        stack.enter_context(running(alertmanager))
        until(lambda: len(pager.firing()) == 19)
        until(lambda: alertmanager.statistics()[0].errors == 1)
        assert len(pager.posts) < 12
        for minute in range(1, 6):
            alertmanager.observe(incidents, minute * 60, WALL + minute * 60)
            eventually_told(alertmanager, 19 * (minute + 1))
        assert alertmanager.statistics()[0].errors == 1
        # When it begins anew it is a new alert, and worth a new try.
        anew = [replace(incidents[13], firing_since=WALL + 400)]
        alertmanager.observe(anew, 400, WALL + 400)
        until(lambda: alertmanager.statistics()[0].errors == 2)
    assert len(pager.page_log) == 19


def test_f70_a_refused_alert_is_tried_again_ever_more_rarely() -> None:
    with (
        Pager(lambda: WALL, lambda _: True) as pager,
        running(sender(pager.url, resend_seconds=0.1)) as alertmanager,
    ):
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            alertmanager.observe([incident()], time.monotonic(), WALL)
            time.sleep(0.02)
        # At 0, after four resends, after sixteen more.
        assert 2 <= len(pager.posts) <= 3
    with Pager(lambda: WALL) as pager, running(sender(pager.url, resend_seconds=0.1)) as alertmanager:
        pager._is_bad = lambda _: not pager.posts[1:]
        while not pager.page_log:
            alertmanager.observe([incident()], time.monotonic(), WALL)
            time.sleep(0.02)
            assert time.monotonic() - began < 10


@pytest.mark.parametrize("status", [400, 413, 422])
def test_f70_a_receiver_that_refuses_everything_for_a_while_ends_nothing(status: int) -> None:
    """A proxy before it: an alert goes into quarantine only where others of its batch are taken."""
    incidents = [incident(f"r{number}", target=f"t{number}") for number in range(300)]
    refuses = True
    with (
        Inbox(lambda _: Reply(status if refuses else 200)) as inbox,
        running(sender(inbox.url, heartbeat=True)) as alertmanager,
    ):
        alertmanager.observe(incidents, 0, WALL)
        until(lambda: alertmanager.statistics()[0].errors > 0)
        # Few posts, although each batch is halved to find a bad alert in it.
        assert len(inbox.posts) < 60
        refuses = False
        eventually_told(alertmanager, 301)


def test_f70_a_quarantine_is_over_before_the_alert_would_end() -> None:
    """Refused once beside others that were taken, at the default timing: tried again while it still fires there."""
    logged: list[float] = []

    class Times(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg == "alert_refused":
                logged.append(record.__dict__["next_try_seconds"])

    handler, logger = Times(), logging.getLogger("watchdog.notify.alertmanager")
    logger.addHandler(handler)
    try:
        with Pager(lambda: WALL, lambda alert: alert["labels"]["rule"] == "bad") as pager:
            alertmanager = sender(pager.url)
            alertmanager.observe([incident("bad", target="a"), incident("good", target="b")], 0, WALL)
            with running(alertmanager):
                until(lambda: logged)
    finally:
        logger.removeHandler(handler)
    # A refusal comes a resend (60 s) after the last time it was taken, and the alert ends 240 s after that.
    assert logged == [90.0]


# F71: answers that are none.


@pytest.mark.parametrize(
    "reply",
    [
        Reply(429, b"slow down"),
        Reply(500),
        Reply(503, b"<html>", "text/html"),
        Reply(200, wait_seconds=60),
        Reply(200, b"<html>Sign in</html>", "text/html"),
        Reply(302, location="/login"),
        Reply(401),
        Reply(404),
    ],
    ids=lambda reply: f"{reply.status} {reply.content_type} {reply.wait_seconds:g}",
)
def test_f71_an_answer_that_is_none_is_counted_and_never_met_with_a_hot_loop(reply: Reply) -> None:
    with Inbox(lambda _: reply) as inbox:
        with running(sender(inbox.url, timeout_seconds=0.3), drain_seconds=0) as alertmanager:
            began = time.monotonic()
            while time.monotonic() - began < 1.5:
                alertmanager.observe([incident()], time.monotonic() - began, WALL)
                time.sleep(0.02)
            assert 1 <= alertmanager.statistics()[0].errors <= 2
            assert told(alertmanager) == 0
            assert alertmanager.statistics()[0].queue_length <= 1
        assert len(inbox.posts) <= 2


# F72: a full queue.


def test_f72_a_full_queue_drops_the_oldest_and_keeps_the_newest_state_of_each() -> None:
    with Pager(lambda: WALL) as pager:
        alertmanager = sender(pager.url, queue_capacity=5)
        names = [f"r{number}" for number in range(8)]
        alertmanager.observe([incident(name, target=name) for name in names], 0, WALL)
        alertmanager.observe([resolved(WALL - 1, "r5", target="r5")], 5, WALL + 5)
        statistics = alertmanager.statistics()[0]
        assert (statistics.queue_length, statistics.queue_capacity, statistics.dropped) == (5, 5, 3)
        with running(alertmanager):
            until(lambda: told(alertmanager) == 5)
    sent = {alert["labels"]["rule"]: unix(alert["endsAt"]) > WALL for alert in pager.posts[0].json}
    assert sent == {"r3": True, "r4": True, "r5": False, "r6": True, "r7": True}


def test_f72_what_failed_does_not_come_back_over_a_newer_state() -> None:
    taken: list[list[tuple[str, int]]] = []

    def deliver(batch: Any, _: float) -> Delivery:
        taken.append([(parcel.identity, parcel.content) for parcel in batch])
        if len(taken) > 1:
            return Delivery(sent=len(batch))
        outbox.put(Parcel("a", 2))
        outbox.put(Parcel("c", 1))
        return Delivery(errors=2, again=frozenset({"a", "b"}), detail="no")

    outbox: Outbox[int] = Outbox("r", deliver, lambda: None, capacity=2, batch_size=9, timeout_seconds=1)
    outbox.put(Parcel("a", 1))
    outbox.put(Parcel("b", 1))
    outbox.run()
    until(lambda: len(taken) == 2)
    stop_all([outbox], 1)
    assert taken == [[("a", 1), ("b", 1)], [("a", 2), ("c", 1)]]
    assert outbox.statistics().dropped == 1


# F73: a stalled cycle.


def test_f73_a_cycle_that_stalls_for_less_than_four_intervals_resolves_nothing() -> None:
    clock = [WALL]
    with Pager(lambda: clock[0]) as pager, running(sender(pager.url)) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        until(pager.firing)
        clock[0] = WALL + 239
        assert pager.firing()
        alertmanager.observe([incident()], 239, clock[0])
        until(lambda: told(alertmanager) == 2)
        clock[0] = WALL + 239 + 239
        assert pager.firing()
    assert len(pager.page_log) == 1


def test_f73_an_alert_that_waited_too_long_is_not_sent_as_one_that_ended() -> None:
    with Pager(lambda: WALL + 999) as pager:
        alertmanager = sender(pager.url, resend_seconds=0.05)
        alertmanager._alertmanagers._horizon_seconds = 0.2
        alertmanager.observe([incident()], 0, WALL)
        time.sleep(0.3)
        with running(alertmanager):
            until(lambda: alertmanager.statistics()[0].dropped == 1)
    assert pager.posts == []


# F74: values that change.


def test_f74_values_that_change_each_scrape_change_no_label() -> None:
    with Pager(lambda: WALL) as pager, running(sender(pager.url, resend_seconds=5)) as alertmanager:
        for step in range(10):
            alertmanager.observe([incident(value=step / 10)], step * 5, WALL)
            eventually_told(alertmanager, step + 1)
    labels = {json.dumps(post.json[0]["labels"]).encode() for post in pager.posts}
    descriptions = {post.json[0]["annotations"]["description"] for post in pager.posts}
    assert (len(labels), len(descriptions), len(pager.alerts)) == (1, 10, 1)


# F75: what Alertmanager would not take.


def test_f75_empty_odd_and_huge_texts_are_mended_before_they_are_sent() -> None:
    huge = "x" * 1_000_000
    odd = replace(
        incident(model_name="", engine="line\nbreak"),
        key=Key("kv-pool-exhausted", "t" * 5000, "", "line\nbreak"),
        cause=huge,
        evidence=(Evidence("a", {}, huge), Evidence("b", {}, "short")),
        title="{{ .Secret }}",
    )
    labels = {"empty": "", "cluster": "eu"}
    with (
        Pager(lambda: WALL) as pager,
        running(sender(pager.url, external_labels=labels, resend_seconds=5)) as it,
    ):
        it.observe([odd], 0, WALL)
        until(lambda: told(it) == 1)
        it.observe([replace(odd, cause="short", evidence=())], 5, WALL)
        until(lambda: told(it) == 2)
    first, second = (post.json[0] for post in pager.posts)
    assert first["labels"] == second["labels"]
    assert set(first["labels"]) == {"alertname", "cluster", "engine", "rule", "severity", "target"}
    assert len(first["labels"]["target"]) <= 1024
    assert len(first["annotations"]["description"]) <= 4000
    assert first["annotations"]["description"].endswith("…")
    assert len(pager.posts[0].body) < 20_000


# F76: two watchdogs.


def test_f76_two_watchdogs_make_one_alert() -> None:
    with (
        Pager(lambda: WALL + 60) as pager,
        running(sender(pager.url)) as one,
        running(sender(pager.url)) as other,
    ):
        one.observe([incident()], 0, WALL)
        other.observe([incident(value=0.9, since=WALL + 3)], 7, WALL + 3)
        until(lambda: told(one) == 1 and told(other) == 1)
        one.observe([resolved(WALL + 50)], 50, WALL + 50)
        other.observe([resolved(WALL + 52, since=WALL + 3)], 57, WALL + 52)
        until(lambda: told(one) == 2 and told(other) == 2)
    assert len(pager.alerts) == 1
    assert pager.page_log == [("VllmKvPoolExhausted", "firing"), ("VllmKvPoolExhausted", "resolved")]


# F77: gone for good.


def test_f77_when_the_watchdog_is_gone_alerts_end_and_the_missing_heartbeat_speaks() -> None:
    clock = [WALL]
    with Pager(lambda: clock[0]) as pager:
        with running(sender(pager.url, heartbeat=True)) as alertmanager:
            alertmanager.observe([incident(severity=Severity.WARNING)], 0, WALL)
            until(lambda: told(alertmanager) == 2)
        assert pager.firing() == {"VllmKvPoolExhausted", "VllmWatchdogHeartbeat"}
        clock[0] = WALL + 239
        assert len(pager.firing()) == 2
        clock[0] = WALL + 241
        assert pager.firing() == set()


def test_f77_the_rule_that_misses_the_watchdog_is_shipped() -> None:
    deploy = Path(__file__).parents[2] / "deploy"
    groups = yaml.safe_load((deploy / "prometheus" / "rules.yaml").read_text())["groups"]
    names = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {"VllmWatchdogHeartbeat", "VllmWatchdogDown"} <= names
    routing = (deploy / "alertmanager" / "alertmanager.yml").read_text()
    assert "dead-man-switch" in routing
