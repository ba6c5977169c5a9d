"""Alertmanager's webhook without an Alertmanager: a message when something begins or ends, and reminders."""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watchdog.http.post import Poster, endpoint_at
from watchdog.model import Incident, Key
from watchdog.notify.alert import (
    NO_END,
    Alert,
    AlertBuilder,
    compact_json,
    dump_alert,
    load_alert,
)
from watchdog.notify.announcements import Announcements, Ledger, no_ledger
from watchdog.notify.outbox import Delivery, Outbox, Parcel, Statistics, stop_all
from watchdog.settings.model import WebhookSettings
from watchdog.text import timestamp

_log = logging.getLogger(__name__)

PAYLOAD_VERSION = "4"
_GROUPS_AT_MOST = 10_000
# A refused message is tried again at this pace: a route that is missing now may be there after a roll-out.
_REFUSED_PAUSE_SECONDS = 300.0
_ENDED_KEPT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver should hear of one target now."""

    target: str
    firing: Mapping[str, Alert]
    ended: Mapping[str, Alert]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Those that fire first, each part in the order of its labels."""
        parts = (self.firing.values(), self.ended.values())
        return tuple(
            alert for part in parts for alert in sorted(part, key=lambda each: sorted(each.labels.items()))
        )

    def payload(self, receiver: str, external_url: str, max_alerts: int) -> bytes:
        """The body of the message, with Alertmanager's fields in Alertmanager's order."""
        alerts = self.alerts
        shown = alerts[:max_alerts] if max_alerts else alerts
        group = {"target": self.target} if self.target else {}
        data = {
            "receiver": receiver,
            "status": "firing" if self.firing else "resolved",
            "alerts": [_alert_body(alert) for alert in shown],
            "groupLabels": group,
            "commonLabels": _common([alert.labels for alert in alerts]),
            "commonAnnotations": _common([alert.annotations for alert in alerts]),
            "externalURL": external_url,
            "version": PAYLOAD_VERSION,
            "groupKey": "{}:{" + ",".join(f"{name}={_quoted(value)}" for name, value in group.items()) + "}",
            "truncatedAlerts": len(alerts) - len(shown),
        }
        return compact_json(data)


class WebhookSender:
    """Tells every configured webhook what begins and ends. `observe` may be called from many threads."""

    def __init__(
        self,
        settings: Sequence[WebhookSettings],
        external_url: str | None,
        *,
        external_labels: Mapping[str, str] | None = None,
        symptoms: bool = False,
        ledgers: Callable[[str], Ledger] = no_ledger,
    ) -> None:
        self._lock = threading.Lock()
        builder = AlertBuilder(external_labels or {}, external_url or "")
        self._announcements = Announcements(builder, symptoms, ledgers("webhook"))
        self._receivers = tuple(
            _Receiver(
                each, external_url or "", self._announcements, self._lock, ledgers(f"webhook {each.name}")
            )
            for each in settings
        )

    def observe(
        self, incidents: Iterable[Incident], at: float, wall: float, lead_keys: Collection[Key] | None = None
    ) -> None:
        """Takes in incidents as they stand and queues what is due; `at` is monotonic, `wall` unix seconds."""
        if not self._receivers:
            return
        with self._lock:
            self._announcements.observe(incidents, wall, lead_keys)
            for receiver in self._receivers:
                receiver.review(at, wall)
            self._forget_ended(wall)

    def run(self) -> None:
        """Starts one thread for each webhook."""
        for receiver in self._receivers:
            receiver.outbox.run()

    def stop(self, drain_seconds: float) -> None:
        """Sends what is queued for `drain_seconds` at most and ends the threads; resolves nothing."""
        stop_all([receiver.outbox for receiver in self._receivers], drain_seconds)

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of each webhook, in the order of the settings; messages, not alerts."""
        return tuple(receiver.outbox.statistics() for receiver in self._receivers)

    def _forget_ended(self, wall: float) -> None:
        over = [
            fingerprint
            for fingerprint, announcement in self._announcements.ended().items()
            if not any(receiver.was_told(fingerprint) for receiver in self._receivers)
            or wall - (announcement.alert.ends_at or 0) > _ENDED_KEPT_SECONDS
        ]
        if over:
            self._announcements.forget(over)


@dataclass(slots=True)
class _Told:
    """What a receiver last heard of a target: what fired, and when; `at` is None from a run before."""

    alerts: Mapping[str, Alert]
    wall: float
    at: float | None

    def age_seconds(self, at: float, wall: float) -> float:
        return at - self.at if self.at is not None else wall - self.wall


@dataclass(slots=True)
class _Refusal:
    content: frozenset[tuple[str, bool]]
    at: float


@dataclass(slots=True)
class _Now:
    at: float = 0.0
    wall: float = 0.0
    firing: dict[str, dict[str, Alert]] = field(default_factory=dict)


class _Receiver:
    """One webhook: compares what fires with what it was told, as Alertmanager's notification log does."""

    def __init__(
        self,
        settings: WebhookSettings,
        external_url: str,
        announcements: Announcements,
        lock: threading.Lock,
        ledger: Ledger,
    ) -> None:
        self._settings = settings
        self._external_url = external_url
        self._announcements = announcements
        self._lock = lock
        self._ledger = ledger
        self._told = _restored(ledger)
        self._refusals: dict[str, _Refusal] = {}
        self._now = _Now()
        self._poster = Poster(endpoint_at(settings.url, settings), status_is_enough=True)
        self.outbox: Outbox[None] = Outbox(
            settings.name,
            self._deliver,
            self._poster.abort,
            capacity=_GROUPS_AT_MOST,
            batch_size=1,
            timeout_seconds=settings.timeout_seconds,
        )

    def was_told(self, fingerprint: str) -> bool:
        """Whether it still believes that this alert fires."""
        return any(fingerprint in told.alerts for told in self._told.values())

    def review(self, at: float, wall: float) -> None:
        """Queues each target of which there is something to say. The caller holds the lock."""
        firing: dict[str, dict[str, Alert]] = {}
        for fingerprint, announcement in self._announcements.all().items():
            if announcement.firing:
                target = announcement.alert.labels.get("target", "")
                firing.setdefault(target, {})[fingerprint] = announcement.alert
        self._now = _Now(at, wall, firing)
        for target in sorted(firing.keys() | self._told.keys()):
            if not self._settings.send_resolved:
                self._drop_ended(target)
            message = self._message(target)
            if message is not None and not self._is_held(message):
                self.outbox.put(Parcel(target, None))

    def _message(self, target: str) -> Message | None:
        """What is to be said of a target now; None where it has heard all."""
        now = self._now
        firing = now.firing.get(target, {})
        told = self._told.get(target) or _Told({}, now.wall, now.at)
        ended = {
            each: self._ended_alert(each, alert) for each, alert in told.alerts.items() if each not in firing
        }
        is_new = bool(firing.keys() - told.alerts.keys())
        is_over = bool(ended) and self._settings.send_resolved
        age_seconds = told.age_seconds(now.at, now.wall)
        is_reminder = bool(firing) and age_seconds >= self._settings.repeat_interval_seconds
        if not (is_new or is_over or is_reminder):
            return None
        return Message(target, firing, ended if self._settings.send_resolved else {})

    def _ended_alert(self, fingerprint: str, told: Alert) -> Alert:
        announcement = self._announcements.all().get(fingerprint)
        if announcement is not None and not announcement.firing:
            return announcement.alert
        return told.resolved(self._now.wall)

    def _deliver(self, batch: Sequence[Parcel[None]], timeout_seconds: float) -> Delivery:
        """Says what is true at this moment, not what was when the target was queued."""
        target = batch[0].identity
        with self._lock:
            message = self._message(target)
            now = self._now
        if message is None:
            return Delivery()
        settings = self._settings
        body = message.payload(settings.name, self._external_url, settings.max_alerts)
        answer = self._poster.post(body, timeout_seconds)
        if answer.accepted:
            self._note_told(message, now)
            return Delivery(sent=1)
        if answer.worth_retrying:
            return Delivery(errors=1, again=frozenset({target}), detail=answer.detail)
        with self._lock:
            self._refusals[target] = _Refusal(_content(message), now.at)
        return Delivery(errors=1, detail=answer.detail)

    def _note_told(self, message: Message, now: _Now) -> None:
        with self._lock:
            self._refusals.pop(message.target, None)
            self._keep(message.target, _Told(dict(message.firing), now.wall, now.at))
            if self._message(message.target) is not None:
                self.outbox.put(Parcel(message.target, None))

    def _drop_ended(self, target: str) -> None:
        """Forgets in silence what ended, so that it is told when it begins again."""
        told = self._told.get(target)
        if told is None:
            return
        firing = self._now.firing.get(target, {})
        left = {each: alert for each, alert in told.alerts.items() if each in firing}
        if len(left) < len(told.alerts):
            self._keep(target, _Told(left, told.wall, told.at))

    def _keep(self, target: str, told: _Told) -> None:
        if told.alerts:
            self._told[target] = told
            kept = {"wall": told.wall, "alerts": [dump_alert(alert) for alert in told.alerts.values()]}
            self._ledger.save({target: json.dumps(kept)})
        else:
            self._told.pop(target, None)
            self._ledger.save({target: None})

    def _is_held(self, message: Message) -> bool:
        refusal = self._refusals.get(message.target)
        if refusal is None or refusal.content != _content(message):
            return False
        return self._now.at - refusal.at < min(_REFUSED_PAUSE_SECONDS, self._settings.repeat_interval_seconds)


def _content(message: Message) -> frozenset[tuple[str, bool]]:
    return frozenset({(each, True) for each in message.firing} | {(each, False) for each in message.ended})


def _alert_body(alert: Alert) -> dict[str, Any]:
    return {
        "status": "firing" if alert.ends_at is None else "resolved",
        "labels": dict(sorted(alert.labels.items())),
        "annotations": dict(sorted(alert.annotations.items())),
        "startsAt": timestamp(alert.starts_at),
        "endsAt": NO_END if alert.ends_at is None else timestamp(alert.ends_at),
        "generatorURL": alert.generator_url,
        "fingerprint": alert.fingerprint,
    }


def _common(sets: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The pairs that all have."""
    shared = set.intersection(*(set(each.items()) for each in sets)) if sets else set()
    return dict(sorted(shared))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _restored(ledger: Ledger) -> dict[str, _Told]:
    restored = {}
    for target, text in ledger.load().items():
        try:
            kept = json.loads(text)
            alerts = [load_alert(each) for each in kept["alerts"]]
            restored[target] = _Told({each.fingerprint: each for each in alerts}, float(kept["wall"]), None)
        except (ValueError, TypeError, KeyError) as error:
            _log.warning("told_alerts_unreadable", extra={"target": target, "error": repr(error)})
    return restored
