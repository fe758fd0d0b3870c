"""A state like that of a model: float32 tensors of eight mebibytes. Its size is TRAINMASTER_BENCH_STATE_MIB (1024)."""

import os
import shutil
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from bench.figure import ROUNDS

STATE_MIB = int(os.environ.get("TRAINMASTER_BENCH_STATE_MIB", "1024"))
STATE_BYTES = STATE_MIB << 20
_TENSOR_BYTES = 8 << 20


def state(mib: int = STATE_MIB) -> dict[str, torch.Tensor]:
    torch.set_num_threads(1)
    return {f"layer.{place}": torch.randn(_TENSOR_BYTES // 4) for place in range((mib << 20) // _TENSOR_BYTES)}


def in_turns(sides: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """The median of each side; every round begins with another one. A round before them warms up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(-1, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            seconds = sides[name]()
            if number >= 0:
                taken[name].append(seconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def forget(folder: Path) -> None:
    """Drops a directory from the page cache, as far as the kernel obliges."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def load_of_machine() -> str:
    return f"{STATE_MIB} MiB on one rank; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
