"""What noting a collective costs a rank: a call through the recorder, less the call itself.

Goal: 1 us a collective. The smallest collective of gloo takes a hundred, one of NCCL some twenty to launch. The least
of many short rounds counts, since whatever else runs on the machine only adds.
"""

import tempfile
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure

CALLS = 500
"""A round must be shorter than a slice of time of the scheduler, or a busy machine is measured instead."""
ROUNDS = 600
GOAL_US = 1.0


def figures() -> Iterator[Figure]:
    import torch

    from trainmaster.training.recorder import Recorder

    def nothing(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
        """Stands for the collective."""

    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        recorder = Recorder(Path(directory) / "ring-0", 0, 8)
        tensor = torch.ones(1024)
        noted = recorder.recorded("all_reduce", 0, nothing)
        both = {noted: 1e9, nothing: 1e9}
        for _ in range(ROUNDS):
            for call, best in both.items():
                both[call] = min(best, timeit.timeit(lambda call=call: call(tensor), number=CALLS) / CALLS * 1e6)
        recorder.close()
    cost_us = both[noted] - both[nothing]
    yield Figure(
        bench="recorder",
        figure="recorder.note_us",
        value=cost_us,
        unit="us",
        better="lower",
        goal=f"{GOAL_US:g} us a collective",
        holds=cost_us <= GOAL_US,
        note="entered, left, bytes, group, step, phase: 64 bytes in shared memory",
    )
