"""What disks say of themselves (`smartctl`), each under its own deadline: a dying disk may not answer."""

from pathlib import Path

from trainmaster.live.agent.health.probes import tool
from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import names_in

PROBE = Probe(
    name="smart",
    what="disks: what they say of themselves (smartctl)",
    unreadable="a disk does not say how it is",
    module="trainmaster.live.agent.health.probes.smart",
    deadline_s=20.0,
    period_s=3600.0,
    kind="disk",
)


def items(root: Path) -> list[str]:
    tool.found(root, "smartctl")
    disks = [name for name in names_in(root / "sys/block") if (root / f"sys/block/{name}/device").exists()]
    if not disks:
        raise Skipped("this host shows no disks of its own")
    return disks


def look(root: Path, item: str) -> str:
    return tool.output(tool.found(root, "smartctl"), "-H", "-A", "-j", f"/dev/{item}")
