"""Decisions that all ranks take alike.

A rank that raises while the others wait in a collective is the classical hang. So local work that may fail at the edge
(files, mostly) is done in `together`: each rank tries, all learn the outcomes of all, and then all go on or all stop.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from trainmaster.storage.saving import lacks_room
from trainmaster.training.errors import NoRoom, SaveFailed

T = TypeVar("T")


def gather(value: T) -> list[T]:
    """The values of all ranks, on all ranks, in order of rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast(value: T) -> T:
    """Rank 0's value, on all ranks."""
    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=0)
    result: T = values[0]
    return result


def maxima(*values: int) -> list[int]:
    """The greatest of each value over all ranks, with one small collective."""
    tensor = torch.tensor(values, dtype=torch.int64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [int(value) for value in tensor.tolist()]


def together(work: Callable[[], T]) -> list[T]:
    """Does local work on every rank and returns all results. Raises `SaveFailed` on all ranks if it failed on any;
    `NoRoom` if a lack of space was among the reasons."""
    outcome: tuple[T | None, str | None, bool]
    try:
        outcome = (work(), None, False)
    except OSError as error:
        outcome = (None, str(error), lacks_room(error))
    except SaveFailed as error:
        outcome = (None, str(error), isinstance(error, NoRoom))
    outcomes = gather(outcome)
    failures = [f"rank {rank}: {failure}" for rank, (_, failure, _) in enumerate(outcomes) if failure is not None]
    if failures:
        kind = NoRoom if any(lacking for _, _, lacking in outcomes) else SaveFailed
        raise kind("; ".join(failures))
    return [result for result, _, _ in outcomes]  # type: ignore[misc]


def on_first(work: Callable[[], T]) -> T:
    """Does work on rank 0 only and returns its result on all. Raises `SaveFailed` on all ranks if it failed."""
    first = dist.get_rank() == 0
    return together(lambda: work() if first else None)[0]  # type: ignore[return-value]
