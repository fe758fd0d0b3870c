"""How long a task may take.

A deadline that was right for one device is a false alarm on eight: attaching eight GPUs takes longer than attaching
one, and a host that is killed for it looks wedged and is reset for nothing. So every device adds its share, and so does
the budget that the task was given for its work, with room for a host that is slow but right.
"""

from typing import Final

from trainmaster.core.base.value import Value


class Allowance(Value):
    """What a task may take: to start, a device, and how often its budget."""

    start_s: float
    device_s: float
    budgets: float


ALLOWANCES: Final = {
    "quick": Allowance(start_s=60.0, device_s=2.0, budgets=0.0),
    "deep": Allowance(start_s=60.0, device_s=20.0, budgets=3.0),
    "group": Allowance(start_s=90.0, device_s=10.0, budgets=3.0),
}
"""Importing PyTorch takes seconds, from a cold file system half a minute; a CUDA context takes seconds a device."""


def deadline_s(task: str, devices: int, budget_s: float = 0.0) -> float:
    """Raises `KeyError` for a task that is not one of the three."""
    assert devices >= 0, devices
    assert budget_s >= 0.0, budget_s
    allowance = ALLOWANCES[task]
    return allowance.start_s + allowance.device_s * max(devices, 1) + allowance.budgets * budget_s
