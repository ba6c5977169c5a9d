"""Alertmanager's webhook from us: the payload byte by byte, and who hears what, when and how often."""

from typing import Any

import pytest

from tests.pagers import WALL, Inbox, Ledgers, Reply, Senders, incident, resolved, running, senders
from tests.servers import Server, answer, hang, request, send
from tests.waiting import until
from watchdog.model import Severity


def sender(*urls: str, ledgers: Ledgers | None = None, symptoms: bool = False, **others: Any) -> Senders:
    return senders(
        {"external_labels": {"cluster": "eu"}, "symptoms": symptoms},
        [{"url": url, "name": f"hook-{index}", **others} for index, url in enumerate(urls)],
        ledgers=Ledgers() if ledgers is None else ledgers,
    )


FIRING = (
    b'{"receiver":"hook-0","status":"firing","alerts":[{"status":"firing","labels":{"alertname":"VllmKvPoolExhausted",'
    b'"cluster":"eu","engine":"0","model_name":"m","rule":"kv-pool-exhausted","severity":"critical","target":"gpu-0"},'
    b'"annotations":{"description":"12 requests wait while the KV cache is 98% full. Evidence: kv (0.98) > 0.75.",'
    b'"remedy":"--max-model-len 8192: Limit the context. The pool holds more. Trade-off: Longer ones are refused.",'
    b'"runbook_url":"https://runbooks.example/kv-pool-exhausted",'
    b'"summary":"The KV cache is full (target gpu-0, model_name m, engine 0)"},'
    b'"startsAt":"2023-11-14T22:13:20.000Z","endsAt":"0001-01-01T00:00:00Z",'
    b'"generatorURL":"http://watchdog.example/incidents/kv-pool-exhausted/gpu-0/m/0",'
    b'"fingerprint":"%FINGERPRINT%"}],"groupLabels":{"target":"gpu-0"},'
    b'"commonLabels":{"alertname":"VllmKvPoolExhausted","cluster":"eu","engine":"0","model_name":"m",'
    b'"rule":"kv-pool-exhausted","severity":"critical","target":"gpu-0"},'
    b'"commonAnnotations":{"description":"12 requests wait while the KV cache is 98% full. '
    b'Evidence: kv (0.98) > 0.75.",'
    b'"remedy":"--max-model-len 8192: Limit the context. The pool holds more. Trade-off: Longer ones are refused.",'
    b'"runbook_url":"https://runbooks.example/kv-pool-exhausted",'
    b'"summary":"The KV cache is full (target gpu-0, model_name m, engine 0)"},'
    b'"externalURL":"http://watchdog.example","version":"4","groupKey":"{}:{target=\\"gpu-0\\"}","truncatedAlerts":0}'
)


def test_a_message_is_alertmanagers_byte_by_byte_and_its_end_too() -> None:
    with Inbox() as inbox, running(sender(inbox.url + "/hook")) as webhooks:
        webhooks.observe([incident()], 0, WALL)
        firing = inbox.wait_for(1)[0]
        webhooks.observe([resolved(WALL + 30)], 30, WALL + 30)
        ended = inbox.wait_for(2)[1]
    assert (firing.path, firing.headers["Content-Type"]) == ("/hook", "application/json")
    fingerprint = firing.json["alerts"][0]["fingerprint"].encode()
    assert firing.body == FIRING.replace(b"%FINGERPRINT%", fingerprint)
    assert ended.body == (
        FIRING.replace(b"%FINGERPRINT%", fingerprint)
        .replace(b'"status":"firing"', b'"status":"resolved"')
        .replace(b"0001-01-01T00:00:00Z", b"2023-11-14T22:13:50.000Z")
    )


def test_what_is_known_is_not_said_again_until_the_reminder_is_due() -> None:
    with Inbox() as inbox, running(sender(inbox.url, repeat_interval_seconds=600)) as webhooks:
        for second in range(0, 1200, 5):
            webhooks.observe([incident(value=second / 2000)], second, WALL + second)
            if second % 600 == 0:
                inbox.wait_for(1 + second // 600)
        until(lambda: webhooks.statistics()[0].queue_length == 0)
    assert [post.json["status"] for post in inbox.posts] == ["firing", "firing"]
    assert webhooks.statistics()[0].sent == 2


def test_one_message_a_target_holds_what_fires_and_what_has_just_ended() -> None:
    first, second = incident("a"), incident("b", severity=Severity.WARNING)
    with Inbox() as inbox, running(sender(inbox.url, symptoms=True)) as webhooks:
        webhooks.observe([first, second, incident("c", target="gpu-1")], 0, WALL)
        inbox.wait_for(2)
        webhooks.observe([resolved(WALL + 5, "a"), second], 5, WALL + 5)
        inbox.wait_for(3)
        webhooks.observe([resolved(WALL + 9, "b", severity=Severity.WARNING)], 9, WALL + 9)
        inbox.wait_for(4)
    said = [
        (
            post.json["groupLabels"]["target"],
            post.json["status"],
            [each["status"] for each in post.json["alerts"]],
        )
        for post in inbox.posts
    ]
    assert said == [
        ("gpu-0", "firing", ["firing", "firing"]),
        ("gpu-1", "firing", ["firing"]),
        ("gpu-0", "firing", ["firing", "resolved"]),
        ("gpu-0", "resolved", ["resolved"]),
    ]
    common = inbox.posts[0].json["commonLabels"]
    assert common == {"cluster": "eu", "engine": "0", "model_name": "m", "target": "gpu-0"}


def test_a_limit_says_how_many_alerts_it_left_out() -> None:
    three = [incident(name) for name in "abc"]
    with Inbox() as inbox, running(sender(inbox.url, symptoms=True, max_alerts=2)) as webhooks:
        webhooks.observe(three, 0, WALL)
        payload = inbox.wait_for(1)[0].json
    assert [alert["labels"]["rule"] for alert in payload["alerts"]] == ["a", "b"]
    assert payload["truncatedAlerts"] == 1


def test_only_the_lead_is_told_and_no_recovery_when_it_is_explained_later() -> None:
    symptom = incident("ttft-high", severity=Severity.WARNING)
    explained = incident("ttft-high", severity=Severity.WARNING, explained_by=("kv-pool-exhausted",))
    other = incident("itl-high", severity=Severity.WARNING, explained_by=("kv-pool-exhausted",))
    cause = incident(symptoms=("itl-high", "ttft-high"))
    with Inbox() as inbox, running(sender(inbox.url)) as webhooks:
        webhooks.observe([symptom], 0, WALL)
        inbox.wait_for(1)
        webhooks.observe([cause, explained, other], 5, WALL + 5)
        alerts = inbox.wait_for(2)[1].json["alerts"]
    assert [(each["labels"]["rule"], each["status"]) for each in alerts] == [
        ("kv-pool-exhausted", "firing"),
        ("ttft-high", "firing"),
    ]


def test_who_wants_no_ends_gets_none_and_is_told_of_the_next_beginning() -> None:
    with Inbox() as inbox, running(sender(inbox.url, send_resolved=False)) as webhooks:
        webhooks.observe([incident()], 0, WALL)
        until(lambda: webhooks.statistics()[0].sent == 1)
        webhooks.observe([resolved(WALL + 5)], 5, WALL + 5)
        webhooks.observe([incident(since=WALL + 50)], 50, WALL + 50)
        inbox.wait_for(2)
    assert [post.json["status"] for post in inbox.posts] == ["firing", "firing"]


def test_an_end_that_nobody_was_told_the_beginning_of_is_not_told() -> None:
    with Inbox(lambda _: Reply(503)) as inbox, running(sender(inbox.url), drain_seconds=0) as webhooks:
        webhooks.observe([incident()], 0, WALL)
        inbox.wait_for(1)
        webhooks.observe([resolved(WALL + 5)], 5, WALL + 5)
        inbox.judge = lambda _: Reply()
        until(lambda: webhooks.statistics()[0].queue_length == 0)
    assert len(inbox.posts) == 1


def test_a_failed_message_is_sent_again_with_what_is_true_by_then() -> None:
    with Inbox(lambda _: Reply(500)) as inbox, running(sender(inbox.url)) as webhooks:
        webhooks.observe([incident(value=0.5)], 0, WALL)
        inbox.wait_for(1)
        inbox.judge = lambda _: Reply()
        webhooks.observe([incident(value=0.9)], 5, WALL + 5)
        again = inbox.wait_for(2)[1]
        assert "90%" in again.json["alerts"][0]["annotations"]["description"]
        assert again.at - inbox.posts[0].at >= 0.9
    assert webhooks.statistics()[0].errors == 1


def test_an_end_during_an_outage_is_told_after_it() -> None:
    with Inbox() as inbox, running(sender(inbox.url)) as webhooks:
        webhooks.observe([incident()], 0, WALL)
        until(lambda: webhooks.statistics()[0].sent)  # not only there, but known to be
        inbox.down()
        webhooks.observe([resolved(WALL + 5)], 5, WALL + 5)
        until(lambda: webhooks.statistics()[0].errors)
        webhooks.observe([], 60, WALL + 60)
        inbox.up()
        ended = inbox.wait_for(2)[1].json["alerts"][0]
    assert (ended["status"], ended["endsAt"]) == ("resolved", "2023-11-14T22:13:25.000Z")


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_refused_message_is_not_sent_again_and_again(status: int) -> None:
    with (
        Inbox(lambda _: Reply(status, location="/elsewhere")) as inbox,
        running(sender(inbox.url)) as webhooks,
    ):
        for second in range(0, 310, 5):
            webhooks.observe([incident()], second, WALL + second)
            if second in {0, 300}:
                inbox.wait_for(1 + second // 300)
                until(lambda: webhooks.statistics()[0].errors == len(inbox.posts))
        # A change of state is worth a try of its own.
        webhooks.observe([incident(), incident("b", target="gpu-1")], 310, WALL + 310)
        inbox.wait_for(3)
    assert webhooks.statistics()[0].sent == 0


def test_a_receiver_that_took_it_is_not_sent_it_twice_for_the_rest_of_its_answer() -> None:
    with (
        Server([request, send(answer(b"", length=100)), hang]) as server,
        running(sender(f"http://127.0.0.1:{server.port}"), drain_seconds=0) as webhooks,
    ):
        webhooks.observe([incident()], 0, WALL)
        until(lambda: webhooks.statistics()[0].sent == 1)
    assert server.connections == 1


def test_a_receiver_that_hangs_costs_the_others_nothing() -> None:
    with Inbox(lambda _: Reply(wait_seconds=60)) as slow, Inbox() as quick:
        with running(sender(slow.url, quick.url, timeout_seconds=0.5), drain_seconds=0) as webhooks:
            webhooks.observe([incident()], 0, WALL)
            quick.wait_for(1, seconds=0.5)
            until(lambda: webhooks.statistics()[0].errors == 1)
        assert webhooks.statistics()[0].receiver == "hook-0"
        assert "no whole answer" in webhooks.statistics()[0].last_error


def test_a_restart_says_nothing_twice_and_forgets_no_end() -> None:
    ledgers = Ledgers()
    with Inbox() as inbox:
        with running(sender(inbox.url, ledgers=ledgers)) as webhooks:
            webhooks.observe([incident("a"), incident("b", target="gpu-1")], 0, WALL)
            inbox.wait_for(2)
        with running(sender(inbox.url, ledgers=ledgers)) as webhooks:
            webhooks.observe([], 1000, WALL + 60)
            webhooks.observe([incident("a"), resolved(WALL + 70, "b", target="gpu-1")], 1005, WALL + 70)
            until(lambda: webhooks.statistics()[0].sent == 1)
            # Four hours after the first word, not after the restart.
            webhooks.observe([incident("a")], 1000 + 14_400 - 60, WALL + 14_400)
            inbox.wait_for(4)
    assert [(each.json["groupLabels"]["target"], each.json["status"]) for each in inbox.posts[2:]] == [
        ("gpu-1", "resolved"),
        ("gpu-0", "firing"),
    ]
    # What has ended and was told is forgotten.
    assert not any("gpu-1" in text for ledger in ledgers.values() for text in ledger.load().values())


@pytest.mark.parametrize("off", [86_400.0, -86_400.0])
def test_a_clock_that_is_a_day_off_after_a_restart_makes_no_reminder_due_and_puts_none_off(
    off: float,
) -> None:
    ledgers = Ledgers()
    with Inbox() as inbox:
        with running(sender(inbox.url, ledgers=ledgers)) as webhooks:
            webhooks.observe([incident()], 0, WALL)
            inbox.wait_for(1)
        with running(sender(inbox.url, ledgers=ledgers)) as webhooks:
            webhooks.observe([incident()], 1000, WALL + 60 + off)
            webhooks.observe([incident()], 1000 + 14_000, WALL + 14_060 + off)
            assert webhooks.statistics()[0].queue_length == 0
            webhooks.observe([incident()], 1000 + 14_400, WALL + 14_460)
            inbox.wait_for(2)
    assert len(inbox.posts) == 2


def test_a_ledger_that_makes_no_sense_is_told_and_passed_over() -> None:
    ledgers = Ledgers()
    ledgers["announcements"].save({"x": "{", "y": "{}"})
    ledgers["webhook"].save({"x": "[]"})
    ledgers["webhook hook-0"].save({"gpu-0": "[]", "gpu-1": '{"wall": "a", "alerts": []}'})
    with Inbox() as inbox, running(sender(inbox.url, ledgers=ledgers)) as webhooks:
        webhooks.observe([incident()], 0, WALL)
        inbox.wait_for(1)


def test_a_fleet_incident_has_a_group_without_a_target() -> None:
    with Inbox() as inbox, running(sender(inbox.url)) as webhooks:
        webhooks.observe([incident(target="", engine="")], 0, WALL)
        payload = inbox.wait_for(1)[0].json
    assert payload["groupLabels"] == {}
    assert payload["groupKey"] == "{}:{}"


def test_no_webhooks_cost_nothing() -> None:
    webhooks = sender()
    with running(webhooks):
        webhooks.observe([incident()], 0, WALL)
    assert webhooks.statistics() == ()
