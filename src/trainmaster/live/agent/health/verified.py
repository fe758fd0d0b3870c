"""The part of verification that looks at what probes see: counts of parts, GPUs, links, versions, mounts.

Only what is bad fails the host: a suspect may work, and a host that never returns because a counter is full would be
worse. What could not be read keeps it out as *not run*, since it was not seen to be well, and counts against nobody.
"""

from pathlib import Path
from typing import Final

from trainmaster.core.health.verification.outcome import NOT_RUN_LEAD
from trainmaster.core.health.words import Verdict
from trainmaster.live.agent.health.check import check
from trainmaster.live.agent.health.monitor import policy_index
from trainmaster.live.agent.paths import HostPaths

LOOKED_AT: Final = ("nvml", "pcie", "network", "memory", "read-only", "versions", "parts", "mounts")
TIMEOUT_S: Final = 15.0


def probe(paths: HostPaths) -> str:
    memory = paths.health_memory if Path(paths.host_dir).is_dir() else None
    found = check(LOOKED_AT, policy_index(""), Path("/"), "", {}, TIMEOUT_S, memory).worst()
    if not found or found[0].verdict not in (Verdict.BAD, Verdict.UNKNOWN):
        return ""
    lead = "" if found[0].verdict is Verdict.BAD else f"{NOT_RUN_LEAD}: "
    return f"{lead}{found[0].unit}: {found[0].summary}"
