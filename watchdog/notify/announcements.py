"""Which incidents the pager has heard of: the lead is announced, and then followed to its end."""

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from watchdog.model import Incident, Key, State
from watchdog.notify.alert import Alert, AlertBuilder, dump_alert, leads, load_alert, severity_rank

_log = logging.getLogger(__name__)


class Ledger(Protocol):
    """A sender's memory that survives a restart: small texts by identity."""

    def load(self) -> Mapping[str, str]:
        """All that is kept."""

    def save(self, changes: Mapping[str, str | None]) -> None:
        """Keeps each text; None forgets it. Never raises for a full or broken disk."""


class ForgetfulLedger:
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


def no_ledger(sender: str) -> Ledger:  # noqa: ARG001 - the form of a store's own
    """Memory for a sender where there is no store."""
    return ForgetfulLedger()


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


class Announcements:
    """The alerts made so far, by fingerprint. Not safe for threads: its owner locks.

    An incident is announced when it fires and leads (with `symptoms`, when it fires). From then on its alert
    fires until the incident ends, whoever leads: an explanation found later is no recovery. A severity that
    rises makes a second alert beside the first, which stays true; one that falls ends the graver alert.
    """

    def __init__(self, builder: AlertBuilder, symptoms: bool, ledger: Ledger) -> None:
        self._builder = builder
        self._symptoms = symptoms
        self._ledger = ledger
        self._by_fingerprint = _restored(ledger)
        self._of_key: dict[Key, set[str]] = {}
        for fingerprint, announcement in self._by_fingerprint.items():
            self._of_key.setdefault(announcement.key, set()).add(fingerprint)

    def observe(
        self, incidents: Iterable[Incident], wall: float, lead_keys: Collection[Key] | None = None
    ) -> tuple[dict[str, Announcement], frozenset[str]]:
        """Takes in the incidents as they stand.

        Returns all that was seen or ended now, by fingerprint, and which of these are news: began, began
        again or ended. An incident that is not among `incidents` is left as it was.
        """
        incidents = tuple(incidents)
        lead_keys = leads(incidents) if lead_keys is None else lead_keys
        seen: dict[str, Announcement] = {}
        for incident in incidents:
            if incident.state is State.FIRING:
                seen |= self._follow(incident, incident.key in lead_keys, wall)
            else:
                ended = incident.resolved_at if incident.state is State.RESOLVED else None
                seen |= self._end(incident.key, wall if ended is None else min(ended, wall))
        news = frozenset(each for each, announcement in seen.items() if self._is_news(each, announcement))
        # Kept before anything is sent: what was sent and forgotten could never be taken back.
        self._ledger.save({each: _dump(seen[each]) for each in sorted(news)})
        for each, announcement in seen.items():
            self._by_fingerprint[each] = announcement
            self._of_key.setdefault(announcement.key, set()).add(each)
        return seen, news

    def forget(self, fingerprints: Collection[str]) -> None:
        """Drops what has ended and needs no more sending."""
        self._ledger.save(dict.fromkeys(fingerprints))
        for each in fingerprints:
            announcement = self._by_fingerprint.pop(each, None)
            if announcement is not None:
                siblings = self._of_key[announcement.key]
                siblings.discard(each)
                if not siblings:
                    del self._of_key[announcement.key]

    def ended(self) -> Mapping[str, Announcement]:
        """Those that are over and not yet forgotten."""
        return {each: one for each, one in self._by_fingerprint.items() if not one.firing}

    def all(self) -> Mapping[str, Announcement]:
        """Everything known."""
        return self._by_fingerprint

    def _follow(self, incident: Incident, leads_now: bool, wall: float) -> dict[str, Announcement]:
        before = self._firing_of(incident.key)
        if not (before or leads_now or self._symptoms):
            return {}
        alert = self._builder.build(incident, wall)
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


def _dump(announcement: Announcement) -> str:
    kept = {"key": list(announcement.key), "severity": announcement.severity}
    return json.dumps(kept | {"alert": dump_alert(announcement.alert)})


def _restored(ledger: Ledger) -> dict[str, Announcement]:
    restored = {}
    for fingerprint, text in ledger.load().items():
        try:
            kept: dict[str, Any] = json.loads(text)
            rule, target, model_name, engine = map(str, kept["key"])
            announcement = Announcement(
                Key(rule, target, model_name, engine), str(kept["severity"]), load_alert(kept["alert"])
            )
        except (ValueError, TypeError, KeyError) as error:
            _log.warning("announcement_unreadable", extra={"fingerprint": fingerprint, "error": repr(error)})
            continue
        restored[fingerprint] = announcement
    return restored
