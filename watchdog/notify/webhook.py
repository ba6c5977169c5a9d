"""Alertmanager's webhook without an Alertmanager: a message when something begins or ends, and reminders."""

import heapq
import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from watchdog.http.post import Poster
from watchdog.notify.alert import NO_END, Alert, compact_json
from watchdog.notify.announcements import Announced, Announcement, Announcements, Ledger
from watchdog.notify.outbox import Delivery, Outbox, Parcel, Statistics, stop_all
from watchdog.settings.model import WebhookSettings
from watchdog.text import timestamp

_log = logging.getLogger(__name__)

PAYLOAD_VERSION = "4"
_GROUPS_AT_MOST = 10_000
# A refused message is tried again at this pace: a route that is missing now may be there after a roll-out.
_REFUSED_PAUSE_SECONDS = 300.0
_ENDED_KEPT_SECONDS = 86_400.0
# What fires is not taken up after a longer absence: a last message older than that and a reminder is by another clock.
_LONGEST_ABSENCE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver should get about one target now."""

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
    """Posts to every configured webhook what begins and ends.

    `lock` guards `announcements`; the threads that post take it, and `observe` is called by whoever holds it.
    """

    def __init__(
        self,
        settings: Sequence[WebhookSettings],
        external_url: str,
        announcements: Announcements,
        lock: threading.Lock,
        ledgers: Callable[[str], Ledger],
    ) -> None:
        self._receivers = tuple(
            _Receiver(each, external_url, announcements, lock, ledgers(f"webhook {each.name}"))
            for each in settings
        )

    @property
    def has_receivers(self) -> bool:
        """Whether any webhook is configured."""
        return bool(self._receivers)

    def observe(self, announced: Announced, at: float, wall: float) -> None:
        """Queues what is due; `at` is monotonic, `wall` unix seconds. Call it at every step."""
        changed = {announced.seen[fingerprint].group for fingerprint in announced.news}
        for receiver in self._receivers:
            receiver.review(changed, at, wall)

    def needs(self, fingerprint: str, announcement: Announcement, wall: float) -> bool:
        """Whether a receiver that believes it fires still needs a message of its end."""
        if wall - announcement.changed_at > _ENDED_KEPT_SECONDS:
            return False
        return any(receiver.believes(announcement.group, fingerprint) for receiver in self._receivers)

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


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What was last delivered of a target: what fired, and when (steady and unix seconds)."""

    alerts: Mapping[str, Alert]
    wall: float
    at: float


@dataclass(frozen=True, slots=True)
class _Kept:
    """The same in the ledger."""

    wall: float
    alerts: tuple[Alert, ...]


_KEPT = TypeAdapter(_Kept)


@dataclass(frozen=True, slots=True)
class _Refusal:
    content: frozenset[tuple[str, bool]]
    at: float


class _Moment(NamedTuple):
    at: float = 0.0
    wall: float = 0.0


class _Agenda:
    """Which targets to look at again, and when (monotonic), though nothing changes in them."""

    def __init__(self) -> None:
        self._line: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def put(self, target: str, at: float) -> None:
        """Looks at it at that time; one that is to be looked at sooner is put here again then."""
        if at < self._at.get(target, float("inf")):
            self._at[target] = at
            heapq.heappush(self._line, (at, target))

    def take(self, at: float) -> set[str]:
        """Those whose time has come; they are on it no longer."""
        due = set()
        while self._line and self._line[0][0] <= at:
            planned_at, target = heapq.heappop(self._line)
            if self._at.get(target) == planned_at:
                del self._at[target]
                due.add(target)
        return due


class _Receiver:
    """One webhook: compares what fires with what was delivered, as Alertmanager's notification log does."""

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
        # Of a run before: when they were delivered by our steady clock is known with the first look.
        self._inherited = _deliveries_in(ledger)
        self._delivered: dict[str, _Delivered] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._now = _Moment()
        # At first at all of them: what a run before left unsaid is said now.
        self._unseen = {*announcements.groups, *self._inherited}
        self._agenda = _Agenda()
        self._poster = Poster(settings.endpoint_at(settings.url), status_is_enough=True)
        self.outbox: Outbox[None] = Outbox(
            settings.name,
            self._deliver,
            self._poster.abort,
            capacity=_GROUPS_AT_MOST,
            batch_size=1,
            timeout_seconds=settings.timeout_seconds,
        )

    def believes(self, target: str, fingerprint: str) -> bool:
        """Whether the last message that it took says that this alert fires."""
        delivered = self._delivered.get(target)
        return delivered is not None and fingerprint in delivered.alerts

    def review(self, changed: Collection[str], at: float, wall: float) -> None:
        """Queues each target of which there is something to say, among those that changed or whose time has come."""
        self._now = _Moment(at, wall)
        self._take_up()
        for target in sorted({*changed, *self._unseen, *self._agenda.take(at)}):
            if not self._settings.send_resolved:
                self._drop_ended(target)
            message = self._message(target)
            if message is None:
                self._refusals.pop(target, None)
            elif not self._is_held(message):
                self.outbox.put(Parcel(target, None))
            self._plan(target, message)
        self._unseen = set()

    def _take_up(self) -> None:
        """Goes on with what a run before delivered; a clock that was set since brings no reminder and puts none off."""
        for target, kept in self._inherited.items():
            age_seconds = self._now.wall - kept.wall
            if not 0 <= age_seconds <= self._settings.repeat_interval_seconds + _LONGEST_ABSENCE_SECONDS:
                age_seconds = 0.0
            alerts = {each.fingerprint: each for each in kept.alerts}
            self._delivered[target] = _Delivered(alerts, kept.wall, self._now.at - age_seconds)
        self._inherited = {}

    def _message(self, target: str) -> Message | None:
        """What is to be said of a target now; None where it has heard all."""
        now = self._now
        firing = self._firing(target)
        delivered = self._delivered.get(target) or _Delivered({}, now.wall, now.at)
        ended = {
            each: self._ended_alert(target, each, alert)
            for each, alert in delivered.alerts.items()
            if each not in firing
        }
        is_new = bool(firing.keys() - delivered.alerts.keys())
        is_over = bool(ended) and self._settings.send_resolved
        is_reminder = bool(firing) and now.at - delivered.at >= self._settings.repeat_interval_seconds
        if not (is_new or is_over or is_reminder):
            return None
        return Message(target, firing, ended if self._settings.send_resolved else {})

    def _firing(self, target: str) -> dict[str, Alert]:
        known = self._announcements.of_group(target)
        return {each: one.alert for each, one in known.items() if one.firing}

    def _ended_alert(self, target: str, fingerprint: str, delivered: Alert) -> Alert:
        announcement = self._announcements.of_group(target).get(fingerprint)
        if announcement is not None and not announcement.firing:
            return announcement.alert
        return delivered.resolved(self._now.wall)

    def _plan(self, target: str, message: Message | None) -> None:
        """Notes when to look at a target again: for a reminder, after a refusal, or where a message was lost."""
        now = self._now
        moments = []
        if (refusal := self._refusals.get(target)) is not None:
            moments.append(refusal.at + self._pause_seconds)
        if (delivered := self._delivered.get(target)) is not None:
            moments.append(delivered.at + self._settings.repeat_interval_seconds)
        if message is not None:
            moments.append(now.at + self._pause_seconds)
        to_come = [moment for moment in moments if moment > now.at]
        if to_come:
            self._agenda.put(target, min(to_come))

    @property
    def _pause_seconds(self) -> float:
        return min(_REFUSED_PAUSE_SECONDS, self._settings.repeat_interval_seconds)

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
            self._note_delivered(message, now)
            return Delivery(sent=1)
        if answer.worth_retrying:
            return Delivery(errors=1, again=frozenset({target}), detail=answer.detail)
        with self._lock:
            self._refusals[target] = _Refusal(_content(message), now.at)
            self._plan(target, message)
        return Delivery(errors=1, detail=answer.detail)

    def _note_delivered(self, message: Message, now: _Moment) -> None:
        with self._lock:
            self._refusals.pop(message.target, None)
            self._keep(message.target, _Delivered(dict(message.firing), now.wall, now.at))
            more = self._message(message.target)
            if more is not None:
                self.outbox.put(Parcel(message.target, None))
            self._plan(message.target, more)

    def _drop_ended(self, target: str) -> None:
        """Forgets in silence what ended, so that it is said when it begins again."""
        delivered = self._delivered.get(target)
        if delivered is None:
            return
        firing = self._firing(target)
        left = {each: alert for each, alert in delivered.alerts.items() if each in firing}
        if len(left) < len(delivered.alerts):
            self._keep(target, _Delivered(left, delivered.wall, delivered.at))

    def _keep(self, target: str, delivered: _Delivered) -> None:
        if delivered.alerts:
            self._delivered[target] = delivered
            kept = _Kept(delivered.wall, tuple(delivered.alerts.values()))
            self._ledger.save({target: _KEPT.dump_json(kept).decode()})
        else:
            self._delivered.pop(target, None)
            self._ledger.save({target: None})

    def _is_held(self, message: Message) -> bool:
        refusal = self._refusals.get(message.target)
        if refusal is None or refusal.content != _content(message):
            return False
        return self._now.at - refusal.at < self._pause_seconds


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


def _deliveries_in(ledger: Ledger) -> dict[str, _Kept]:
    read = {}
    for target, text in ledger.load().items():
        try:
            read[target] = _KEPT.validate_json(text)
        except ValueError as error:
            _log.warning("delivered_alerts_unreadable", extra={"target": target, "error": repr(error)})
    return read
