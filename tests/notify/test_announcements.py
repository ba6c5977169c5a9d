"""The one book of what receivers are told: over restarts and upgrades, and at a cost that does not grow."""

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.pagers import WALL, Inbox, Ledgers, Pager, Senders, incident, resolved, running, senders
from tests.waiting import until
from watchdog.model import Severity
from watchdog.notify.alert import AlertBuilder
from watchdog.notify.announcements import Announcements, MemoryLedger
from watchdog.state.store import FILE_NAME, Store

FINGERPRINT = "0ad5a3b363095503"
# Alertmanager's and the webhooks' books as two, each written by an earlier version for the incident of tests.pagers.
OLD_ALERT = (
    '{"labels": {"alertname": "VllmKvPoolExhausted", "engine": "0", "model_name": "m", "rule": "kv-pool-exhausted", '
    '"severity": "critical", "target": "gpu-0"}, "annotations": {"summary": "The KV cache is full"}, '
    '"starts_at": 1700000000.0, "ends_at": null, "generator_url": ""}'
)
OLD_ANNOUNCEMENT = (
    '{"key": ["kv-pool-exhausted", "gpu-0", "m", "0"], "severity": "critical", "alert": ' + OLD_ALERT + "}"
)
OLD_DELIVERY = '{"wall": 1700000000.0, "alerts": [' + OLD_ALERT + "]}"


def both(pager: Pager, inbox: Inbox, ledgers: Ledgers) -> Senders:
    hook = {"url": f"{inbox.url}/hook", "name": "hook"}
    return senders({"urls": [pager.url]}, [hook], external_url=None, ledgers=ledgers)


def old_ledgers(alertmanager: str = OLD_ANNOUNCEMENT, webhook: str = OLD_ANNOUNCEMENT) -> Ledgers:
    ledgers = Ledgers()
    ledgers["alertmanager"].save({FINGERPRINT: alertmanager})
    ledgers["webhook"].save({FINGERPRINT: webhook})
    ledgers["webhook hook"].save({"gpu-0": OLD_DELIVERY})
    return ledgers


def test_an_upgrade_pages_nobody_twice_and_forgets_no_end() -> None:
    ledgers = old_ledgers()
    # By now it is a symptom: what was announced before goes on all the same.
    symptom = incident(explained_by=("engine-stalled",))
    with Pager(lambda: WALL + 50) as pager, Inbox() as inbox:
        with running(both(pager, inbox, ledgers)) as after:
            after.observe([symptom], 5, WALL + 5, ())
            until(lambda: after.statistics()[0].sent == 1)
            after.observe([resolved(WALL + 40)], 40, WALL + 40, ())
            [end] = inbox.wait_for(1)
            until(lambda: after.statistics()[0].sent == 2)
        assert (end.json["status"], end.json["alerts"][0]["fingerprint"]) == ("resolved", FINGERPRINT)
        assert pager.page_log == [("VllmKvPoolExhausted", "firing"), ("VllmKvPoolExhausted", "resolved")]
        assert pager.posts[0].json[0]["startsAt"] == "2023-11-14T22:13:20.000Z"
    assert ledgers["alertmanager"].load() == ledgers["webhook"].load() == {}
    assert set(ledgers["announcements"].load()) == {FINGERPRINT}


def test_an_upgrade_between_two_words_of_one_end_takes_the_later_one() -> None:
    over = OLD_ANNOUNCEMENT.replace('"ends_at": null', f'"ends_at": {WALL + 30}')
    again = OLD_ANNOUNCEMENT.replace('"starts_at": 1700000000.0', f'"starts_at": {WALL + 60}')
    for first, second, ends_at in ((over, OLD_ANNOUNCEMENT, WALL + 30), (over, again, None)):
        for kept in (old_ledgers(first, second), old_ledgers(second, first)):
            book = Announcements(
                AlertBuilder({}, ""), False, kept["announcements"], [kept["alertmanager"], kept["webhook"]]
            )
            assert [one.alert.ends_at for one in book.of_group("gpu-0").values()] == [ends_at]


def test_an_upgrade_in_the_store_itself_moves_both_books_once(tmp_path: Path) -> None:
    with closing(Store(tmp_path / FILE_NAME)) as store:
        store.open(WALL)
        for name in ("alertmanager", "webhook"):
            store.ledger(name).save({FINGERPRINT: OLD_ANNOUNCEMENT})
        for _ in range(2):
            senders({"urls": ["http://127.0.0.1:1"]}, ledgers=store.ledger)
            kept = {
                name: set(store.ledger(name).load()) for name in ("alertmanager", "webhook", "announcements")
            }
            assert kept == {"alertmanager": set(), "webhook": set(), "announcements": {FINGERPRINT}}


def test_what_is_announced_is_one_truth_for_alertmanagers_and_webhooks() -> None:
    ledgers = Ledgers()
    graver = incident(severity=Severity.CRITICAL)
    milder = incident(severity=Severity.WARNING)
    with Pager(lambda: WALL + 50) as pager, Inbox() as inbox, running(both(pager, inbox, ledgers)) as one:
        for number, each in enumerate((milder, graver, milder)):
            one.observe([each], number * 5, WALL + number * 5)
            inbox.wait_for(number + 1)
            until(lambda so_far=number: one.statistics()[0].sent == so_far + 1)  # type: ignore[misc]
        kept = [json.loads(text) for text in ledgers["announcements"].load().values()]
    assert {each["severity"]: each["alert"]["ends_at"] for each in kept} == {
        "warning": None,
        "critical": WALL + 10,
    }
    hook = {(each["labels"]["severity"], each["status"]) for each in inbox.posts[-1].json["alerts"]}
    assert hook == {("warning", "firing"), ("critical", "resolved")}
    assert {each["labels"]["severity"] for each in pager.alerts.values() if each["firing"]} == {"warning"}


def test_an_end_is_kept_until_every_receiver_has_heard_of_it_and_no_longer() -> None:
    ledgers = Ledgers()
    with Pager(lambda: WALL + 2000) as pager, Inbox() as inbox, running(both(pager, inbox, ledgers)) as one:
        one.observe([incident()], 0, WALL)
        until(lambda: one.statistics()[1].sent == 1)
        inbox.down()
        one.observe([resolved(WALL + 5)], 5, WALL + 5)
        for second in range(10, 1200, 60):
            one.observe([], second, WALL + second)
        # Alertmanager has had its quarter of an hour; the webhook still believes that it fires.
        assert list(ledgers["announcements"].load()) == [FINGERPRINT]
        inbox.up()
        until(lambda: one.statistics()[1].sent == 2)
        one.observe([], 1300, WALL + 1300)
        assert ledgers["announcements"].load() == {}
        assert ledgers["webhook hook"].load() == {}


def test_a_reminder_comes_though_the_target_is_not_looked_at_any_more() -> None:
    with Inbox() as inbox:
        hook = {"url": inbox.url, "name": "hook", "repeat_interval_seconds": 600}
        with running(senders(webhooks=[hook])) as one:
            one.observe([incident()], 0, WALL)
            until(lambda: one.statistics()[0].sent == 1)
            for second in range(5, 1300, 5):
                one.observe([incident("other", target="gpu-1")], second, WALL + second, ())
                if second in {600, 1200}:
                    until(lambda due=second: one.statistics()[0].sent == 1 + due // 600)  # type: ignore[misc]
    assert [post.json["groupLabels"]["target"] for post in inbox.posts] == ["gpu-0"] * 3


def test_what_a_life_before_left_unsaid_is_said_by_the_next() -> None:
    ledgers = Ledgers()
    unsent = senders(webhooks=[{"url": "http://127.0.0.1:1", "name": "hook"}], ledgers=ledgers)
    unsent.observe([incident(), incident(target="gpu-1")], 0, WALL)
    with Inbox() as inbox:
        hook = {"url": inbox.url, "name": "hook"}
        with running(senders(webhooks=[hook], ledgers=ledgers)) as one:
            one.observe([], 0, WALL + 9)
            posts = inbox.wait_for(2)
    assert {post.json["groupLabels"]["target"] for post in posts} == {"gpu-0", "gpu-1"}


def step_seconds(firing: int) -> float:
    """CPU of one step of one target while so many fire and were told; the best of many."""
    hook = {"url": "http://127.0.0.1:1/hook", "name": "hook"}
    one = senders({"urls": ["http://127.0.0.1:1"]}, [hook])
    incidents = [incident(target=f"gpu-{number}") for number in range(firing)]
    for each in incidents:
        one.observe([each], 0, WALL)
    best = float("inf")
    for number in range(100):
        began = time.process_time()
        one.observe([incidents[number % firing]], 5, WALL + 5)
        best = min(best, time.process_time() - began)
    return best


def test_a_step_costs_what_it_changes_and_not_what_fires_elsewhere() -> None:
    assert step_seconds(2000) < 5 * step_seconds(2)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"key": ["a"], "severity": "x", "alert": {}}'])
def test_a_text_that_is_no_announcement_is_passed_over(text: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger()
    ledger.save({"bad": text, FINGERPRINT: OLD_ANNOUNCEMENT})
    book = Announcements(AlertBuilder({}, ""), False, ledger)
    assert list(book.of_group("gpu-0")) == [FINGERPRINT]
    assert "announcement_unreadable" in caplog.text
