"""Snapshots: the state of a step, copied out of it into memory that outlives the rank.

What a rank copies is what it would write in a save (replicas deduplicated and balanced), planned once, in a collective;
after that each rank copies on its own, without a word to the others: a list of addresses and sizes, and a `memmove` for
each, into touched memory (`storage/arena.py`). So it costs what copying costs. What stands around the tensors in a
file does not change and is written once into each part.

Parameters and optimizer state do not change during forward and backward. So a snapshot may be `start`ed after a step
and copied by a thread while the next one computes; `wait` has to be called before the optimizer writes again (`guard`
does it by itself). Buffers of a model may change in its forward pass, so they are copied before `start` returns. What
breaks the rule is noticed, and the snapshot refused: a tensor that was exchanged for another one (its address is
another; `Exchanged`), one that was written to during the copy (PyTorch counts the writes; `Changed`).

Small tensors are copied in one call of PyTorch, large ones by `memmove`: none of it holds the interpreter's lock, which
the step needs. Small ones lie together behind the large ones, since each rank may want some of each shard (the counters
of an optimizer, balanced over the ranks), and gets them by the mebibyte. Values that are no tensors (learning rates,
counters) are few and small; they are written out again when they change, behind the tensors, since their length may
change too.

Limit: writes through `.data` are not counted by PyTorch. Who writes so does it before the step ends or within the
optimizer's step.
"""

import ctypes
import io
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict import get_state_dict

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import Stored
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.arena import PARTS, Arena, Part, Snapshot, Table, open_file
from trainmaster.storage.pieces import Memory, Pieces, address_of, size_of
from trainmaster.training.agreement import broadcast, gather
from trainmaster.training.distcp.planner import BalancedPlanner
from trainmaster.training.distcp.planner import size_of as writing_bytes
from trainmaster.training.distcp.tables import outline_of
from trainmaster.training.distcp.writer import laid_out
from trainmaster.training.errors import TrainingError

_SPARE_BYTES: Final = 1 << 20
"""Room for values that grow."""
_SMALL_BYTES: Final = 1 << 18
Place = int | Path
"""Of an arena: a descriptor or a path."""


class Exchanged(TrainingError):
    """A tensor of the state is not the one that it was when this was planned: plan anew."""


class Changed(TrainingError):
    """The state was written to while it was copied."""


class _Move(NamedTuple):
    """A stretch of memory: where it goes in a part, where it is, how long it is."""

    offset: int
    source: int
    size_bytes: int


class Snapshotter:
    """Takes snapshots of one state into one arena.

    The tensors of `state` must be those that training writes to, on the CPU and without gaps. `values` gives the values
    that may have changed, by their names in the flattened state; `addresses` where the tensors that training uses are
    now, to be compared from one snapshot to the next; `restless` the addresses of tensors that also change between
    steps. Making it is a collective of all ranks. Raises `TrainingError` for a state that cannot be copied where it is,
    and `OSError` if there is not enough memory; both before or after all collectives, so others are not left waiting.

    `deferred`: the arena is made by `open`, which may run in a thread while training goes on: fresh memory is slow.
    """

    def __init__(
        self,
        place: Place,
        state: dict[str, Any],
        *,
        values: Callable[[], Mapping[str, Any]] = dict,
        addresses: Callable[[], list[int]] = list,
        restless: Iterable[int] = (),
        owner: tuple[JobId, AttemptId, int] = (JobId(""), AttemptId(""), 0),
        parts: int = PARTS,
        deferred: bool = False,
    ) -> None:
        self._rank, self._world = _place()
        self._place, self._parts, self._owner = place, parts, owner
        self._values, self._addresses = values, addresses
        self._known_addresses = addresses()
        self._planner, plan, metadata = _planned(state)
        self._outline = outline_of(metadata)
        self._name = f"__{self._rank}_0.distcp"
        self._value_items = [item for item in plan.items if item.type == WriteItemType.BYTE_IO]
        self._written: dict[str, tuple[Any, io.BytesIO]] = {}
        tensors = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
        tensors.sort(key=lambda item: writing_bytes(item) < _SMALL_BYTES)
        self._items, pieces = laid_out(self._name, tensors, self._planner.resolve_data)
        self._frames = list(_frames(pieces))
        self._frame_bytes = sum(map(size_of, pieces))
        self._plan_moves(pieces, [self._planner.resolve_data(item) for item in tensors], set(restless))
        self._framed: set[int] = set()
        self._copying: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._arena: Arena | None = None
        if not deferred:
            self.open()

    @classmethod
    def of(
        cls, place: Place, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any
    ) -> "Snapshotter":
        """Of a model and its optimizer, under the names of `get_state_dict`, so that a save and it load alike. The
        optimizer should have made a step: one that has not is given its moments here."""
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        return cls(
            place,
            state,
            values=lambda: _group_values(optimizer),
            addresses=lambda: _live_addresses(model, optimizer),
            restless=[_local(buffer).data_ptr() for buffer in model.buffers()],
            **options,
        )

    def open(self) -> None:
        """Makes the arena, unless it is there. Raises `OSError` if there is not enough memory."""
        table = self._table(Position(samples=1 << 60, global_batch=1 << 60, step=1 << 60), self._items)
        table_bytes = 2 * len(encode(table)) + _SPARE_BYTES
        needs = (table_bytes, self._frame_bytes + _SPARE_BYTES, self._parts)
        self._arena = Arena(self._place, *needs) if isinstance(self._place, int) else open_file(self._place, *needs)

    @property
    def arena(self) -> Arena:
        """Raises `TrainingError` while it is not open."""
        if self._arena is None:
            raise TrainingError("the memory for snapshots is not there yet")
        return self._arena

    @property
    def is_open(self) -> bool:
        return self._arena is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of a snapshot of this rank, without its values."""
        return self._frame_bytes

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot of this rank."""
        return self.arena.newest()

    def take(self, position: Position, keep: Collection[int] = ()) -> float:
        """Takes a snapshot and returns when it is whole; the seconds that it took. See `start`."""
        started = time.perf_counter()
        part, items, values = self._begin(keep)
        self._copy(self._early, part)
        self._finish(part, items, values, position)
        return time.perf_counter() - started

    def start(self, position: Position, keep: Collection[int] = (), then: Callable[[int], None] | None = None) -> int:
        """Begins a snapshot and returns its number. The state must not change before `wait` has returned. Snapshots
        with the numbers `keep` are not written over. `then` is called in the thread that copies, with its number, when
        it is whole.

        Raises `Exchanged`, and `TrainingError` if no part of the arena is free."""
        part, items, values = self._begin(keep)
        self._copy(self._early, part)

        def work() -> None:
            try:
                self._finish(part, items, values, position)
                if then is not None:
                    then(part.sequence)
            except BaseException as error:  # noqa: BLE001  (raised by `wait`, in the thread that can act on it)
                self._failure = error

        self._copying = threading.Thread(target=work, name="trainmaster-snapshot", daemon=True)
        self._copying.start()
        return part.sequence

    def wait(self) -> float:
        """Returns when no copy is under way; the seconds that it waited. Raises what the copy raised, so `Changed`."""
        if self._copying is None:
            return 0.0
        started = time.perf_counter()
        self._copying.join()
        self._copying = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return time.perf_counter() - started

    def guard(self, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        """Waits before every step of the optimizer, until the result is called."""

        def before(*_: object) -> None:
            self.wait()

        remove: Callable[[], None] = optimizer.register_step_pre_hook(before).remove
        return remove

    def _plan_moves(self, pieces: list[bytes | Memory], tensors: list[Any], restless: set[int]) -> None:
        """Sorts what is copied: at once, by `memmove`, by one call for all small ones."""
        moves = list(_moves(pieces))
        resident = {tensor.data_ptr() for tensor in tensors if tensor.numel()}
        if not {move.source for move in moves} <= resident:
            raise TrainingError("a tensor of the state is on a device or has gaps: it cannot be copied where it is")
        self._early = [move for move in moves if move.source in restless]
        rest = [move for move in moves if move.source not in restless]
        self._large = [move for move in rest if move.size_bytes >= _SMALL_BYTES]
        self._small = [move for move in rest if move.size_bytes < _SMALL_BYTES]
        self._sources = [_bytes_at(move.source, move.size_bytes) for move in self._small]
        self._targets: dict[int, list[torch.Tensor]] = {}
        self._watched = [tensor for tensor in tensors if tensor.numel() and tensor.data_ptr() not in restless]

    def _begin(self, keep: Collection[int]) -> tuple[Part, list[Stored], list[bytes | Memory]]:
        assert self._copying is None, "wait for the last snapshot first"
        if self._addresses() != self._known_addresses:
            raise Exchanged("a tensor of the state was exchanged for another one; make a new Snapshotter")
        for name, value in self._values().items():
            if name in self._planner.state_dict:
                self._planner.state_dict[name] = value
        items, values = laid_out(self._name, self._value_items, self._written_out, self._frame_bytes)
        part = self.arena.begin(keep)
        if part is None:
            raise TrainingError("no part of the memory for snapshots is free")
        self._versions = [tensor._version for tensor in self._watched]
        if part.number not in self._framed:
            for at, frame in self._frames:
                part.payload[at : at + len(frame)] = frame
            self._targets[part.number] = [_within(part, move) for move in self._small]
            self._framed.add(part.number)
        return part, items, values

    def _written_out(self, item: WriteItem) -> io.BytesIO:
        """A value as bytes, made anew only if it is another one."""
        name = item.index.fqn
        value = self._planner.state_dict[name]
        if name not in self._written or self._written[name][0] != value:
            self._written[name] = (value, self._planner.resolve_data(item))
        return self._written[name][1]

    def _copy(self, moves: Sequence[_Move], part: Part) -> None:
        target = address_of(part.payload)
        for offset, source, size_bytes in moves:
            ctypes.memmove(target + offset, source, size_bytes)

    def _finish(self, part: Part, items: list[Stored], values: list[bytes | Memory], position: Position) -> None:
        start, tail = self._frame_bytes, Pieces(values)
        self._copy(self._large, part)
        if self._small:
            torch._foreach_copy_(self._targets[part.number], self._sources)
        tail.copy(0, part.payload[start : start + tail.size_bytes])
        if self._versions != [tensor._version for tensor in self._watched]:
            raise Changed("the state was written to while it was copied")
        part.commit(self._table(position, [*self._items, *items]), start + tail.size_bytes)

    def _table(self, position: Position, items: list[Stored]) -> Table:
        return Table(
            rank=self._rank,
            world=self._world,
            epoch=self._owner[2],
            job=self._owner[0],
            attempt=self._owner[1],
            position=position,
            items=tuple(items),
            outline=self._outline,
        )


def _moves(pieces: Iterable[bytes | Memory]) -> Iterator[_Move]:
    at = 0
    for piece in pieces:
        if isinstance(piece, Memory) and piece.size_bytes:
            yield _Move(at, piece.address, piece.size_bytes)
        at += size_of(piece)


def _frames(pieces: Iterable[bytes | Memory]) -> Iterator[tuple[int, bytes]]:
    """What stands around the tensors, and where."""
    at = 0
    for piece in pieces:
        if isinstance(piece, bytes) and piece:
            yield at, piece
        at += size_of(piece)


def _bytes_at(address: int, size_bytes: int) -> torch.Tensor:
    return torch.frombuffer(Memory(address, size_bytes, None).view(), dtype=torch.uint8)


def _within(part: Part, move: _Move) -> torch.Tensor:
    return torch.frombuffer(part.payload[move.offset : move.offset + move.size_bytes], dtype=torch.uint8)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor; any other as it is."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


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
    return [_local(each).data_ptr() for each in held]


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
