"""What there is to be tested on this host: each core, and each GPU that PyTorch sees.

A core is a device of its own, since a core that computes wrong does so alone, and a test that the scheduler moves
around would name nobody. `count` is for deadlines: it asks no driver, which might be what hangs.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from trainmaster.core.base.value import Value

_NODE: Final = re.compile(r"nvidia\d+")


class Device(Value):
    kind: str
    """cpu or gpu."""
    number: int
    model: str
    """Devices of one model give the same bits."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def tiles(self) -> int:
        """How often matrices are repeated each way: a core gets such as fit its cache, a GPU such as fill it."""
        return 4 if self.kind == "cpu" else 64

    @property
    def torch_name(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.number}"


def cores() -> tuple[int, ...]:
    """Those that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def count() -> int:
    """Device files of GPUs, and one more for the processors together: starting on a core takes no time."""
    try:
        names = [entry.name for entry in Path("/dev").iterdir()]
    except OSError:
        names = []
    return 1 + sum(_NODE.fullmatch(name) is not None for name in names)


def devices(torch: Any) -> tuple[Device, ...]:
    """All of them. Raises what PyTorch raises when a driver answers badly."""
    found = [Device(kind="cpu", number=core, model="cpu") for core in cores()]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            found.append(Device(kind="gpu", number=number, model=torch.cuda.get_device_name(number)))
    return tuple(found)


@contextmanager
def pinned(device: Device) -> Iterator[None]:
    """The calling thread stays on the device's core."""
    before = os.sched_getaffinity(0)
    if device.kind == "cpu":
        os.sched_setaffinity(0, {device.number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
