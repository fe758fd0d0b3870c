"""NUMA nodes and processors: what the firmware and the kernel made of the host."""

from collections.abc import Iterator
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in, text_of

PROBE = Probe(
    name="layout",
    what="NUMA nodes without memory, GPUs without a node, processors that are off",
    unreadable="the layout of processors and memory can't be read",
    module="trainmaster.live.agent.health.probes.layout",
    period_s=600.0,
)


def look(root: Path, item: str) -> str:
    base = root / "sys"
    lines = [*_nodes(base), *leaves(base, "devices/system/cpu", ("online", "present"))]
    if not lines:
        raise Skipped("this host shows no processors in sysfs")
    for device in names_in(base / "bus/pci/devices"):
        directory = f"bus/pci/devices/{device}"
        if (text_of(base / directory / "class") or "").startswith("0x0302"):
            lines += leaves(base, directory, ("numa_node",))
    return "\n".join(lines)


def _nodes(base: Path) -> Iterator[str]:
    for node in names_in(base / "devices/system/node"):
        directory = f"devices/system/node/{node}"
        if node.startswith("node") and node[4:].isdigit():
            yield from leaves(base, directory, ("cpulist",))
            for line in (text_of(base / directory / "meminfo") or "").splitlines():
                if " MemTotal:" in line:
                    yield f"{directory}/MemTotal: {line.partition('MemTotal:')[2].split()[0]}"
