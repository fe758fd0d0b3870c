"""Verification tasks: one module a task, each with `probe(places) -> str`: a sentence if it fails, empty if it passes.

A probe may raise; that is a failure too. The table names modules, so that an agent that only looks up names imports
none. The tasks of `live/verification` take longer, and how long is for who asks: `deep:600` is the deep task with a
budget of 600 seconds. Their deadlines grow with the budget and with the devices of the host.

A task that could not be run, or whose samples say nothing, is no pass, so its sentence is not empty; its first words
tell it from a failure (`core/health/verification/outcome.py`). To answer *not-run* to the server instead was rejected:
it would ask again at once and for ever, and what keeps a check from running for three tries is for somebody to see.
"""

from typing import Final

from trainmaster.core.health.verification.deadline import deadline_s

PROBES: Final[dict[str, str]] = {
    "memory": "trainmaster.live.agent.probes.memory",
    "disk": "trainmaster.live.agent.probes.disk",
    "shared-memory": "trainmaster.live.agent.probes.shared_memory",
    "loopback": "trainmaster.live.agent.probes.loopback",
    "python": "trainmaster.live.agent.probes.python",
    "jobs-dir": "trainmaster.live.agent.probes.jobs_dir",
    "quick": "trainmaster.live.agent.probes.quick",
    "deep": "trainmaster.live.agent.probes.deep",
    "group": "trainmaster.live.agent.probes.group",
}

DEADLINE_S: Final = 20.0
"""For each of the small probes. The slowest here writes a megabyte and syncs it: a disk that needs longer is not fit
for checkpoints."""
BUDGETS_S: Final = {"quick": 0.0, "deep": 120.0, "group": 30.0}
"""What the tasks take if nobody says how long."""


def split(task: str) -> tuple[str, float | None] | None:
    """Name and budget in seconds of a task; None if there is no such task."""
    name, colon, budget = task.partition(":")
    if name not in PROBES or (colon and (name not in ("deep", "group") or not budget.isdecimal() or len(budget) > 5)):
        return None
    return name, float(budget) if colon else None


def deadline_of(task: str, devices: int) -> float:
    """Seconds after which a task counts as hanging."""
    known = split(task)
    assert known is not None, task
    name, budget_s = known
    if name not in BUDGETS_S:
        return DEADLINE_S
    return deadline_s(name, devices, BUDGETS_S[name] if budget_s is None else budget_s)
