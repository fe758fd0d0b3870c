"""A rank could not bind its port: whose is it?

"Address already in use" (errno 98) is neither a network fault nor a fault of the host. Another process owns the port:
a neighbour that lives (a second job that chose the same number), or a leftover that a kill could not end because it
hangs in the kernel (state D). The first needs another port, which the next epoch takes anyway; the second is worth
telling a person, since only a reboot ends it, and it may hold GPU memory as well.

A listing of processes (`ps -eo pid,stat,etime,command`) tells them apart. A process younger than `YOUNG_S` is taken for
the launch that failed. Limit: without the owner of the socket, candidates are what they are called: candidates.
"""

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.core.base.value import Value

YOUNG_S: Final = 60
_TAKEN: Final = re.compile(r"address already in use|EADDRINUSE|errno:? 98\b", re.IGNORECASE)
_PORT: Final = re.compile(
    r"(?:\[[0-9a-f:]*\]|\d+\.\d+\.\d+\.\d+|localhost):(\d{1,5})\b|\bport:? (\d{1,5})\b", re.IGNORECASE
)
_LAUNCHER: Final = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b|\bpython[\d.]* |\btrainmaster\b")
_ROW: Final = re.compile(r"\s*(\d+)\s+(\S+)\s+(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)\s+(.+)")


class Process(Value):
    """A row of the listing."""

    pid: int
    stat: str
    age_s: int
    command: str


class PortConflict(Value):
    """What is known of a port that was taken."""

    port: int | None
    neighbours: tuple[Process, ...]
    """Live processes that may own the port."""
    leftovers: tuple[Process, ...]
    """Processes in state D: no signal ends them."""

    def sentence(self) -> str:
        parts = [f"port {self.port} is taken" if self.port is not None else "its port is taken"]
        if self.neighbours:
            parts.append("candidates: " + ", ".join(f"pid {each.pid} ({each.command})" for each in self.neighbours))
        if self.leftovers:
            pids = ", ".join(str(each.pid) for each in self.leftovers)
            parts.append(f"pid {pids} hangs in the kernel (state D) and ends only with a reboot")
        return "; ".join(parts)


def port_conflict(error: str, listing: str = "") -> PortConflict | None:
    """Judges the text of an error, with a listing of processes if there is one; None: it is about something else."""
    if not _TAKEN.search(error):
        return None
    found = _PORT.search(error)
    port = int(found.group(1) or found.group(2)) if found else None
    processes = [each for each in _processes(listing) if _LAUNCHER.search(each.command)]
    hung = tuple(each for each in processes if each.stat.startswith("D"))
    alive = tuple(each for each in processes if each not in hung and each.age_s >= YOUNG_S)
    return PortConflict(port=port, neighbours=alive, leftovers=hung)


def _processes(listing: str) -> Iterator[Process]:
    for line in listing.splitlines():
        row = _ROW.fullmatch(line)
        if row is not None:
            pid, stat, days, hours, minutes, rest, command = row.groups()
            age_s = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + int(rest)
            yield Process(pid=int(pid), stat=stat, age_s=age_s, command=command)
