"""File systems that the kernel set read-only, against what they were and what fstab wants."""

from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe
from trainmaster.live.agent.health.probes.mounttable import mounts

PROBE = Probe(
    name="read-only",
    what="file systems that turned read-only",
    unreadable="the table of mounts can't be read",
    module="trainmaster.live.agent.health.probes.disks",
)


def look(root: Path, item: str) -> str:
    lines = [f"mount {mount.place}: {mount.device} {mount.kind} {mount.options}" for mount in mounts(root)]
    try:
        table = (root / "etc/fstab").read_text("utf-8", "replace")
    except OSError:
        table = ""  # many hosts have none
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not line.lstrip().startswith("#"):
            lines.append(f"fstab {fields[1]}: {fields[3]}")
    return "\n".join(lines)
