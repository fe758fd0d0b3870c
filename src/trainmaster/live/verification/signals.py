"""What the host shows about itself now: parts that are missing, links that are down or narrow, versions that are loaded
and not installed, mounts that hang. These are the checks of `trainmaster health run`, but for the kernel's log: its
lines are older than the repair that this verification is for.
"""

from pathlib import Path
from typing import Final

from trainmaster.core.health.verification.outcome import INVALID_LEAD
from trainmaster.core.health.words import Verdict
from trainmaster.live.agent.health.check import KERNEL_LOG, check, chosen_checks
from trainmaster.live.agent.health.monitor import policy_index
from trainmaster.live.agent.paths import HostPaths

_TIMEOUT_S: Final = 40.0


def probe(paths: HostPaths) -> str:
    """The worst that is bad; else what could not be read, which is not healthy either."""
    names = tuple(name for name in chosen_checks(()) if name != KERNEL_LOG)
    worst = check(names, policy_index(""), Path("/"), "", {}, _TIMEOUT_S).worst()
    if not worst or worst[0].verdict not in (Verdict.BAD, Verdict.UNKNOWN):
        return ""
    sentence = f"{worst[0].unit}: {worst[0].summary}"
    return sentence if worst[0].verdict is Verdict.BAD else f"{INVALID_LEAD}: {sentence}"
