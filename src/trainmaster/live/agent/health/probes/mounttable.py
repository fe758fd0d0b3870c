"""The table of mounts, without touching what is mounted."""

import re
from pathlib import Path
from typing import NamedTuple

_PSEUDO = frozenset((
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay",
    "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "squashfs", "sysfs", "tmpfs", "tracefs",
))  # fmt: skip
"""Kinds that hold no data of anybody, or that hold it in memory."""


class Mount(NamedTuple):
    device: str
    place: str
    kind: str
    options: str


def mounts(root: Path) -> list[Mount]:
    """File systems that data lies on; the last one where several are mounted on one place. Raises `OSError`."""
    found: dict[str, Mount] = {}
    for line in (root / "proc/self/mounts").read_text("utf-8", "replace").splitlines():
        fields = line.split(" ")
        if len(fields) >= 4 and fields[2] not in _PSEUDO:
            place = _plain(fields[1])
            found[place] = Mount(fields[0], place, fields[2], fields[3])
    return list(found.values())


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
