"""`nvidia-smi -q -x`: a second opinion on the GPUs; the worse one counts. It costs a second of a core, so it runs
rarely."""

from pathlib import Path

from trainmaster.live.agent.health.probes import tool
from trainmaster.live.agent.health.probes.declare import Probe

PROBE = Probe(
    name="nvidia-smi",
    what="nvidia-smi -q -x: recovery action, remapped rows, uncorrected errors",
    unreadable="nvidia-smi is there and says nothing: the driver may hang",
    module="trainmaster.live.agent.health.probes.smi",
    deadline_s=30.0,
    period_s=900.0,
)


def look(root: Path, item: str) -> str:
    return tool.output(tool.found(root, "nvidia-smi"), "-q", "-x")
