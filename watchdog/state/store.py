"""The memory that survives a restart: incidents, their changes of state with evidence, and what was sent."""

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from watchdog.model import Incident, Key, State, Transition
from watchdog.state.database import Database, Health

_log = logging.getLogger(__name__)

FILE_NAME = "incidents.sqlite"
# After a longer absence what was known is history: what still holds starts afresh.
LONGEST_ABSENCE_SECONDS = 3600.0
_FIRING_REWRITE_SECONDS = 15.0
_PENDING_SEEN_WITHIN_SECONDS = 300.0
_TRANSITIONS_SHOWN = 1000
_INCIDENT = TypeAdapter(Incident)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was known when the last run ended.

    `incidents` are pending and firing ones, fit to go on with: the `pending_since` of a pending one is moved
    so that only time under watch shows. `ended` are those that ended lately, or in a long absence: senders
    must hear of them: the end may not have been sent. `last_seen` is unix time.
    """

    incidents: tuple[Incident, ...] = ()
    ended: tuple[Incident, ...] = ()
    last_seen: float | None = None

    def split(
        self, is_known: Callable[[Key], bool], wall: float
    ) -> tuple[tuple[Incident, ...], tuple[Transition, ...]]:
        """Those whose rule and target still exist; and the ends of the others, to be recorded and sent."""
        kept = tuple(incident for incident in self.incidents if is_known(incident.key))
        gone = (incident for incident in self.incidents if not is_known(incident.key))
        return kept, tuple(Transition.end_of(each, wall) for each in gone)


class Store:
    """Incidents on disk, or in memory where `path` is None or the disk fails. For many threads; never raises."""

    def __init__(self, path: Path | None, *, retention_days: float = 30, max_incidents: int = 10_000) -> None:
        self._database = Database(path)
        self._retention_seconds = retention_days * 86400
        self._max_incidents = max_incidents
        self._lock = threading.Lock()
        # When each open incident was last written (monotonic), by its target.
        self._written_at: dict[str, dict[Key, float]] = {}

    @property
    def health(self) -> Health:
        """Where the memory is, and what is wrong with that."""
        return self._database.health

    @property
    def warning(self) -> str:
        """What is wrong with that, for people; empty where nothing is."""
        return self.health.warning

    def open(self, wall: float | None = None) -> Restored:
        """Opens the file and hands over what the last run knew; `wall` is now, in unix seconds."""
        self._database.open()
        now = time.time() if wall is None else wall
        restored = self._database.write(lambda connection: _restore(connection, now)) or Restored()
        _log.info(
            "state_opened",
            extra={"mode": self.health.mode, "open": len(restored.incidents), "ended": len(restored.ended)},
        )
        return restored

    def record(self, transitions: Iterable[Transition]) -> None:
        """Keeps changes of state, all or none of them."""
        changes = tuple(transitions)
        if not changes:
            return

        def work(connection: sqlite3.Connection) -> None:
            for change in changes:
                _record(connection, change)
            self._prune(connection, max(change.at for change in changes))

        self._database.write(work)
        with self._lock:
            for change in changes:
                if change.incident.state is State.RESOLVED:
                    self._forget(change.incident.key)

    def checkpoint(
        self, incidents: Iterable[Incident], wall: float, at: float, targets: Collection[str] = ()
    ) -> None:
        """Notes that we live, and how each open incident stands; call it at every step.

        `targets` are those that `incidents` speak for: a pending incident of theirs that is not among them is
        over. `at` is monotonic.
        """
        present = {each.key: each for each in incidents if each.state is not State.RESOLVED}
        speaks_for = {key.target for key in present} | set(targets)
        with self._lock:
            due = [each for each in present.values() if self._is_due(each, at)]

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO moments VALUES ('last_seen', ?)", (wall,))
            for incident in due:
                _refresh(connection, incident, wall)
            _drop_pending(connection, speaks_for, {_text(key) for key in present})

        self._database.write(work)
        with self._lock:
            for incident in due:
                self._written_at.setdefault(incident.key.target, {})[incident.key] = at
            for target in speaks_for:
                for key in [key for key in self._written_at.get(target, ()) if key not in present]:
                    self._forget(key)

    def query(
        self,
        since: float | None = None,
        state: State | None = None,
        rule: str | None = None,
        limit: int = 100,
    ) -> tuple[Incident, ...]:
        """Incidents that began or changed since that unix time, the newest first."""
        clauses: list[str] = []
        values: list[str | float] = []
        for clause, value in (("changed_at >= ?", since), ("state = ?", state), ("rule = ?", rule)):
            if value is not None:
                clauses.append(clause)
                values.append(value)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        statement = f"SELECT body FROM incidents {where} ORDER BY changed_at DESC, id LIMIT ?"  # noqa: S608
        values.append(max(0, min(limit, self._max_incidents)))
        rows = self._rows(statement, values)
        return tuple(incident for (body,) in rows if (incident := _loaded(body)) is not None)

    def timeline(self, key: Key | str) -> tuple[Transition, ...]:
        """Every change of state under this key, the oldest first; empty where nothing is known of it."""
        statement = (
            "SELECT t.at, t.before, t.body FROM transitions t JOIN incidents i ON i.id = t.incident "
            "WHERE i.key = ? ORDER BY t.at DESC, t.incident, t.number DESC LIMIT ?"
        )
        rows = self._rows(statement, (_text(key), _TRANSITIONS_SHOWN))
        transitions = []
        for at, before, body in reversed(rows):
            incident = _loaded(body)
            if incident is not None:
                transitions.append(Transition(incident, State(before) if before else None, at))
        return tuple(transitions)

    def ledger(self, sender: str) -> "StoreLedger":
        """A sender's own memory in the same file."""
        return StoreLedger(self._database, sender)

    def close(self) -> None:
        """Closes the file; what was recorded is kept."""
        self._database.close()

    def _rows(self, statement: str, values: Sequence[str | float]) -> list[tuple[Any, ...]]:
        return self._database.read(lambda connection: connection.execute(statement, values).fetchall(), [])

    def _is_due(self, incident: Incident, at: float) -> bool:
        """Whether to write it again: while it is pending, so that its time is kept, each step."""
        written_at = self._written_at.get(incident.key.target, {}).get(incident.key, float("-inf"))
        return incident.state is State.PENDING or at - written_at >= _FIRING_REWRITE_SECONDS

    def _forget(self, key: Key) -> None:
        of_target = self._written_at.get(key.target, {})
        of_target.pop(key, None)
        if not of_target:
            self._written_at.pop(key.target, None)

    def _prune(self, connection: sqlite3.Connection, wall: float) -> None:
        """Drops what ended long ago, and the oldest ends where there are too many; never what fires."""
        connection.execute(
            "DELETE FROM incidents WHERE state = 'resolved' AND resolved_at < ?",
            (wall - self._retention_seconds,),
        )
        count = connection.execute("SELECT count(*) FROM incidents").fetchone()[0]
        if count > self._max_incidents:
            connection.execute(
                "DELETE FROM incidents WHERE id IN "
                "(SELECT id FROM incidents WHERE state = 'resolved' ORDER BY resolved_at LIMIT ?)",
                (count - self._max_incidents,),
            )


class StoreLedger:
    """Small texts by identity, kept for one sender."""

    def __init__(self, database: Database, sender: str) -> None:
        self._database = database
        self._sender = sender

    def load(self) -> Mapping[str, str]:
        """All that is kept."""
        statement = "SELECT identity, text FROM ledger WHERE sender = ? ORDER BY identity"
        return dict(self._database.read(lambda each: each.execute(statement, (self._sender,)).fetchall(), []))

    def save(self, changes: Mapping[str, str | None]) -> None:
        """Keeps each text, None forgets it; all or none of them."""
        if not changes:
            return
        kept = [(self._sender, each, text) for each, text in changes.items() if text is not None]
        forgotten = [(self._sender, each) for each, text in changes.items() if text is None]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)", kept)
            connection.executemany("DELETE FROM ledger WHERE sender = ? AND identity = ?", forgotten)

        self._database.write(work)


def _record(connection: sqlite3.Connection, change: Transition) -> None:
    incident = change.incident
    key = _text(incident.key)
    row = connection.execute(
        "SELECT id FROM incidents WHERE key = ? AND state <> 'resolved'", (key,)
    ).fetchone()
    if incident.state is State.RESOLVED:
        if incident.firing_since is None:
            # It never fired: nobody was paged, and a history of near misses hides what happened.
            connection.execute("DELETE FROM incidents WHERE key = ? AND state = 'pending'", (key,))
            return
        if row is None and _is_recorded(connection, incident):
            return
    identity: int = row[0] if row else secrets.randbits(62)
    body = _body(incident)
    _write(connection, identity, incident, body, change.at)
    number = connection.execute(
        "SELECT coalesce(max(number), 0) + 1 FROM transitions WHERE incident = ?", (identity,)
    ).fetchone()[0]
    before = str(change.before) if change.before else None
    connection.execute(
        "INSERT INTO transitions VALUES (?, ?, ?, ?, ?)",
        (identity, number, change.at, before, body),
    )


def _write(
    connection: sqlite3.Connection, identity: int, incident: Incident, body: str, changed_at: float
) -> None:
    """An upsert, not a replacement, which would take the transitions with it."""
    connection.execute(
        "INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "state = excluded.state, changed_at = excluded.changed_at, resolved_at = excluded.resolved_at, "
        "pending_seconds = excluded.pending_seconds, seen_at = excluded.seen_at, body = excluded.body",
        (
            identity,
            _text(incident.key),
            incident.key.rule,
            incident.key.target,
            str(incident.state),
            changed_at,
            incident.resolved_at if incident.state is State.RESOLVED else None,
            incident.held_seconds,
            changed_at,
            body,
        ),
    )


def _is_recorded(connection: sqlite3.Connection, incident: Incident) -> bool:
    """Whether this very end is known: a restart may tell it a second time."""
    found = connection.execute(
        "SELECT 1 FROM incidents WHERE key = ? AND resolved_at = ?",
        (_text(incident.key), incident.resolved_at),
    )
    return found.fetchone() is not None


def _refresh(connection: sqlite3.Connection, incident: Incident, wall: float) -> None:
    body = _body(incident)
    updated = connection.execute(
        "UPDATE incidents SET pending_seconds = ?, seen_at = ?, body = ?, state = ? "
        "WHERE key = ? AND state <> 'resolved'",
        (incident.held_seconds, wall, body, str(incident.state), _text(incident.key)),
    )
    if updated.rowcount == 0:
        since = incident.firing_since if incident.firing_since is not None else incident.pending_since
        _write(connection, secrets.randbits(62), incident, body, since)


def _drop_pending(connection: sqlite3.Connection, targets: Collection[str], present: Collection[str]) -> None:
    rows = connection.execute("SELECT id, key, target FROM incidents WHERE state = 'pending'").fetchall()
    names = set(targets)
    gone = [(each,) for each, key, target in rows if target in names and key not in present]
    connection.executemany("DELETE FROM incidents WHERE id = ?", gone)


def _restore(connection: sqlite3.Connection, wall: float) -> Restored:
    seen = connection.execute("SELECT value FROM moments WHERE name = 'last_seen'").fetchone()
    last_seen: float | None = seen[0] if seen else None
    if last_seen is not None and wall - last_seen > LONGEST_ABSENCE_SECONDS:
        _end_all(connection, last_seen)
    rows = connection.execute(
        "SELECT body, pending_seconds, seen_at FROM incidents WHERE state <> 'resolved' ORDER BY changed_at"
    ).fetchall()
    incidents: list[Incident] = []
    for body, held_seconds, seen_at in rows:
        incident = _loaded(body)
        if incident is None:
            continue
        if incident.state is State.PENDING:
            if last_seen is not None and last_seen - seen_at > _PENDING_SEEN_WITHIN_SECONDS:
                continue
            incident = replace(incident, pending_since=wall - held_seconds)
        # The column, which bodies of earlier versions rely on.
        incidents.append(replace(incident, held_seconds=held_seconds))
    ended = _ended_lately(connection, wall if last_seen is None else last_seen)
    return Restored(tuple(incidents), ended, last_seen)


def _end_all(connection: sqlite3.Connection, last_seen: float) -> None:
    """Ends what fired when we were last alive: of the time since then nothing is known."""
    connection.execute("DELETE FROM incidents WHERE state = 'pending'")
    for (body,) in connection.execute("SELECT body FROM incidents WHERE state = 'firing'").fetchall():
        incident = _loaded(body)
        if incident is not None:
            _record(connection, Transition.end_of(incident, last_seen))
    connection.execute("DELETE FROM incidents WHERE state = 'firing'")


def _ended_lately(connection: sqlite3.Connection, around: float) -> tuple[Incident, ...]:
    """The last end of each incident that is not open again, the oldest first."""
    rows = connection.execute(
        "SELECT body FROM incidents i WHERE state = 'resolved' AND resolved_at >= ? AND NOT EXISTS "
        "(SELECT 1 FROM incidents o WHERE o.key = i.key AND o.state <> 'resolved') ORDER BY resolved_at, id",
        (around - LONGEST_ABSENCE_SECONDS,),
    )
    loaded = (_loaded(body) for (body,) in rows.fetchall())
    last = {incident.key: incident for incident in loaded if incident is not None}
    return tuple(last.values())


def _body(incident: Incident) -> str:
    """The incident as JSON; numbers that JSON does not have become null."""
    return _INCIDENT.dump_json(incident).decode()


def _loaded(body: str) -> Incident | None:
    """What `_body` wrote, in this version or another: fields that are not known are passed over."""
    try:
        return _INCIDENT.validate_json(body)
    except ValidationError as error:
        _log.warning("incident_unreadable", extra={"error": str(error)})
        return None


def _text(key: Key | str) -> str:
    return str(key)
