"""`dcgmi health`: what DCGM's own watches say."""

from pathlib import Path

from trainmaster.live.agent.health.probes import tool
from trainmaster.live.agent.health.probes.declare import Probe, Skipped

PROBE = Probe(
    name="dcgm",
    what="dcgmi health -c: what DCGM's own watches say",
    unreadable="dcgmi is there and says nothing",
    module="trainmaster.live.agent.health.probes.dcgm",
    deadline_s=15.0,
    period_s=300.0,
)


def look(root: Path, item: str) -> str:
    text = tool.output(tool.found(root, "dcgmi"), "health", "-c", "-j")
    if "unable to establish a connection" in text.lower() or "unable to connect" in text.lower():
        raise Skipped("dcgmi is installed, and no host engine runs")
    if "not enabled" in text.lower() or "no watches" in text.lower():
        raise Skipped("DCGM watches nothing here: dcgmi health -s a")
    return text
