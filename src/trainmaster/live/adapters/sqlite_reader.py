"""Reads a log without touching it: one that a server writes at this moment, a copy of it, or a backup.

The file is opened read only and read in short steps, so that a server that writes it can fold its journal back at any
time; no lock is taken and no lease. Only what is in the file at the start is read. A file without a journal beside it
belongs to nobody, and is opened as one that does not change, since SQLite would otherwise leave a journal beside a
backup. What another version of the product wrote is read too, if it can be: whoever replays it wants to know whether
this version decides the same.
"""

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.events import AnyEvent
from trainmaster.live.adapters.sqlite_log import APPLICATION_ID, SCHEMA_VERSION
from trainmaster.ports.event_log import LogUnusable, Snapshot

PAGE: Final = 1_000

_events: Final = msgspec.json.Decoder(AnyEvent)


class LoggedRow(Value):
    """An event, and the bytes of the effects that it caused."""

    index: int
    event: AnyEvent
    effects: bytes


class LogReader:
    """The log at `path`, as far as it is written now. Raises `LogUnusable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            why = "it is a directory" if path.is_dir() else "there is no such file"
            raise LogUnusable(f"the log {path} can't be read", why, "give the log file of a server: RUN_DIR/log.sqlite")
        journal = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if journal else "immutable=1"
        try:
            self._db = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            self._look()
        except BaseException:
            self._db.close()
            raise

    def _look(self) -> None:
        if self._one("PRAGMA application_id") != APPLICATION_ID:
            raise self._foreign("it is a database of another program")
        schema = self._one("PRAGMA user_version")
        self.product = str(self._one("SELECT value FROM meta WHERE key = 'product'") or "unknown")
        """The version that wrote it."""
        if schema != SCHEMA_VERSION:
            why = f"it was written by trainmaster {self.product} (schema {schema}), and this reads {SCHEMA_VERSION}"
            raise LogUnusable(f"the log {self._path} can't be read", why, f"use trainmaster {self.product}")
        first, last, count = self._rows("SELECT min(idx), max(idx), count(*) FROM log", ())[0]
        if count and (first, last) != (1, count):
            raise self._damaged(f"{count} events with indices {first} to {last}")
        self.last_index = int(count)
        self.rejected = int(self._one("SELECT count(*) FROM rejected"))
        """Reports of agents that the engine found impossible."""

    def span(self, until: int) -> tuple[Instant, Instant]:
        """When the first event happened, and the event `until`."""
        rows = self._rows("SELECT at FROM log WHERE idx IN (1, ?) ORDER BY idx", (until,))
        return Instant(rows[0][0]), Instant(rows[-1][0])

    def rows(self, until: int) -> Iterator[LoggedRow]:
        """All events up to this index. Raises `LogUnusable` at the first one that is damaged."""
        query = "SELECT idx, event, effects, crc FROM log WHERE idx >= ? AND idx <= ? ORDER BY idx LIMIT ?"
        place = 1
        while place <= until:
            page = self._rows(query, (place, until, PAGE))
            if not page:
                raise self._damaged(f"event {place} is missing")
            for row in page:
                yield self._row(place, *row)
                place += 1

    def _row(self, place: int, index: int, event: bytes, effects: bytes, crc: int) -> LoggedRow:
        if index != place:
            raise self._damaged(f"event {place} is missing")
        if zlib.crc32(effects, zlib.crc32(event)) != crc:
            raise self._damaged(f"the checksum of event {index} does not match")
        try:
            return LoggedRow(index=index, event=_events.decode(event), effects=effects)
        except msgspec.DecodeError as error:
            why = (
                f"event {index} was written by trainmaster {self.product}, and this version has no such event: {error}"
            )
            raise LogUnusable(f"the log {self._path} can't be read", why, f"use trainmaster {self.product}") from error

    def snapshots(self, until: int) -> dict[int, Snapshot]:
        """Snapshots of the state up to an index, those that are whole."""
        rows = self._rows("SELECT idx, state, crc FROM snapshots WHERE idx <= ?", (until,))
        return {index: Snapshot(index=index, state=state) for index, state, crc in rows if zlib.crc32(state) == crc}

    def close(self) -> None:
        self._db.close()

    def _one(self, query: str) -> Any:
        rows = self._rows(query, ())
        return rows[0][0] if rows else None

    def _rows(self, query: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: sqlite3.Error) -> LogUnusable:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return self._foreign(str(error))
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(str(error))
        if code == sqlite3.SQLITE_ERROR:
            return self._foreign(str(error))
        fix = f"check that you may read {self._path} and what lies beside it, and that its disk has no errors"
        return LogUnusable(f"the log {self._path} can't be read", str(error), fix)

    def _foreign(self, why: str) -> LogUnusable:
        return LogUnusable(
            f"{self._path} is not a Trainmaster log", why, "give the log file of a server: RUN_DIR/log.sqlite"
        )

    def _damaged(self, why: str) -> LogUnusable:
        return LogUnusable(
            f"the log {self._path} is damaged", why, "replay another copy of it, or only a part: --until"
        )
