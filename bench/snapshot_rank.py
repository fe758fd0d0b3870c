"""One rank of the bench of snapshots: `python -m bench.snapshot_rank STORE RANK WORLD MIB`; medians as JSON on the
last line. Ranks begin each copy together, so that they share the memory's bandwidth as they do in training."""

import ctypes
import datetime
import json
import sys
import time

import torch
import torch.distributed as dist

from bench.figure import timed
from bench.state import in_turns, state
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import arena
from trainmaster.training.snapshot import Snapshotter

_TARGET_BYTES = 1 << 30
_HERE = Position(samples=0, global_batch=0, step=0)
_TIMEOUT = datetime.timedelta(minutes=10)


def main(store: str, rank: int, world: int, mib: int) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=_TIMEOUT)
    whole = {f"{rank}.{name}": tensor for name, tensor in state(mib).items()}
    snapshotter = Snapshotter(arena.make("bench"), whole, parts=2)
    tensors = list(whole.values())
    targets = [torch.ones_like(each) for each in tensors[: _TARGET_BYTES // (tensors[0].numel() * 4)]]

    def plain() -> float:
        dist.barrier()
        limit.append(timed(copy))
        return limit[-1]

    def copy() -> None:
        for place, tensor in enumerate(tensors):
            target = targets[place % len(targets)]
            ctypes.memmove(target.data_ptr(), tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def ours() -> float:
        dist.barrier()
        return snapshotter.take(_HERE)

    def overlapped() -> float:
        dist.barrier()
        started = time.perf_counter()
        snapshotter.start(_HERE)
        begun = time.perf_counter() - started
        time.sleep(4 * max(limit[-1:], default=0.5))
        return begun + snapshotter.wait()

    limit: list[float] = []
    print(json.dumps(in_turns({"limit": plain, "ours": ours, "overlapped": overlapped})), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
