"""Agreement of replicas: do ranks that should hold the same parameters and optimizer state hold the same bits?

A GPU that computes wrongly, or memory that flips a bit, corrupts training without a word. Data-parallel replicas are
computed alike, so they stay equal to the bit; a rank that is not has lost its way. Every so many steps, and before each
save, each rank sums the bits of what it holds, as integers, so that the order of adding changes nothing and any single
flipped bit shows; 16 bytes a rank are exchanged. Only if they differ the sums of all tensors are, which names tensor
and rank.

Who holds the same is found, not declared. Ranks whose tensors have the same names, shapes and places in their mesh are
a *class*; a tensor that differs within its class at the first look of an epoch (after its first step) is no replica,
for instance a parameter of its own for each rank, and is left out, unless it was one in an earlier membership
(`agreed.py`): then it was restored wrongly. Where all is sharded nobody holds the same, and the
check says that it can't. Limits: what changes a value on all replicas alike is not seen, nor what is no parameter and
no optimizer state; two replicas can't say who is right.

A disagreement ends the epoch on all ranks. Snapshots and checkpoints that this epoch took after the last agreement are
not used any more (`distrust.py`); saves are made right after a check, so of those it is none.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from trainmaster.core.diagnosis.answer import ranks_text
from trainmaster.core.diagnosis.replicas import Disagreement, judge, sentence
from trainmaster.training.agreement import gather
from trainmaster.training.errors import TrainingError

EVERY_STEPS: Final = 100
"""Where nobody says otherwise. The cost is that of reading the state once (`make bench NAME=agreement`)."""
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplicaDisagreement(TrainingError):
    """This rank holds other values than the majority of its replicas, or there is no majority."""


class PeerDisagreed(TrainingError):
    """Another rank does."""


class Held(NamedTuple):
    """A tensor of this rank."""

    name: str
    place: str
    """Of its part in the whole: equal for ranks that hold the same part."""
    local: torch.Tensor


class Class(NamedTuple):
    number: int
    """Equal on all ranks that hold the same tensors."""
    names: tuple[str, ...]


class Replicas:
    """Compares what ranks hold. `check` is a collective; all ranks call it after the same steps.

    `every`: steps between two checks, 0: never. `asked`: a person wants it, so it is said if it can't be done.
    `distrust` is called on rank 0 with the last step after which all agreed, before anybody leaves. `before` are the
    names that were replicas in an earlier membership, as rank 0 knows them; `agreed` is told there of those that are.
    """

    def __init__(
        self,
        every: int,
        asked: bool,
        host: str,
        tell: Callable[[str], None],
        distrust: Callable[[int], None],
        before: frozenset[str] = frozenset(),
        agreed: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self._before, self._agreed = before, agreed
        self._every, self._asked, self._tell = every, asked, tell
        self._host, self._distrust = host, distrust
        self._hosts: dict[int, str] = {}
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._classes: list[Class] | None = None
        self._slots = 0
        self.agreed_step = -1
        """Newest step after which all agreed; before the first look that which was restored."""
        self.spent_s = 0.0
        self.speak: Callable[[BaseException], None] = lambda _: None
        """Told of the error of an odd rank before its peers leave: what it says of their leave would be heard first."""

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        """From now on these are compared. `step` is where they begin."""
        self._model, self._optimizer = model, optimizer
        self._classes, self.agreed_step = None, step

    def check(self, step: int, saving: bool) -> None:
        """Compares, if it is time or something is to be saved. Raises `ReplicaDisagreement` or `PeerDisagreed`."""
        if not self._every or dist.get_world_size() == 1 or self._model is None or step <= self.agreed_step:
            return
        if self._classes is None:
            self._begin(step)
            self.agreed_step = step
        elif self._slots and (saving or step - self.agreed_step >= self._every or step % self._every == 0):
            started = time.monotonic()
            self._compare(step)
            self.agreed_step = step
            self.spent_s += time.monotonic() - started

    def _begin(self, step: int) -> None:
        """The first look: who holds the same, and what is no replica although it looks so."""
        held = {each.name: each for each in self._held()}
        classes = list(_classes(held.values()))
        self._hosts = dict(enumerate(gather(self._host)))
        told = gather([(each.number, digest(held, each.names)) for each in classes])
        holders: dict[int, dict[int, int]] = {}
        for rank, row in enumerate(told):
            for number, value in row:
                holders.setdefault(number, {})[rank] = value
        shared = {number for number, row in holders.items() if len(row) > 1}
        unequal = {number for number in shared if len(set(holders[number].values())) > 1}
        own = self._unlike(held, [each for each in classes if each.number in unequal])
        was = gather(self._before if dist.get_rank() == 0 else frozenset())[0]
        if own & was:
            named = [Class(each.number, tuple(name for name in each.names if name in was)) for each in classes]
            self._classes = [each for each in named if each.number in shared and each.names]
            self._raise(held, step)
        kept = [
            Class(each.number, tuple(name for name in each.names if name not in own))
            for each in classes
            if each.number in shared
        ]
        self._classes = [each for each in kept if each.names]
        self._slots = max(gather(len(self._classes)))
        if dist.get_rank() == 0:
            self._agreed(frozenset(name for each in self._classes for name in each.names))
        self._say(len(held), own)

    def _unlike(self, held: Mapping[str, Held], classes: list[Class]) -> frozenset[str]:
        """Names that differ within their class."""
        told = gather({each.number: (each.names, sums(held, each.names).tolist()) for each in classes})
        found: set[str] = set()
        for each in classes:
            rows = {rank: row[each.number][1] for rank, row in enumerate(told) if each.number in row}
            differing = judge(each.names, rows)
            found.update(differing.tensors if differing is not None else ())
        return frozenset(found)

    def _say(self, count: int, own: frozenset[str]) -> None:
        if not self._asked:
            return
        if not self._slots:
            why = "each rank holds a shard of its own" if not own else "they differ from the first step on"
            self._tell(f"agreement can't be checked: no two ranks hold the same parameters ({why})")
        elif own:
            told = ", ".join(sorted(own)[:3])
            self._tell(f"agreement is not checked for {len(own)} of {count} tensors that differ from the start: {told}")

    def _compare(self, step: int) -> None:
        assert self._classes is not None
        held = {each.name: each for each in self._held()}
        mine = torch.zeros(2 * self._slots, dtype=torch.int64)
        for place, each in enumerate(self._classes):
            mine[2 * place], mine[2 * place + 1] = each.number, digest(held, each.names)
        everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        values: dict[int, set[int]] = {}
        for row in everyone:
            for number, value in row.view(-1, 2).tolist():
                values.setdefault(number, set()).add(value)
        if all(len(found) == 1 for number, found in values.items() if number):
            return
        self._raise(held, step)

    def _raise(self, held: Mapping[str, Held], step: int) -> None:
        """Names who differs in what; on every rank."""
        assert self._classes is not None
        if dist.get_rank() == 0:
            self._distrust(self.agreed_step)
        told = gather({each.number: (each.names, sums(held, each.names).tolist()) for each in self._classes})
        for number in sorted({number for row in told for number in row}):
            rows = {rank: row[number] for rank, row in enumerate(told) if number in row}
            found = judge(next(iter(rows.values()))[0], {rank: values for rank, (_, values) in rows.items()})
            if found is not None:
                error = self._error(found, step)
                if isinstance(error, ReplicaDisagreement):
                    self.speak(error)
                with suppress(RuntimeError):  # of a group that is cut because somebody has spoken
                    gather(None)
                raise error
        raise TrainingError(f"the sums of step {step} differed once, and not at a second look: memory can't be trusted")

    def _error(self, found: Disagreement, step: int) -> TrainingError:
        text = sentence(found, self._hosts, step, self.agreed_step)
        if dist.get_rank() in found.odd:
            return ReplicaDisagreement(text)
        return PeerDisagreed(f"lost its peers: {ranks_text(found.odd)} differed from its replicas after step {step}")

    def _held(self) -> Iterator[Held]:
        """Parameters and optimizer state, by name."""
        assert self._model is not None
        assert self._optimizer is not None
        for name, parameter in self._model.named_parameters():
            place, local = _place(parameter)
            if _is_plain(local):
                yield Held(name, place, local)
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor) and value.dim() > 0:  # counters are alike on shards, too
                    own, its = _place(value)
                    own = own or place  # plain state of a shard belongs to that shard
                    if _is_plain(its):
                        yield Held(f"{name}/{key}", own, its)


def _place(tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Which part of the whole this is, and the part. Empty: all of it."""
    if not isinstance(tensor, DTensor):
        return "", tensor.detach()
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    parts = [
        f"{placement.dim}:{coordinate[axis]}/{mesh.size(axis)}" if isinstance(placement, Shard) else str(placement)
        for axis, placement in enumerate(tensor.placements)
        if not placement.is_replicate()
    ]
    return ",".join(parts), tensor.to_local().detach()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Its memory is its value."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta


def _classes(held: Any) -> Iterator[Class]:
    """What lies at one place of the mesh is one class: other ranks hold all of it, or none."""
    by_place: dict[str, list[Held]] = {}
    for each in held:
        by_place.setdefault(each.place, []).append(each)
    for place, tensors in sorted(by_place.items()):
        ordered = sorted(tensors, key=lambda each: each.name)
        words = [place, *(f"{each.name} {tuple(each.local.shape)} {each.local.dtype}" for each in ordered)]
        number = int.from_bytes(hashlib.blake2b("\n".join(words).encode(), digest_size=8).digest(), "little") >> 1
        yield Class(number, tuple(each.name for each in ordered))


def sums(held: Mapping[str, Held], names: tuple[str, ...]) -> torch.Tensor:
    """The sum of the bits of each tensor."""
    return torch.stack([checksum(held[name].local) for name in names]).cpu()


def digest(held: Mapping[str, Held], names: tuple[str, ...]) -> int:
    """All sums as one number."""
    found = sums(held, names)
    return int((found * (2 * torch.arange(len(names)) + 1)).sum())


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor's memory as integers of 64 bits, which wraps: a single flipped bit always changes it."""
    flat = tensor.contiguous().view(-1)
    flat = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
    size = flat.element_size()
    each = 8 // size
    whole = flat.numel() // each * each
    if flat.storage_offset() * size % 8:
        return flat.view(_INTEGERS[size]).sum(dtype=torch.int64)
    total = flat[:whole].view(torch.int64).sum()
    return total + flat[whole:].view(_INTEGERS[size]).sum(dtype=torch.int64)
