"""Messages to people through Apprise: one when an incident begins or gets worse, one when it is over."""

import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from watchdog.clock import steady_seconds
from watchdog.model import Key, Severity
from watchdog.notify.alert import severity_rank
from watchdog.notify.announcements import Announced, Announcement, Announcements, Ledger
from watchdog.notify.message import Message, beginning, ending
from watchdog.notify.outbox import Delivery, Outbox, Parcel, Statistics, stop_all
from watchdog.settings.apprise import AppriseSettings, UrlFileError, service_of, url_in

_log = logging.getLogger(__name__)

_MESSAGES_AT_MOST = 10_000
# A service that refuses is asked ever more rarely: it may be our own pace that it minds.
_LONGEST_PAUSE_SECONDS = 300.0
# After that long a message is no news.
_TRIED_SECONDS = 3600.0
_ENDED_KEPT_SECONDS = 86_400.0
_STATUS = re.compile(r"\berror=([1-5][0-9]{2})\b")
_TOLD = TypeAdapter(Announcement)


class AppriseSender:
    """Sends to every configured place what begins and ends.

    `lock` guards `announcements`; the threads that send take it, and `observe` is called by whoever holds it.
    """

    def __init__(
        self,
        settings: Sequence[AppriseSettings],
        announcements: Announcements,
        lock: threading.Lock,
        ledgers: Callable[[str], Ledger],
    ) -> None:
        self._receivers = tuple(
            _Receiver(each, announcements, lock, ledgers(f"apprise {each.name}")) for each in settings
        )

    @property
    def has_receivers(self) -> bool:
        """Whether any place is configured."""
        return bool(self._receivers)

    def observe(self, announced: Announced, wall: float) -> None:
        """Queues what is due; `wall` is in unix seconds. Call it at every step."""
        changed = {announced.seen[fingerprint].group for fingerprint in announced.news}
        for receiver in self._receivers:
            receiver.review(changed, wall)

    def needs(self, announcement: Announcement, wall: float) -> bool:
        """Whether a place that knows that it fires still needs a message of its end."""
        if wall - announcement.changed_at > _ENDED_KEPT_SECONDS:
            return False
        return any(receiver.believes(announcement.key) for receiver in self._receivers)

    def run(self) -> None:
        """Starts one thread for each place."""
        for receiver in self._receivers:
            receiver.outbox.run()

    def stop(self, drain_seconds: float) -> None:
        """Sends what is queued for `drain_seconds` at most and ends the threads."""
        stop_all([receiver.outbox for receiver in self._receivers], drain_seconds)

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of each place, in the order of the settings; messages, not alerts."""
        return tuple(receiver.outbox.statistics() for receiver in self._receivers)


@dataclass(frozen=True, slots=True)
class _Note:
    """What is to be said of an incident now; `told` is what is believed once it is said, None where it is over."""

    message: Message
    kind: str
    told: Announcement | None

    @property
    def identity(self) -> tuple[str, str]:
        return (self.told.severity if self.told else "", self.message.title)


class _Receiver:
    """One place: compares what fires with what was sent there."""

    def __init__(
        self, settings: AppriseSettings, announcements: Announcements, lock: threading.Lock, ledger: Ledger
    ) -> None:
        self._settings = settings
        self._announcements = announcements
        self._lock = lock
        self._ledger = ledger
        self._told = _told_in(ledger)
        self._service = _Service(settings)
        self._wall = 0.0
        self._failing_since: dict[Key, float] = {}
        self._given_up: dict[Key, tuple[str, str]] = {}
        # At first at all of them: what a run before left unsaid is said now.
        self._unseen = {*announcements.groups, *(key.target for key in self._told)}
        self.outbox: Outbox[Key] = Outbox(
            settings.name,
            self._deliver,
            lambda: None,
            capacity=_MESSAGES_AT_MOST,
            batch_size=1,
            timeout_seconds=settings.timeout_seconds,
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
        )

    def believes(self, key: Key) -> bool:
        """Whether the last message of an incident that went there says that it fires."""
        return key in self._told

    def review(self, changed: Collection[str], wall: float) -> None:
        """Queues each incident of which there is something to say, on the targets that changed."""
        self._wall = wall
        for target in sorted({*changed, *self._unseen}):
            for key in self._keys(target):
                note = self._note(key)
                if note is None:
                    self._given_up.pop(key, None)
                    self._failing_since.pop(key, None)
                elif self._given_up.get(key) != note.identity:
                    self.outbox.put(Parcel(str(key), key))
        self._unseen = set()

    def _keys(self, target: str) -> Iterator[Key]:
        known = (one.key for one in self._announcements.of_group(target).values())
        yield from dict.fromkeys((*known, *(key for key in self._told if key.target == target)))

    def _note(self, key: Key) -> _Note | None:
        """What is to be said of an incident now; None where all is said."""
        told, firing = self._told.get(key), self._firing(key)
        if firing is not None:
            if told is not None and severity_rank(told.severity) <= severity_rank(firing.severity):
                return None
            kind = "failure" if firing.severity == Severity.CRITICAL else "warning"
            return _Note(beginning(firing), kind, firing)
        if told is None:
            return None
        if not self._settings.send_resolved:
            self._keep(key, None)
            return None
        return _Note(ending(told.alert, self._ended_at(told)), "success", None)

    def _firing(self, key: Key) -> Announcement | None:
        """The gravest of what fires of an incident and is to be sent here."""
        least = severity_rank(self._settings.least_severity)
        known = self._announcements.of_group(key.target).values()
        grave = [
            one for one in known if one.key == key and one.firing and severity_rank(one.severity) <= least
        ]
        return min(grave, key=lambda one: severity_rank(one.severity), default=None)

    def _ended_at(self, told: Announcement) -> float:
        known = self._announcements.of_group(told.key.target).get(told.alert.fingerprint)
        ended_at = known.alert.ends_at if known is not None else None
        return self._wall if ended_at is None else ended_at

    def _deliver(self, batch: Sequence[Parcel[Key]], timeout_seconds: float) -> Delivery:
        """Says what is true at this moment, not what was when the incident was queued."""
        key = batch[0].content
        with self._lock:
            note = self._note(key)
        if note is None:
            return Delivery()
        fault = self._service.send(note.message, note.kind, timeout_seconds)
        with self._lock:
            if not fault:
                self._failing_since.pop(key, None)
                self._keep(key, note.told)
                # It may have ended, or got worse, meanwhile.
                if self._note(key) is not None:
                    self.outbox.put(Parcel(str(key), key))
                return Delivery(sent=1)
            since = self._failing_since.setdefault(key, steady_seconds())
            if steady_seconds() - since < _TRIED_SECONDS:
                return Delivery(errors=1, again=frozenset({batch[0].identity}), detail=fault)
            self._give_up(key, note, fault)
        return Delivery(errors=1, dropped=1, detail=fault)

    def _give_up(self, key: Key, note: _Note, fault: str) -> None:
        self._failing_since.pop(key, None)
        self._given_up[key] = note.identity
        if note.told is None:
            self._keep(key, None)
        _log.warning(
            "message_given_up",
            extra={"receiver": self._settings.name, "title": note.message.title, "error": fault},
        )

    def _keep(self, key: Key, told: Announcement | None) -> None:
        if told is not None:
            self._told[key] = told
            self._ledger.save({str(key): json.dumps(_TOLD.dump_python(told, mode="json"))})
        elif self._told.pop(key, None) is not None:
            self._ledger.save({str(key): None})


class _Service:
    """What Apprise makes of the URL in a file; made again when the file has another one. For one thread."""

    def __init__(self, settings: AppriseSettings) -> None:
        self._settings = settings
        self._url = ""
        self._service: Any = None

    def send(self, message: Message, kind: str, timeout_seconds: float) -> str:
        """Sends, within the service's own rate; empty where it was taken, else why not, without any of the URL."""
        try:
            url = url_in(self._settings.url_file)
            if url != self._url or self._service is None:
                # Kept from message to message: it is what remembers when it may send again.
                self._service, self._url = service_of(url), url
            result = self._service.notify(
                body=message.body,
                title=message.title,
                notify_type=kind,
                body_format="text",
                timeout=max(1.0, timeout_seconds),
            )
        except UrlFileError as error:
            return str(error)
        if result:
            return ""
        # Its own words may hold parts of the URL.
        statuses = [found[1] for each in result.logs() if (found := _STATUS.search(each.message))]
        told = f"status {statuses[-1]}" if statuses else "no answer, or rejected"
        return f"{told}; `apprise -vv` with the URL of {self._settings.url_file} says more"


def _told_in(ledger: Ledger) -> dict[Key, Announcement]:
    read = {}
    for identity, text in ledger.load().items():
        try:
            told = _TOLD.validate_python(json.loads(text))
        except ValueError as error:
            _log.warning("told_unreadable", extra={"incident": identity, "error": repr(error)})
            continue
        read[told.key] = told
    return read
