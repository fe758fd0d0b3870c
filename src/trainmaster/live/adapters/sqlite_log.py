"""The log in one SQLite file: write-ahead journal, `synchronous=FULL`, one writer, one transaction a batch.

FULL and not NORMAL, since NORMAL may lose the last commits when power fails, and an effect that was sent must not be
forgotten. Many events share one commit: the caller gathers what came while the last commit was on its way to the disk.
Effects without an outcome are not kept in a table of their own: the state knows them, and the effects that stand beside
each event are for audit and for proving that a replay decides the same.

One writer at a time: an operating-system lock on FILE.lock, held for life and released by the kernel when the process
dies, however it dies. SQLite's own lock would let two servers take turns. The lease number fences what an earlier
server still has on its way: it is raised at each opening and never used again.

Every row carries a CRC-32, since SQLite has no checksums of its own and a flipped bit would otherwise become a fact.
Limits: the file must lie on a local disk (flock and the journal's shared memory do not cross NFS); nothing is deleted.
"""

import fcntl
import os
import socket
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

import trainmaster
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AgentReport, AnyEvent
from trainmaster.ports.event_log import Batch, Entry, LogFull, LogUnusable, Rejection, ReportNumber, Snapshot

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x746D_6C67  # "tmlg", so that another program's database is told from ours
SNAPSHOTS_KEPT: Final = 2

SCHEMA: Final = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE log(idx INTEGER PRIMARY KEY, at INTEGER NOT NULL, event BLOB NOT NULL, effects BLOB NOT NULL,"
    " crc INTEGER NOT NULL) STRICT",
    "CREATE TABLE snapshots(idx INTEGER PRIMARY KEY, state BLOB NOT NULL, crc INTEGER NOT NULL) STRICT",
    "CREATE TABLE leases(number INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, host TEXT NOT NULL,"
    " taken_at INTEGER NOT NULL) STRICT",
    "CREATE TABLE report_numbers(host TEXT PRIMARY KEY, session TEXT NOT NULL, number INTEGER NOT NULL)"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE rejected(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, host TEXT NOT NULL, session TEXT NOT NULL,"
    " number INTEGER NOT NULL, event BLOB NOT NULL, reason TEXT NOT NULL) STRICT",
)
INSERT_ENTRY: Final = "INSERT INTO log(idx, at, event, effects, crc) VALUES (?, ?, ?, ?, ?)"

_events: Final = msgspec.json.Decoder(AnyEvent)
_effects: Final = msgspec.json.Decoder(tuple[AnyEffect, ...])
_reports: Final = msgspec.json.Decoder(AgentReport)


def entry_row(entry: Entry) -> tuple[int, int, bytes, bytes, int]:
    """The row of the log table that holds this entry."""
    event, effects = encode(entry.event), encode(entry.effects)
    return entry.index, entry.event.at, event, effects, zlib.crc32(effects, zlib.crc32(event))


class SqliteLog:
    """Opens or creates the log at `path` and takes the next lease. Raises `LogUnusable` or `LogFull`."""

    def __init__(self, path: Path, at: Instant, product_version: str = trainmaster.__version__) -> None:
        assert at >= 0
        self._path = path
        self._lock = _take_lock(path)
        try:
            self._db = self._open()
            try:
                self._guarded(lambda: self._prepare(product_version))
                self._lease = self._guarded(lambda: self._take_lease(at))
                self._last_index = self._guarded(self._newest_index)
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def lease(self) -> int:
        return self._lease

    @property
    def last_index(self) -> int:
        return self._last_index

    def append(self, batch: Batch) -> None:
        for place, entry in enumerate(batch.entries, self._last_index + 1):
            assert entry.index == place, f"entry {entry.index} would leave a gap after {place - 1}"
        self._transaction(lambda: self._insert(batch))
        self._last_index += len(batch.entries)

    def read(self, since: int, limit: int) -> Sequence[Entry]:
        assert limit > 0
        rows = self._rows(
            "SELECT idx, event, effects, crc FROM log WHERE idx >= ? ORDER BY idx LIMIT ?", (max(since, 1), limit)
        )
        return [self._entry(place, *row) for place, row in enumerate(rows, max(since, 1))]

    def report_numbers(self) -> Sequence[ReportNumber]:
        rows = self._rows("SELECT host, session, number FROM report_numbers ORDER BY host", ())
        return [ReportNumber(host=HostId(h), session=SessionId(s), number=n) for h, s, n in rows]

    def rejections(self, limit: int) -> Sequence[Rejection]:
        rows = self._rows(
            "SELECT at, host, session, number, event, reason FROM rejected ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [
            Rejection(at=at, host=host, session=session, number=number, event=_reports.decode(event), reason=reason)
            for at, host, session, number, event, reason in rows
        ]

    def snapshots(self) -> Iterator[Snapshot]:
        rows = self._rows("SELECT idx, state, crc FROM snapshots WHERE idx <= ? ORDER BY idx DESC", (self._last_index,))
        for index, state, crc in rows:
            if zlib.crc32(state) == crc:
                yield Snapshot(index=index, state=state)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        assert 0 < snapshot.index <= self._last_index
        row = (snapshot.index, snapshot.state, zlib.crc32(snapshot.state))

        def write() -> None:
            self._db.execute("INSERT OR REPLACE INTO snapshots(idx, state, crc) VALUES (?, ?, ?)", row)
            self._db.execute(
                "DELETE FROM snapshots WHERE idx NOT IN (SELECT idx FROM snapshots ORDER BY idx DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )

        self._transaction(write)

    def close(self) -> None:
        """Closes the file and gives up the lock. The log is whole without this call too."""
        self._db.close()
        os.close(self._lock)

    # --- opening

    def _open(self) -> sqlite3.Connection:
        # Used by one thread at a time: the server awaits each commit that it hands to a worker thread.
        try:
            return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _prepare(self, product_version: str) -> None:
        """Settings, then the schema of a new file or the checks of an old one."""
        self._db.execute("PRAGMA busy_timeout = 5000")
        tables = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise LogUnusable(
                f"{self._path} is not a Trainmaster log",
                "it is a database of another program",
                "choose another state directory with --state",
            )
        if tables:
            self._check_version(product_version)
            self._check_pages()
        mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        assert mode == "wal", mode
        self._db.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._transaction(lambda: self._create(product_version))

    def _create(self, product_version: str) -> None:
        for statement in SCHEMA:
            self._db.execute(statement)
        self._db.execute("INSERT INTO meta VALUES ('product', ?)", (product_version,))
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check_version(self, product_version: str) -> None:
        schema = self._db.execute("PRAGMA user_version").fetchone()[0]
        row = self._db.execute("SELECT value FROM meta WHERE key = 'product'").fetchone()
        product = row[0] if row else "unknown"
        if (schema, product) != (SCHEMA_VERSION, product_version):
            raise LogUnusable(
                f"stale database {self._path}",
                f"it was written by trainmaster {product} (schema {schema}), and this is {product_version} "
                f"(schema {SCHEMA_VERSION}); another version may decide differently from the same log",
                f"run trainmaster {product} again, or start over with an empty state directory: "
                f"mv {self._path.parent} {self._path.parent}.old",
            )

    def _check_pages(self) -> None:
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(found)

    def _take_lease(self, at: Instant) -> int:
        owner = (os.getpid(), socket.gethostname(), at)

        def write() -> int:
            cursor = self._db.execute("INSERT INTO leases(pid, host, taken_at) VALUES (?, ?, ?)", owner)
            assert cursor.lastrowid is not None
            return cursor.lastrowid

        return self._transaction(write)

    def _newest_index(self) -> int:
        first, last, count = self._db.execute("SELECT min(idx), max(idx), count(*) FROM log").fetchone()
        if count and (first, last) != (1, count):
            raise self._damaged(f"{count} events with indices {first} to {last}")
        return int(count)

    # --- reading and writing

    def _insert(self, batch: Batch) -> None:
        self._db.executemany(INSERT_ENTRY, [entry_row(entry) for entry in batch.entries])
        self._db.executemany(
            "INSERT OR REPLACE INTO report_numbers(host, session, number) VALUES (?, ?, ?)",
            [(n.host, n.session, n.number) for n in batch.numbers],
        )
        self._db.executemany(
            "INSERT INTO rejected(at, host, session, number, event, reason) VALUES (?, ?, ?, ?, ?, ?)",
            [(r.at, r.host, r.session, r.number, encode(r.event), r.reason) for r in batch.rejections],
        )

    def _transaction(self, write: Callable[[], T]) -> T:
        def run() -> T:
            self._db.execute("BEGIN IMMEDIATE")
            result = write()
            self._db.execute("COMMIT")
            return result

        return self._guarded(run)

    def _guarded(self, action: Callable[[], T]) -> T:
        """Runs the action; whatever SQLite raises is rolled back and becomes an error for people."""
        try:
            return action()
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._failure(error) from error

    def _rows(self, query: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        return self._guarded(lambda: self._db.execute(query, values).fetchall())

    def _entry(self, place: int, index: int, event: bytes, effects: bytes, crc: int) -> Entry:
        if index != place:
            raise self._damaged(f"event {place} is missing")
        if zlib.crc32(effects, zlib.crc32(event)) != crc:
            raise self._damaged(f"the checksum of event {index} does not match")
        return Entry(index=index, event=_events.decode(event), effects=_effects.decode(effects))

    def _damaged(self, why: str) -> LogUnusable:
        return LogUnusable(
            f"the log {self._path} is damaged",
            why,
            f"restore a backup of it, or start over with an empty state directory: "
            f"mv {self._path.parent} {self._path.parent}.damaged",
        )

    def _failure(self, error: sqlite3.Error) -> LogFull | LogUnusable:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return LogFull(
                f"no space left for the log {self._path}",
                "the disk is full; nothing of this request was written",
                f"free some space below {self._path.parent} and ask again",
            )
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(str(error))
        if code == sqlite3.SQLITE_NOTADB:
            return LogUnusable(
                f"{self._path} is not a Trainmaster log",
                str(error),
                "choose another state directory with --state, or move the file away",
            )
        return LogUnusable(
            f"the log {self._path} can't be used",
            str(error),
            f"check that {self._path.parent} is a writable directory on a local disk that has no errors",
        )


def _take_lock(path: Path) -> int:
    """Locks FILE.lock for the life of this process. Raises `LogUnusable` with the pid of the holder."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LogUnusable(
            f"the log {path} can't be opened",
            f"{lock_path}: {error.strerror}",
            f"check that {path.parent} is a directory that you may write to, or choose another one with --state",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise LogUnusable(
            f"the log {path} is in use",
            f"another server (pid {holder}) runs on it",
            f"use that one, or stop it first: kill {holder}",
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
