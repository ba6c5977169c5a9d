"""The memory that survives a restart: incidents, their changes of state with evidence, and what was sent."""

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from watchdog.clock import Uptime, steady_seconds
from watchdog.history.stretches import KEPT_SECONDS
from watchdog.model import EnginePast, Incident, Key, Severity, State, Subject, Transition
from watchdog.report.day import SLOTS
from watchdog.state.database import Database, Health
from watchdog.state.retention import RetentionClock

_log = logging.getLogger(__name__)

FILE_NAME = "incidents.sqlite"
# After a longer absence what was known is history: what still holds starts afresh.
LONGEST_ABSENCE_SECONDS = 3600.0
# Until a machine has run for so long, its clock may be that of its battery, or none.
_CLOCK_SET_WITHIN_SECONDS = 600.0
# What an open incident's figures are is news for those who read us now; after a restart they are worked out again.
_BODY_REWRITE_SECONDS = 60.0
# What is only to be known stands for days, and its figures move at every step.
_INFO_REWRITE_SECONDS = 300.0
# Where nothing is open, all that a write could tell is that we live.
_ALIVE_REWRITE_SECONDS = 60.0
# A step may come a little early: an interval that is nearly over is over.
_NEARLY = 0.9
_PENDING_SEEN_WITHIN_SECONDS = 300.0
_TRANSITIONS_SHOWN = 1000
# Fifty thousand at once would hold a step and every answer for seconds; each change of state takes some more.
_PRUNED_AT_ONCE = 500
_INCIDENT = TypeAdapter(Incident)


class DayOf(StrEnum):
    """What is kept of the last 24 hours of each target, a line each; in the ledger, under names that no sender has."""

    VERDICTS = "last day"
    READINGS = "readings of the last day"


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


class _Written(NamedTuple):
    """When the body of an open incident was last written (monotonic), and how it stood then."""

    at: float
    standing: tuple[object, ...]


@dataclass(slots=True)
class _Learnt:
    """What steps said since the last write: the open incidents of each target, and when (monotonic, unix seconds).

    `pasts` is what was learnt of engines, `days` the last 24 hours of each target in a line, by what it is of.
    """

    open: dict[str, dict[Key, Incident]] = field(default_factory=dict)
    pasts: dict[Subject, EnginePast] = field(default_factory=dict)
    days: dict[tuple[DayOf, str], str] = field(default_factory=dict)
    at: float = float("-inf")
    wall: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether any step was taken."""
        return self.at > float("-inf")

    def correct(self, incident: Incident) -> None:
        """Takes over what a transition says: it is newer."""
        of_target = self.open.get(incident.key.target)
        if of_target is None:
            return
        if incident.state is State.RESOLVED:
            of_target.pop(incident.key, None)
        else:
            of_target[incident.key] = incident


class Store:
    """Incidents on disk, or in memory where `path` is None or the disk fails. For many threads; never raises.

    Changes of state are written at once. How open incidents stand is written for all targets together, once in
    `interval_seconds`: a kill loses at most that interval.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        retention_days: float = 30,
        max_incidents: int = 10_000,
        interval_seconds: float = 0.0,
        uptime: Callable[[], Uptime | None] = lambda: None,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._database = Database(path, self._find)
        self._found: Restored | None = None
        self._retention = RetentionClock(steady)
        self._retention_seconds = retention_days * 86400
        self._max_incidents = max_incidents
        self._interval_seconds = interval_seconds
        self._uptime = uptime
        # Held during a write, too: a checkpoint must not overtake a transition, which is newer.
        self._lock = threading.Lock()
        self._learnt = _Learnt()
        self._flushed_at = self._alive_at = float("-inf")
        self._written: dict[str, dict[Key, _Written]] = {}
        # How many incidents are kept; None until they are counted, which reads a whole index.
        self._count: int | None = None

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
        up = self._uptime()
        restored = self._database.write(lambda connection: _restore(connection, now, up)) or Restored()
        believed = self._rows("SELECT value FROM moments WHERE name = 'believed'", ())
        if believed:
            self._retention.begin(believed[0][0])
        elif restored.last_seen is not None:
            self._retention.begin(restored.last_seen)
        _log.info(
            "state_opened",
            extra={"mode": self.health.mode, "open": len(restored.incidents), "ended": len(restored.ended)},
        )
        return restored

    def found(self) -> Restored | None:
        """What another process left in a file that came into use after the start; returned once, None if there is none.

        A successor that starts while its predecessor still has the file works in memory until that one is gone.
        """
        found, self._found = self._found, None
        return found

    def _find(self, connection: sqlite3.Connection) -> None:
        found = _restore(connection, time.time(), self._uptime())
        if found.last_seen is not None:
            self._found = found
            _log.info("state_taken_over", extra={"open": len(found.incidents), "ended": len(found.ended)})

    def record(self, transitions: Iterable[Transition]) -> None:
        """Keeps changes of state, all or none of them."""
        changes = tuple(transitions)
        if not changes:
            return

        now = self._retention.now(max(change.at for change in changes))

        def work(connection: sqlite3.Connection) -> int:
            connection.execute("INSERT OR REPLACE INTO moments VALUES ('believed', ?)", (now,))
            added = sum(_record(connection, change) for change in changes)
            return self._prune(connection, added, now)

        with self._lock:
            self._write(work)
            for change in changes:
                self._learnt.correct(change.incident)
                self._note(change.incident)

    def checkpoint(
        self, incidents: Iterable[Incident], wall: float, at: float, targets: Collection[str] = ()
    ) -> None:
        """Notes that we live, and how each open incident stands; call it at every step.

        `targets` are those that `incidents` speak for: a pending incident of theirs that is not among them is
        over. `at` is monotonic.
        """
        learnt: dict[str, dict[Key, Incident]] = {target: {} for target in targets}
        for each in incidents:
            of_target = learnt.setdefault(each.key.target, {})
            if each.state is not State.RESOLVED:
                of_target[each.key] = each
        with self._lock:
            self._learnt.open.update(learnt)
            self._learnt.at, self._learnt.wall = at, wall
            if at - self._flushed_at >= _NEARLY * self._interval_seconds:
                self._flush()

    def learn(self, pasts: Iterable[EnginePast]) -> None:
        """Keeps what was learnt of engines, with the next checkpoint."""
        with self._lock:
            self._learnt.pasts.update((past.subject, past) for past in pasts)

    def keep_day(self, of: DayOf, target: str, text: str) -> None:
        """Keeps the last 24 hours of a target with the next checkpoint; `text` begins with their last slot's number."""
        with self._lock:
            self._learnt.days[of, target] = text

    def days(self, of: DayOf) -> Mapping[str, str]:
        """The last 24 hours of each target that is kept, by its name."""
        return self.ledger(of).load()

    def pasts(self, target: str) -> tuple[EnginePast, ...]:
        """What was learnt of a target's engines."""
        statement = "SELECT model_name, engine, wall, packed FROM pasts WHERE target = ?"
        return tuple(
            # Whoever unpacks it says what is wrong with it.
            EnginePast(Subject(target, model, engine), wall, packed if isinstance(packed, bytes) else b"")
            for model, engine, wall, packed in self._rows(statement, (target,))
        )

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
        for clause, value in (("changed_at >= ?", since), ("rule = ?", rule)):
            if value is not None:
                clauses.append(clause)
                values.append(value)
        if state is not None:
            # Spelt out, or the indexes over one state are not used.
            clauses.append(f"state = '{State(state)}'")
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
        with self._lock:
            self._flush(closing=True)
        self._database.close()

    def _rows(self, statement: str, values: Sequence[str | float]) -> list[tuple[Any, ...]]:
        return self._database.read(lambda connection: connection.execute(statement, values).fetchall(), [])

    def _flush(self, *, closing: bool = False) -> None:
        """Writes what was learnt since the last time, in one transaction, and nothing where nothing is new."""
        learnt = self._learnt
        if not learnt.is_known:
            return
        self._learnt = _Learnt(at=learnt.at, wall=learnt.wall)
        self._flushed_at = learnt.at
        present = [each for of_target in learnt.open.values() for each in of_target.values()]
        due = [each for each in present if self._is_due(each, learnt.at)]
        bodies = {each.key for each in due}
        # Their time goes on with each step.
        pending = [each for each in present if each.state is State.PENDING and each.key not in bodies]
        gone = self._gone(learnt.open)
        is_due = closing or learnt.at - self._alive_at >= _ALIVE_REWRITE_SECONDS
        if due or pending or gone or learnt.pasts or learnt.days or is_due:
            self._alive_at = learnt.at

            believed = self._retention.now(learnt.wall)
            moments = [
                ("last_seen", learnt.wall),
                ("believed", believed),
                *_moments(self._uptime()),
            ]

            def work(connection: sqlite3.Connection) -> int | None:
                connection.executemany("INSERT OR REPLACE INTO moments VALUES (?, ?)", moments)
                added = sum(_refresh(connection, incident, learnt.wall) for incident in due)
                connection.executemany(*_clocks(pending, learnt.wall))
                _keep(connection, learnt.pasts.values(), believed)
                _keep_days(connection, learnt.days)
                removed = connection.executemany("DELETE FROM incidents WHERE id = ?", gone).rowcount
                return None if self._count is None else self._count + added - max(0, removed)

            self._write(work)
        for incident in due:
            self._note(incident)
        for target, of_target in learnt.open.items():
            for key in [key for key in self._written.get(target, ()) if key not in of_target]:
                self._forget(key)

    def _write(self, work: Callable[[sqlite3.Connection], int | None]) -> None:
        """Runs work that returns how many incidents there are then (None: not known)."""
        before = self.health.mode
        count = self._database.write(work)
        # A file that comes or goes brings its own number.
        self._count = count if self.health.mode is before else None

    def _is_due(self, incident: Incident, at: float) -> bool:
        """Whether to write its body again."""
        written = self._written.get(incident.key.target, {}).get(incident.key)
        if written is None or written.standing != _standing_of(incident):
            return True
        is_info = incident.severity is Severity.INFO
        return at - written.at >= (_INFO_REWRITE_SECONDS if is_info else _BODY_REWRITE_SECONDS)

    def _gone(self, learnt: Mapping[str, Collection[Key]]) -> list[tuple[int]]:
        """The pending incidents of these targets that are open no more, by number."""
        rows = self._rows("SELECT id, key, target FROM incidents WHERE state = 'pending'", ())
        present = {_text(key) for of_target in learnt.values() for key in of_target} if rows else set()
        return [(number,) for number, key, target in rows if target in learnt and key not in present]

    def _note(self, incident: Incident) -> None:
        """Notes that its body is written."""
        if incident.state is State.RESOLVED:
            self._forget(incident.key)
        else:
            of_target = self._written.setdefault(incident.key.target, {})
            of_target[incident.key] = _Written(self._learnt.at, _standing_of(incident))

    def _forget(self, key: Key) -> None:
        of_target = self._written.get(key.target, {})
        of_target.pop(key, None)
        if not of_target:
            self._written.pop(key.target, None)

    def _prune(self, connection: sqlite3.Connection, added: int, wall: float) -> int:
        """Drops what ended long ago, and the oldest ends where there are too many; never what fires.

        Returns how many incidents are kept; `added` are those that came since they were counted.
        """
        delete = "DELETE FROM incidents WHERE id IN (SELECT id FROM incidents WHERE state = 'resolved' "
        old = connection.execute(
            f"{delete} AND resolved_at < ? ORDER BY resolved_at LIMIT ?)",
            (wall - self._retention_seconds, _PRUNED_AT_ONCE),
        ).rowcount
        if self._count is None:
            count: int = connection.execute("SELECT count(*) FROM incidents").fetchone()[0]
        else:
            count = self._count + added - old
        if count > self._max_incidents:
            count -= connection.execute(
                f"{delete} ORDER BY resolved_at LIMIT ?)",
                (min(count - self._max_incidents, _PRUNED_AT_ONCE),),
            ).rowcount
        return count


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


def _standing_of(incident: Incident) -> tuple[object, ...]:
    """What of an incident is news at once, unlike the figures in its evidence."""
    return (incident.state, incident.severity, incident.symptoms, incident.explained_by, incident.unknown)


def _keep_days(connection: sqlite3.Connection, days: Mapping[tuple[DayOf, str], str]) -> None:
    """Keeps the days that changed, and forgets those of targets that have had none for longer than a day."""
    if not days:
        return
    rows = [(str(of), target, text) for (of, target), text in days.items()]
    connection.executemany("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)", rows)
    # A text begins with the number of its last slot.
    newest = max(int(text.partition(":")[0]) for text in days.values())
    connection.executemany(
        "DELETE FROM ledger WHERE sender = ? AND CAST(text AS INTEGER) < ?",
        [(str(of), newest - SLOTS) for of in DayOf],
    )


def _record(connection: sqlite3.Connection, change: Transition) -> int:
    """Keeps a change of state; returns how many incidents there are more (fewer, below zero)."""
    incident = change.incident
    key = _text(incident.key)
    row = connection.execute(
        "SELECT id FROM incidents WHERE key = ? AND state <> 'resolved'", (key,)
    ).fetchone()
    if incident.state is State.RESOLVED:
        if incident.firing_since is None:
            # It never fired: nobody was paged, and a history of near misses hides what happened.
            dropped = connection.execute("DELETE FROM incidents WHERE key = ? AND state = 'pending'", (key,))
            return -dropped.rowcount
        if row is None and _is_recorded(connection, incident):
            return 0
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
    return 0 if row else 1


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


def _refresh(connection: sqlite3.Connection, incident: Incident, wall: float) -> int:
    """Writes how an open incident stands; returns how many incidents there are more."""
    body = _body(incident)
    updated = connection.execute(
        "UPDATE incidents SET pending_seconds = ?, seen_at = ?, body = ?, state = ? "
        "WHERE key = ? AND state <> 'resolved'",
        (incident.held_seconds, wall, body, str(incident.state), _text(incident.key)),
    )
    if updated.rowcount:
        return 0
    since = incident.firing_since if incident.firing_since is not None else incident.pending_since
    _write(connection, secrets.randbits(62), incident, body, since)
    return 1


def _keep(connection: sqlite3.Connection, pasts: Collection[EnginePast], wall: float) -> None:
    """Writes what was learnt of engines, and drops what is too old to be used: of engines that are gone, too."""
    rows = [(*past.subject, past.wall, past.packed) for past in pasts]
    connection.executemany("INSERT OR REPLACE INTO pasts VALUES (?, ?, ?, ?, ?)", rows)
    if rows:
        connection.execute("DELETE FROM pasts WHERE wall < ?", (wall - KEPT_SECONDS,))


def _clocks(pending: Sequence[Incident], wall: float) -> tuple[str, list[tuple[float, float, str]]]:
    """The statement, and its values, that tell for how long pending incidents have held."""
    statement = "UPDATE incidents SET pending_seconds = ?, seen_at = ? WHERE key = ? AND state <> 'resolved'"
    return statement, [(each.held_seconds, wall, _text(each.key)) for each in pending]


def _moments(up: Uptime | None) -> list[tuple[str, float]]:
    return [] if up is None else [("boot", float(up.boot)), ("uptime", up.seconds)]


def _absence_seconds(
    connection: sqlite3.Connection, wall: float, last_seen: float, up: Uptime | None
) -> float:
    """For how long nobody watched: by the machine's uptime where it did not boot meanwhile, for clocks are set.

    Of a machine that has just booted only its uptime is certain: its clock may not be set yet.
    """
    kept: dict[str, float] = dict(
        connection.execute("SELECT name, value FROM moments WHERE name IN ('boot', 'uptime')")
    )
    if up is not None and kept.get("boot") == up.boot and "uptime" in kept:
        return max(0.0, up.seconds - kept["uptime"])
    if up is not None and "boot" in kept and up.seconds < _CLOCK_SET_WITHIN_SECONDS:
        return up.seconds
    return wall - last_seen


def _restore(connection: sqlite3.Connection, wall: float, up: Uptime | None) -> Restored:
    seen = connection.execute("SELECT value FROM moments WHERE name = 'last_seen'").fetchone()
    last_seen: float | None = seen[0] if seen else None
    absence_seconds = 0.0 if last_seen is None else _absence_seconds(connection, wall, last_seen, up)
    if last_seen is not None and absence_seconds > LONGEST_ABSENCE_SECONDS:
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
