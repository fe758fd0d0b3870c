"""Processes named so that a recycled number is never killed: a process is its id and its start time.

The kernel gives a process id again after it has wrapped round, so an id in a file says nothing by itself. Field 22 of
/proc/PID/stat, the start time in clock ticks since boot, makes it unique within a boot.

A process group is named by its leader. Its id is not given to a new process while a member lives, so a group whose
leader is gone may be killed by number, unless that number now belongs to a process that started at another time.
"""

import os
import signal
import time
from pathlib import Path

from trainmaster.core.base.value import Value


class ProcessName(Value):
    pid: int
    started: int
    """Clock ticks since boot, as /proc tells."""


def _stat(pid: int) -> tuple[str, int] | None:
    """(state letter, start time) of a process; None if there is none."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[19])


def name_of(pid: int) -> ProcessName | None:
    """The name of the process that has this id now; None if there is none."""
    stat = _stat(pid)
    return None if stat is None else ProcessName(pid=pid, started=stat[1])


def is_alive(name: ProcessName) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    stat = _stat(name.pid)
    return stat is not None and stat[1] == name.started and stat[0] not in "ZX"


def send(name: ProcessName, number: int) -> bool:
    """Sends a signal to this very process. False if it is gone. The check and the signal go through one pidfd."""
    try:
        handle = os.pidfd_open(name.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(name):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def kill_group(leader: ProcessName, number: int = signal.SIGKILL) -> bool:
    """Signals what is left of the group of `leader`. False if nothing was."""
    current = name_of(leader.pid)
    if current is not None and current != leader:
        return False
    try:
        os.killpg(leader.pid, number)
    except ProcessLookupError:
        return False
    return True


def group_is_empty(leader: ProcessName) -> bool:
    """Whether no process of the group runs any more (zombies that nobody has reaped do not count)."""
    current = name_of(leader.pid)
    if current is not None and current != leader:
        return True
    try:
        os.killpg(leader.pid, 0)
    except ProcessLookupError:
        return True
    return not any(_group_and_state(pid) == (leader.pid, True) for pid in _all_pids())


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _group_and_state(pid: int) -> tuple[int, bool]:
    """(process group, runs) of a process; (0, False) if there is none."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0, False
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[2]), fields[0] not in (b"Z", b"X")


def wait_gone(names: tuple[ProcessName, ...], timeout_s: float) -> tuple[ProcessName, ...]:
    """Waits until the processes have ended; those that still run at the end of the time."""
    deadline = time.monotonic() + timeout_s
    left = tuple(name for name in names if is_alive(name))
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = tuple(name for name in left if is_alive(name))
    return left
