"""Four ranks move a state between numbers of ranks: saved by some, loaded by others, every bit compared.

The state is sharded by rows and by columns, unevenly, and replicated; each rank knows what each element must be.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import trainmaster.training as tm
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import arena
from trainmaster.training.agreement import gather
from trainmaster.training.distcp import BalancedPlanner, CheckpointReader, CheckpointWriter
from trainmaster.training.distcp.reader import MemoryReader
from trainmaster.training.snapshot import Snapshotter

MOVES = ((2, 4), (4, 2), (4, 3), (3, 1))


def whole(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "rows": torch.randn(1001, 333, generator=generator),
        "columns": torch.randn(37, 101, generator=generator).to(torch.bfloat16),
        "alike": torch.randn(50, 1000, generator=generator),
        "alike-too": torch.randn(50, 1000, generator=generator),
        "few": torch.randn(2, 3, generator=generator),
    }


def sharded(seed: int, mesh: DeviceMesh) -> dict[str, Any]:
    placements = {"columns": Shard(1), "alike": Replicate(), "alike-too": Replicate()}
    return {
        name: distribute_tensor(tensor, mesh, [placements.get(name, Shard(0))]) for name, tensor in whole(seed).items()
    }


def assert_is(state: dict[str, DTensor], seed: int) -> None:
    for name, tensor in whole(seed).items():
        assert torch.equal(state[name].full_tensor(), tensor), name


def from_memory(rank: int, meshes: dict[int, DeviceMesh], groups: dict[int, Any]) -> None:
    """Four ranks take snapshots; two and three load them, each from the memory that the four processes hold."""
    fd = arena.make("snapshot")
    snapshotter = Snapshotter(fd, sharded(9, meshes[4]))
    snapshotter.take(Position(samples=9, global_batch=1, step=9))
    held = gather(f"/proc/{os.getpid()}/fd/{fd}")
    for after in (2, 3):
        if rank < after:
            state = sharded(0, meshes[after])
            newest = [arena.newest_in(os.open(path, os.O_RDWR)) for path in held]
            whole_ones = [snapshot for snapshot in newest if snapshot is not None]
            dcp.load(state, storage_reader=MemoryReader(whole_ones), process_group=groups[after])
            assert_is(state, 9)
        dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    with tm.session() as session:
        groups = {size: dist.new_group(range(size)) for size in (1, 2, 3, 4)}
        meshes = {size: DeviceMesh("cpu", list(range(size))) for size in (1, 2, 3, 4)}
        for seed, (before, after) in enumerate(MOVES, 1):
            writer = CheckpointWriter(root, step=seed)
            if session.rank < before:
                state = sharded(seed, meshes[before])
                dcp.save(state, storage_writer=writer, planner=BalancedPlanner(), process_group=groups[before])
            dist.barrier()
            if session.rank < after:
                state = sharded(0, meshes[after])
                dcp.load(state, storage_reader=CheckpointReader(writer.path), process_group=groups[after])
                assert_is(state, seed)
                state = sharded(0, meshes[after])
                dcp.load(state, checkpoint_id=writer.path, process_group=groups[after])
                assert_is(state, seed)
            dist.barrier()
        from_memory(session.rank, meshes, groups)
        if session.rank == 0:
            (root / "done").write_text(str(len(MOVES)))


if __name__ == "__main__":
    main()
