"""States of PyTorch as the snapshots of several ranks, planned in one process as the ranks would plan them together."""

from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from tests.integration.vault_hosts import Shard, bytes_of

from trainmaster.training.distcp import BalancedPlanner
from trainmaster.training.distcp.tables import outline_of
from trainmaster.training.distcp.writer import laid_out


def state_of(seed: int, elements: int = 300_000) -> dict[str, Any]:
    """Tensors of several types, more than a mebibyte, nothing, and values."""
    generator = torch.Generator().manual_seed(seed)
    model = {f"layer.{number}": torch.randn(elements // 100, 100, generator=generator) for number in range(6)}
    model["half"] = torch.randn(33, 7, generator=generator).to(torch.bfloat16)
    model["count"] = torch.tensor(seed)
    model["nothing"] = torch.empty(0, 3)
    return {"model": model, "extra": {"rate": 0.5 / (1 + seed), "names": [f"n{seed}", 7]}}


def shards_of(state: dict[str, Any], world: int) -> list[Shard]:
    """What each rank's snapshot holds if all ranks have the same state."""
    planners = [BalancedPlanner() for _ in range(world)]
    plans = []
    for rank, planner in enumerate(planners):
        planner.set_up_planner(state, None, rank == 0)
        plans.append(planner.create_local_plan())
    everyones, metadata = planners[0].create_global_plan(plans)
    outline = outline_of(metadata)
    shards = []
    for rank, planner in enumerate(planners):
        plan = planner.finish_plan(everyones[rank])
        items, parts = laid_out(f"__{rank}_0.distcp", plan.items, planner.resolve_data)
        shards.append(Shard(items=tuple(items), outline=outline, data=bytes_of(parts)))
    return shards


def loaded(path: Any, reader: Any = None) -> dict[str, Any]:
    """A state read from a directory: by plain PyTorch, or by a reader of ours."""
    state = state_of(999)
    if reader is None:
        dcp.load(state, checkpoint_id=path)
    else:
        dcp.load(state, storage_reader=reader(path))
    return state


def assert_same(one: Any, other: Any) -> None:
    """Bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        left, right = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
        assert torch.equal(left, right)
    else:
        assert one == other
