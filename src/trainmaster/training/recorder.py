"""The recorder: notes when this rank enters and leaves each collective, in a ring that others can read.

    recorder = Recorder(path, rank, world)      # a file of core/agent/ring.py's layout, beside the board
    recorder.install()                          # torch.distributed's collectives now pass through it

The entry points of `torch.distributed` are replaced by functions that call them, with `uninstall` putting the old ones
back. What a library took by `from torch.distributed import all_reduce` before the installation is not seen; what C++
issues by itself is seen as far as it can be (`watched.py`). Returned `Work` objects stay what they are, since libraries
ask for their type; the class's `wait` is replaced instead, so that waiting for an asynchronous collective is seen too.

A note is one store of 64 bytes and one or two of eight; there is no lock: the interpreter runs one thread at a time,
and numbers come from a counter that is atomic under it. `TRAINMASTER_RECORDER=0` switches it off.
"""

import inspect
import itertools
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from trainmaster.core.agent.ring import (
    CAPACITY,
    HEADER_SIZE,
    LEFT,
    LEFT_OFFSET,
    OPS,
    RECORD,
    RECORD_SIZE,
    SIZE,
    WAITED_OFFSET,
    Ring,
    Slow,
)
from trainmaster.training.watched import Mode, hooked

OFF: Final = "TRAINMASTER_RECORDER"
_INPUTS: Final = {
    "all_reduce": 0, "broadcast": 0, "reduce": 0, "all_gather": 1, "all_gather_into_tensor": 1, "reduce_scatter": 1,
    "reduce_scatter_tensor": 1, "gather": 0, "scatter": 0, "all_to_all": 1, "all_to_all_single": 1, "barrier": -1,
    "monitored_barrier": -1,
}  # fmt: skip
"""What is recorded, and which argument is sent. Collectives of objects consist of these."""
_OPEN_MAX: Final = 4096
Entry = Callable[..., Any]


def wanted() -> bool:
    return os.environ.get(OFF, "") not in ("0", "off", "no", "false")


class Recorder:
    """One a process."""

    def __init__(self, path: Path, rank: int, world: int) -> None:
        """Makes the file. Raises `OSError`, also if the memory file system is full."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, SIZE)
            self._page = mmap.mmap(handle, SIZE)
        finally:
            os.close(handle)
        self._view = memoryview(self._page)
        self._ring = Ring(self._view)
        self._ring.clear(os.getpid())
        self.rank, self.step = rank, 0
        self._numbers = itertools.count(1)
        self._groups: dict[str, tuple[int, Iterator[int]]] = {}
        self._default = self._ring.add_group("0", tuple(range(world))), itertools.count(1)
        self._slow = int(Slow.NONE)
        self._replaced: list[tuple[Any, str, Entry]] = []
        self._open: dict[int, int] = {}
        """Number of the note of each asynchronous collective that nobody has waited for, by the id of its `Work`."""
        self.mode = Mode(self)
        self.mark(Slow.START)

    @property
    def slow(self) -> Slow:
        """The present phase."""
        return Slow(self._slow)

    def completed(self, step: int) -> None:
        """A step is done; the first one ends the start."""
        self.step = step
        self.mode.completed()
        if self._slow == Slow.START:
            self.mark(Slow.NONE)

    def waited_for_data(self, wait_us: int) -> None:
        """The present step waited so long for its data."""
        self._ring.add_data_wait(self.step, wait_us)

    def mark(self, slow: Slow) -> None:
        """The phase that begins now."""
        self._slow = int(slow)
        self._ring.mark_slow(self._slow, time.time_ns() // 1000)

    @contextmanager
    def phase(self, slow: Slow) -> Iterator[None]:
        """Marks a phase that takes long by nature, for as long as the block runs."""
        before = Slow(self._slow)
        self.mark(slow)
        try:
            yield
        finally:
            self.mark(before)

    def install(self) -> None:
        assert not self._replaced, "installed twice"
        for name, place in _INPUTS.items():
            original = getattr(c10d, name)
            recorded = self.recorded(name, place, original)
            for module in (c10d, dist):
                self._replaced.append((module, name, getattr(module, name)))
                setattr(module, name, recorded)
        self._replaced.append((c10d.Work, "wait", c10d.Work.wait))
        c10d.Work.wait = self._waiting(c10d.Work.wait)
        self._replace(DistributedDataParallel, "_pre_forward", hooked(self, DistributedDataParallel._pre_forward))
        self._replace(torch.nn.Module, "train", self.mode.wrapped(torch.nn.Module.train))

    def _replace(self, owner: Any, name: str, other: Entry) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, other)

    def uninstall(self) -> None:
        for owner, name, original in reversed(self._replaced):
            setattr(owner, name, original)
        self._replaced.clear()

    def close(self) -> None:
        """The file stays."""
        self.uninstall()
        self._view.release()
        self._page.close()

    def recorded(self, name: str, place: int, original: Entry) -> Entry:
        """The entry point that notes and calls `original`."""
        parameters = list(inspect.signature(original).parameters)
        group_at, async_at = parameters.index("group"), _index(parameters, "async_op")
        sent = parameters[place] if place >= 0 else ""
        op, view, now, put, write = OPS.index(name), self._view, time.time_ns, LEFT.pack_into, RECORD.pack_into
        numbers, group_of, open_, default = self._numbers, self._group, self._open, self._default

        def recorded(*arguments: Any, **named: Any) -> Any:
            given = len(arguments)
            group = arguments[group_at] if given > group_at else named.get("group") if named else None
            known = default if group is None else group_of(group)
            if known is None:
                return original(*arguments, **named)
            index, sequence = known
            later = arguments[async_at] if 0 <= async_at < given else named.get("async_op", False) if named else False
            value: Any = arguments[place] if given > place >= 0 else named.get(sent) if named else None
            try:
                size = value.nbytes
            except AttributeError:  # no tensor: a list of them, or nothing
                size = sum(each.nbytes for each in value) if isinstance(value, list | tuple) else 0
            number = next(numbers)
            offset = HEADER_SIZE + (number - 1) % CAPACITY * RECORD_SIZE
            at = now() // 1000
            write(view, offset, number, next(sequence), index, op, size, at, 0 if later else at, 0, self.step,
                  self._slow, 1 if later else 0, number)  # fmt: skip
            result = original(*arguments, **named)
            if later and result is not None:
                if len(open_) >= _OPEN_MAX:
                    open_.clear()
                open_[id(result)] = number
            else:
                put(view, offset + LEFT_OFFSET, now() // 1000)
            return result

        recorded.__name__, recorded.__doc__ = original.__name__, original.__doc__
        recorded.__wrapped__ = original  # type: ignore[attr-defined]  # as functools.wraps does
        return recorded

    def _waiting(self, original: Entry) -> Entry:
        view, now, put, open_ = self._view, time.time_ns, LEFT.pack_into, self._open

        def wait(work: Any, *arguments: Any, **named: Any) -> Any:
            number = open_.pop(id(work), 0)
            offset = HEADER_SIZE + (number - 1) % CAPACITY * RECORD_SIZE
            if not number or LEFT.unpack_from(view, offset)[0] != number:  # not ours, or overwritten since
                return original(work, *arguments, **named)
            put(view, offset + WAITED_OFFSET, now() // 1000)
            result = original(work, *arguments, **named)
            if LEFT.unpack_from(view, offset)[0] == number:
                put(view, offset + LEFT_OFFSET, now() // 1000)
            return result

        return wait

    # --- for collectives that are waited for elsewhere

    def claim(self, work: Any) -> int:
        """The number of the note of an asynchronous collective, whose end is told by `leave`; 0: it has none."""
        return self._open.pop(id(work), 0)

    def wait_for(self, numbers: Iterable[int]) -> None:
        """From now on somebody waits for those that are open."""
        at = time.time_ns() // 1000
        for number in numbers:
            offset = self._offset(number)
            if offset is not None and not LEFT.unpack_from(self._view, offset + LEFT_OFFSET)[0]:
                LEFT.pack_into(self._view, offset + WAITED_OFFSET, at)

    def leave(self, number: int) -> None:
        offset = self._offset(number)
        if offset is not None:
            LEFT.pack_into(self._view, offset + LEFT_OFFSET, time.time_ns() // 1000)

    def _offset(self, number: int) -> int | None:
        """Where the note lies; None: it was overwritten, or there is none (any more)."""
        if self._page.closed:
            return None
        offset = HEADER_SIZE + (number - 1) % CAPACITY * RECORD_SIZE
        return offset if number and LEFT.unpack_from(self._view, offset)[0] == number else None

    def _group(self, group: Any) -> tuple[int, Iterator[int]] | None:
        """(index, sequence numbers) of a process group; None: this rank is no member, or it is no group of theirs."""
        if group is c10d.GroupMember.WORLD:
            return self._default
        if not isinstance(group, dist.ProcessGroup):
            return None
        known = self._groups.get(group.group_name)
        if known is None:
            ranks = tuple(sorted(dist.get_process_group_ranks(group)))
            known = self._groups[group.group_name] = (
                self._ring.add_group(group.group_name, ranks), itertools.count(1),
            )  # fmt: skip
        return known


def _index(names: list[str], name: str) -> int:
    return names.index(name) if name in names else -1


def record(board: Path | None, rank: int, world: int) -> Recorder | None:
    """The installed recorder of a rank, and a way for its agent to get the stacks; None: it is switched off, or nobody
    could read it. A recorder that can't be had costs the job nothing but a line on standard error."""
    if board is None or not wanted():
        return None
    try:
        recorder = Recorder(beside(board), rank, world)
    except OSError as error:
        print(f"trainmaster: rank {rank} is not recorded: {error}", file=sys.stderr, flush=True)
        return None
    recorder.install()
    return recorder


def beside(board: Path) -> Path:
    """Where the ring of a board's rank lies."""
    return board.with_name(board.name.replace("board", "ring", 1))
