"""What descends from a keeper beside its workers and its vault: what workers started and left behind.

A worker's children are killed with its process group. One that made a session of its own (`setsid`, a daemon) is in
another group, and outlives its parent. So the keeper is a *subreaper*: the kernel gives it every orphan among its
descendants, whatever group, session or environment that has. Each orphan was made by some worker; it is ended when no
worker lives that can have made it:

    it was started before every worker that lives, or
    its environment names a worker that does not live (`TRAINMASTER_WORKER`)

An orphan of a rank that lives on stays: a helper that its script wants. What the preloaded modules started stays as
long as the keeper. Nothing but descendants is ever looked at, so nothing of anybody else can be ended.

Rejected: a control group for each attempt. It needs rights that an agent of a person does not have, and where there are
none of them this is needed all the same. Limit: if the keeper is killed, its orphans lose the tie; the agent then finds
them by the mark in their environment (`TRAINMASTER_KEEPER`), but for those that threw it away.
"""

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from trainmaster.core.agent import environment
from trainmaster.live.agent.processes import ProcessName, descendants_of, environment_of, is_alive, name_of, send

_PR_SET_CHILD_SUBREAPER: Final = 36
_ROUNDS: Final = 20
_PAUSE_S: Final = 0.002
"""Between two looks: what was sent SIGKILL needs a moment, and may have had children meanwhile."""


class Kin:
    def __init__(self) -> None:
        """What descends from us already was started by the preload, or is the vault."""
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._own = frozenset(_children())

    def sweep(self, workers: Collection[ProcessName], vault: int) -> None:
        """Ends and collects the orphans that none of the `workers`, who are those that live, can have made."""
        known = {vault, *self._own, *(worker.pid for worker in workers)}
        for _ in range(_ROUNDS):
            _collect(known)
            strays = [name for pid in _children() if pid not in known and (name := name_of(pid)) is not None]
            left = [stray for stray in strays if is_alive(stray) and not _may_stay(stray, workers)]
            if not left:
                return
            for each in descendants_of(left):
                send(each, signal.SIGKILL)
            time.sleep(_PAUSE_S)

    def end(self) -> None:
        """Ends all that descends from us."""
        ourselves = name_of(os.getpid())
        assert ourselves is not None
        for _ in range(_ROUNDS):
            left = [name for name in descendants_of([ourselves]) if name != ourselves]
            if not left:
                return
            for each in left:
                send(each, signal.SIGKILL)
            time.sleep(_PAUSE_S)
            _collect(())


def _may_stay(stray: ProcessName, workers: Iterable[ProcessName]) -> bool:
    """Whether a worker that lives can have made it."""
    elder = [worker for worker in workers if worker.started <= stray.started]
    prefix = f"{environment.WORKER}=".encode()
    named = [line.removeprefix(prefix) for line in environment_of(stray.pid) if line.startswith(prefix)]
    return any(not named or str(worker.pid).encode() in named for worker in elder)


def _children() -> list[int]:
    """Direct ones, of any thread."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def _collect(known: Collection[int]) -> None:
    """Takes the zombies that nobody else will take, up to one of `known`, which its owner takes first."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in known:
            return
        os.waitpid(ended.si_pid, 0)
