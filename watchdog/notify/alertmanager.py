"""Alerts pushed to Alertmanager's v2 API: to each one by itself, again and again, as Prometheus does."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from watchdog.clock import steady_seconds
from watchdog.http.post import Answer, Poster, endpoint_at
from watchdog.model import Incident, Key
from watchdog.notify.alert import Alert, AlertBuilder, compact_json
from watchdog.notify.announcements import Announcement, Announcements, Ledger, no_ledger
from watchdog.notify.outbox import Delivery, Outbox, Parcel, Statistics, stop_all
from watchdog.settings.model import AlertmanagerEndpoint, AlertmanagerSettings
from watchdog.settings.values import redact_url
from watchdog.text import timestamp

_log = logging.getLogger(__name__)

BATCH_SIZE = 256
ALERTS_PATH = "/api/v2/alerts"
# The content cannot be taken, whoever sends it and whenever.
_REFUSED = frozenset({400, 413, 422})
_ENDS_AFTER_RESENDS = 4
_LONGEST_QUARANTINE_SECONDS = 3600.0


class AlertmanagerSender:
    """Keeps every configured Alertmanager told of what fires and of what has ended lately.

    `observe` may be called from many threads. Alerts are sent only as far as `observe` is called: where the
    watching stops, the alerts end by themselves at their `endsAt`, and so does the heartbeat.
    """

    def __init__(
        self,
        settings: AlertmanagerSettings,
        external_url: str | None,
        *,
        interval_seconds: float = 5.0,
        ledgers: Callable[[str], Ledger] = no_ledger,
    ) -> None:
        self._resend_seconds = settings.resend_seconds
        self._retention_seconds = settings.resolved_retention_seconds
        self._horizon_seconds = _ENDS_AFTER_RESENDS * max(interval_seconds, settings.resend_seconds)
        self._builder = AlertBuilder(settings.external_labels, external_url or "")
        self._announcements = Announcements(self._builder, settings.symptoms, ledgers("alertmanager"))
        self._outboxes = tuple(_outbox(each, settings) for each in settings.urls)
        self._lock = threading.Lock()
        self._sent_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._heartbeat: Alert | None = None
        self._wants_heartbeat = settings.heartbeat

    def observe(
        self, incidents: Iterable[Incident], at: float, wall: float, lead_keys: Collection[Key] | None = None
    ) -> None:
        """Takes in incidents as they stand and queues what is due; `at` is monotonic, `wall` unix seconds.

        Call it at every step, also with no incidents. Those not passed are left as they were. The lead of a
        target is worked out from the incidents passed, unless `lead_keys` says it.
        """
        if not self._outboxes:
            return
        with self._lock:
            seen, news = self._announcements.observe(incidents, wall, lead_keys)
            for fingerprint in seen:
                if seen[fingerprint].firing:
                    self._ended_at.pop(fingerprint, None)
            ended = self._ended_lately(at)
            for fingerprint, announcement in (seen | ended).items():
                if fingerprint in news or self._is_due(fingerprint, at):
                    self._queue(fingerprint, announcement.alert, at, wall)
            self._beat(at, wall)

    def run(self) -> None:
        """Starts one thread for each Alertmanager."""
        for outbox in self._outboxes:
            outbox.run()

    def stop(self, drain_seconds: float) -> None:
        """Sends what is queued for `drain_seconds` at most and ends the threads; resolves nothing."""
        stop_all(self._outboxes, drain_seconds)

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of each Alertmanager, in the order of the settings."""
        return tuple(outbox.statistics() for outbox in self._outboxes)

    def _ended_lately(self, at: float) -> dict[str, Announcement]:
        """What has ended and is still to be told; forgets the rest."""
        ended = self._announcements.ended()
        for fingerprint in ended:
            self._ended_at.setdefault(fingerprint, at)
        over = [each for each in ended if at - self._ended_at[each] > self._retention_seconds]
        if over:
            self._announcements.forget(over)
            for fingerprint in over:
                del self._ended_at[fingerprint]
                self._sent_at.pop(fingerprint, None)
        return {each: one for each, one in ended.items() if each not in set(over)}

    def _is_due(self, fingerprint: str, at: float) -> bool:
        sent_at = self._sent_at.get(fingerprint)
        return sent_at is None or at - sent_at >= self._resend_seconds

    def _queue(self, fingerprint: str, alert: Alert, at: float, wall: float) -> None:
        self._sent_at[fingerprint] = at
        ends_at = alert.ends_at if alert.ends_at is not None else wall + self._horizon_seconds
        starts_at = min(alert.starts_at, ends_at)
        body = {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": timestamp(starts_at),
            "endsAt": timestamp(ends_at),
        }
        if alert.generator_url:
            body["generatorURL"] = alert.generator_url
        # Past its end a firing alert would read as a resolved one.
        expires_at = steady_seconds() + (
            self._horizon_seconds if alert.ends_at is None else self._retention_seconds
        )
        for outbox in self._outboxes:
            outbox.put(Parcel(fingerprint, _Encoded(starts_at, compact_json(body)), expires_at))

    def _beat(self, at: float, wall: float) -> None:
        if not self._wants_heartbeat:
            return
        if self._heartbeat is None:
            self._heartbeat = self._builder.heartbeat(wall)
        fingerprint = self._heartbeat.fingerprint
        if self._is_due(fingerprint, at):
            self._queue(fingerprint, self._heartbeat, at, wall)


@dataclass(frozen=True, slots=True)
class _Encoded:
    starts_at: float
    body: bytes


@dataclass(slots=True)
class _Refusal:
    """An alert that this Alertmanager cannot take: tried alone, and ever more rarely."""

    starts_at: float
    times: int
    next_try_at: float


class _Alertmanager:
    """One Alertmanager: what it refuses is kept out of the batches of the others."""

    def __init__(self, poster: Poster, resend_seconds: float, capacity: int) -> None:
        self._poster = poster
        self._resend_seconds = resend_seconds
        self._capacity = capacity
        self._refusals: dict[str, _Refusal] = {}

    def deliver(self, batch: Sequence[Parcel[_Encoded]], timeout_seconds: float) -> Delivery:
        """Posts the batch; alerts known to be refused go alone, and only when their time has come."""
        give_up_at = steady_seconds() + timeout_seconds
        suspects = [parcel for parcel in batch if self._is_suspect(parcel)]
        rest = [parcel for parcel in batch if parcel not in suspects]
        due = [
            parcel for parcel in suspects if self._refusals[parcel.identity].next_try_at <= steady_seconds()
        ]
        delivery = self._post(rest, give_up_at) if rest else Delivery()
        for parcel in due:
            delivery = _sum(delivery, self._post([parcel], give_up_at))
        return delivery

    def _post(self, parcels: Sequence[Parcel[_Encoded]], give_up_at: float) -> Delivery:
        left_seconds = give_up_at - steady_seconds()
        if left_seconds <= 0:
            return Delivery(again=frozenset(parcel.identity for parcel in parcels))
        body = b"[" + b",".join(parcel.content.body for parcel in parcels) + b"]"
        answer = self._poster.post(body, left_seconds)
        if answer.status in _REFUSED:
            return self._isolate(parcels, give_up_at, answer)
        if not answer.accepted or _is_page(answer):
            names = frozenset(parcel.identity for parcel in parcels)
            return Delivery(errors=len(parcels), again=names, detail=answer.detail)
        for parcel in parcels:
            self._refusals.pop(parcel.identity, None)
        return Delivery(sent=len(parcels))

    def _isolate(self, parcels: Sequence[Parcel[_Encoded]], give_up_at: float, answer: Answer) -> Delivery:
        """Halves the batch until the alert that is not taken stands alone."""
        if len(parcels) == 1:
            self._quarantine(parcels[0], answer)
            return Delivery(errors=1, detail=answer.detail)
        middle = len(parcels) // 2
        return _sum(self._post(parcels[:middle], give_up_at), self._post(parcels[middle:], give_up_at))

    def _is_suspect(self, parcel: Parcel[_Encoded]) -> bool:
        refusal = self._refusals.get(parcel.identity)
        return refusal is not None and refusal.starts_at == parcel.content.starts_at

    def _quarantine(self, parcel: Parcel[_Encoded], answer: Answer) -> None:
        before = self._refusals.pop(parcel.identity, None)
        times = before.times + 1 if before and before.starts_at == parcel.content.starts_at else 1
        pause_seconds = min(
            self._resend_seconds * 4**times, max(_LONGEST_QUARANTINE_SECONDS, self._resend_seconds)
        )
        self._refusals[parcel.identity] = _Refusal(
            parcel.content.starts_at, times, steady_seconds() + pause_seconds
        )
        while len(self._refusals) > self._capacity:
            del self._refusals[next(iter(self._refusals))]
        _log.warning(
            "alert_refused",
            extra={
                "fingerprint": parcel.identity,
                "answer": answer.detail,
                "next_try_seconds": pause_seconds,
            },
        )


def _outbox(entry: AlertmanagerEndpoint, settings: AlertmanagerSettings) -> Outbox[_Encoded]:
    poster = Poster(endpoint_at(entry.url.rstrip("/") + ALERTS_PATH, entry))
    alertmanager = _Alertmanager(poster, settings.resend_seconds, settings.queue_capacity)
    return Outbox(
        redact_url(entry.url),
        alertmanager.deliver,
        poster.abort,
        capacity=settings.queue_capacity,
        batch_size=BATCH_SIZE,
        timeout_seconds=settings.timeout_seconds,
    )


def _is_page(answer: Answer) -> bool:
    """Whether something that is no Alertmanager answered: a login page, a proxy's error page."""
    return answer.html or answer.content.lstrip().startswith(b"<")


def _sum(first: Delivery, second: Delivery) -> Delivery:
    return Delivery(
        first.sent + second.sent,
        first.errors + second.errors,
        first.again | second.again,
        first.detail or second.detail,
    )
