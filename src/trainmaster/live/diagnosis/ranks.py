"""Looks at ranks from outside: their rings, what the kernel says of their processes, their stacks.

Nothing here needs the rank's help, so it works while the rank hangs or is stopped; only the fall-back for stacks does
(a signal handler must run). Rings are read as files: a copy of the page cache, which is the very memory that the rank
writes. Everything is bounded: stacks of a host are taken a few at a time, each with a deadline.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from trainmaster.core.agent.board import Reading
from trainmaster.core.agent.ring import SIZE, RankState, Ring, RingReading
from trainmaster.core.diagnosis.stacks import SIGNAL_ABOVE_RTMIN, Stack, from_faulthandler, from_py_spy

PY_SPY_S: Final = 3.0
ANSWER_S: Final = 1.0
"""For a rank's own answer."""
AT_ONCE: Final = 4


class Seen:
    """A rank as its agent knows it, for a look in another thread."""

    def __init__(self, rank: int, pid: int | None, ring: Path, stacks: Path, reading: Reading) -> None:
        self.rank, self.pid, self.ring, self.stacks, self.reading = rank, pid, ring, stacks, reading


def state(seen: Seen, calls: int) -> RankState:
    """What can be seen of a rank right now, with its last `calls` collectives."""
    ring = read_ring(seen.ring)
    letter, cpu_s = process_state(seen.pid)
    return RankState(
        rank=seen.rank,
        state=letter,
        wchan=_wchan(seen.pid) if letter == "D" else "",
        cpu_s=cpu_s,
        phase=int(seen.reading.phase),
        step=seen.reading.step,
        step_at=seen.reading.step_at,
        step_s=seen.reading.step_s,
        ring=ring.but(calls=ring.calls[-calls:]) if ring is not None else None,
    )


def read_ring(path: Path) -> RingReading | None:
    """The ring in a file; None if the rank has none (its script records nothing)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < SIZE:
        return None  # its maker was in the middle of it
    ring = Ring(memoryview(data))
    return ring.read() if ring.is_valid() else None


def process_state(pid: int | None) -> tuple[str, float]:
    """(letter of /proc, processor seconds ever used) of a process; ("", 0) if there is none."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes() if pid else b""
    except (FileNotFoundError, ProcessLookupError):
        return "", 0.0
    if not data:
        return "", 0.0
    fields = data[data.rindex(b")") + 2 :].split()
    return fields[0].decode(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wchan(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except OSError:
        return ""


def stacks(host: str, ranks: Mapping[int, Seen]) -> tuple[Stack, ...]:
    """Stacks of all ranks of a host. Blocks."""
    tool = shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(_python()), os.environ.get("PATH", ""))))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(lambda seen: stack(host, seen, tool), (ranks[rank] for rank in sorted(ranks))))


def _python() -> str:
    import sys

    return sys.executable


def stack(host: str, seen: Seen, tool: str | None) -> Stack:
    """The stack of one rank: by py-spy where there is one and it may, else by the rank's own handler."""
    letter, _ = process_state(seen.pid)
    none = Stack(rank=seen.rank, host=host, state=letter)
    if seen.pid is None or letter in ("", "Z", "X"):
        return none.but(trouble="there is no such process any more")
    found = _by_py_spy(tool, seen.pid) if tool else None
    if found is None and letter in ("T", "t"):
        return none.but(trouble="the process is stopped and can't answer; py-spy would see it")
    found = found or _by_signal(seen)
    if found is None:
        return none.but(trouble="neither py-spy nor a handler of the process gives its stack")
    return none.but(frames=found[0], threads=found[1])


def _by_py_spy(tool: str, pid: int) -> tuple[tuple[str, ...], int] | None:
    command = [tool, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PY_SPY_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None  # the other way is tried
    return from_py_spy(done.stdout) if done.returncode == 0 else None


def _by_signal(seen: Seen) -> tuple[tuple[str, ...], int] | None:
    """Asks the process itself. Only one that catches the signal is asked: it would end any other."""
    assert seen.pid is not None
    number = signal.SIGRTMIN + SIGNAL_ABOVE_RTMIN
    if not _catches(seen.pid, number):
        return None
    try:
        before = seen.stacks.stat().st_size
        os.kill(seen.pid, number)
    except OSError:
        return None
    text = _awaited(lambda: seen.stacks.read_bytes()[before:].decode(errors="replace"))
    return from_faulthandler(text)


def _awaited(read: Callable[[], str]) -> str:
    """The text as soon as it is there and no longer grows."""
    deadline, last = time.monotonic() + ANSWER_S, ""
    while time.monotonic() < deadline:
        text = read()
        if text and text == last:
            return text
        last = text
        time.sleep(0.02)
    return last


def _catches(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
