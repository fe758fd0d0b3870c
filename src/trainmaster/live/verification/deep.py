"""The deep task: memory and computing of every device under load, bit for bit, within a budget of seconds.

A third of the budget goes to memory, the rest to computing; both do their least amount of work however small the budget
is. Minutes find what shows under heat; seconds find what is simply broken.
"""

from time import monotonic
from typing import Final

from trainmaster.core.health.verification.outcome import Outcome, Result, TaskReport, of_error, report
from trainmaster.live.verification import burn, memory
from trainmaster.live.verification.burn import Compute, Progress, really
from trainmaster.live.verification.devices import devices
from trainmaster.live.verification.memory import Read, as_it_is

TASK: Final = "deep"
DEFAULT_BUDGET_S: Final = 120.0
_MEMORY_PART: Final = 1 / 3


def run(
    budget_s: float = DEFAULT_BUDGET_S,
    *,
    share: float = memory.DEFAULT_SHARE,
    compute: Compute = really,
    read: Read = as_it_is,
    progress: Progress | None = None,
) -> TaskReport:
    """The host's deep check. `share` is that of the free memory which is tested."""
    assert budget_s >= 0.0, budget_s
    assert 0.0 < share < 1.0, share
    start = monotonic()
    try:
        import torch

        found = devices(torch)
        memories = [device for device in found if device.kind == "gpu" or device == found[0]]
        sizes = [int(share * memory.available_bytes(torch, device)) for device in memories]
    except (ImportError, OSError, RuntimeError) as error:
        return report(TASK, [_not_begun(error)], monotonic() - start)
    begun = monotonic()  # importing PyTorch may take long, and is not what the budget is for
    results: list[Result] = []
    for place, (device, size) in enumerate(zip(memories, sizes, strict=True)):
        until = begun + budget_s * _MEMORY_PART * (place + 1) / len(memories)
        results.append(memory.check_memory(torch, device, size, until, read, progress))
    results += burn.burn(torch, found, begun + budget_s, compute, progress)
    return report(TASK, results, monotonic() - start)


def _not_begun(error: Exception) -> Result:
    if isinstance(error, ImportError):
        sentence = "PyTorch is not installed here; pip install 'trainmaster[train]'"
        return Result(task=TASK, part="compute", unit="host", outcome=Outcome.NOT_RUN, sentence=sentence)
    return Result(task=TASK, part="compute", unit="host", outcome=of_error(str(error)), sentence=str(error))
