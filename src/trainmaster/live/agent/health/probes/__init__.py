"""Probes: what is looked at on a host, one module each. All of them run in a process of their own (`__main__.py`) that
ends after its round, so that nothing of them stays in memory, no library of a driver is held open, and whatever hangs
can be left behind.

A module declares `PROBE`, and has `look(root, item)`, which gives leaves or the text of a tool, raises `Skipped` where
there is nothing to look at, and `OSError` where there is and it can't be read. One with several *items* (GPUs, mounts)
also has `items(root)`: each is looked at under the deadline alone, so that one that hangs is named and its neighbours
are seen. Modules import nothing but the standard library at their top: the process is started each minute.

What a look means is said in `core/health/probe` (`live/agent/health/judge.py` joins the two).
"""

from typing import Final

from trainmaster.live.agent.health.probes import (
    bus,
    clock,
    dcgm,
    disks,
    edac,
    heat,
    layout,
    mounts,
    network,
    nvml,
    parts,
    smart,
    smi,
    versions,
)
from trainmaster.live.agent.health.probes.declare import Probe

PROBES: Final[dict[str, Probe]] = {
    module.PROBE.name: module.PROBE
    for module in (
        nvml, smi, dcgm, bus, network, edac, disks, smart, heat, clock, layout, versions, parts, mounts
    )
}  # fmt: skip
