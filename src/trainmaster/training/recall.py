"""Restoring from memory: from the snapshots of the ranks and the copies that other hosts hold, at whatever world size.

All ranks tell what lies in the memory of their hosts (`storage/arena.py`) and choose alike
(`core/checkpoint/copies.py`). What a rank needs of a shard that its own host has is copied from there; the rest comes
over the process group from a rank of a host that has it, in mebibytes that are summed on arrival: by a broadcast where
all want the same, else rank to rank. The index is the one of files, and so is the load plan: a shard in memory is a
shard file. All ranks have the whole index, so each plans for itself, without `dcp.load`, whose collectives take longer
than the copying; four are left: who holds what, the tables, what to send, how it went.

Sums: a copy at a peer was summed when it was sent, and its sums hold for the snapshot that it is a copy of, too. So a
flipped bit in either is found, if there is a copy. Nothing else is known of the bytes than that memory keeps them.

What does not verify is barred, on all ranks, and the choice made again; what is left of the state then is undefined, as
with files. Rejected: to let each rank take the newest that it has (steps would differ), and to send whole shards to
every rank (at another world size most of it is not needed).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan
from torch.distributed.checkpoint.storage import StorageReader

from trainmaster.core.agent.board import Origin
from trainmaster.core.agent.vault_talk import ARENA_PREFIX, REPLICA_PREFIX
from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.copies import Choice, Copy, Moment, choose
from trainmaster.core.checkpoint.index import BLOCK_BYTES, Outline, index_of_items, lost_moments
from trainmaster.storage.arena import FRESH, Snapshot, Table, map_file
from trainmaster.storage.buffers import POOL
from trainmaster.storage.contents import Contents, Unsound
from trainmaster.storage.memory_store import MemorySource, file_of
from trainmaster.storage.transfer import THREADS, Damage, read, stretches
from trainmaster.training.agreement import gather
from trainmaster.training.distcp.planner import CarefulPlanner
from trainmaster.training.distcp.reader import CheckpointReader, Item, items_by_file, layers, place_of
from trainmaster.training.distrust import Distrust

Held = dict[Copy, Snapshot]


class Recall:
    """What the memory of all hosts holds of one attempt. Making it, and its methods, are collectives.

    `host` and `directory` are this rank's; ranks with both alike see the same files. What is `distrusted` is not there.
    """

    def __init__(
        self, host: str, directory: Path, job: JobId, attempt: AttemptId, distrusted: Sequence[Distrust] = ()
    ) -> None:
        self._rank = dist.get_rank()
        self._held = held_in(directory, job, attempt)
        believed = [copy for copy in self._held if not any(_covers(each, attempt, copy) for each in distrusted)]
        told = gather((host, str(directory), believed))
        keys = [(host, directory) for host, directory, _ in told]
        places = sorted(set(keys))
        self._place_of = [places.index(key) for key in keys]
        self._place = self._place_of[self._rank]
        self._held = {copy.but(place=self._place): snapshot for copy, snapshot in self._held.items()}
        firsts = [self._place_of.index(place) for place in range(len(places))]
        self._copies = [copy.but(place=place) for place, rank in enumerate(firsts) for copy in told[rank][2]]
        self._barred: set[Copy] = set()
        self.damaged = False
        """Something was loaded that can't be used, so the tensors are neither fresh nor restored."""
        self.origins: list[Origin] = []
        """Where the ranks have what was loaded last from."""

    def newest(self) -> Choice | None:
        """The newest state that is there as a whole and was not found damaged."""
        return choose(self._copies, self._barred)

    def lost(self) -> str:
        """A sentence if memory holds shards of a newer step than any that is whole; else nothing."""
        whole = self.newest()
        newest = max((copy.moment for copy in self._copies), key=lambda moment: moment.age, default=None)
        if newest is None or (whole is not None and whole.moment.position.step >= newest.position.step):
            return ""
        there = {copy.shard for copy in self._copies if copy.moment == newest and copy not in self._barred}
        missing = sorted(set(range(newest.world)) - there)
        return (
            f"step {newest.position.step} is lost: memory lacks the shards of {len(missing)} of {newest.world} ranks "
            f"(rank {missing[0] if missing else 0} first)"
        )

    def load(self, choice: Choice, state: dict[str, Any]) -> str:
        """Loads a state; what was wrong, or nothing. What was read is undefined if something was; that is then not
        chosen again."""
        reader = RecallReader(choice, self._held, self._place_of, self._tables(choice))
        failure: Exception | None = None
        try:
            reader.fill(state)
        except Exception as error:  # noqa: BLE001  (all learn of it, and choose again; a dead group ends the next line)
            failure = error
        outcomes = gather((failure, reader.origin))
        failures = {rank: cause for rank, (cause, _) in enumerate(outcomes) if cause is not None}
        if failures:
            return self._bar(choice, failures)
        self.origins = [origin for _, origin in outcomes]
        return ""

    def _tables(self, choice: Choice) -> "dict[int, _Shard]":
        """The table of each shard, from who has a copy, since it has sums; else from who took it."""
        mine: dict[int, _Shard] = {}
        for shard, holders in enumerate(choice.holders):
            teller = next((copy for copy in holders if copy.replica), holders[0])
            if teller.place == self._place and self._place_of.index(self._place) == self._rank:
                snapshot = self._held[teller]
                table = snapshot.table if shard == 0 else snapshot.table.but(outline=Outline(tensors={}))
                mine[shard] = _Shard(table=table, size_bytes=len(snapshot.payload))
        told = gather({shard: encode(each) for shard, each in mine.items()})
        return {shard: decode(data, _Shard) for each in told for shard, data in each.items()}

    def _bar(self, choice: Choice, failures: dict[int, Exception]) -> str:
        sentences = []
        self.damaged = True
        for rank, cause in failures.items():
            if isinstance(cause, Damage):
                shard = shard_of(cause.name)
                copy = choice.source(shard, self._place_of[rank], rank)
                self._barred.add(copy)
                sentences.append(f"{'a copy of ' if copy.replica else ''}the snapshot of rank {shard}: {cause}")
            else:
                self._barred.update(copy for copy in self._copies if copy.moment == choice.moment)
                sentences.append(f"rank {rank}: {cause}")
        return f"step {choice.moment.position.step} in memory can't be used: {sentences[0]}"


class _Shard(Value):
    table: Table
    size_bytes: int


class RecallReader(CheckpointReader):
    """Reads the chosen shards, each from this host or, over the process group, from another."""

    def __init__(self, choice: Choice, held: Held, place_of: Sequence[int], shards: dict[int, _Shard]) -> None:
        StorageReader.__init__(self)
        self._choice, self._held, self._place_of, self._shards = choice, held, place_of, shards
        self._rank = dist.get_rank()
        items = [item for shard in sorted(shards) for item in shards[shard].table.items]
        self._contents = Contents(manifest=None, index=index_of_items(shards[0].table.outline, items, {}))
        self.origin = Origin.OWN_MEMORY
        self._used: list[Snapshot] = []

    def fill(self, state: dict[str, Any]) -> None:
        """Loads what this rank wants, and sends what others want. A collective, which raises on this rank alone what
        concerns this rank alone: `Damage`, and whatever makes the state one that can't be loaded from here."""
        wants: dict[int, list[Item]] = {}
        mine: _Asked | None = None
        failure: Exception | None = None
        try:
            planner = CarefulPlanner()
            planner.set_up_planner(state, self.read_metadata(), self._rank == 0)
            plan = planner.create_local_plan()
            if problem := lost_moments(self.contents.index, {item.storage_index.fqn for item in plan.items}):
                raise Unsound((problem,))
            for name, items in items_by_file(plan, self.contents.index, planner).items():
                wants[shard_of(name)] = items
            mine = self._asked(wants)
            self.origin = self._origin(plan)
        except Exception as error:  # noqa: BLE001  (raised when all ranks know that one of them wants nothing)
            failure = error
        asked = gather(mine)
        if failure is not None:
            raise failure
        orders = [each for each in asked if each is not None]
        if len(orders) == len(asked):  # else another rank raises
            self._exchange(orders, wants)

    def _asked(self, wants: dict[int, list[Item]]) -> "_Asked":
        """Which stretches of which shards have to be sent to this rank."""
        asked: _Asked = {}
        for shard, items in wants.items():
            copy = self._source(shard, self._rank)
            if copy.place == self._place_of[self._rank]:
                _ = self._held[copy]  # that it is not there is said before anybody waits
            else:
                asked[shard] = [
                    (blocks.start, blocks.stop)
                    for layer in layers(items)
                    for blocks in stretches([item.want for item in layer if len(item.want.into)])
                ]
        return asked

    def _origin(self, plan: LoadPlan) -> Origin:
        """Where most of the tensors comes from; values that are no tensors may lie with any rank."""
        own = other = 0
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                continue
            copy = self._source(shard_of(place_of(item, self.contents.index).file), self._rank)
            if copy.place == self._place_of[self._rank] and not copy.replica:
                own += item.lengths.numel()
            else:
                other += item.lengths.numel()
        return Origin.OWN_MEMORY if own >= other else Origin.PEER_MEMORY

    def _source(self, shard: int, rank: int) -> Copy:
        return self._choice.source(shard, self._place_of[rank], rank)

    def _sender(self, shard: int, rank: int) -> int:
        """Who sends a shard to a rank: of the ranks of the host that has it the first, which said so."""
        return self._place_of.index(self._source(shard, rank).place)

    def _exchange(self, asked: "list[_Asked]", wants: dict[int, list[Item]]) -> None:
        """All ranks go through all transfers in one order and take part in theirs, so none waits in a circle. Damage is
        raised when all have ended. Raises `Damage`."""
        damages: list[Damage] = []

        def fill(shard: int, receive: Callable[[torch.Tensor], None] | None) -> None:
            damages.extend(self._fill(shard, wants[shard], receive))

        for shard in range(self._choice.moment.world):
            receivers = {rank: order[shard] for rank, order in enumerate(asked) if shard in order}
            self._transfer(shard, receivers, fill)
        for shard in sorted(wants.keys() - asked[self._rank].keys()):
            fill(shard, None)
        damages += [Damage(file_of(snapshot), [0]) for snapshot in self._used if not snapshot.is_whole()]
        if damages:
            raise damages[0]

    def _transfer(self, shard: int, receivers: "dict[int, _Runs]", fill: "_Fill") -> None:
        senders = {self._sender(shard, rank) for rank in receivers}
        orders = list(receivers.values())
        if len(senders) == 1 and len(receivers) == dist.get_world_size() - 1 and all(map(orders[0].__eq__, orders)):
            source = senders.pop()
            if self._rank == source:
                copy = self._source(shard, next(iter(receivers)))
                self._send(copy, orders[0], lambda stretch: dist.broadcast(stretch, source))
            else:
                fill(shard, lambda stretch: dist.broadcast(stretch, source))
            return
        for rank, runs in receivers.items():
            source = self._sender(shard, rank)
            if self._rank == source:
                copy = self._source(shard, rank)
                self._send(copy, runs, lambda stretch, rank=rank: dist.send(stretch, rank))  # type: ignore[misc]
            elif self._rank == rank:
                fill(shard, lambda stretch, source=source: dist.recv(stretch, source))  # type: ignore[misc]

    def _send(self, copy: Copy, runs: "_Runs", send: Callable[[torch.Tensor], None]) -> None:
        """Whether the copy was whole until the end is asked when all is over: others count on all of it being sent."""
        snapshot = self._held[copy]
        for start, stop in runs:
            send(torch.frombuffer(snapshot.payload[start * BLOCK_BYTES : stop * BLOCK_BYTES], dtype=torch.uint8))
        self._used.append(snapshot)

    def _fill(self, shard: int, items: list[Item], receive: Callable[[torch.Tensor], None] | None) -> list[Damage]:
        """Gets what is wanted of a shard, from the sender or from this host."""
        name, known = f"__{shard}_0.distcp", self._shards[shard]
        source: MemorySource | Arriving
        threads = 1 if receive is not None else THREADS  # what is sent comes in order
        if receive is not None:
            source = Arriving(known.size_bytes, receive)
        else:
            snapshot = self._held[self._source(shard, self._rank)]
            source = MemorySource(name, snapshot.payload)
            self._used.append(snapshot)
        damages: list[Damage] = []
        for layer in layers(items):
            try:
                read(source, name, [item.want for item in layer], known.table.sums or None, threads)
            except Damage as damage:
                damages.append(damage)  # the sender has the next layer to send all the same
            else:
                for item in layer:
                    item.arrived()
        return damages


_Runs = list[tuple[int, int]]
_Asked = dict[int, _Runs]
_Fill = Callable[[int, Callable[[torch.Tensor], None] | None], None]


class Arriving:
    """A shard that another rank sends, stretch by stretch, in the order in which they are read. See `Source`."""

    def __init__(self, size_bytes: int, receive: Callable[[torch.Tensor], None]) -> None:
        self.size_bytes, self._receive = size_bytes, receive

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        with POOL.borrow() as buffer:
            arrived = buffer[: sum(map(len, parts))]
            self._receive(torch.frombuffer(arrived, dtype=torch.uint8))
            at = 0
            for part in parts:
                part[:] = arrived[at : at + len(part)]
                at += len(part)

    def close(self) -> None:
        """There is nothing to close."""


def held_in(directory: Path, job: JobId, attempt: AttemptId) -> Held:
    """The whole snapshots in a directory that are of this attempt, at place 0. What can't be read is not there."""
    held: Held = {}
    paths = [*directory.glob(f"{ARENA_PREFIX}*"), *directory.glob(f"{REPLICA_PREFIX}*")]
    for path in sorted(path for path in paths if path.suffix != FRESH):
        arena = map_file(path)
        for snapshot in arena.snapshots() if arena is not None else ():
            table = snapshot.table
            if (table.job, table.attempt) == (job, attempt):
                copy = Copy(
                    moment=Moment(position=table.position, epoch=table.epoch, world=table.world),
                    shard=table.rank,
                    place=0,
                    file=path.name,
                    sequence=snapshot.sequence,
                    replica=path.name.startswith(REPLICA_PREFIX),
                )
                held[copy] = snapshot
    return held


def _covers(distrust: Distrust, attempt: AttemptId, copy: Copy) -> bool:
    return distrust.covers(attempt, copy.moment.epoch, copy.moment.position.step)


def shard_of(name: str) -> int:
    """The rank whose shard file has this name."""
    return int(name.removeprefix("__").partition("_")[0])
