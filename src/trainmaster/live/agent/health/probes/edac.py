"""Memory of the host: errors that its controllers counted since the boot, by module."""

from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in

PROBE = Probe(
    name="memory",
    what="host memory (EDAC): corrected and uncorrected errors by module",
    unreadable="the counters of the memory can't be read",
    module="trainmaster.live.agent.health.probes.edac",
)
_MODULE = ("dimm_label", "dimm_ce_count", "dimm_ue_count")


def look(root: Path, item: str) -> str:
    base = root / "sys"
    lines: list[str] = []
    for controller in names_in(base / "devices/system/edac/mc"):
        directory = f"devices/system/edac/mc/{controller}"
        lines += leaves(base, directory, ("ue_noinfo_count",))
        for module in names_in(base / directory):
            if module.startswith(("dimm", "rank")):
                lines += leaves(base, f"{directory}/{module}", _MODULE)
    if not lines:
        raise Skipped("the kernel counts no memory errors here (no EDAC driver is loaded)")
    return "\n".join(lines)
