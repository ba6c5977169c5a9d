"""One SQLite file that never stops the service: a bad one is set aside, memory takes over for an unwritable one."""

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

_log = logging.getLogger(__name__)

APPLICATION_ID = 0x766C6C6D  # "vllm"
SCHEMA_VERSION = 3
_SET_ASIDE_KEPT = 5
# A predecessor that is still saying its last words gets this long to let go of the file.
_LOCK_SECONDS = 6.0
RETURN_PAUSE_SECONDS = 60.0
_ENDED_TAKEN_TO_MEMORY = 200
_COMPANIONS = ("-wal", "-shm", "-journal")
_UNTRUSTED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})

_PASTS = """
CREATE TABLE pasts (
    target TEXT NOT NULL, model_name TEXT NOT NULL, engine TEXT NOT NULL, wall REAL NOT NULL, packed BLOB NOT NULL,
    PRIMARY KEY (target, model_name, engine)
);
CREATE INDEX pasts_by_time ON pasts (wall)
"""
_SCHEMA = f"""
CREATE TABLE moments (name TEXT PRIMARY KEY, value REAL NOT NULL);
CREATE TABLE incidents (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, rule TEXT NOT NULL, target TEXT NOT NULL, state TEXT NOT NULL,
    changed_at REAL NOT NULL, resolved_at REAL, pending_seconds REAL NOT NULL, seen_at REAL NOT NULL,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX open_incidents ON incidents (key) WHERE state <> 'resolved';
CREATE INDEX incidents_by_key ON incidents (key);
CREATE INDEX incidents_by_change ON incidents (changed_at);
CREATE INDEX ended_incidents ON incidents (resolved_at) WHERE state = 'resolved';
CREATE TABLE transitions (
    incident INTEGER NOT NULL REFERENCES incidents (id) ON DELETE CASCADE, number INTEGER NOT NULL,
    at REAL NOT NULL, before TEXT, body TEXT NOT NULL, PRIMARY KEY (incident, number)
) WITHOUT ROWID;
CREATE TABLE ledger (
    sender TEXT NOT NULL, identity TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (sender, identity)
) WITHOUT ROWID;
{_PASTS};
"""

# Those that a file of the same schema may lack: an earlier version did without.
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS pending_incidents ON incidents (changed_at) WHERE state = 'pending'",
    "CREATE INDEX IF NOT EXISTS firing_incidents ON incidents (changed_at) WHERE state = 'firing'",
    "CREATE INDEX IF NOT EXISTS incidents_by_rule ON incidents (rule, changed_at)",
)

_OUR_MISTAKES = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)

_TABLES = frozenset({"moments", "incidents", "transitions", "ledger", "pasts"})
_OLDER_TABLES = {
    1: frozenset({"facts", "incidents", "transitions", "ledger"}),
    2: frozenset({"moments", "incidents", "transitions", "ledger"}),
}
# What makes the next version of a schema out of each older one.
_UPGRADES = {1: ("ALTER TABLE facts RENAME TO moments",), 2: tuple(_PASTS.split(";"))}

Answer = TypeVar("Answer")


class Mode(StrEnum):
    """Where the memory is."""

    DISK = "on disk"
    MEMORY = "in memory"


@dataclass(frozen=True, slots=True)
class Health:
    """Where the memory is, why it is not on disk if it should be, and where an unusable file was moved."""

    mode: Mode
    path: Path | None
    warning: str = ""
    set_aside: Path | None = None


class Untrusted(Exception):  # noqa: N818 - it says what the file is
    """The file is not the watchdog's, from a newer version, or broken."""


class Database:
    """A connection for many threads; after an error on disk the work goes on in memory, and comes back later.

    `found` is shown, before memory joins it, a file that comes into use late and that another process wrote.
    """

    def __init__(
        self, path: Path | None, found: Callable[[sqlite3.Connection], None] = lambda _: None
    ) -> None:
        self._path = path
        self._found = found
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._return_at = 0.0
        # Which file the connection has open: its device and inode.
        self._identity: tuple[int, int] | None = None
        # Whether memory holds what was on the disk: else another process wrote what is there.
        self._knows_disk = False
        self.health = Health(Mode.MEMORY, path, "" if path else "no state directory is set")

    def open(self) -> None:
        """Opens the file, or memory where that fails; never raises for what the disk holds or refuses."""
        with self._lock:
            try:
                if self._path is not None:
                    self._connection = self._open_disk(self._path, _LOCK_SECONDS)
                    self._identity, self._knows_disk = _identity(self._path), True
                    self.health = replace(self.health, mode=Mode.DISK, warning="")
            except (OSError, sqlite3.Error, Untrusted) as error:
                self._warn(error)
            if self._connection is None:
                self._connection = _empty_memory()
                self._return_at = time.monotonic() + RETURN_PAUSE_SECONDS

    def write(self, work: Callable[[sqlite3.Connection], Answer]) -> Answer | None:
        """Runs `work` in a transaction; None where even memory refused it."""
        with self._lock:
            self._return_to_disk()
            connection = self._connection
            if connection is None:
                return None
            if self._path is not None and self.health.mode is Mode.DISK and self._is_gone(self._path):
                connection = self._make_again(self._path, connection)
            try:
                return _transact(connection, work)
            except sqlite3.Error as error:
                if self.health.mode is Mode.MEMORY or isinstance(error, _OUR_MISTAKES):
                    _log.exception("state_write_failed")
                    return None
                connection = self._move_to_memory(connection, error)
            try:
                return _transact(connection, work)
            except sqlite3.Error:
                _log.exception("state_write_failed")
                return None

    def read(self, work: Callable[[sqlite3.Connection], Answer], otherwise: Answer) -> Answer:
        """Runs `work`; `otherwise` where the file cannot be read."""
        with self._lock:
            if self._connection is None:
                return otherwise
            try:
                return work(self._connection)
            except sqlite3.Error:
                _log.exception("state_read_failed")
                return otherwise

    def close(self) -> None:
        """Closes the file and lets others have it."""
        with self._lock:
            if self._connection is not None:
                try:
                    self._connection.close()
                except sqlite3.Error as error:
                    _log.warning("state_close_failed", extra={"error": str(error)})
                self._connection = None
            self._unlock()

    def _open_disk(self, path: Path, patience_seconds: float) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._take_lock(path, patience_seconds)
        try:
            return _trusted(path)
        except Untrusted as error:
            aside = _set_aside(path)
            self.health = replace(self.health, set_aside=aside)
            _log.warning("state_file_set_aside", extra={"path": path, "moved_to": aside, "why": str(error)})
            return _trusted(path)

    def _take_lock(self, path: Path, patience_seconds: float) -> None:
        """One process a file: two that write incidents would each undo the other's."""
        if self._lock_file is not None:
            return
        lock_file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up_at = time.monotonic() + patience_seconds
        while True:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    os.close(lock_file)
                    raise OSError("another watchdog is using the file") from None
                time.sleep(0.1)
            except OSError:
                os.close(lock_file)
                raise
            else:
                self._lock_file = lock_file
                return

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _is_gone(self, path: Path) -> bool:
        """Whether the file, or its folder, was deleted or replaced: what is written to it is lost then."""
        try:
            return _identity(path) != self._identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def _make_again(self, path: Path, deleted: sqlite3.Connection) -> sqlite3.Connection:
        """Writes all that the deleted file holds, which is there while we have it open, into a new one."""
        _log.warning("state_file_deleted", extra={"path": path})
        self._unlock()
        disk = None
        try:
            disk = self._open_disk(path, 0.0)
            _transact(disk, lambda connection: _merge(deleted, connection, is_newer=True))
            self._identity = _identity(path)
        except (OSError, sqlite3.Error, Untrusted) as error:
            if disk is not None:
                disk.close()
            return self._move_to_memory(deleted, error)
        deleted.close()
        self._connection = disk
        _log.warning("state_file_made_again", extra={"path": path})
        return disk

    def _move_to_memory(self, disk: sqlite3.Connection, error: Exception) -> sqlite3.Connection:
        self._warn(error)
        memory = _empty_memory()
        try:
            _transact(memory, lambda connection: _copy(disk, connection, _ENDED_TAKEN_TO_MEMORY))
        except sqlite3.Error as unreadable:
            _log.warning("state_lost", extra={"error": str(unreadable)})
        try:
            disk.close()
        except sqlite3.Error as unclosed:
            _log.warning("state_close_failed", extra={"error": str(unclosed)})
        self._connection = memory
        self.health = replace(self.health, mode=Mode.MEMORY)
        self._return_at = time.monotonic() + RETURN_PAUSE_SECONDS
        return memory

    def _return_to_disk(self) -> None:
        """Tries from time to time to take the memory back to the disk, whole or not at all."""
        memory = self._connection
        if self._path is None or memory is None or self.health.mode is Mode.DISK:
            return
        if time.monotonic() < self._return_at:
            return
        self._return_at = time.monotonic() + RETURN_PAUSE_SECONDS
        disk = None
        try:
            disk = self._open_disk(self._path, 0.0)
            _transact(disk, lambda connection: self._join(memory, connection))
        except (OSError, sqlite3.Error, Untrusted) as error:
            self.health = replace(self.health, warning=str(error))
            if disk is not None:
                disk.close()
            return
        memory.close()
        self._connection, self._knows_disk = disk, True
        self._identity = _identity(self._path)
        self.health = replace(self.health, mode=Mode.DISK, warning="")
        _log.info("state_on_disk_again", extra={"path": self._path})

    def _join(self, memory: sqlite3.Connection, disk: sqlite3.Connection) -> None:
        if not self._knows_disk:
            self._found(disk)
        _merge(memory, disk, is_newer=self._knows_disk)

    def _warn(self, error: Exception) -> None:
        self.health = replace(self.health, warning=str(error))
        _log.warning("state_kept_in_memory_only", extra={"path": self._path, "why": str(error)})


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _connect(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=2.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _empty_memory() -> sqlite3.Connection:
    connection = _connect(":memory:")
    connection.executescript(_SCHEMA)
    _prepare(connection)
    return connection


def _trusted(path: Path) -> sqlite3.Connection:
    """The file, checked and ready; raises Untrusted, or sqlite3.Error where it cannot be used at all."""
    if path.is_file() and not os.access(path, os.R_OK | os.W_OK):
        raise Untrusted("no permission to read and write it")
    if not path.exists():
        # What is in it is nobody's business; its log and its index get the same mode.
        path.touch(0o600)
    connection = _connect(str(path))
    try:
        _check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        # A kill loses nothing then, and a power cut at most the last transactions.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        _transact(connection, _prepare)
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNTRUSTED:
            raise Untrusted(str(error)) from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (
        application_id == 0
        and version == 0
        and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    ):
        _transact(connection, _create)
        return
    if application_id != APPLICATION_ID:
        raise Untrusted("it is another program's database")
    if version != SCHEMA_VERSION and version not in _UPGRADES:
        raise Untrusted(f"its schema is version {version}, and this program knows version {SCHEMA_VERSION}")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables != _OLDER_TABLES.get(version, _TABLES):
        raise Untrusted("its tables are not those of its schema")
    faults = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if faults != ["ok"]:
        raise Untrusted("integrity check: " + "; ".join(faults))
    if version < SCHEMA_VERSION:
        _transact(connection, lambda older: _upgrade(older, version))


def _upgrade(connection: sqlite3.Connection, version: int) -> None:
    for step in range(version, SCHEMA_VERSION):
        for statement in _UPGRADES[step]:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _create(connection: sqlite3.Connection) -> None:
    # Not executescript, which would end the transaction: a kill in between must leave nothing.
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _prepare(connection: sqlite3.Connection) -> None:
    """Adds what an earlier version did without, and shows whether it can be written."""
    for statement in _INDEXES:
        connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO moments VALUES ('opened', strftime('%s'))")


def _transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Answer]) -> Answer:
    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return answer


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, most_ended: int) -> None:
    """What is open, the last that ended, and the ledger."""
    ended = "SELECT id FROM incidents WHERE state = 'resolved' ORDER BY resolved_at DESC LIMIT "
    chosen = (
        f"SELECT id FROM incidents WHERE state <> 'resolved' UNION SELECT id FROM ({ended}{most_ended:d})"  # noqa: S608
    )
    for table, condition in (
        ("moments", ""),
        ("incidents", f"WHERE id IN ({chosen})"),
        ("transitions", f"WHERE incident IN ({chosen})"),
        ("ledger", ""),
        ("pasts", ""),
    ):
        rows = source.execute(f"SELECT * FROM {table} {condition}").fetchall()  # noqa: S608 - all of it is ours
        if rows:
            marks = ",".join("?" * len(rows[0]))
            target.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608


def _merge(memory: sqlite3.Connection, disk: sqlite3.Connection, *, is_newer: bool) -> None:
    """Memory that began with what is on the disk is newer: what is open there and not in memory has ended unseen.

    Memory that began without it knows nothing of the disk, where another process may have left what goes on: what is
    open in both is the incident of that process, with its start and its time line.
    """
    if is_newer:
        disk.execute("DELETE FROM incidents WHERE state <> 'resolved'")
        disk.execute("DELETE FROM ledger")
    else:
        theirs = disk.execute("SELECT key FROM incidents WHERE state <> 'resolved'").fetchall()
        memory.executemany("DELETE FROM incidents WHERE state <> 'resolved' AND key = ?", theirs)
    _copy(memory, disk, 1_000_000)


def _set_aside(path: Path) -> Path:
    """Moves the file and its log away, both, or the old log would be played into the new file."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.aside-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.aside-{stamp}-{number}")
    path.rename(aside)
    for suffix in _COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(aside.with_name(aside.name + suffix))
    _drop_oldest(path)
    return aside


def _drop_oldest(path: Path) -> None:
    """A file that breaks at each start must not fill the disk."""
    moved = sorted(
        each for each in path.parent.glob(f"{path.name}.aside-*") if not each.name.endswith(_COMPANIONS)
    )
    for old in moved[:-_SET_ASIDE_KEPT]:
        for suffix in ("", *_COMPANIONS):
            old.with_name(old.name + suffix).unlink(missing_ok=True)
