"""Alerts that others raised, answered with what we know of the servers they mean, and passed on with it."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from watchdog.errors import WatchdogError
from watchdog.http.endpoint import Endpoint
from watchdog.http.post import Poster
from watchdog.http.url import host_and_port
from watchdog.model import Snapshot, Target, Verdict
from watchdog.notify.alert import fitting_annotation, incident_url, remedies_text
from watchdog.notify.announcements import Ledger, memory_ledger
from watchdog.notify.outbox import Statistics
from watchdog.settings.model import ReceiverSettings
from watchdog.settings.target import TargetSettings

_log = logging.getLogger(__name__)

ALERTS_AT_MOST = 1000
FORWARD_SECONDS = 8.0
OWN_PREFIX = "vllm_watchdog_"
_FORWARDS_AT_ONCE = 8
_LABELS_KEPT = 32
_CHARACTERS_KEPT = 256


class PayloadError(ValueError):
    """What came is no webhook payload; the text says where, and is safe to show."""


class ForwardError(WatchdogError):
    """The payload was not passed on; whoever sent it should send it again."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What we knew of a target when an alert about it came; None for what there was not."""

    target: str
    verdict: Verdict
    cause: str
    lead: str | None = None
    remedy: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """An alert of others, and the diagnosis of each target that its labels mean; `wall` is when it came last."""

    wall: float
    status: str
    labels: Mapping[str, str]
    starts_at: str
    fingerprint: str
    targets: tuple[Diagnosis, ...]

    @property
    def alertname(self) -> str:
        """Its name; empty where it has none."""
        return self.labels.get("alertname", "")

    @property
    def identity(self) -> str:
        """The same for each repetition of the same alert in the same state."""
        pairs = self.fingerprint or json.dumps(sorted(self.labels.items()))
        return f"{pairs} {self.starts_at} {self.status}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a payload was answered; `forwarded` is whether the next receiver took it, None where there is none."""

    alerts: tuple[Received, ...]
    forwarded: bool | None


_RECEIVED = TypeAdapter(Received)


class AlertReceiver:
    """Takes Alertmanager's webhook payloads. Safe for threads; keeps the last alerts and no more."""

    def __init__(
        self,
        settings: ReceiverSettings,
        targets: Sequence[TargetSettings],
        external_url: str | None = None,
        *,
        ledgers: Callable[[str], Ledger] = memory_ledger,
    ) -> None:
        self._settings = settings
        self.know(targets)
        self._external_url = (external_url or "").rstrip("/")
        self._ledger = ledgers("receiver")
        self._lock = threading.Lock()
        self._received = _received_in(self._ledger, settings.keep)
        self._places = threading.BoundedSemaphore(_FORWARDS_AT_ONCE)
        self._sent = self._errors = 0
        self._last_error = ""
        self._unread = 0

    def know(self, targets: Sequence[TargetSettings]) -> None:
        """Goes over to other targets."""
        self._targets = tuple(_MeantTarget(each, self._settings.label_to_target) for each in targets)

    @property
    def unread(self) -> int:
        """How many alerts were passed on without being looked at, because too many came at once."""
        with self._lock:
            return self._unread

    def receive(self, payload: Mapping[str, Any], snapshots: Mapping[str, Snapshot], wall: float) -> Answer:
        """Keeps each alert of the payload with the diagnosis of now, passes it on, and says what was found.

        Raises PayloadError for what is no webhook payload, and ForwardError where it should be sent again: the
        sender, who retries, must not read that all is well before the alert has arrived.
        """
        alerts = _alerts(payload)
        answers = tuple(self._answer(alert, snapshots, wall) for alert in alerts)
        self._note_unread(len(payload["alerts"]) - len(alerts))
        self._keep(answers)
        forwarded = None
        if self._settings.forward_url is not None:
            forwarded = self._forward(self._settings.forward_url, _enriched(payload, alerts, answers))
        return Answer(answers, forwarded)

    def received(self) -> tuple[Received, ...]:
        """The last alerts, the newest first."""
        with self._lock:
            return tuple(reversed(self._received.values()))

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of what was passed on; empty where nothing is."""
        if self._settings.forward_url is None:
            return ()
        with self._lock:
            return (Statistics("forward", self._sent, self._errors, 0, 0, 0, self._last_error),)

    def _note_unread(self, count: int) -> None:
        if count:
            with self._lock:
                self._unread += count
            _log.warning("alerts_unread", extra={"count": count, "read": ALERTS_AT_MOST})

    def _answer(self, alert: Mapping[str, Any], snapshots: Mapping[str, Snapshot], wall: float) -> Received:
        labels: Mapping[str, str] = alert["labels"]
        meant = [target.name for target in self._targets if target.is_meant_by(labels)]
        mapped = self._settings.label_to_target
        own = {target.name for target in self._targets}
        meant += [
            name
            for name, each in snapshots.items()
            if name not in own and _is_server_meant(each.target, labels, mapped)
        ]
        kept = {_short(name): _short(labels[name]) for name in sorted(labels)[:_LABELS_KEPT]}
        if "alertname" in labels:
            kept["alertname"] = _short(labels["alertname"])
        return Received(
            wall=wall,
            status="resolved" if alert.get("status") == "resolved" else "firing",
            labels=kept,
            starts_at=_short(str(alert.get("startsAt", ""))),
            fingerprint=_short(str(alert.get("fingerprint", ""))),
            targets=tuple(self._diagnosis(name, snapshots.get(name)) for name in meant),
        )

    def _diagnosis(self, target: str, snapshot: Snapshot | None) -> Diagnosis:
        if snapshot is None:
            return Diagnosis(target, Verdict.STARTING, "It has not been scraped yet.")
        lead = snapshot.lead_incident
        if lead is None:
            return Diagnosis(target, snapshot.verdict, _no_cause(snapshot))
        return Diagnosis(
            target=target,
            verdict=snapshot.verdict,
            lead=lead.key.rule,
            cause=fitting_annotation(f"{lead.title}. {lead.cause}".strip()),
            remedy=fitting_annotation(remedies_text(lead.remedies)) or None,
            url=incident_url(self._external_url, lead.key) or None,
        )

    def _keep(self, answers: Sequence[Received]) -> None:
        with self._lock:
            changes: dict[str, str | None] = {}
            for answer in answers:
                self._received.pop(answer.identity, None)
                self._received[answer.identity] = answer
                changes[answer.identity] = _RECEIVED.dump_json(answer).decode()
            while len(self._received) > self._settings.keep:
                oldest = next(iter(self._received))
                del self._received[oldest]
                changes[oldest] = None
            self._ledger.save(changes)

    def _forward(self, url: str, body: bytes) -> bool:
        """Whether the next receiver took it; False where it never will."""
        if not self._places.acquire(blocking=False):
            raise ForwardError("too many payloads are being forwarded; send it again later")
        try:
            answer = Poster(Endpoint(url), status_is_enough=True).post(body, FORWARD_SECONDS)
        finally:
            self._places.release()
        with self._lock:
            self._sent += answer.accepted
            self._errors += not answer.accepted
            self._last_error = "" if answer.accepted else answer.detail
        if answer.accepted:
            return True
        _log.warning("forward_failed", extra={"answer": answer.detail})
        if answer.worth_retrying:
            raise ForwardError(f"the next receiver rejected it: {answer.detail}")
        return False


class _MeantTarget:
    """A target by the labels under which others know it."""

    def __init__(self, settings: TargetSettings, label_to_target: Mapping[str, str]) -> None:
        self.name = settings.name
        self._match_labels = settings.match_labels
        self._instance = host_and_port(settings.url)
        self._label_to_target = label_to_target

    def is_meant_by(self, labels: Mapping[str, str]) -> bool:
        """Whether all of the target's `match_labels` are there, or a mapped label holds its name or address."""
        mapped = {label: labels[label] for label in self._label_to_target if label in labels}
        named = self.name in mapped.values()
        addressed = any(
            value == self._instance and self._label_to_target[label] == "instance"
            for label, value in mapped.items()
        )
        return named or addressed or self._is_matched_by(labels)

    def _is_matched_by(self, labels: Mapping[str, str]) -> bool:
        if not self._match_labels:
            return False
        wanted = self._match_labels.items()
        return all(any(labels.get(each) == value for each in self._names_of(name)) for name, value in wanted)

    def _names_of(self, own: str) -> set[str]:
        return {own} | {label for label, mapped in self._label_to_target.items() if mapped == own}


def _is_server_meant(target: Target, labels: Mapping[str, str], label_to_target: Mapping[str, str]) -> bool:
    """Whether an alert means a server that a Prometheus scrapes: a mapped label names it, and no label contradicts."""
    own = target.labels
    if not any(
        labels.get(label) in {target.name, own.get(mapped, target.name)}
        for label, mapped in label_to_target.items()
    ):
        return False
    return all(own[name] == value for name, value in labels.items() if name in own)


def _alerts(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The payload's first alerts, as far as we rely on their form; unknown fields are nobody's fault.

    Alertmanager never repeats what is refused, so of a storm the rest goes unread rather than all of it be lost.
    """
    alerts = payload.get("alerts")
    if not isinstance(alerts, list):
        raise PayloadError("alerts must be a list: this endpoint takes Alertmanager's webhook payload")
    alerts = alerts[:ALERTS_AT_MOST]
    for position, alert in enumerate(alerts):
        if not isinstance(alert, dict) or not isinstance(alert.get("labels"), dict):
            raise PayloadError(f"alerts[{position}] must be an object with labels")
        if not all(isinstance(value, str) for value in alert["labels"].values()):
            raise PayloadError(f"alerts[{position}].labels must hold text only")
        if not isinstance(alert.get("annotations") or {}, dict):
            raise PayloadError(f"alerts[{position}].annotations must be an object")
    return alerts


def _enriched(
    payload: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]], answers: Sequence[Received]
) -> bytes:
    """The payload as it came, with our annotations on what fires, and on all where all share them.

    Those are in our name: what comes with such a name from elsewhere is left out.
    """
    added = [_annotations(answer) if answer.status == "firing" else {} for answer in answers]
    unread = payload["alerts"][len(alerts) :]
    added += [{} for _ in unread]
    common = set.intersection(*(set(each.items()) for each in added)) if added else set()
    fuller = dict(payload)
    fuller["alerts"] = [
        _annotated(alert, "annotations", new) for alert, new in zip([*alerts, *unread], added, strict=True)
    ]
    fuller = _annotated(fuller, "commonAnnotations", dict(sorted(common)))
    try:
        return json.dumps(fuller, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise PayloadError("the payload is not valid JSON, or is nested too deeply") from None


def _annotated(whole: Any, field: str, new: Mapping[str, str]) -> Any:
    """Whole with these annotations and no others of our names; as it is where that changes nothing."""
    known = (whole.get(field) or {}) if isinstance(whole, dict) else None
    if not isinstance(known, dict) or (field not in whole and field == "commonAnnotations"):
        return whole
    foreign = {name: text for name, text in known.items() if not str(name).startswith(OWN_PREFIX)}
    return {**whole, field: {**foreign, **new}} if new or len(foreign) < len(known) else whole


def _annotations(answer: Received) -> dict[str, str]:
    texts = {
        "vllm_watchdog_target": [each.target for each in answer.targets],
        "vllm_watchdog_verdict": [str(each.verdict) for each in answer.targets],
        "vllm_watchdog_cause": [each.cause for each in answer.targets],
        "vllm_watchdog_remedy": [each.remedy for each in answer.targets if each.remedy],
        "vllm_watchdog_url": [each.url for each in answer.targets if each.url][:1],
    }
    return {name: fitting_annotation(" | ".join(each)) for name, each in texts.items() if each}


def _no_cause(snapshot: Snapshot) -> str:
    if snapshot.verdict is Verdict.HEALTHY:
        return "No known cause fires: this server looks healthy from its own metrics."
    if snapshot.failure is not None:
        return f"Its metrics page could not be read ({snapshot.failure.reason})."
    return f"No known cause fires; {snapshot.why}." if snapshot.why else "No known cause fires."


def _short(text: str) -> str:
    return text[:_CHARACTERS_KEPT]


def _received_in(ledger: Ledger, keep: int) -> dict[str, Received]:
    read = []
    for identity, text in ledger.load().items():
        try:
            read.append(_RECEIVED.validate_json(text))
        except ValueError as error:
            _log.warning("received_alert_unreadable", extra={"identity": identity, "error": repr(error)})
    read.sort(key=lambda each: each.wall)
    return {each.identity: each for each in read[-keep:]}
