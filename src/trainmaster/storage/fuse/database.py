"""The metadata of a store: one SQLite file, written ahead.

Every change is a transaction of its own and is in the write-ahead log when it is answered, so the death of the daemon
loses nothing. The log itself is synced when somebody asks for it (`sync`, behind every fsync of a file or a directory),
once for all changes before it; syncing each would cost as much as a write to the disk for every name. What was not
synced may be lost with the power, the newest changes first, and never out of order: the log is replayed up to where it
is whole. `sync` syncs the log's file itself, which SQLite does too where `synchronous` is FULL; nothing here reads or
writes it.

One thread at a time: callers hold the lock for a transaction of some ten microseconds, and never while they sync. A
change may carry a *ticket*: slot and number of the kernel's request. It is stored with the change, so that whoever
takes over from a dead daemon knows which requests were carried out though nobody was told (`carried_out`).
"""

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from trainmaster.storage.fuse.refused import Refused

VERSION: Final = 1
APPLICATION_ID: Final = 0x746D_6E73  # "tmns", so that another program's database is told from ours
ROOT: Final = 1
_CACHE_KIB: Final = 8192
_PAGES_AHEAD: Final = 4096
"""After so many pages the write-ahead log is copied into the file."""
_DIRECTORY: Final = 0o040755

_SCHEMA: Final = (
    "CREATE TABLE names(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL, file INTEGER NOT NULL,"
    " UNIQUE(parent, name)) STRICT",
    "CREATE INDEX listed ON names(parent, id)",
    "CREATE TABLE files(id INTEGER PRIMARY KEY, mode INTEGER NOT NULL, links INTEGER NOT NULL, uid INTEGER NOT NULL,"
    " gid INTEGER NOT NULL, rdev INTEGER NOT NULL, atime INTEGER NOT NULL, mtime INTEGER NOT NULL,"
    " ctime INTEGER NOT NULL, parent INTEGER NOT NULL, target BLOB, accepted_size INTEGER, accepted_mtime INTEGER)"
    " STRICT",
    "CREATE INDEX unlinked ON files(id) WHERE links = 0",
    "CREATE TABLE attributes(file INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY(file, name))"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE buried(file INTEGER PRIMARY KEY) STRICT",
    "CREATE TABLE carried_out(slot INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)


class Ticket(NamedTuple):
    """A request of the kernel: the slot of the thread that serves it, and its number."""

    slot: int
    number: int


class Database:
    """The file at `path`, made where there is none. Raises `Refused`, `OSError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        self._ahead = -1
        try:
            self._prepare()
            with self.changing():
                self.execute("INSERT OR IGNORE INTO meta VALUES ('clean', 1)")  # so that there is a log to be synced
            self._ahead = os.open(path.with_name(path.name + "-wal"), os.O_RDONLY | os.O_CLOEXEC)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise unusable(path, str(error)) from error
            raise

    def _prepare(self) -> None:
        tables = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables:
            self._check()
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        assert mode == "wal", mode
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_AHEAD}")
        if not tables:
            self._make()

    def _check(self) -> None:
        found = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found != APPLICATION_ID:
            raise unusable(self._path, "it is a database of another program")
        if version != VERSION:
            raise Refused(
                f"the metadata in {self._path.parent} has version {version}, and this program reads {VERSION}",
                "another version of trainmaster made it; nothing was changed",
                "use the trainmaster that made it, or another store",
            )

    def _make(self) -> None:
        with self.changing():
            for statement in _SCHEMA:
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            owner = (os.geteuid(), os.getegid())
            row = (ROOT, _DIRECTORY, 2, *owner, 0, 0, 0, 0, ROOT)
            self._db.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)", row)

    # --- asking and changing

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Rows that were changed. Only within `changing`."""
        return self._db.execute(statement, values).rowcount

    def row(self, query: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        with self._lock, telling():
            found: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        return found

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, telling():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def changing(self, ticket: Ticket | None = None) -> Iterator[None]:
        """A transaction: all of it, or nothing if an exception leaves it."""
        with self._lock, telling():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                if ticket is not None:
                    self._db.execute("INSERT OR REPLACE INTO carried_out VALUES (?, ?)", ticket)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def carried_out(self) -> frozenset[int]:
        """Numbers of the last requests of each slot."""
        return frozenset(number for (number,) in self.rows("SELECT number FROM carried_out"))

    def sync(self) -> None:
        """Returns when everything changed so far survives the loss of power. Raises `OSError`."""
        os.fdatasync(self._ahead)

    def close(self) -> None:
        self._db.close()
        if self._ahead >= 0:
            os.close(self._ahead)
            self._ahead = -1


@contextmanager
def telling() -> Iterator[None]:
    """What SQLite says, as an error of the system."""
    try:
        yield
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        raise OSError(errno.ENOSPC if full else errno.EIO, f"metadata: {error}") from error


def unusable(path: Path, why: str) -> Refused:
    return Refused(f"{path} is not the metadata of a store", why, "give another store, or restore this file")
