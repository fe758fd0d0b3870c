"""How much memory a host can spare.

A memory file system gives what is not there, and the kernel then ends some process, mostly the one that trains. So room
is asked for first: of the host, and of the control group (a container has a limit of its own).
"""

import errno
from pathlib import Path
from typing import Final

_LEFT_TO_OTHERS: Final = 8
"""One part of so many of the memory stays free."""


def refuse_full(needed_bytes: int, root: Path = Path("/")) -> None:
    """Raises `OSError` if there is no room. `root` is where `proc` and `sys` lie."""
    room, total = _of_host(root / "proc/meminfo")
    group = _of_group(root / "sys/fs/cgroup")
    if group is not None and group[1] < total:
        room, total = min(room, group[0]), group[1]
    if needed_bytes > room - total // _LEFT_TO_OTHERS:
        sentence = f"{needed_bytes >> 20} MiB of memory are needed, {max(0, room) >> 20} MiB are free"
        raise OSError(errno.ENOMEM, f"{sentence}, of which {total // _LEFT_TO_OTHERS >> 20} MiB are left to others")


def _of_host(meminfo: Path) -> tuple[int, int]:
    """Free and total bytes."""
    lines = [line.split() for line in meminfo.read_text().splitlines()]
    known = {words[0]: int(words[1]) << 10 for words in lines if len(words) > 1}
    return known["MemAvailable:"], known["MemTotal:"]


def _of_group(folder: Path) -> tuple[int, int] | None:
    """Free bytes (what files keep in memory counts as free) and the limit; None if there is no limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        kept = [
            line.split()[1] for line in (folder / "memory.stat").read_text().splitlines() if "inactive_file" in line
        ]
    except FileNotFoundError:
        return None
    return None if limit == "max" else (int(limit) - used + int(kept[0]), int(limit))
