"""Drivers that are loaded, against those that are installed for the running kernel."""

import os
from pathlib import Path

from trainmaster.live.agent.health.probes import tool
from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import text_of

PROBE = Probe(
    name="versions",
    what="drivers: the loaded version against the installed one",
    unreadable="the versions of drivers can't be read",
    module="trainmaster.live.agent.health.probes.versions",
    period_s=900.0,
)
MODULES = ("nvidia", "mlx5_core", "bnxt_en", "ice", "gdrdrv")


def look(root: Path, item: str) -> str:
    lines = []
    for module in MODULES:
        loaded = text_of(root / f"sys/module/{module}/version")
        if loaded:
            lines.append(f"loaded {module}: {loaded}")
            installed = _installed(root, module)
            if installed:
                lines.append(f"installed {module}: {installed}")
    if not lines:
        raise Skipped(f"none of these modules is loaded with a version: {', '.join(MODULES)}")
    return "\n".join(lines)


def _installed(root: Path, module: str) -> str:
    try:
        told = tool.output(tool.found(root, "modinfo"), "-k", os.uname().release, "-F", "version", module)
    except (Skipped, OSError):
        return ""
    first = told.strip().splitlines()[0].strip()
    return first if first[:1].isdigit() else ""
