"""Durable appends: our log (events with effects, checksums, report numbers) against raw SQLite commits.

The peer inserts rows of the same size into a bare table with the same journal mode and `synchronous=FULL`, the same
number a commit, and does nothing else: it is the limit. `ratio` is ours over the peer's; the goal is 0.8.
Group commit is shown beside it: a hundred events a transaction.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, interleaved, timed
from trainmaster.core.base.ids import AttemptId, EffectId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.effects import StopWorkers
from trainmaster.core.events import EffectEnded
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.ports.event_log import Batch, Entry

COMMITS = 300
GOAL = 0.8


def entry(index: int) -> Entry:
    host, attempt = HostId("gpu-0001"), AttemptId("job-1.a1")
    event = EffectEnded(at=Instant(1_700_000_000_000_000), host=host, effect=EffectId(f"e{index}.1"), outcome="done")
    effect = StopWorkers(id=EffectId(f"e{index}.2"), hosts=(host,), attempt=attempt, epoch=1, grace=0)  # type: ignore[arg-type]
    return Entry(index=index, event=event, effects=(effect,))


class Raw:
    """The bare table."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE log(idx INTEGER PRIMARY KEY, event BLOB, effects BLOB)")
        one = entry(1)
        self._row = (encode(one.event), encode(one.effects))

    def append(self, rows: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO log(event, effects) VALUES (?, ?)", [self._row] * rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for rows in (1, 100):
            yield _figure(Path(folder) / f"{rows}", rows)


def _figure(folder: Path, rows: int) -> Figure:
    folder.mkdir()
    log, raw = SqliteLog(folder / "ours.db", Instant(1)), Raw(folder / "raw.db")
    commits = COMMITS if rows == 1 else COMMITS // 3
    next_index = log.last_index + 1

    def ours() -> float:
        nonlocal next_index
        batches = []
        for _ in range(commits):
            batches.append(Batch(entries=tuple(entry(next_index + place) for place in range(rows))))
            next_index += rows
        return commits * rows / timed(lambda: [log.append(batch) for batch in batches])

    def peer() -> float:
        return commits * rows / timed(lambda: [raw.append(rows) for _ in range(commits)])

    mine, limit = interleaved(ours, peer, rounds=9)
    log.close()
    raw.close()
    return Figure(
        bench="log",
        figure="log.append_ratio" if rows == 1 else f"log.append_ratio_{rows}_a_commit",
        value=round(mine / limit, 3),
        unit="ratio",
        better="higher",
        peer=round(limit),
        ratio=round(mine / limit, 3),
        goal=f"at least {GOAL:g} of raw commits",
        holds=mine / limit >= GOAL,
        note=f"{mine:.0f} events/s against {limit:.0f} rows/s, {rows} a commit",
    )
