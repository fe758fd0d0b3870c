"""Operations that the planner carries out as it runs, beside raw SQLite.

Everything is real but the hosts' work: a server process with its log (write-ahead journal, `synchronous=FULL`), a
client that asks over HTTP, and the agents of 128 hosts in two processes, which answer at once. The operations are the
works of the shipped catalogue that leave jobs alone, on one host each, so each is two rows of the log (asked for with
its effect, ended), one line of a stream and one report. `planner.operations_per_s` is the most in a closed loop of 256
operations; the peer inserts rows of the very sizes that the round wrote, as many a commit, into a bare table. `ratio`
is ours over the peer's, which is the limit.

`planner.first_effect_p99_ms` is the 99th percentile from the instant at which a request was due to the first effect at
the agent, at a paced load of 1,200 operations a second; the note has what 20 s without a break gave. Seven rounds of
3 s each, in turns, each with a server of its own. Beside them stand the processor time of the server an operation,
which other work on the machine disturbs least, and what an operation leaves in the log.
"""

import os
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.figure import ROUNDS, Figure, timed
from bench.live.round import Round, run

RATE: Final = 1_200.0
WINDOW: Final = 256
ROUND_S: Final = 3.0
SUSTAINED_S: Final = 20.0
FIRST_EFFECT_MS: Final = 250.0


def figures() -> Iterator[Figure]:
    closed, paced, raw = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(ROUNDS):
            closed.append(run(folder / f"closed-{number}", window=WINDOW, duration_s=ROUND_S))
            raw.append(_raw_operations_per_s(folder / f"raw-{number}.sqlite", closed[-1]))
            paced.append(run(folder / f"paced-{number}", rate=RATE, duration_s=ROUND_S))
        sustained = run(folder / "sustained", rate=RATE, duration_s=SUSTAINED_S)
    yield _operations(closed, raw)
    yield _first_effect(paced, sustained)
    yield from _costs(paced, sustained)


def _raw_operations_per_s(file: Path, round_: Round) -> float:
    """The rows of the round, as many a commit, into a bare table; as operations a second."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE log(idx INTEGER PRIMARY KEY, event BLOB, effects BLOB)")
    rows = [(bytes(event), bytes(effects)) for event, effects in round_.rows]
    size = max(1, round(round_.rows_a_commit))

    def insert() -> None:
        for place in range(0, len(rows), size):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO log(event, effects) VALUES (?, ?)", rows[place : place + size])
            connection.execute("COMMIT")

    taken_s = timed(insert)
    connection.close()
    return round_.operations / taken_s


def _operations(closed: Sequence[Round], raw: Sequence[float]) -> Figure:
    ours, peer = statistics.median(one.per_s for one in closed), statistics.median(raw)
    rates = ", ".join(f"{one.per_s:.0f}" for one in closed)
    done_ms = statistics.median(statistics.median(one.done_ms) for one in closed)
    rows = statistics.median(one.rows_a_commit for one in closed)
    return Figure(
        bench="planner",
        figure="planner.operations_per_s",
        value=round(ours),
        unit="operations/s",
        better="higher",
        peer=round(peer),
        ratio=round(ours / peer, 4),
        goal=f"at least {RATE:.0f}",
        holds=ours >= RATE,
        note=f"{WINDOW} under way; rounds {rates}; {rows:.0f} rows a commit; done after {done_ms:.0f} ms (median); "
        f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    )


def _first_effect(paced: Sequence[Round], sustained: Round) -> Figure:
    ours = statistics.median(percentile(one.first_effect_ms, 0.99) for one in paced)
    all_p99 = ", ".join(f"{percentile(one.first_effect_ms, 0.99):.0f}" for one in paced)
    half, tail = statistics.median(sustained.first_effect_ms), percentile(sustained.first_effect_ms, 0.99)
    return Figure(
        bench="planner",
        figure="planner.first_effect_p99_ms",
        value=round(ours, 1),
        unit="ms",
        better="lower",
        goal=f"at most {FIRST_EFFECT_MS:.0f} ms at {RATE:.0f} operations/s",
        holds=ours <= FIRST_EFFECT_MS,
        note=f"rounds {all_p99}; over {SUSTAINED_S:.0f} s: {sustained.per_s:.0f} done a second, median {half:.1f} ms, "
        f"99 % {tail:.0f} ms, longest {sustained.first_effect_ms[-1]:.0f} ms",
    )


def _costs(paced: Sequence[Round], sustained: Round) -> Iterator[Figure]:
    spent = {what: statistics.median(one.cpu_us[what] for one in paced) for what in sustained.cpu_us}
    yield Figure(
        bench="planner",
        figure="planner.server_us_per_operation",
        value=round(spent["server"]),
        unit="us/operation",
        better="lower",
        note=f"processor time at {RATE:.0f} operations/s; agents {spent['agents']:.0f}, client {spent['client']:.0f} "
        f"(its start included); memory of the server after {sustained.operations}: {sustained.peak_mib:.0f} MiB",
    )
    written = sum(event + effects for event, effects in sustained.rows)
    yield Figure(
        bench="planner",
        figure="planner.log_bytes_per_operation",
        value=round(written / sustained.operations),
        unit="bytes/operation",
        better="lower",
        note=f"{len(sustained.rows) / sustained.operations:.2f} rows an operation, {sustained.log_bytes} bytes on the "
        f"disk after {sustained.operations}, snapshots included",
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
