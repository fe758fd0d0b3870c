"""Four ranks of a host that save and load at the same time, beside one rank alone: as much state a rank, the same disk.

    python -m bench.ranks RANK WORLD STORE FOLDER MIB     one rank, told on stdin what to do, telling seconds on stdout

`value` is the rate of four together over that of one. Loads are cold. Processes and memory are made once; what is timed
is a `dcp.save` or `dcp.load` of all ranks, from a barrier to the last of them.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.state import emptied, forget

WORLD, MIB, ROUNDS = 4, 512, 5
_TENSOR_BYTES = 8 << 20


class Ranks:
    """Processes that do the same at the same time."""

    def __init__(self, world: int, folder: Path) -> None:
        self.folder = emptied(folder)
        store = folder.with_suffix(".store")
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.ranks", str(rank), str(world), str(store), str(folder), str(MIB)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]

    def does(self, what: str) -> float:
        """Seconds until the last one is done."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
        told = [json.loads(process.stdout.readline()) for process in self._processes if process.stdout is not None]
        return max(told)

    def end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(60)
            process.stdout.close()


def figures(folder: Path) -> Iterator[Figure]:
    groups = {world: Ranks(world, folder / f"of-{world}") for world in (1, WORLD)}
    taken: dict[tuple[str, int], list[float]] = {}
    try:
        for number in range(-1, ROUNDS):
            for world, ranks in sorted(groups.items(), reverse=number % 2 == 0):
                emptied(ranks.folder)
                saved = ranks.does("save")
                forget(ranks.folder / "step-00000001")
                loaded = ranks.does("load")
                if number >= 0:
                    taken.setdefault(("write", world), []).append(saved)
                    taken.setdefault(("load", world), []).append(loaded)
    finally:
        for ranks in groups.values():
            ranks.end()
    for act in ("write", "load"):
        rates = {world: world * MIB / 1024 / statistics.median(taken[act, world]) for world in groups}
        value = rates[WORLD] / rates[1]
        yield Figure(
            bench="checkpoint",
            figure=f"checkpoint.{act}_four_ranks_ratio",
            value=round(value, 3),
            unit="ratio",
            better="higher",
            goal="four ranks together no slower than one",
            holds=value >= 1,
            note=f"{MIB} MiB a rank; one {rates[1]:.2f} GiB/s, four {rates[WORLD]:.2f}; load of the "
            f"machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        )


def _rank(rank: int, world: int, store: str, folder: Path, mib: int) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    from trainmaster.training.distcp import CheckpointReader, CheckpointWriter

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    count = (mib << 20) // _TENSOR_BYTES
    whole = {f"rank{rank}.layer{place}": torch.randn(_TENSOR_BYTES // 4) for place in range(count)}
    for line in sys.stdin:
        dist.barrier()
        started = time.perf_counter()
        if line.strip() == "save":
            dcp.save(whole, storage_writer=CheckpointWriter(folder, step=1))
        else:
            dcp.load(whole, storage_reader=CheckpointReader(folder / "step-00000001"))
        dist.barrier()
        print(time.perf_counter() - started, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
