"""The name under which `ps` and `top` show a process.

Ranks, workers that stand by and vaults are forks of one keeper, so all of them show its command, and nobody who looks
for the process to attach to finds it. A fork therefore writes who it is over the arguments that it inherited: there is
room for as many bytes as they had. The short name (15 bytes, for `top` and `pgrep`) is the kernel's.

Limits: what does not fit is cut, and a kernel that does not tell where the arguments lie keeps the old ones. The
environment behind them stays untouched, since processes are found by it.
"""

import ctypes
from pathlib import Path
from typing import Final

_PR_SET_NAME: Final = 15
_START, _END = 45, 46
"""Of the arguments: fields 48 and 49 of /proc/PID/stat, the first two of which are cut off."""


def set_title(short: str, text: str) -> None:
    """Shows this process as `text`, and in short."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, short.encode()[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    start, end = int(fields[_START]), int(fields[_END])
    room = end - start - 1
    if start > 0 and room > 0:
        ctypes.memmove(start, text.encode()[:room].ljust(room, b"\0"), room)


def rank_title(job: str, rank: str, host: str) -> tuple[str, str]:
    """Of a rank, in short and in full."""
    return f"tm:{job}/{rank}", f"trainmaster: rank {rank} of {job} on {host}"
