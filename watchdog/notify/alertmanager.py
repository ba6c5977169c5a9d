"""Alerts pushed to Alertmanager's v2 API: to each one by itself, again and again, as Prometheus does."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from watchdog.clock import steady_seconds
from watchdog.http.post import Answer, Poster
from watchdog.http.url import redact_url
from watchdog.notify.alert import Alert, AlertBuilder, compact_json
from watchdog.notify.announcements import Announced, Announcement
from watchdog.notify.outbox import LONGEST_PAUSE_SECONDS, Delivery, Outbox, Parcel, Statistics, stop_all
from watchdog.notify.receiver_clock import ReceiverClock
from watchdog.settings.model import AlertmanagerEndpoint, AlertmanagerSettings
from watchdog.text import timestamp

_log = logging.getLogger(__name__)

BATCH_SIZE = 256
ALERTS_PATH = "/api/v2/alerts"
# The content cannot be taken, whoever sends it and whenever.
_REFUSED = frozenset({400, 413, 422})
_ENDS_AFTER_RESENDS = 4
# So many refusals and nothing taken: that is the receiver, or a proxy before it. One bad alert among a batch takes ten.
_REFUSALS_OF_A_RECEIVER = 20


@dataclass(slots=True)
class _Ended:
    """An alert that is over and is sent again for a while: since when, and when last (monotonic)."""

    alert: Alert
    since: float
    sent_at: float
    # Whether our clock said so, not that of a life before.
    is_own: bool = True


class Moment(NamedTuple):
    """One moment by our clocks: steady and unix seconds."""

    at: float
    wall: float


class AlertmanagerSender:
    """Keeps every configured Alertmanager informed of what fires and of what has ended lately.

    Alerts are sent only as far as `observe` is called: where the watching stops, the alerts end by themselves
    at their `endsAt`, and so does the heartbeat. Not safe for threads: its owner locks. `ended` is what ended
    before a restart.
    """

    def __init__(
        self,
        settings: AlertmanagerSettings,
        builder: AlertBuilder,
        interval_seconds: float,
        ended: Mapping[str, Announcement],
    ) -> None:
        self._resend_seconds = settings.resend_seconds
        self._retention_seconds = settings.resolved_retention_seconds
        self._horizon_seconds = _ENDS_AFTER_RESENDS * max(interval_seconds, settings.resend_seconds)
        self._outboxes = tuple(_outbox(each, settings, self._horizon_seconds) for each in settings.urls)
        self._sent_at: dict[str, float] = {}
        self._left_to_send = dict(ended)
        # The one sent longest ago first.
        self._ended: dict[str, _Ended] = {}
        # Those that began in this life.
        self._own: set[str] = set()
        self._builder = builder
        self._wants_heartbeat = settings.heartbeat
        self._heartbeat: Alert | None = None
        self._beat_at: float | None = None

    @property
    def has_receivers(self) -> bool:
        """Whether any Alertmanager is configured."""
        return bool(self._outboxes)

    def observe(self, announced: Announced, at: float, wall: float) -> None:
        """Queues what is due; `at` is monotonic, `wall` unix seconds. Call it at every step."""
        if not self._outboxes:
            return
        now = Moment(at, wall)
        for fingerprint, announcement in self._left_to_send.items():
            self._send_end(fingerprint, _Ended(announcement.alert, at, at, is_own=False), now)
        self._left_to_send.clear()
        for fingerprint, announcement in announced.seen.items():
            is_news = fingerprint in announced.news
            if announcement.firing:
                self._ended.pop(fingerprint, None)
                if is_news:
                    self._own.add(fingerprint)
                if is_news or self._is_due(self._sent_at.get(fingerprint), at):
                    self._sent_at[fingerprint] = at
                    self._queue(fingerprint, announcement.alert, now)
            elif is_news:
                self._sent_at.pop(fingerprint, None)
                self._send_end(fingerprint, _Ended(announcement.alert, at, at), now)
        self._send_ends_again(now)
        self._beat(now)

    def needs(self, fingerprint: str) -> bool:
        """Whether an end is still to be sent."""
        return bool(self._outboxes) and (fingerprint in self._ended or fingerprint in self._left_to_send)

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

    def _is_due(self, sent_at: float | None, at: float) -> bool:
        return sent_at is None or at - sent_at >= self._resend_seconds

    def _send_ends_again(self, now: Moment) -> None:
        due = list(takewhile(lambda each: self._is_due(each[1].sent_at, now.at), self._ended.items()))
        for fingerprint, ended in due:
            del self._ended[fingerprint]
            if now.at - ended.since <= self._retention_seconds:
                self._send_end(fingerprint, replace(ended, sent_at=now.at), now)
            else:
                self._own.discard(fingerprint)

    def _send_end(self, fingerprint: str, ended: _Ended, now: Moment) -> None:
        self._ended[fingerprint] = ended
        self._queue(fingerprint, ended.alert, now, ended_here=ended.is_own)

    def _beat(self, now: Moment) -> None:
        if not (self._wants_heartbeat and self._is_due(self._beat_at, now.at)):
            return
        if self._heartbeat is None:
            self._heartbeat = self._builder.heartbeat(now.wall)
            self._own.add(self._heartbeat.fingerprint)
        self._beat_at = now.at
        self._queue(self._heartbeat.fingerprint, self._heartbeat, now)

    def _queue(self, fingerprint: str, alert: Alert, now: Moment, *, ended_here: bool = True) -> None:
        draft = _Draft(
            _content(alert),
            now,
            starts_at=alert.starts_at,
            ends_at=alert.ends_at,
            lives_seconds=self._horizon_seconds,
            began_here=fingerprint in self._own,
            ended_here=ended_here,
        )
        # Past its end a firing alert would read as a resolved one.
        expires_at = steady_seconds() + (
            self._horizon_seconds if alert.ends_at is None else self._retention_seconds
        )
        for outbox in self._outboxes:
            outbox.put(Parcel(fingerprint, draft, expires_at))


@dataclass(frozen=True, slots=True)
class _Draft:
    """An alert whose times are by our clock; `content` is all but them, as JSON without its last brace.

    While it fires (`ends_at` is None) it lives for `lives_seconds` from `now` on.
    """

    content: bytes
    now: Moment
    starts_at: float
    ends_at: float | None
    lives_seconds: float
    began_here: bool
    ended_here: bool

    def start(self, ahead_seconds: float) -> float:
        """When it began, by a clock that is so far ahead of ours; what a life before saw began by the clock of then."""
        return self.starts_at + (ahead_seconds if self.began_here else 0.0)

    def finished(self, starts_at: float, ahead_seconds: float) -> bytes:
        """The alert with its times by a clock that is so far ahead of ours."""
        there = self.now.wall + ahead_seconds
        if self.ends_at is None:
            starts_at, ends_at = min(starts_at, there), there + self.lives_seconds
        else:
            ends_at = min(self.ends_at + (ahead_seconds if self.ended_here else 0.0), there)
        times = {"startsAt": timestamp(min(starts_at, ends_at)), "endsAt": timestamp(ends_at)}
        return self.content + b"," + compact_json(times)[1:]


def _content(alert: Alert) -> bytes:
    body: dict[str, object] = {"labels": dict(alert.labels), "annotations": dict(alert.annotations)}
    if alert.generator_url:
        body["generatorURL"] = alert.generator_url
    return compact_json(body)[:-1]


@dataclass(slots=True)
class _Quarantined:
    """An alert that this Alertmanager cannot take: tried alone, and ever more rarely."""

    starts_at: float
    times: int
    next_try_at: float


class _Refused(NamedTuple):
    """A parcel that was refused by itself, and the answer."""

    parcel: Parcel[_Draft]
    answer: Answer


class _Alertmanager:
    """One Alertmanager: what it refuses, while it takes others, is kept out of their batches.

    Where it takes nothing the fault is its own or that of a proxy, whatever it answers: all is tried again. Alerts
    are sent in its time: by a clock that is a day off they would be over as they arrive, or never.
    """

    def __init__(
        self,
        poster: Poster,
        clock: ReceiverClock,
        resend_seconds: float,
        horizon_seconds: float,
        capacity: int,
    ) -> None:
        self._poster = poster
        self._clock = clock
        self._resend_seconds = resend_seconds
        self._horizon_seconds = horizon_seconds
        self._capacity = capacity
        self._quarantined: dict[str, _Quarantined] = {}
        # When each alert began by our clock, and by theirs when it was first sent: a clock that is set moves no start.
        self._starts: dict[str, tuple[float, float]] = {}

    def deliver(self, batch: Sequence[Parcel[_Draft]], timeout_seconds: float) -> Delivery:
        """Posts the batch; alerts known to be refused go alone, and only when their time has come."""
        give_up_at = steady_seconds() + timeout_seconds
        if (silent := self._ask_the_time(batch, timeout_seconds)) is not None:
            return silent
        suspects = [parcel for parcel in batch if self._is_suspect(parcel)]
        rest = [parcel for parcel in batch if parcel not in suspects]
        due = [
            parcel
            for parcel in suspects
            if self._quarantined[parcel.identity].next_try_at <= steady_seconds()
        ]
        refused: list[_Refused] = []
        delivery = self._post(rest, give_up_at, refused) if rest else Delivery()
        for parcel in due:
            delivery = _sum(delivery, self._post([parcel], give_up_at, refused))
        if delivery.sent:
            for each in refused:
                self._quarantine(*each)
            return delivery
        # Those that were known to be refused are so still, as far as can be told.
        names = frozenset(parcel.identity for parcel, _ in refused if parcel not in suspects)
        for parcel, answer in refused:
            if parcel in suspects:
                self._quarantine(parcel, answer)
        return replace(delivery, again=delivery.again | names)

    def _ask_the_time(self, batch: Sequence[Parcel[_Draft]], timeout_seconds: float) -> Delivery | None:
        """Reads its clock where it is in doubt, by a post of no alert; what becomes of the batch where it is silent."""
        if not self._clock.is_in_doubt(*batch[-1].content.now):
            return None
        answer = self._ask(b"[]", timeout_seconds, batch)
        if not answer.worth_retrying:
            return None
        return Delivery(
            errors=len(batch), again=frozenset(parcel.identity for parcel in batch), detail=answer.detail
        )

    def _ask(self, body: bytes, timeout_seconds: float, parcels: Sequence[Parcel[_Draft]]) -> Answer:
        """Posts, and learns from the answer what time it is there."""
        asked_at = steady_seconds()
        answer = self._poster.post(body, timeout_seconds)
        if answer.accepted and not _is_page(answer):
            self._clock.learn(answer.date, asked_at, steady_seconds(), *parcels[-1].content.now)
        return answer

    def _finished(self, parcel: Parcel[_Draft]) -> bytes:
        draft = parcel.content
        ahead_seconds = self._clock.ahead_seconds(*draft.now)
        ours, theirs = self._starts.pop(parcel.identity, (None, 0.0))
        if ours != draft.starts_at:
            theirs = draft.start(ahead_seconds)
        self._starts[parcel.identity] = (draft.starts_at, theirs)
        while len(self._starts) > self._capacity:
            del self._starts[next(iter(self._starts))]
        return draft.finished(theirs, ahead_seconds)

    def _post(
        self, parcels: Sequence[Parcel[_Draft]], give_up_at: float, refused: list[_Refused]
    ) -> Delivery:
        """Posts them; of those that are refused each is noted in `refused` by itself."""
        left_seconds = give_up_at - steady_seconds()
        if left_seconds <= 0 or len(refused) >= _REFUSALS_OF_A_RECEIVER:
            return Delivery(again=frozenset(parcel.identity for parcel in parcels))
        answer = self._ask(b"[" + b",".join(map(self._finished, parcels)) + b"]", left_seconds, parcels)
        if answer.status in _REFUSED:
            return self._isolate(parcels, give_up_at, answer, refused)
        if not answer.accepted or _is_page(answer):
            names = frozenset(parcel.identity for parcel in parcels)
            return Delivery(errors=len(parcels), again=names, detail=answer.detail)
        for parcel in parcels:
            self._quarantined.pop(parcel.identity, None)
        return Delivery(sent=len(parcels))

    def _isolate(
        self,
        parcels: Sequence[Parcel[_Draft]],
        give_up_at: float,
        answer: Answer,
        refused: list[_Refused],
    ) -> Delivery:
        """Halves the batch until the alert that is not taken stands alone."""
        if len(parcels) == 1:
            refused.append(_Refused(parcels[0], answer))
            return Delivery(errors=1, detail=answer.detail)
        middle = len(parcels) // 2
        return _sum(
            self._post(parcels[:middle], give_up_at, refused),
            self._post(parcels[middle:], give_up_at, refused),
        )

    def _is_suspect(self, parcel: Parcel[_Draft]) -> bool:
        refused = self._quarantined.get(parcel.identity)
        return refused is not None and refused.starts_at == parcel.content.starts_at

    def _quarantine(self, parcel: Parcel[_Draft], answer: Answer) -> None:
        before = self._quarantined.pop(parcel.identity, None)
        times = before.times + 1 if before and before.starts_at == parcel.content.starts_at else 1
        # Half a resend early, so that the resend due then is taken: beyond the horizon the alert would end.
        pause_seconds = min(
            self._resend_seconds * (2**times - 0.5), self._horizon_seconds - self._resend_seconds / 2
        )
        self._quarantined[parcel.identity] = _Quarantined(
            parcel.content.starts_at, times, steady_seconds() + pause_seconds
        )
        while len(self._quarantined) > self._capacity:
            del self._quarantined[next(iter(self._quarantined))]
        _log.warning(
            "alert_refused",
            extra={
                "fingerprint": parcel.identity,
                "answer": answer.detail,
                "next_try_seconds": pause_seconds,
            },
        )


def _outbox(
    entry: AlertmanagerEndpoint, settings: AlertmanagerSettings, horizon_seconds: float
) -> Outbox[_Draft]:
    poster = Poster(entry.endpoint_at(entry.url.rstrip("/") + ALERTS_PATH))
    receiver = redact_url(entry.url)
    alertmanager = _Alertmanager(
        poster,
        ReceiverClock(receiver),
        settings.resend_seconds,
        horizon_seconds,
        settings.queue_capacity,
    )
    return Outbox(
        receiver,
        alertmanager.deliver,
        poster.abort,
        capacity=settings.queue_capacity,
        batch_size=BATCH_SIZE,
        timeout_seconds=settings.timeout_seconds,
        longest_pause_seconds=min(LONGEST_PAUSE_SECONDS, horizon_seconds / 2),
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
