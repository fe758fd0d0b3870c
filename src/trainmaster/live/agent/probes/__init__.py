"""Verification tasks: one module a task, each with `probe(places) -> str`: a sentence if it fails, empty if it passes.

A probe may raise; that is a failure too. The table names modules, so that an agent that only looks up names imports
none.
"""

from typing import Final

PROBES: Final[dict[str, str]] = {
    "memory": "trainmaster.live.agent.probes.memory",
    "disk": "trainmaster.live.agent.probes.disk",
    "shared-memory": "trainmaster.live.agent.probes.shared_memory",
    "loopback": "trainmaster.live.agent.probes.loopback",
    "python": "trainmaster.live.agent.probes.python",
    "jobs-dir": "trainmaster.live.agent.probes.jobs_dir",
}
