"""Planners of saves and loads: replicas balanced over the ranks, values read without running code."""

import dataclasses
import io
from typing import Any, Final

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem

from trainmaster.core.checkpoint.balance import shares

DERIVED: Final = "derived_mask"
"""Last part of the name of state that is made anew where a checkpoint has none."""


class BalancedPlanner(DefaultSavePlanner):
    """Gives what several ranks hold alike to one of them, so that all write about as much.

    dcp.save(state, storage_writer=CheckpointWriter(...), planner=BalancedPlanner())
    """

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        holders: dict[MetadataIndex, list[int]] = {}
        sizes: dict[MetadataIndex, int] = {}
        for rank, plan in enumerate(all_plans):
            for item in plan.items:
                holders.setdefault(item.index, []).append(rank)
                sizes[item.index] = size_of(item)
        writer = shares(holders, sizes, len(all_plans))
        return [
            dataclasses.replace(plan, items=[item for item in plan.items if writer[item.index] == rank])
            for rank, plan in enumerate(all_plans)
        ]


def size_of(item: WriteItem) -> int:
    """Bytes of what a rank would write, without what stands around it."""
    if item.tensor_data is None:
        return int(item.bytes_io_data.nbytes) if item.bytes_io_data else 0
    chunk, dtype = item.tensor_data.chunk, item.tensor_data.properties.dtype
    return int(torch.Size(chunk.sizes).numel()) * int(dtype.itemsize)


class CarefulPlanner(DefaultLoadPlanner):
    """Reads plain values (counters, learning rates) without unpickling classes. What a name says can be made anew is
    left as it is where the checkpoint does not have it."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        assert self.metadata is not None
        stored = self.metadata.state_dict_metadata
        for name in [name for name in self.state_dict if name.rpartition(".")[2] == DERIVED and name not in stored]:
            del self.state_dict[name]

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = torch.load(value, weights_only=True)
        super().load_bytes(read_item, _repacked(loaded))


def _repacked(value: object) -> io.BytesIO:
    """The value in a stream of our own making, which may be read in any way."""
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream
