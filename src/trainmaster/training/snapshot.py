"""Snapshots: the state of a step, copied out of it into memory that outlives the rank.

What a rank copies is what it would write in a save (replicas deduplicated and balanced), planned once, in a collective;
after that each rank copies on its own, without a word to the others: a list of addresses and sizes, and a `memmove` for
each, into touched memory (`storage/arena.py`). So it costs what copying costs. What stands around the tensors in a
file does not change and is written once into each part.

Parameters and optimizer state do not change during forward and backward. So a snapshot may be `start`ed after a step
and copied by a thread while the next one computes; `wait` has to be called before the optimizer writes again (`guard`
does it by itself). A tensor that was exchanged for another one since the plan would be copied from where it was: each
snapshot compares addresses first, and raises instead.

Values that are no tensors (learning rates, counters) are few and small; they are written out again when they change,
behind the tensors, since their length may change too.
"""

import ctypes
import io
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict import get_state_dict

from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import Stored
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.arena import Arena, Part, Snapshot, Table
from trainmaster.storage.pieces import Memory, Pieces, address_of, size_of
from trainmaster.training.agreement import broadcast, gather
from trainmaster.training.distcp.planner import BalancedPlanner
from trainmaster.training.distcp.tables import outline_of
from trainmaster.training.distcp.writer import laid_out
from trainmaster.training.errors import TrainingError

_SPARE_BYTES = 1 << 20
"""Room for values that grow."""


class Snapshotter:
    """Takes snapshots of one state into one arena.

    The tensors of `state` must be those that training writes to, on the CPU and without gaps. `values` gives the values
    that may have changed, by their names in the flattened state; `addresses` where the tensors that training uses are
    now, to be compared from one snapshot to the next. Making it is a collective of all ranks. Raises `TrainingError`
    for a state that cannot be copied where it is, `OSError` if there is not enough memory.
    """

    def __init__(
        self,
        fd: int,
        state: dict[str, Any],
        *,
        values: Callable[[], Mapping[str, Any]] = dict,
        addresses: Callable[[], list[int]] = list,
        epoch: int = 0,
    ) -> None:
        self._rank, self._world = _place()
        self._values, self._addresses, self._epoch = values, addresses, epoch
        self._known_addresses = addresses()
        self._planner, plan, metadata = _planned(state)
        self._outline = outline_of(metadata)
        self._name = f"__{self._rank}_0.distcp"
        self._value_items = [item for item in plan.items if item.type == WriteItemType.BYTE_IO]
        self._written: dict[str, tuple[Any, io.BytesIO]] = {}
        tensors = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
        self._items, parts = laid_out(self._name, tensors, self._planner.resolve_data)
        self._frame = Pieces(parts)
        self._moves = _moves(parts)
        resident = {data.data_ptr() for item in tensors if (data := self._planner.resolve_data(item)).numel()}
        if not {source for _, source, _ in self._moves} <= resident:
            raise TrainingError("a tensor of the state is on a device or has gaps: it cannot be copied where it is")
        table = self._table(Position(samples=1 << 60, global_batch=1 << 60, step=1 << 60), self._items)
        self._arena = Arena(fd, 2 * len(encode(table)) + _SPARE_BYTES, self._frame.size_bytes + _SPARE_BYTES)
        self._framed: set[int] = set()
        self._copying: threading.Thread | None = None
        self._failure: BaseException | None = None

    @classmethod
    def of(cls, fd: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, epoch: int = 0) -> "Snapshotter":
        """Of a model and its optimizer, under the names of `get_state_dict`, so that a save and it load alike."""
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        return cls(
            fd,
            state,
            values=lambda: _group_values(optimizer),
            addresses=lambda: _live_addresses(model, optimizer),
            epoch=epoch,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of a snapshot of this rank, without its values."""
        return self._frame.size_bytes

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot of this rank."""
        return self._arena.newest()

    def take(self, position: Position) -> float:
        """Takes a snapshot and returns when it is whole; the seconds that it took."""
        started = time.perf_counter()
        self._copy(*self._begin(), position)
        return time.perf_counter() - started

    def start(self, position: Position) -> None:
        """Begins a snapshot. The state must not change before `wait` has returned."""
        part, items, values = self._begin()

        def work() -> None:
            try:
                self._copy(part, items, values, position)
            except BaseException as error:  # noqa: BLE001  (raised by `wait`, in the thread that can act on it)
                self._failure = error

        self._copying = threading.Thread(target=work, name="trainmaster-snapshot", daemon=True)
        self._copying.start()

    def wait(self) -> float:
        """Returns when no copy is under way; the seconds that it waited. Raises what the copy raised."""
        if self._copying is None:
            return 0.0
        started = time.perf_counter()
        self._copying.join()
        self._copying = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return time.perf_counter() - started

    def guard(self, optimizer: torch.optim.Optimizer) -> None:
        """Waits before every step of the optimizer."""

        def before(*_: object) -> None:
            self.wait()

        optimizer.register_step_pre_hook(before)

    def _begin(self) -> tuple[Part, list[Stored], list[bytes | Memory]]:
        assert self._copying is None, "wait for the last snapshot first"
        if self._addresses() != self._known_addresses:
            raise TrainingError("a tensor of the state was exchanged for another one; make a new Snapshotter")
        for name, value in self._values().items():
            if name in self._planner.state_dict:
                self._planner.state_dict[name] = value
        items, parts = laid_out(self._name, self._value_items, self._written_out, self._frame.size_bytes)
        part = self._arena.begin()
        if part is None:
            raise TrainingError("no part of the arena is free")
        return part, items, parts

    def _written_out(self, item: WriteItem) -> io.BytesIO:
        """A value as bytes, made anew only if it is another one."""
        name = item.index.fqn
        value = self._planner.state_dict[name]
        if name not in self._written or self._written[name][0] != value:
            self._written[name] = (value, self._planner.resolve_data(item))
        return self._written[name][1]

    def _copy(self, part: Part, items: list[Stored], values: list[bytes | Memory], position: Position) -> None:
        start = self._frame.size_bytes
        tail = Pieces(values)
        if part.number not in self._framed:
            self._frame.copy(0, part.payload[:start])
            self._framed.add(part.number)
        target = address_of(part.payload)
        for offset, source, size_bytes in self._moves:
            ctypes.memmove(target + offset, source, size_bytes)
        tail.copy(0, part.payload[start : start + tail.size_bytes])
        part.commit(self._table(position, [*self._items, *items]), start + tail.size_bytes)

    def _table(self, position: Position, items: list[Stored]) -> Table:
        return Table(
            rank=self._rank,
            world=self._world,
            epoch=self._epoch,
            position=position,
            items=tuple(items),
            outline=self._outline,
        )


def _moves(parts: list[bytes | Memory]) -> list[tuple[int, int, int]]:
    """For each stretch of memory: where it goes, where it is, how long it is."""
    moves, at = [], 0
    for part in parts:
        if isinstance(part, Memory) and part.size_bytes:
            moves.append((at, part.address, part.size_bytes))
        at += size_of(part)
    return moves


def _group_values(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What the groups of an optimizer say now, under the names of the flattened state."""
    return {
        f"optimizer.param_groups.{number}.{name}": value
        for number, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name != "params"
    }


def _live_addresses(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[int]:
    held = [*model.parameters(), *model.buffers()]
    held += [each for state in optimizer.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    return [getattr(each, "_local_tensor", each).data_ptr() for each in held]


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _planned(state: dict[str, Any]) -> tuple[BalancedPlanner, SavePlan, Metadata]:
    """The plan of this rank, made by all together."""
    planner = BalancedPlanner()
    first = _place()[0] == 0
    planner.set_up_planner(state, None, first)
    local = planner.create_local_plan()
    plans = gather(local) if dist.is_initialized() else [local]
    made = planner.create_global_plan(plans) if first else None
    shared = broadcast(made) if dist.is_initialized() else made
    assert shared is not None
    everyones, metadata = shared
    return planner, planner.finish_plan(everyones[_place()[0]]), metadata
