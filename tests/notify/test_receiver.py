"""Alerts of others: which server they mean, what we say of it, and how they go on."""

import copy
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings

from tests.pagers import WALL, Inbox, Reply, incident
from watchdog.model import (
    Failure,
    Incident,
    Key,
    Reason,
    Snapshot,
    Target,
    Verdict,
    VllmIdentity,
)
from watchdog.notify.announcements import MemoryLedger
from watchdog.notify.receiver import AlertReceiver, Diagnosis, ForwardError, PayloadError
from watchdog.report.bodies import received_body
from watchdog.settings.model import ReceiverSettings
from watchdog.settings.target import TargetSettings

PAYLOAD: dict[str, Any] = {
    "receiver": "watchdog",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "HighTTFT", "pod": "vllm-0", "namespace": "ml"},
            "annotations": {"summary": "slow"},
            "startsAt": "2023-11-14T22:13:20.123456789Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus/graph",
            "fingerprint": "aaaa",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "HighTTFT", "pod": "vllm-1", "namespace": "ml"},
            "annotations": {},
            "startsAt": "2023-11-14T22:13:20Z",
            "endsAt": "2023-11-14T22:14:20Z",
            "fingerprint": "bbbb",
        },
    ],
    "groupLabels": {"alertname": "HighTTFT"},
    "commonLabels": {"alertname": "HighTTFT"},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager",
    "version": "4",
    "groupKey": '{}:{alertname="HighTTFT"}',
    "truncatedAlerts": 0,
    "routeLabels": {"a field": "of a newer Alertmanager"},
}


def target(name: str, url: str | None = None, **match_labels: str) -> TargetSettings:
    entry = {"name": name, "url": url or f"http://{name}.internal:8000", "match_labels": match_labels}
    return TargetSettings.model_validate(entry)


def receiver(*targets: TargetSettings, ledger: MemoryLedger | None = None, **settings: Any) -> AlertReceiver:
    kept = ledger or MemoryLedger()
    return AlertReceiver(
        ReceiverSettings.model_validate(settings),
        targets or (target("gpu-0", pod="vllm-0"), target("gpu-1", pod="vllm-1")),
        "http://watchdog/",
        ledgers=lambda _: kept,
    )


def snapshot(name: str, *incidents: Incident, verdict: Verdict = Verdict.CRITICAL, **others: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "target": Target(name, f"http://{name}.internal:8000/metrics"),
        "at": 0.0,
        "wall": WALL,
        "verdict": verdict,
        "up": True,
        "failure": None,
        "scrape_took_seconds": 0.1,
        "scrape_samples": 1,
        "scrapes": 1,
        "failures": {},
        "last_success_wall": WALL,
        "vllm": VllmIdentity(),
        "incidents": incidents,
        "lead": incidents[0].key if incidents else None,
        "readings": (),
        "blind": (),
    }
    return Snapshot(**fields | others)


SNAPSHOTS: Mapping[str, Snapshot] = {
    "gpu-0": snapshot("gpu-0", incident()),
    "gpu-1": snapshot("gpu-1", verdict=Verdict.HEALTHY),
}
CAUSE = "The KV cache is full. 12 requests wait while the KV cache is 98% full."
REMEDY = "--max-model-len 8192: Limit the context. The pool holds more. Trade-off: Longer ones are refused."
URL = "http://watchdog/incidents/kv-pool-exhausted/gpu-0/m/0"


def test_an_alert_is_answered_with_the_diagnosis_of_the_server_it_means() -> None:
    inbox = receiver()
    answer = inbox.receive(PAYLOAD, SNAPSHOTS, WALL)
    assert answer.forwarded is None
    body = received_body(answer).model_dump(mode="json")
    assert body["alerts"][0] == {
        "alertname": "HighTTFT",
        "status": "firing",
        "labels": {"alertname": "HighTTFT", "namespace": "ml", "pod": "vllm-0"},
        "starts_at": "2023-11-14T22:13:20.123456789Z",
        "fingerprint": "aaaa",
        "targets": [
            {
                "target": "gpu-0",
                "verdict": "critical",
                "lead": "kv-pool-exhausted",
                "cause": CAUSE,
                "remedy": REMEDY,
                "url": URL,
            }
        ],
    }
    healthy = body["alerts"][1]["targets"][0]
    assert (healthy["target"], healthy["verdict"], healthy["lead"]) == ("gpu-1", "healthy", None)
    assert [each.labels["pod"] for each in inbox.received()] == ["vllm-1", "vllm-0"]


def meant(labels: dict[str, str], *targets: TargetSettings, **settings: Any) -> list[str]:
    payload = {"alerts": [{"labels": labels}]}
    answer = receiver(*targets, **settings).receive(payload, {}, WALL)
    return [each.target for each in answer.alerts[0].targets]


def test_labels_mean_a_target_by_its_own_labels_its_name_or_its_address() -> None:
    one = target("gpu-0", pod="vllm-0", namespace="ml")
    other = target("gpu-1", "http://10.0.0.7:8000/metrics")
    assert meant({"pod": "vllm-0", "namespace": "ml"}, one, other) == ["gpu-0"]
    assert meant({"pod": "vllm-0", "namespace": "other"}, one, other) == []
    assert meant({"pod": "vllm-0"}, one, other) == []
    assert meant({"namespace": "ml"}, one, other) == []
    assert meant({"target": "gpu-1"}, one, other) == ["gpu-1"]
    assert meant({"pod": "gpu-1"}, one, other) == ["gpu-1"]
    assert meant({"instance": "10.0.0.7:8000"}, one, other) == ["gpu-1"]
    assert meant({"pod": "10.0.0.7:8000"}, one, other) == []
    assert meant({}, one, other) == []


def test_labels_mean_a_server_of_a_prometheus_unless_one_of_them_contradicts() -> None:
    labels = {"pod": "vllm-0", "namespace": "ml", "instance": "10.0.0.7:8000", "job": "vllm"}
    own = Target("vllm-0 ml", "http://prometheus", labels=labels)
    snapshots = {"vllm-0 ml": snapshot("vllm-0 ml", target=own)}

    def meant_by(**given: str) -> bool:
        answer = receiver().receive({"alerts": [{"labels": given}]}, snapshots, WALL)
        return [each.target for each in answer.alerts[0].targets] == ["vllm-0 ml"]

    assert meant_by(instance="10.0.0.7:8000", job="vllm", alertname="Slow")
    assert meant_by(target="vllm-0 ml")
    assert not meant_by(pod="vllm-0", namespace="other")
    assert not meant_by(namespace="ml", job="vllm")


def test_the_mapping_says_which_label_of_theirs_is_which_of_ours() -> None:
    one = target("gpu-0", "http://10.0.0.7:8000", pod="vllm-0")
    mapping = {"kubernetes_pod_name": "pod", "address": "instance", "host": "target"}
    assert meant({"kubernetes_pod_name": "vllm-0"}, one, label_to_target=mapping) == ["gpu-0"]
    assert meant({"address": "10.0.0.7:8000"}, one, label_to_target=mapping) == ["gpu-0"]
    assert meant({"host": "gpu-0"}, one, label_to_target=mapping) == ["gpu-0"]
    assert meant({"instance": "10.0.0.7:8000"}, one, label_to_target=mapping) == []


def test_a_target_not_looked_at_or_not_readable_is_said_to_be_so() -> None:
    inbox = receiver()
    answer = inbox.receive(PAYLOAD, {}, WALL).alerts[0].targets[0]
    assert (answer.verdict, answer.cause) == ("starting", "It has not been scraped yet.")
    failed = snapshot("gpu-0", verdict=Verdict.UNKNOWN, failure=Failure(Reason.REFUSED, "no"), up=False)
    answer = inbox.receive(PAYLOAD, {"gpu-0": failed}, WALL).alerts[0].targets[0]
    assert answer.cause == "Its metrics page could not be read (refused)."
    starting = snapshot("gpu-0", verdict=Verdict.STARTING)
    answer = inbox.receive(PAYLOAD, {"gpu-0": starting}, WALL).alerts[0].targets[0]
    assert answer.cause == "No known cause fires."


def test_a_payload_goes_on_as_it_came_with_our_annotations_on_what_fires() -> None:
    original = copy.deepcopy(PAYLOAD)
    with Inbox() as next_one:
        inbox = receiver(forward_url=next_one.url + "/next?token=t")
        assert inbox.receive(PAYLOAD, SNAPSHOTS, WALL).forwarded is True
        post = next_one.wait_for(1)[0]
    assert original == PAYLOAD
    expected = copy.deepcopy(PAYLOAD)
    expected["alerts"][0]["annotations"] |= {
        "vllm_watchdog_target": "gpu-0",
        "vllm_watchdog_verdict": "critical",
        "vllm_watchdog_cause": CAUSE,
        "vllm_watchdog_remedy": REMEDY,
        "vllm_watchdog_url": URL,
    }
    assert post.path == "/next?token=t"
    assert post.body == json.dumps(expected, separators=(",", ":")).encode()
    assert (inbox.statistics()[0].receiver, inbox.statistics()[0].sent) == ("forward", 1)


def test_what_all_alerts_share_is_a_common_annotation_too() -> None:
    payload = {**PAYLOAD, "alerts": [PAYLOAD["alerts"][0]], "commonAnnotations": {"summary": "slow"}}
    with Inbox() as next_one:
        receiver(forward_url=next_one.url).receive(payload, SNAPSHOTS, WALL)
        common = next_one.wait_for(1)[0].json["commonAnnotations"]
    assert common["summary"] == "slow"
    assert common["vllm_watchdog_cause"] == CAUSE


def test_an_alert_that_means_several_targets_tells_of_each() -> None:
    pair = (target("gpu-0", namespace="ml"), target("gpu-1", namespace="ml"))
    with Inbox() as next_one:
        receiver(*pair, forward_url=next_one.url).receive(PAYLOAD, SNAPSHOTS, WALL)
        annotations = next_one.wait_for(1)[0].json["alerts"][0]["annotations"]
    assert annotations["vllm_watchdog_target"] == "gpu-0 | gpu-1"
    assert annotations["vllm_watchdog_cause"].startswith(CAUSE + " | No known cause fires")


def test_who_sent_it_hears_of_a_failure_that_a_retry_may_mend_and_only_of_that() -> None:
    with Inbox(lambda _: Reply(503, b"not now")) as next_one:
        inbox = receiver(forward_url=next_one.url + "/secret")
        with pytest.raises(ForwardError, match="status 503: not now") as failure:
            inbox.receive(PAYLOAD, SNAPSHOTS, WALL)
        assert "secret" not in str(failure.value)
        next_one.judge = lambda _: Reply(404)
        assert inbox.receive(PAYLOAD, SNAPSHOTS, WALL).forwarded is False
        assert inbox.statistics()[0].errors == 2
        # It is kept all the same, and once.
        assert len(inbox.received()) == 2


def test_a_slow_next_receiver_cannot_take_all_our_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[str] = []

    def send(inbox: AlertReceiver) -> None:
        try:
            inbox.receive(PAYLOAD, SNAPSHOTS, WALL)
        except ForwardError as error:
            refusals.append(str(error))

    with Inbox(lambda _: Reply(wait_seconds=30)) as next_one:
        inbox = receiver(forward_url=next_one.url)
        threads = [threading.Thread(target=send, args=(inbox,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        next_one.wait_for(8)
        send(inbox)
        assert refusals == ["too many payloads are being forwarded; send it again later"]
        next_one.closing.set()
        for thread in threads:
            thread.join()


def test_only_the_last_alerts_are_kept_also_over_a_restart() -> None:
    ledger = MemoryLedger()
    inbox = receiver(ledger=ledger, keep=3)
    for number in range(10):
        payload = {"alerts": [{"labels": {"pod": "vllm-0", "n": str(number)}}]}
        inbox.receive(payload, SNAPSHOTS, WALL + number)
        inbox.receive(payload, SNAPSHOTS, WALL + number)
    assert [each.labels["n"] for each in inbox.received()] == ["9", "8", "7"]
    ledger.save({"odd": "{", "odder": '{"wall": 1, "labels": []}'})
    again = receiver(ledger=ledger, keep=2)
    assert [each.labels["n"] for each in again.received()] == ["9", "8"]
    assert again.received()[0].targets[0].cause == CAUSE


def test_what_earlier_versions_kept_is_still_read() -> None:
    ledger = MemoryLedger()
    kept = (
        '{"wall":1700000000.0,"alertname":"HighTTFT","status":"firing","labels":{"alertname":"HighTTFT","pod":"vllm-0"},'
        '"starts_at":"2023-11-14T22:13:20Z","fingerprint":"aaaa","targets":[{"target":"gpu-0","verdict":"critical",'
        '"lead":"kv-pool-exhausted","cause":"It is full.","remedy":null,"url":"http://w/incidents/x"}]}'
    )
    ledger.save({"aaaa 2023-11-14T22:13:20Z firing": kept})
    [received] = receiver(ledger=ledger).received()
    assert (received.alertname, received.identity) == ("HighTTFT", "aaaa 2023-11-14T22:13:20Z firing")
    assert received.targets == (
        Diagnosis(
            "gpu-0", Verdict.CRITICAL, "It is full.", "kv-pool-exhausted", None, "http://w/incidents/x"
        ),
    )


def test_what_is_kept_of_an_alert_is_bounded() -> None:
    labels = {f"label_{number:03}": "x" * 10_000 for number in range(100)} | {"alertname": "A"}
    inbox = receiver()
    inbox.receive({"alerts": [{"labels": labels, "fingerprint": "f" * 9999}]}, {}, WALL)
    kept = inbox.received()[0]
    assert len(kept.labels) <= 33
    assert kept.labels["alertname"] == "A"
    assert max(map(len, kept.labels.values())) <= 256
    assert len(kept.fingerprint) <= 256


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "alerts must be a list"),
        ({"alerts": {}}, "alerts must be a list"),
        ({"alerts": [1]}, r"alerts\[0\] must be an object"),
        ({"alerts": [{"labels": {}}, {"labels": []}]}, r"alerts\[1\] must be an object with labels"),
        ({"alerts": [{"labels": {"a": 1}}]}, r"alerts\[0\].labels must hold text"),
        (
            {"alerts": [{"labels": {}, "annotations": []}, {"labels": {}, "annotations": [1]}]},
            r"alerts\[1\].ann",
        ),
    ],
)
def test_what_is_no_payload_is_refused_with_its_place(payload: dict[str, Any], message: str) -> None:
    inbox = receiver()
    with pytest.raises(PayloadError, match=message):
        inbox.receive(payload, {}, WALL)
    assert inbox.received() == ()


def test_what_json_cannot_say_is_not_passed_on() -> None:
    with Inbox() as next_one:
        inbox = receiver(forward_url=next_one.url)
        with pytest.raises(PayloadError):
            inbox.receive({**PAYLOAD, "extra": float("nan")}, SNAPSHOTS, WALL)
    assert next_one.posts == []


json_values = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=5),
    lambda inner: (
        strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=9), inner)
    ),
    max_leaves=10,
)
alerts = strategies.fixed_dictionaries(
    {"labels": strategies.dictionaries(strategies.sampled_from(["pod", "x"]), strategies.text(max_size=5))},
    optional={
        "status": json_values,
        "annotations": json_values,
        "startsAt": json_values,
        "extra": json_values,
    },
)


@given(strategies.fixed_dictionaries({"alerts": json_values | strategies.lists(alerts, max_size=3)}))
@hypothesis_settings(deadline=None, max_examples=100)
def test_any_payload_is_taken_or_refused_and_nothing_else(payload: dict[str, Any]) -> None:
    try:
        answer = receiver().receive(payload, SNAPSHOTS, WALL)
    except PayloadError:
        return
    assert len(answer.alerts) == len(payload["alerts"])


def test_no_forward_counts_nothing() -> None:
    assert receiver().statistics() == ()
    assert str(Key("a", "b", "", "")) == "a/b/-/-"


def test_a_storm_is_passed_on_whole_and_what_was_not_read_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alerts = [{"labels": {"pod": "vllm-0", "n": str(n)}, "status": "firing"} for n in range(1500)]
    with Inbox() as next_one:
        inbox = receiver(forward_url=next_one.url)
        answer = inbox.receive({**PAYLOAD, "alerts": alerts}, SNAPSHOTS, WALL)
        [passed] = [post.json["alerts"] for post in next_one.posts]
    assert (len(answer.alerts), len(passed), inbox.unread) == (1000, 1500, 500)
    assert [each["labels"] for each in passed] == [each["labels"] for each in alerts]
    assert all("vllm_watchdog_cause" in each["annotations"] for each in passed[:1000])
    assert passed[1000:] == alerts[1000:]
    assert [each.msg for each in caplog.records].count("alerts_unread") == 1


@pytest.mark.parametrize("pod", ["vllm-0", "nobody"])
@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_nobody_speaks_in_our_name(pod: str, status: str) -> None:
    fake = {"vllm_watchdog_cause": "FAKE", "vllm_watchdog_new": "FAKE", "summary": "slow"}
    alert = {"labels": {"pod": pod}, "status": status, "annotations": fake}
    payload = {**PAYLOAD, "alerts": [alert] * 1001, "commonAnnotations": fake}
    with Inbox() as next_one:
        receiver(forward_url=next_one.url).receive(payload, SNAPSHOTS, WALL)
        [post] = next_one.posts
    assert b"FAKE" not in post.body
    assert post.json["commonAnnotations"]["summary"] == "slow"
    assert all(each["annotations"]["summary"] == "slow" for each in post.json["alerts"])
