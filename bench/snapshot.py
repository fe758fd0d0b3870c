"""How long a step stands still for a snapshot, beside a plain copy of the same bytes.

The limit is one `memmove` for each tensor into touched memory. Ours is a whole snapshot (`Snapshotter.take`) into
shared memory that outlives the process; with overlap, what is left of it when a copy was started and four times as long
passes before the optimizer waits: the time that `start` and `wait` take. That is a step on an accelerator, beside which
the processors are idle. In `computing` the processor multiplies matrices meanwhile, in one thread; what that takes
longer with a snapshot than without counts.

Peers in the same rounds: `dcp.async_save` with a kept stager (until it has staged), `dcp.save` and `torch.save` (until
they return). Then the same without peers in processes of their own (`bench/snapshot_rank.py`): 4 GiB on one rank, and
512 MiB on each of four ranks at once, where the median of the slowest rank counts. What the machine has no memory for
is left out, and said.

`value` is ours over the limit, `peer` the same of `dcp.async_save`, `ratio` how many times shorter than its stall ours
is.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from bench.figure import Figure, timed
from bench.state import emptied, in_turns, load_of_machine, state
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import arena
from trainmaster.storage.room import refuse_full
from trainmaster.training.snapshot import Snapshotter

GOAL, GOAL_OVERLAPPED = 1.15, 0.2
_HERE = Position(samples=0, global_batch=0, step=0)


def figures() -> Iterator[Figure]:
    warnings.simplefilter("ignore")  # plain DCP warns that no other ranks are there
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TRAINMASTER_BENCH_DIR")) as folder:
        yield from _figures(Path(folder))
    dist.destroy_process_group()
    for ranks, mib in ((1, 4096), (4, 512)):
        yield from _apart(ranks, mib)


def _apart(ranks: int, mib: int) -> Iterator[Figure]:
    """Ranks in processes of their own."""
    try:
        refuse_full(ranks * (3 * mib + min(mib, 1024)) << 20)
    except OSError as error:
        print(f"{mib} MiB on each of {ranks} ranks: not measured, {error.strerror}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.snapshot_rank", f"{folder}/store"]
        started = [
            subprocess.Popen([*command, str(rank), str(ranks), str(mib)], stdout=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        told = [process.communicate()[0] for process in started]
    medians = [json.loads(text.splitlines()[-1]) for text in told]
    for side, ending, goal in (("ours", "", GOAL), ("overlapped", "_overlapped", GOAL_OVERLAPPED)):
        value = max(each[side] / each["limit"] for each in medians)
        yield Figure(
            bench="snapshot",
            figure=f"snapshot.stall_ratio{ending}_{ranks}x{mib}",
            value=round(value, 3),
            unit="ratio",
            better="lower",
            goal=f"at most {goal:g} of a plain copy",
            holds=value <= goal,
            note=f"{mib} MiB on each of {ranks} ranks; plain copy {1000 * medians[0]['limit']:.0f} ms; load of the "
            f"machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        )


def _figures(folder: Path) -> Iterator[Figure]:
    whole = state()
    snapshotter = Snapshotter(arena.make("bench"), whole)
    copies = {name: torch.ones_like(tensor) for name, tensor in whole.items()}
    stager = DefaultStager(StagingOptions(False, False, False, False))

    def plain() -> None:
        for name, tensor in whole.items():
            ctypes.memmove(copies[name].data_ptr(), tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def overlapped() -> float:
        started = time.perf_counter()
        snapshotter.start(_HERE)
        begun = time.perf_counter() - started
        time.sleep(4 * max(limit[-1:], default=0.5))
        return begun + snapshotter.wait()

    def compute() -> None:
        """Some four times as long as a copy."""
        until, done = 4 * max(limit[-1:], default=0.5), 0
        if not products:
            started = time.perf_counter()
            while time.perf_counter() - started < until:
                torch.mm(factor, factor, out=product)
                done += 1
            products.append(done)
        for _ in range(products[0]):
            torch.mm(factor, factor, out=product)

    def computing() -> float:
        started = time.perf_counter()
        snapshotter.start(_HERE)
        compute()
        snapshotter.wait()
        return time.perf_counter() - started

    def plain_noted() -> float:
        limit.append(timed(plain))
        return limit[-1]

    def staged() -> float:
        writer = FileSystemWriter(emptied(folder / "async"), sync_files=False)
        started = time.perf_counter()
        future = dcp.async_save(whole, storage_writer=writer, async_stager=stager)
        stall = time.perf_counter() - started
        future.result()
        return stall

    def fresh(act: Callable[[], object]) -> float:
        emptied(folder / "sync")
        return timed(act)

    limit: list[float] = []
    products: list[int] = []
    factor, product = torch.rand(512, 512), torch.empty(512, 512)
    median = in_turns(
        {
            "limit": plain_noted,
            "computing": computing,
            "compute": lambda: timed(compute),
            "ours": lambda: snapshotter.take(_HERE),
            "overlapped": overlapped,
            "async": staged,
            "dcp": lambda: fresh(lambda: dcp.save(whole, checkpoint_id=folder / "sync")),
            "torch": lambda: fresh(lambda: torch.save(whole, folder / "sync" / "all")),
        }
    )
    stager.close()
    others = f"dcp.save {median['dcp'] / median['limit']:.1f}, torch.save {median['torch'] / median['limit']:.1f}"
    median["computing"] = max(median["computing"] - median["compute"], 1e-4)
    for name, goal in (("ours", GOAL), ("overlapped", GOAL_OVERLAPPED), ("computing", GOAL_OVERLAPPED)):
        value = median[name] / median["limit"]
        yield Figure(
            bench="snapshot",
            figure="snapshot.stall_ratio" + ("" if name == "ours" else f"_{name}"),
            value=round(value, 3),
            unit="ratio",
            better="lower",
            peer=round(median["async"] / median["limit"], 3),
            ratio=round(median["async"] / median[name], 2),
            goal=f"at most {goal:g} of a plain copy",
            holds=value <= goal,
            note=f"plain copy {1000 * median['limit']:.0f} ms; {others}; {load_of_machine()}",
        )
