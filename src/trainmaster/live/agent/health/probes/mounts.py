"""Mounts: whether each answers. One whose server is gone (NFS, FUSE, Lustre) hangs whoever asks it."""

import os
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe
from trainmaster.live.agent.health.probes.mounttable import mounts

PROBE = Probe(
    name="mounts",
    what="mounts: whether each answers, and how full it is",
    unreadable="a mount does not answer: whoever touches it hangs, and jobs do",
    module="trainmaster.live.agent.health.probes.mounts",
    kind="fs",
)


def items(root: Path) -> list[str]:
    return [mount.place for mount in mounts(root)]


def look(root: Path, item: str) -> str:
    found = os.statvfs(root / item.lstrip("/"))
    return "\n".join((
        f"blocks: {found.f_blocks}", f"free: {found.f_bavail}",
        f"files: {found.f_files}", f"files_free: {found.f_favail}",
    ))  # fmt: skip
