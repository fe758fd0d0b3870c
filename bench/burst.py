"""A save of 64 writers of one host, in step, beside a reader of data, through admission.

64 processes write 64 MiB each into one directory (blocks summed, O_DIRECT, synced) while another process reads batches
as fast as it may. The limit is the raw rate: threads that write the same bytes into as many files, reserved and synced,
without sums and without a reader, in the same rounds; two or eight of them, whichever are faster.

`burst.makespan_ratio` is the makespan over bytes / (0.9 x raw rate): at most 1. `burst.data_share` is the reader's part
of all bytes that were moved in the save; the goal is the configured share of data among the two classes. `peer` is the
same without admission: everybody just writes and reads.
"""

import contextlib
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.burst_rank import READ_BYTES, Words
from bench.figure import Figure
from trainmaster.core.base.value import Value, encode
from trainmaster.core.storage.classes import MEBIBYTE, Policy
from trainmaster.core.storage.turns import SaveReport
from trainmaster.storage.admission.broker import Broker

WRITERS = 64
EACH_BYTES = 64 * MEBIBYTE
DATA_BYTES = 256 * MEBIBYTE
POLICY = Policy(checkpoint_percent=88, data_percent=10, code_percent=2)
ROUNDS = 3
RAW_THREADS = (2, 8)
GOAL = 0.9


class Outcome(Value):
    """Of one save."""

    makespan_s: float
    data_share: float
    report: SaveReport | None
    free: tuple[str, ...]
    """What writers say who went on without admission."""


def figures() -> Iterator[Figure]:
    with places(os.environ.get("TRAINMASTER_BENCH_DIR"), EACH_BYTES, DATA_BYTES) as (root, memory):
        raw, ours, plain = [], [], []
        for number in range(ROUNDS):
            raw.append(min(raw_write_s(root, memory, WRITERS, threads) for threads in RAW_THREADS))
            ours.append(burst(root, memory, f"a{number}", WRITERS, POLICY))
            plain.append(burst(root, memory, f"p{number}", WRITERS, None))
    yield from _figures(raw, ours, plain)


def _figures(raw: list[float], ours: list[Outcome], plain: list[Outcome]) -> Iterator[Figure]:
    raw_s = statistics.median(raw)
    makespan, peer = (statistics.median(one.makespan_s for one in all_) for all_ in (ours, plain))
    share, peer_share = (statistics.median(one.data_share for one in all_) for all_ in (ours, plain))
    told = ours[0].report.sentence if ours[0].report is not None else "no report"
    whole_bytes = WRITERS * EACH_BYTES
    moved = statistics.median(1 / (1 - one.data_share) / one.makespan_s for one in ours) * raw_s
    unshaped = sum(bool(one.free) for one in ours)
    configured = POLICY.data_percent / (POLICY.data_percent + POLICY.checkpoint_percent)
    ratio = makespan * GOAL / raw_s
    yield Figure(
        bench="burst", figure="burst.makespan_ratio", value=round(ratio, 3), unit="ratio", better="lower",
        peer=round(peer * GOAL / raw_s, 3), ratio=round(peer / makespan, 2),
        goal="at most 1: bytes / (0.9 x raw rate)", holds=ratio <= 1 and not unshaped,
        note=f"raw {whole_bytes / raw_s / 2**30:.2f} GiB/s; both classes together {moved:.2f} of it; {told}",
    )  # fmt: skip
    yield Figure(
        bench="burst", figure="burst.data_share", value=round(share, 3), unit="ratio", better="higher",
        peer=round(peer_share, 3), ratio=round(share / configured, 2), goal=f"at least {configured:.3f}",
        holds=share >= 0.97 * configured and not unshaped, note="of the bytes that were moved during the save",
    )  # fmt: skip


@contextlib.contextmanager
def places(folder: str | None, each_bytes: int, data_bytes: int) -> Iterator[tuple[Path, Path]]:
    """A store with data in it, and memory that holds what each writer writes."""
    with tempfile.TemporaryDirectory(dir=folder) as store, tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
        memory.write(os.urandom(each_bytes))
        memory.flush()
        root = Path(store)
        (root / "data").mkdir()
        with (root / "data" / "batches").open("wb") as stream:
            for _ in range(data_bytes // MEBIBYTE):
                stream.write(os.urandom(MEBIBYTE))
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield root, Path(memory.name)


def raw_write_s(root: Path, memory: Path, writers: int, threads: int) -> float:
    """Seconds in which some threads write it all, with nothing else to do."""
    with memory.open("rb") as stream:
        view = memoryview(mmap.mmap(stream.fileno(), 0, flags=mmap.MAP_PRIVATE))
    folder = root / "raw"
    folder.mkdir()
    left = iter(range(writers))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            file = os.open(folder / str(number), os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
            os.posix_fallocate(file, 0, len(view))
            for at in range(0, len(view), POLICY.quantum_bytes):
                os.pwrite(file, view[at : at + POLICY.quantum_bytes], at)
            os.fsync(file)
            os.close(file)

    started = time.monotonic()
    working = [threading.Thread(target=work) for _ in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    took_s = time.monotonic() - started
    shutil.rmtree(folder)
    return took_s


def burst(
    root: Path, memory: Path, save: str, writers: int, policy: Policy | None, *, ask: bool | None = None
) -> Outcome:
    """One save beside a reader. Without a policy there is no broker here; `ask`: whether one is asked (default: the one
    here)."""
    asked = policy is not None if ask is None else ask
    (root / save).mkdir()
    reports: list[SaveReport] = []
    broker = Broker.first(root, policy, reports.append) if policy is not None else None
    assert policy is None or broker is not None, "another broker is there"
    usual = Words(root=str(root), writer="reader", admitted=asked)
    wished = [
        usual.but(writer=f"rank-{rank}", memory=str(memory), save=save, writers=writers) for rank in range(writers)
    ]
    ranks = [_start(words) for words in wished]
    reader = _start(usual)
    try:
        for process in (*ranks, reader):
            assert _line(process) == "ready\n"
        _go(reader)
        time.sleep(0.2)  # the reader is on its way
        started_ns = time.monotonic_ns()
        for process in ranks:
            _go(process)
        told = [msgspec.json.decode(_line(process)) for process in ranks]
        _go(reader)
        came_ns = msgspec.json.decode(_line(reader))["came_ns"]
    finally:
        for process in (*ranks, reader):
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        if broker is not None:
            broker.end()
        shutil.rmtree(root / save)
    assert {one["crc32"] for one in told} == {zlib.crc32(memory.read_bytes())}
    ended_ns = max(one["ended_ns"] for one in told)
    read_bytes = READ_BYTES * sum(started_ns <= came <= ended_ns for came in came_ns)
    saved_bytes = writers * memory.stat().st_size
    return Outcome(
        makespan_s=(ended_ns - started_ns) / 1e9,
        data_share=read_bytes / (read_bytes + saved_bytes),
        report=reports[0] if reports else None,
        free=tuple(one["free"] for one in told if one["free"]),
    )


def _start(words: Words) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.burst_rank", encode(words).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()
