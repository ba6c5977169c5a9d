"""Which incidents the pager has heard of: the lead is announced, and then followed to its end."""

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import TypeAdapter

from watchdog.model import NO_LABELS, SEVERITY_RANK, Incident, Key, State
from watchdog.notify.alert import Alert, AlertBuilder, severity_rank

_log = logging.getLogger(__name__)

LEDGER = "announcements"
# Until 1.0 Alertmanager and webhooks each kept a book of their own.
EARLIER_LEDGERS = ("alertmanager", "webhook")


class Ledger(Protocol):
    """A sender's memory that survives a restart: small texts by identity."""

    def load(self) -> Mapping[str, str]:
        """All that is kept."""

    def save(self, changes: Mapping[str, str | None]) -> None:
        """Keeps each text; None forgets it. Never raises for a full or broken disk."""


class MemoryLedger:
    """Memory that ends with the process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def load(self) -> Mapping[str, str]:
        """All that is kept."""
        return dict(self._texts)

    def save(self, changes: Mapping[str, str | None]) -> None:
        """Keeps each text; None forgets it."""
        for identity, text in changes.items():
            if text is None:
                self._texts.pop(identity, None)
            else:
                self._texts[identity] = text


def memory_ledger(sender: str) -> Ledger:  # noqa: ARG001 - the form of a store's own
    """Memory for a sender where there is no store."""
    return MemoryLedger()


@dataclass(frozen=True, slots=True)
class Announcement:
    """An alert that was, or is about to be, sent for an incident."""

    key: Key
    severity: str
    alert: Alert

    @property
    def firing(self) -> bool:
        """Whether it still fires."""
        return self.alert.ends_at is None

    @property
    def group(self) -> str:
        """The target that its alert names: what one message of a webhook is about."""
        return self.alert.labels.get("target", "")

    @property
    def changed_at(self) -> float:
        """When it began, or ended where it has (unix seconds)."""
        return self.alert.starts_at if self.alert.ends_at is None else self.alert.ends_at


_ANNOUNCEMENT = TypeAdapter(Announcement)


@dataclass(frozen=True, slots=True)
class Announced:
    """What one step said, by fingerprint: all that was seen or has ended, and which of it is news.

    News is what began, began again or ended.
    """

    seen: Mapping[str, Announcement]
    news: frozenset[str]


class Announcements:
    """The alerts made so far, by fingerprint: one record for all receivers. Not safe for threads: its owner locks.

    An incident is announced when it fires and is worth a page (with `symptoms`, when it fires). From then on its
    alert fires until the incident ends, whoever leads: an explanation found later is no recovery. A severity that
    rises makes a second alert beside the first, which stays true; one that falls ends the graver alert. What is held
    waits with all of that which would be a new page; what has been announced goes on, and its end is sent.
    """

    def __init__(
        self, builder: AlertBuilder, symptoms: bool, ledger: Ledger, earlier: Iterable[Ledger] = ()
    ) -> None:
        self._builder = builder
        self._symptoms = symptoms
        self._ledger = ledger
        self._by_fingerprint: dict[str, Announcement] = {}
        self._of_key: dict[Key, set[str]] = {}
        self._of_group: dict[str, dict[str, Announcement]] = {}
        self._ended: set[str] = set()
        for fingerprint, announcement in _kept(ledger, earlier).items():
            self._put(fingerprint, announcement)

    @property
    def ended(self) -> Mapping[str, Announcement]:
        """Those that are over and not yet forgotten."""
        return {each: self._by_fingerprint[each] for each in self._ended}

    @property
    def groups(self) -> Collection[str]:
        """The targets of which anything is known."""
        return self._of_group.keys()

    def of_group(self, group: str) -> Mapping[str, Announcement]:
        """All that is known of a target."""
        return self._of_group.get(group, {})

    def observe(
        self,
        incidents: Iterable[Incident],
        wall: float,
        pageable: Collection[Key],
        held: Collection[Key] = (),
        labels: Mapping[str, str] = NO_LABELS,
    ) -> Announced:
        """Takes in incidents as they stand, which of them are worth a page, and of which nothing new may be said.

        An incident that is not among `incidents` is left as it was. `labels` are those of their server.
        """
        seen: dict[str, Announcement] = {}
        for incident in incidents:
            if incident.state is State.FIRING and incident.key in held and self._would_page(incident):
                seen |= self._firing_of(incident.key)
            elif incident.state is State.FIRING:
                seen |= self._follow(incident, incident.key in pageable, wall, labels)
            else:
                ended = incident.resolved_at if incident.state is State.RESOLVED else None
                seen |= self._end(incident.key, wall if ended is None else min(ended, wall))
        news = frozenset(each for each, announcement in seen.items() if self._is_news(each, announcement))
        # Kept before anything is sent: what was sent and forgotten could never be taken back.
        self._ledger.save({each: _as_text(seen[each]) for each in sorted(news)})
        for fingerprint, announcement in seen.items():
            self._put(fingerprint, announcement)
        return Announced(seen, news)

    def forget(self, fingerprints: Collection[str]) -> None:
        """Drops what has ended and needs no more sending."""
        if not fingerprints:
            return
        self._ledger.save(dict.fromkeys(fingerprints))
        for fingerprint in fingerprints:
            announcement = self._by_fingerprint.pop(fingerprint)
            self._ended.discard(fingerprint)
            self._of_key[announcement.key].discard(fingerprint)
            if not self._of_key[announcement.key]:
                del self._of_key[announcement.key]
            del self._of_group[announcement.group][fingerprint]
            if not self._of_group[announcement.group]:
                del self._of_group[announcement.group]

    def _put(self, fingerprint: str, announcement: Announcement) -> None:
        self._by_fingerprint[fingerprint] = announcement
        self._of_key.setdefault(announcement.key, set()).add(fingerprint)
        self._of_group.setdefault(announcement.group, {})[fingerprint] = announcement
        if announcement.firing:
            self._ended.discard(fingerprint)
        else:
            self._ended.add(fingerprint)

    def _follow(
        self, incident: Incident, is_pageable: bool, wall: float, labels: Mapping[str, str]
    ) -> dict[str, Announcement]:
        before = self._firing_of(incident.key)
        if not (before or is_pageable or self._symptoms):
            return {}
        alert = self._builder.build(incident, labels)
        current = Announcement(incident.key, str(incident.severity), alert)
        fingerprint = alert.fingerprint
        followed = {fingerprint: current}
        for each, other in before.items():
            if each == fingerprint:
                continue
            milder = severity_rank(other.severity) > severity_rank(current.severity)
            # One as grave with other labels is from before a change of the settings.
            followed[each] = other if milder else _ended(other, wall)
        return followed

    def _would_page(self, incident: Incident) -> bool:
        """Whether nothing as grave has been announced of it."""
        told = (severity_rank(one.severity) for one in self._firing_of(incident.key).values())
        return severity_rank(str(incident.severity)) < min(told, default=len(SEVERITY_RANK))

    def _end(self, key: Key, wall: float) -> dict[str, Announcement]:
        return {each: _ended(one, wall) for each, one in self._firing_of(key).items()}

    def _firing_of(self, key: Key) -> dict[str, Announcement]:
        known = {each: self._by_fingerprint[each] for each in self._of_key.get(key, ())}
        return {each: one for each, one in known.items() if one.firing}

    def _is_news(self, fingerprint: str, announcement: Announcement) -> bool:
        before = self._by_fingerprint.get(fingerprint)
        return before is None or before.firing != announcement.firing


def _ended(announcement: Announcement, wall: float) -> Announcement:
    return Announcement(announcement.key, announcement.severity, announcement.alert.resolved(wall))


def _as_text(announcement: Announcement) -> str:
    # As escapes, so that no name can keep an alert from being sent.
    return json.dumps(_ANNOUNCEMENT.dump_python(announcement, mode="json"))


def _kept(ledger: Ledger, earlier: Iterable[Ledger]) -> Mapping[str, Announcement]:
    """What is kept; what earlier versions kept elsewhere is moved here, the later word where two speak."""
    kept = _announcements_in(ledger.load())
    for other in earlier:
        texts = other.load()
        for fingerprint, announcement in _announcements_in(texts).items():
            known = kept.get(fingerprint)
            if known is None or known.changed_at < announcement.changed_at:
                kept[fingerprint] = announcement
                ledger.save({fingerprint: _as_text(announcement)})
        other.save(dict.fromkeys(texts))
    return kept


def _announcements_in(texts: Mapping[str, str]) -> dict[str, Announcement]:
    read = {}
    for fingerprint, text in texts.items():
        try:
            read[fingerprint] = _ANNOUNCEMENT.validate_python(json.loads(text))
        except ValueError as error:
            _log.warning("announcement_unreadable", extra={"fingerprint": fingerprint, "error": repr(error)})
    return read
