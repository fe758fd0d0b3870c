"""What a snapshot at every step costs training: the reference model, one rank, in turns with training without any.

A block is some steps of forward, backward and AdamW on the reference trainer's model and batch as they are by default
(5.5 million parameters, 63 MiB of state, 512 tokens a step). In a block with snapshots each step begins one when its
optimizer has written, the next step's forward and backward run beside the copy, and its optimizer waits for the rest.
Blocks take turns; the figure compares the medians of all steps of a kind. Where no core is free for the copy it takes
the time of the step's own work, so the figure depends on that: the load of the machine is told.

`value` is the overhead in percent; `peer` that of `dcp.save` into memory at every step, without a disk.
"""

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from bench.figure import ROUNDS, Figure
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import arena
from trainmaster.training.reference.corpus import VOCABULARY_SIZE
from trainmaster.training.reference.main import arguments
from trainmaster.training.reference.model import Llama, Shape
from trainmaster.training.snapshot import Snapshotter

STEPS = int(os.environ.get("TRAINMASTER_BENCH_STEPS", "10"))
"""Of a block: few, so that what changes on the machine changes for all."""
GOALS = {1: 3.0, 10: 1.0}
_DEFAULT = arguments([])
_BATCH = _DEFAULT.global_batch


class Trainer:
    """The model, and its step."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.model = Llama(
            Shape(
                vocabulary=VOCABULARY_SIZE,
                dim=_DEFAULT.dim,
                layers=_DEFAULT.layers,
                heads=_DEFAULT.heads,
                key_heads=_DEFAULT.key_heads,
                hidden=_DEFAULT.hidden,
                context=_DEFAULT.seq_len,
            )
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._tokens = torch.randint(0, VOCABULARY_SIZE, (_BATCH, _DEFAULT.seq_len + 1))
        self.step()

    def step(self) -> None:
        logits = self.model(self._tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), self._tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def figures() -> Iterator[Figure]:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    trainer = Trainer()
    snapshotter = Snapshotter.of(arena.make("bench"), trainer.model, trainer.optimizer)
    snapshotter.guard(trainer.optimizer)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        sides: dict[str, Callable[[int], None]] = {
            "none": lambda step: None,
            "every": lambda step: snapshotter.start(_at(step)),
            "tenth": lambda step: snapshotter.start(_at(step)) if step % 10 == 0 else None,
            "dcp": lambda step: _save(trainer, Path(folder)),
        }
        taken = _measured(trainer, snapshotter, sides)
    dist.destroy_process_group()
    yield from _figures(taken, snapshotter.size_bytes)


def _at(step: int) -> Position:
    return Position(samples=_BATCH * step, global_batch=_BATCH, step=step)


def _save(trainer: Trainer, folder: Path) -> None:
    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)


def _measured(
    trainer: Trainer, snapshotter: Snapshotter, sides: dict[str, Callable[[int], None]]
) -> dict[str, list[float]]:
    """Seconds of steps. Of every tenth, a block counts as one: most of its steps have no snapshot."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(-1, 2 * ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times = []
            for step in range(STEPS if name != "dcp" else STEPS // 5):
                started = time.perf_counter()
                trainer.step()
                sides[name](step)
                times.append(time.perf_counter() - started)
            snapshotter.wait()
            if number >= 0:
                taken[name] += [statistics.fmean(times)] if name == "tenth" else times
    return taken


def _figures(taken: dict[str, list[float]], size_bytes: int) -> Iterator[Figure]:
    median = {name: statistics.median(times) for name, times in taken.items()}
    block = statistics.median(
        [statistics.fmean(taken["none"][at : at + STEPS]) for at in range(0, len(taken["none"]), STEPS)]
    )
    note = (
        f"{size_bytes >> 20} MiB of state, step {1000 * median['none']:.0f} ms; load of the machine "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for every, name, without in ((1, "every", median["none"]), (10, "tenth", block)):
        overhead = 100 * (median[name] / without - 1)
        plain = 100 * (median["dcp"] / median["none"] - 1) if every == 1 else None
        yield Figure(
            bench="training",
            figure="training.snapshot_every_step_overhead_percent" if every == 1 else
            "training.snapshot_every_tenth_step_overhead_percent",
            value=round(overhead, 2),
            unit="%",
            better="lower",
            peer=round(plain, 1) if plain is not None else None,
            goal=f"at most {GOALS[every]:g} %",
            holds=overhead <= GOALS[every],
            note=note,
        )  # fmt: skip
