"""Alerts to Alertmanager: what they say, when they are sent, and what happens when nobody listens."""

import base64
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings

from tests.pagers import (
    WALL,
    Inbox,
    Ledgers,
    Pager,
    Reply,
    Senders,
    incident,
    resolved,
    running,
    senders,
    unix,
)
from tests.servers import Server, answer, closed_port, drip, hang, request, send, serving
from tests.waiting import until
from watchdog.http.endpoint import Endpoint
from watchdog.http.post import Poster
from watchdog.model import Key, Remedy, Severity, State
from watchdog.notify.alert import (
    AlertBuilder,
    alert_name,
    fingerprint,
    fitting_labels,
    incident_url,
)
from watchdog.notify.outbox import Delivery, Outbox, Parcel, stop_all
from watchdog.text import timestamp


def sender(*urls: str | dict[str, Any], **others: Any) -> Senders:
    return senders({"urls": list(urls), **others})


def eventually_sent(alertmanager: Senders, count: int) -> None:
    until(lambda: alertmanager.statistics()[0].sent == count)


def alerts_of(inbox: Inbox) -> list[dict[str, Any]]:
    return [alert for post in inbox.posts for alert in post.json]


def test_an_alert_has_the_labels_of_its_server_but_for_an_address_that_moves() -> None:
    builder = AlertBuilder({"cluster": "eu", "zone": "z"}, "")
    pod = {"pod": "v-0", "instance": "10.0.0.7:8000", "cluster": "us", "target": "fleet"}
    labels = builder.build(incident(), pod).labels
    assert (labels["pod"], labels["cluster"], labels["zone"]) == ("v-0", "us", "z")
    assert labels["target"] == incident().key.target
    assert "instance" not in labels
    assert builder.build(incident(), {"instance": "a:1"}).labels["instance"] == "a:1"


def test_a_fingerprint_is_the_one_alertmanager_computes() -> None:
    assert fingerprint({}) == "cbf29ce484222325"
    # Taken from a running Alertmanager 0.25.
    assert fingerprint({"alertname": "A"}) == "d2c6efc389df0927"
    assert fingerprint({"severity": "critical", "alertname": "Vllm", "target": "gpu-ü"}) == "47a0418b59f9fa40"


def test_an_alert_is_named_after_its_cause() -> None:
    assert alert_name("kv-pool-exhausted") == "VllmKvPoolExhausted"
    assert alert_name("ttft-high") == "VllmTtftHigh"
    assert alert_name("my_own.rule2") == "VllmMyOwnRule2"


def test_labels_say_who_and_annotations_say_what() -> None:
    alert = AlertBuilder({"cluster": "eu"}, "http://w:1/").build(incident(symptoms=("ttft-high",)))
    assert alert.labels == {
        "alertname": "VllmKvPoolExhausted",
        "cluster": "eu",
        "engine": "0",
        "model_name": "m",
        "rule": "kv-pool-exhausted",
        "severity": "critical",
        "target": "gpu-0",
    }
    assert alert.annotations == {
        "summary": "The KV cache is full (target gpu-0, model_name m, engine 0)",
        "description": "12 requests wait while the KV cache is 98% full. Evidence: kv (0.98) > 0.75. "
        "It explains: ttft-high.",
        "remedy": "--max-model-len 8192: Limit the context. The pool holds more. Trade-off: Longer ones are refused.",
        "runbook_url": "https://runbooks.example/kv-pool-exhausted",
    }
    assert alert.generator_url == "http://w:1/incidents/kv-pool-exhausted/gpu-0/m/0"
    assert alert.starts_at == WALL


def test_a_pager_gets_the_first_step_and_the_first_flag() -> None:
    drain = Remedy("Drain it.", None, None, "It is full.", "")
    flag = incident().remedies[0]
    alert = AlertBuilder({}, "").build(replace(incident(), remedies=(drain, drain, flag, flag)))
    assert alert.annotations["remedy"] == (
        "Drain it. It is full. Then: --max-model-len 8192: Limit the context. The pool holds more. "
        "Trade-off: Longer ones are refused."
    )
    alert = AlertBuilder({}, "").build(replace(incident(), remedies=(drain, drain)))
    assert alert.annotations["remedy"] == "Drain it. It is full."
    assert "remedy" not in AlertBuilder({}, "").build(replace(incident(), remedies=())).annotations


def test_a_runbook_within_our_documents_becomes_a_link_to_our_page() -> None:
    own = replace(incident(), runbook="docs/causes.md#kv-pool-exhausted")
    alert = AlertBuilder({}, "http://w:1").build(own)
    assert alert.annotations["runbook_url"] == "http://w:1/rules/kv-pool-exhausted"
    # A relative link opens nowhere.
    assert "runbook_url" not in AlertBuilder({}, "").build(own).annotations


def test_an_external_label_never_replaces_one_of_ours_but_fills_a_missing_one() -> None:
    builder = AlertBuilder({"severity": "none", "target": "fleet"}, "")
    assert builder.build(incident()).labels["severity"] == "critical"
    assert builder.build(incident(target="")).labels["target"] == "fleet"


def test_an_alert_carries_the_labels_of_its_target_and_a_link_to_its_dashboard() -> None:
    builder = AlertBuilder(
        {"team": "platform"},
        "",
        target_labels={"gpu-0": {"team": "search", "severity": "none"}},
        dashboard_url="https://grafana/d/x?var-target={target}&var-model={model_name}",
    )
    alert = builder.build(incident(target="gpu-0", model_name="meta/llama b"))
    assert (alert.labels["team"], alert.labels["severity"]) == ("search", "critical")
    assert (
        alert.annotations["dashboard_url"]
        == "https://grafana/d/x?var-target=gpu-0&var-model=meta%2Fllama%20b"
    )
    assert builder.build(incident(target="gpu-1")).labels["team"] == "platform"


def test_a_link_holds_whatever_the_key_holds() -> None:
    assert incident_url("http://w", Key("r", "a b", "meta/Llama ü?#", "")) == (
        "http://w/incidents/r/a%20b/meta/Llama%20%C3%BC%3F%23/-"
    )
    assert incident_url("", Key("r", "t", "", "")) == ""


@given(strategies.dictionaries(strategies.text(max_size=5), strategies.text(max_size=2000), max_size=4))
@hypothesis_settings(deadline=None, max_examples=50)
def test_any_labels_become_labels_that_are_accepted(labels: dict[str, str]) -> None:
    cleaned = fitting_labels(labels)
    assert fitting_labels(cleaned) == cleaned
    for name, value in cleaned.items():
        assert name.isascii()
        assert name.isidentifier()
        assert 0 < len(value.encode()) <= 5000
    assert len(fingerprint(cleaned)) == 16


def test_times_are_rfc_3339_in_utc_whatever_the_clock_says() -> None:
    assert timestamp(WALL) == "2023-11-14T22:13:20.000Z"
    assert timestamp(WALL + 0.1239) == "2023-11-14T22:13:20.123Z"
    assert timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1e18) == "9999-12-31T23:59:59.000Z"
    assert timestamp(-1e18) == "0001-01-01T00:00:00.000Z"


def test_what_fires_is_sent_at_once_and_again_each_minute() -> None:
    with Pager(lambda: WALL) as pager, running(sender(pager.url)) as alertmanager:
        for second in range(0, 125, 5):
            alertmanager.observe([incident()], second, WALL + second)
            if second in {0, 60, 120}:
                pager.wait_for(1 + second // 60)
        ends = [unix(alert["endsAt"]) - WALL for alert in alerts_of(pager)]
        assert ends == [240, 300, 360]
        assert {alert["startsAt"] for alert in alerts_of(pager)} == {"2023-11-14T22:13:20.000Z"}
        assert len({json.dumps(alert["labels"]) for alert in alerts_of(pager)}) == 1
    assert pager.page_log == [("VllmKvPoolExhausted", "firing")]


def test_a_slow_interval_stretches_the_time_an_alert_lives() -> None:
    with Inbox() as inbox:
        slow = senders({"urls": [inbox.url]}, external_url=None, interval_seconds=120)
        with running(slow) as alertmanager:
            alertmanager.observe([incident()], 0, WALL)
            inbox.wait_for(1)
        alert = alerts_of(inbox)[0]
        assert unix(alert["endsAt"]) == WALL + 480
        assert "generatorURL" not in alert


def test_an_end_is_sent_at_once_and_for_fifteen_minutes() -> None:
    with Pager(lambda: WALL + 2000) as pager, running(sender(pager.url)) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        pager.wait_for(1)
        for second in range(30, 1100, 5):
            # The incident itself stays visible for a while, and then is seen no more.
            alertmanager.observe([resolved(WALL + 30)] if second < 600 else [], second, WALL + second)
            if (second - 30) % 60 == 0:
                eventually_sent(alertmanager, 2 + min((second - 30) // 60, 15))
    assert [alert["endsAt"] for alert in alerts_of(pager)[1:]] == [timestamp(WALL + 30)] * 16
    assert alertmanager.statistics()[0].errors == 0


def test_pending_info_and_symptoms_are_not_sent_and_the_lead_is() -> None:
    incidents = [
        incident("kv-pool-exhausted", symptoms=("ttft-high",)),
        incident("ttft-high", severity=Severity.WARNING, explained_by=("kv-pool-exhausted",)),
        incident("beside", severity=Severity.WARNING),
        incident("note", severity=Severity.INFO),
        incident("soon", State.PENDING),
    ]
    with Inbox() as inbox, running(sender(inbox.url)) as alertmanager:
        alertmanager.observe(incidents, 0, WALL)
        inbox.wait_for(1)
    assert [alert["labels"]["rule"] for alert in alerts_of(inbox)] == ["kv-pool-exhausted"]
    with Inbox() as inbox, running(sender(inbox.url, symptoms=True)) as alertmanager:
        alertmanager.observe(incidents, 0, WALL)
        inbox.wait_for(1)
        until(lambda: alertmanager.statistics()[0].sent == 4)
    assert {alert["labels"]["rule"] for alert in alerts_of(inbox)} == {
        "kv-pool-exhausted",
        "ttft-high",
        "beside",
        "note",
    }


def test_who_leads_may_be_said_by_the_caller() -> None:
    pair = [incident("a"), incident("b")]
    with Inbox() as inbox, running(sender(inbox.url)) as alertmanager:
        alertmanager.observe(pair, 0, WALL, pageable={pair[1].key})
        inbox.wait_for(1)
    assert [alert["labels"]["rule"] for alert in alerts_of(inbox)] == ["b"]


def test_an_alert_sent_once_is_no_recovery_when_a_deeper_cause_is_found() -> None:
    symptom = incident("ttft-high", severity=Severity.WARNING)
    explained = incident("ttft-high", severity=Severity.WARNING, explained_by=("kv-pool-exhausted",))
    cause = incident("kv-pool-exhausted", since=WALL + 20, symptoms=("ttft-high",))
    with Pager(lambda: WALL + 20) as pager, running(sender(pager.url)) as alertmanager:
        alertmanager.observe([symptom], 0, WALL)
        pager.wait_for(1)
        alertmanager.observe([cause, explained], 20, WALL + 20)
        pager.wait_until(lambda _: len(pager.page_log) == 2)
        alertmanager.observe([cause, explained], 80, WALL + 80)
        until(lambda: alertmanager.statistics()[0].sent == 4)
        assert pager.firing() == {"VllmTtftHigh", "VllmKvPoolExhausted"}
        assert "It is explained by: kv-pool-exhausted." in alerts_of(pager)[-1]["annotations"]["description"]
        ended = resolved(WALL + 15, "ttft-high", severity=Severity.WARNING)
        alertmanager.observe([cause, ended], 85, WALL + 85)
        pager.wait_until(lambda _: len(pager.page_log) == 3)
        # It begins again as a symptom: that is no news for the pager.
        alertmanager.observe([cause, explained], 90, WALL + 90)
    assert pager.page_log == [
        ("VllmTtftHigh", "firing"),
        ("VllmKvPoolExhausted", "firing"),
        ("VllmTtftHigh", "resolved"),
    ]


def test_a_graver_incident_adds_an_alert_and_a_milder_one_ends_it() -> None:
    def states(inbox: Inbox) -> list[tuple[str, bool]]:
        return [(each["labels"]["severity"], unix(each["endsAt"]) > WALL + 99) for each in alerts_of(inbox)]

    with Inbox() as inbox, running(sender(inbox.url)) as alertmanager:
        alertmanager.observe([incident(severity=Severity.WARNING)], 0, WALL)
        inbox.wait_for(1)
        alertmanager.observe([incident(severity=Severity.CRITICAL)], 5, WALL + 5)
        inbox.wait_for(2)
        alertmanager.observe([incident(severity=Severity.WARNING)], 10, WALL + 10)
        inbox.wait_for(3)
    assert states(inbox) == [("warning", True), ("critical", True), ("critical", False)]


def test_new_external_labels_end_the_alert_with_the_old_ones() -> None:
    ledgers = Ledgers()
    with Inbox() as inbox:
        for labels in ({"cluster": "old"}, {"cluster": "new"}):
            given = {"urls": [inbox.url], "external_labels": labels}
            with running(senders(given, ledgers=ledgers)) as alertmanager:
                alertmanager.observe([incident()], 0, WALL + 1)
        states = {(each["labels"]["cluster"], unix(each["endsAt"]) > WALL + 2) for each in alerts_of(inbox)}
    assert states == {("old", True), ("old", False), ("new", True)}


def test_a_heartbeat_beats_as_long_as_the_watching_does() -> None:
    with (
        Inbox() as inbox,
        running(sender(inbox.url, heartbeat=True, external_labels={"cluster": "eu"}, instance="gpu-7")) as it,
    ):
        for second in range(0, 125, 5):
            it.observe([], second, WALL + second)
            if second % 60 == 0:
                inbox.wait_for(1 + second // 60)
    beats = alerts_of(inbox)
    assert len(beats) == 3
    assert beats[0]["labels"] == {
        "alertname": "VllmWatchdogHeartbeat",
        "cluster": "eu",
        "instance": "gpu-7",
        "severity": "none",
    }
    assert {beat["startsAt"] for beat in beats} == {timestamp(WALL)}
    assert unix(beats[-1]["endsAt"]) == WALL + 120 + 240


def test_a_clock_set_back_never_makes_an_alert_that_ends_before_it_starts() -> None:
    with Inbox() as inbox, running(sender(inbox.url)) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        inbox.wait_for(1)
        alertmanager.observe([incident()], 60, WALL + 60 - 3600)
        inbox.wait_for(2)
        alertmanager.observe([resolved(WALL + 65)], 65, WALL + 65 - 3600)
        inbox.wait_for(3)
    for alert in alerts_of(inbox):
        assert unix(alert["startsAt"]) <= unix(alert["endsAt"])
    assert unix(alerts_of(inbox)[-1]["endsAt"]) == WALL + 65 - 3600


def test_stopping_sends_what_waits_and_resolves_nothing() -> None:
    with Pager(lambda: WALL) as pager:
        alertmanager = sender(pager.url)
        alertmanager.observe([incident()], 0, WALL)
        alertmanager.run()
        alertmanager.stop(5)
        assert pager.page_log == [("VllmKvPoolExhausted", "firing")]


def test_stopping_does_not_wait_longer_than_it_may() -> None:
    with Server([request, hang]) as server:
        alertmanager = sender(*[f"http://127.0.0.1:{server.port}/{number}" for number in range(4)])
        alertmanager.run()
        alertmanager.observe([incident()], 0, WALL)
        until(lambda: len(server.requests) == 4)
        began = time.monotonic()
        alertmanager.stop(0.3)
        assert time.monotonic() - began < 1.0


def test_nothing_is_needed_of_a_sender_without_alertmanagers() -> None:
    with running(sender()) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        assert alertmanager.statistics() == ()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "ann", "password_file": "secret"}, "Basic " + base64.b64encode(b"ann:s3cret").decode()),
        ({"bearer_token_file": "secret"}, "Bearer s3cret"),
    ],
)
def test_credentials_come_from_files_and_are_read_each_time(
    entry: dict[str, str], expected: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    entry = {name: str(secret) if name.endswith("_file") else value for name, value in entry.items()}
    with Inbox() as inbox, running(sender({"url": inbox.url, **entry})) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        assert inbox.wait_for(1)[0].headers["Authorization"] == expected
        secret.write_text("rotated")
        alertmanager.observe([incident()], 60, WALL)
        assert inbox.wait_for(2)[1].headers["Authorization"] != expected
        secret.write_text("")
        alertmanager.observe([incident()], 120, WALL)
        until(lambda: alertmanager.statistics()[0].errors)
        assert alertmanager.statistics()[0].last_error.endswith(f"{secret} is empty")
    assert len(inbox.posts) == 2


def test_tls_is_verified_and_a_password_in_a_url_is_printed_nowhere(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    with Server(serving(answer()), tls=context) as server:
        url = f"https://ann:hidden@127.0.0.1:{server.port}"
        trusting = sender({"url": url, "ca_file": str(ca_file)})
        doubting = sender(url)
        careless = sender({"url": url, "insecure_skip_verify": True})
        for alertmanager in (trusting, doubting, careless):
            alertmanager.run()
            alertmanager.observe([incident()], 0, WALL)
        until(lambda: trusting.statistics()[0].sent and careless.statistics()[0].sent)
        until(lambda: doubting.statistics()[0].errors)
        for alertmanager in (trusting, doubting, careless):
            alertmanager.stop(0.1)
        assert doubting.statistics()[0].last_error.startswith("TLS: ")
        assert "hidden" not in str([each.statistics() for each in (trusting, doubting, careless)])
        assert (
            "ann:hidden" in base64.b64decode(server.requests[0].split("Basic ")[1].split("\r\n")[0]).decode()
        )


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ([request, drip(b"HTTP/1.1 200 OK\r\n" * 50, 0.05)], "no whole answer within 0.4 s"),
        ([request, send(answer(b"", length=99)), hang], "no whole answer within 0.4 s"),
        ([request, hang], "no whole answer within 0.4 s"),
        ([request, send(answer(b"no", length=9))], "the exchange broke"),
        ([request, send(answer(b"", "302 Found", "Location: http://127.0.0.1:1/"))], "redirect (302)"),
        (
            [request, send(answer(b"<html>", "200 OK", "Content-Type: text/html"))],
            "status 200 with an HTML page",
        ),
        ([request, send(answer(b"try\nlater", "503 No"))], "status 503: try\\nlater"),
    ],
)
def test_a_post_ends_in_time_and_says_why_it_failed(script: Sequence[Any], detail: str) -> None:
    with Server(script) as server:
        began = time.monotonic()
        reply = Poster(Endpoint(f"http://127.0.0.1:{server.port}/secret-path")).post(b"[]", 0.4)
        assert time.monotonic() - began < 0.8
        assert reply.detail.startswith(detail)
        assert "secret-path" not in reply.detail


def test_a_receiver_that_is_not_there_is_an_answer_too() -> None:
    with closed_port() as port:
        assert Poster(Endpoint(f"http://127.0.0.1:{port}/")).post(b"[]", 1).detail == "Connection refused"
    assert "does not resolve" in Poster(Endpoint("http://nobody.invalid/")).post(b"[]", 5).detail
    stopped = Poster(Endpoint("http://127.0.0.1:1/"))
    stopped.abort()
    assert stopped.post(b"[]", 1).detail == "stopped"


def test_an_outbox_survives_a_bug_in_what_it_calls() -> None:
    calls = []

    def deliver(batch: Sequence[Parcel[int]], _: float) -> Delivery:
        calls.append([parcel.content for parcel in batch])
        if len(calls) == 1:
            raise ZeroDivisionError
        return Delivery(sent=len(batch))

    outbox: Outbox[int] = Outbox("r", deliver, lambda: None, capacity=9, batch_size=2, timeout_seconds=1)
    outbox.run()
    outbox.put(Parcel("a", 1))
    until(lambda: outbox.statistics().errors == 1)
    outbox.put(Parcel("b", 2))
    until(lambda: outbox.statistics().sent == 1)
    stop_all([outbox], 1)
    assert calls == [[1], [2]]


def test_an_outbox_batches_keeps_order_and_drops_what_is_no_longer_true() -> None:
    batches: list[list[str]] = []

    def deliver(batch: Sequence[Parcel[int]], _: float) -> Delivery:
        batches.append([parcel.identity for parcel in batch])
        return Delivery(sent=len(batch))

    outbox: Outbox[int] = Outbox("r", deliver, lambda: None, capacity=9, batch_size=2, timeout_seconds=1)
    for identity in "abc":
        outbox.put(Parcel(identity, 1))
    outbox.put(Parcel("stale", 1, expires_at=time.monotonic() - 1))
    outbox.put(Parcel("a", 2))
    outbox.run()
    stop_all([outbox], 2)
    assert batches == [["a", "b"], ["c"]]
    assert outbox.statistics().dropped == 1


def test_a_page_that_is_no_alertmanager_is_an_error_even_with_status_200() -> None:
    reply = Reply(200, b"  <!doctype html>", "text/plain")
    with Inbox(lambda _: reply) as inbox, running(sender(inbox.url), drain_seconds=0) as alertmanager:
        alertmanager.observe([incident()], 0, WALL)
        until(lambda: alertmanager.statistics()[0].errors == 1)
        assert alertmanager.statistics()[0].sent == 0
