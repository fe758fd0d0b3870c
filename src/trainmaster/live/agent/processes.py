"""Processes named so that a recycled number is never killed: a process is its id and its start time.

The kernel gives a process id again after it has wrapped round, so an id in a file says nothing by itself. Field 22 of
/proc/PID/stat, the start time in clock ticks since boot, makes it unique within a boot.

A process group is named by its leader. Its id is not given to a new process while a member lives, so a group whose
leader is gone may be killed by number, unless that number now belongs to a process that started at another time.

A process may leave its group, and even its parents. What an operation starts is therefore found in three ways: by
group, by a *mark* (variables in the environment that it was started with, which children inherit), and by descent from
any of these. Only a process that left its group, threw its environment away and lost its parent is not found; nothing
less than a control group, or a parent that takes its orphans (`kin`), would find that one.
"""

import os
import signal
import time
from collections.abc import Iterable
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


def tree_of(leader: ProcessName | None, mark: frozenset[bytes]) -> tuple[ProcessName, ...]:
    """What runs and belongs to the group of `leader`, carries all of `mark` (lines `NAME=VALUE` of an environment), or
    descends from such a process; never ourselves. One pass over /proc: about 20 us for each process of the machine
    (double that without a leader: what is older than the leader can't be of its making)."""
    assert mark, "an empty mark would find everything"
    found: dict[int, ProcessName] = {}
    children: dict[int, list[ProcessName]] = {}
    current = name_of(leader.pid) if leader is not None else None
    group = leader.pid if leader is not None and current in (None, leader) else None
    for pid in _all_pids():
        stat = _family(pid)
        if stat is None or pid == os.getpid():
            continue
        name, parent, its_group = stat
        children.setdefault(parent, []).append(name)
        if leader is not None and name.started < leader.started:
            continue
        if its_group == group or mark <= environment_of(pid):
            found[pid] = name
    return _with_descendants(found, children)


def descendants_of(roots: Iterable[ProcessName]) -> tuple[ProcessName, ...]:
    """The roots that run, and all that descends from them. One pass over /proc."""
    wanted = {root.pid: root for root in roots}
    found: dict[int, ProcessName] = {}
    children: dict[int, list[ProcessName]] = {}
    for pid in _all_pids():
        stat = _family(pid)
        if stat is not None:
            children.setdefault(stat[1], []).append(stat[0])
            if wanted.get(pid) == stat[0]:
                found[pid] = stat[0]
    return _with_descendants(found, children)


def _with_descendants(found: dict[int, ProcessName], children: dict[int, list[ProcessName]]) -> tuple[ProcessName, ...]:
    new = list(found)
    while new:
        for child in children.get(new.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                new.append(child.pid)
    return tuple(found.values())


def _family(pid: int) -> tuple[ProcessName, int, int] | None:
    """(name, parent, group) of a process that runs."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessName(pid=pid, started=int(fields[19])), int(fields[1]), int(fields[2])


def environment_of(pid: int) -> frozenset[bytes]:
    """Lines NAME=VALUE that a process was started with; none if it is gone, or somebody else's."""
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or somebody else's
        return frozenset()


def end_tree(leader: ProcessName | None, mark: frozenset[bytes], timeout_s: float) -> tuple[ProcessName, ...]:
    """SIGKILL for all of `tree_of`, again until nothing is found; blocks. What still runs at the end of the time."""
    deadline = time.monotonic() + timeout_s
    while left := tree_of(leader, mark):
        for name in left:
            send(name, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.002)
    return ()


def wait_gone(names: tuple[ProcessName, ...], timeout_s: float) -> tuple[ProcessName, ...]:
    """Waits until the processes have ended; those that still run at the end of the time."""
    deadline = time.monotonic() + timeout_s
    left = tuple(name for name in names if is_alive(name))
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = tuple(name for name in left if is_alive(name))
    return left
