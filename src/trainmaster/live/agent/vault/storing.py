"""Checkpoints from snapshots: the part of this host, and, where rank 0 is, the whole.

One thread writes the shards of our ranks, one after the other (each at the speed of the disk, with threads of its own).
Where rank 0 is, another one waits for everybody's parts and publishes; it then tells all vaults what came of it, and
each tells its ranks. A host that does not hear it (it was away) has ranks that see an old number, no more.

A store of an older membership is given up as soon as there is a newer one, unless all parts are there.
"""

import contextlib
import queue
import socket
import sys
import threading
from typing import Final

from trainmaster.core.agent.vault_talk import Place
from trainmaster.core.checkpoint.index import Outline
from trainmaster.core.checkpoint.parts import Order, size_of
from trainmaster.core.checkpoint.position import Position
from trainmaster.live.agent.vault.arenas import OwnArena
from trainmaster.live.agent.vault.frames import Outcome, connected, send
from trainmaster.live.agent.vault.sending import Limits
from trainmaster.storage.arena import Snapshot
from trainmaster.storage.parts import Outrun, Shard, Staging, StoreFailed

_REMEMBERED: Final = 8
"""Stores whose end is remembered, so that what comes late is not begun again."""


class Round:
    """The storing of one step, as far as this host has to do with it. `publishes`: rank 0 is here. `hosts` are the
    names of those of each rank."""

    def __init__(self, order: Order, publishes: bool, places: tuple[Place, ...], hosts: dict[int, str]) -> None:
        self.order, self.publishes, self.places, self.hosts = order, publishes, places, hosts
        self.cancel = threading.Event()
        self.staging = Staging(order, self.cancel)
        self.owners: dict[int, OwnArena] = {}
        self.outline: Outline | None = None
        self.position: Position | None = None
        self.ended = False

    @property
    def key(self) -> tuple[int, int]:
        return self.order.epoch, self.order.step


class Writing:
    """One shard that is to be written."""

    def __init__(self, round_: Round, rank: int, own: OwnArena, sequence: int) -> None:
        self.round, self.rank, self.own, self.sequence = round_, rank, own, sequence


class Storer:
    def __init__(self, own: Place, limits: Limits) -> None:
        self._own, self._limits = own, limits
        self._writer = f"{own.host}"
        self._lock = threading.Lock()
        self._rounds: dict[tuple[int, int], Round] = {}
        self._early: dict[tuple[int, int], Outcome] = {}
        self._writings: queue.SimpleQueue[Writing] = queue.SimpleQueue()
        self._publishing: queue.SimpleQueue[Round] = queue.SimpleQueue()
        threading.Thread(target=self._write_all, name="vault-write", daemon=True).start()
        threading.Thread(target=self._publish_all, name="vault-publish", daemon=True).start()

    def store(self, round_: Round, rank: int, own: OwnArena, sequence: int) -> None:
        """Adds the shard of a rank to the round of its step; a round like this one that is known already is taken."""
        with self._lock:
            known = self._rounds.setdefault(round_.key, round_)
            if rank in known.owners:
                return
            known.owners[rank] = own
            early = self._early.pop(round_.key, None)
            for key in sorted(self._rounds)[:-_REMEMBERED]:
                if self._rounds[key].ended:
                    del self._rounds[key]
        if early is not None:
            self._end(known, early)
        self._writings.put(Writing(known, rank, own, sequence))

    def drop_before(self, epoch: int) -> None:
        """Gives up what older memberships store."""
        with self._lock:
            for round_ in self._rounds.values():
                if round_.order.epoch < epoch:
                    round_.cancel.set()

    def told(self, outcome: Outcome) -> None:
        """The vault of rank 0 says what came of a round."""
        with self._lock:
            round_ = self._rounds.get((outcome.epoch, outcome.step))
            if round_ is None:  # it failed before our ranks have asked for it
                self._early = {(outcome.epoch, outcome.step): outcome}
        if round_ is not None and round_.order.attempt == outcome.attempt:
            self._end(round_, outcome)

    # --- our shards ---

    def _write_all(self) -> None:
        while True:
            writing = self._writings.get()
            round_ = writing.round
            try:
                self._write(writing)
            except Outrun as outrun:
                self._outrun(round_, outrun)
            except (StoreFailed, OSError) as error:
                if round_.publishes:
                    self._fail(round_, str(error))
                elif not round_.ended:
                    _say(f"step {round_.order.step} of rank {writing.rank} was not written: {error}")
            finally:
                writing.own.busy(0)

    def _write(self, writing: Writing) -> None:
        """Raises `Outrun`, `StoreFailed`, `OSError`."""
        round_, staging = writing.round, writing.round.staging
        if round_.ended:
            return
        writing.own.busy(writing.sequence)
        snapshot = writing.own.arena.find(writing.sequence)
        shard = _shard(writing, snapshot, round_.order)
        if round_.publishes:
            needed_bytes = size_of(snapshot.table.outline) if snapshot is not None else 0
            staging.open(needed_bytes)
            if staging.is_complete():
                self._publishing.put(round_)
                return
        else:
            staging.await_opened(self._limits.store_s)
        if not staging.holds(shard):
            self._put(staging, shard, snapshot)
        if writing.rank == 0 and snapshot is not None:
            round_.outline, round_.position = snapshot.table.outline, snapshot.table.position
            self._publishing.put(round_)

    def _put(self, staging: Staging, shard: Shard, snapshot: Snapshot | None) -> None:
        """Writes a shard and says so, or says why not. Raises `StoreFailed`, `Outrun`, `OSError`."""
        try:
            if snapshot is None:
                raise StoreFailed("its snapshot was taken over by a newer one before it could be stored")
            part = staging.write(shard, snapshot.payload, self._writer)
            if not snapshot.is_whole():
                raise StoreFailed("its snapshot was written over while it was stored")
            staging.put(part)
        except (OSError, StoreFailed) as error:
            with contextlib.suppress(OSError):  # the directory is gone or full; who waits says that nothing came
                staging.fail(shard, self._writer, str(error))
            raise

    # --- the whole ---

    def _publish_all(self) -> None:
        while True:
            round_ = self._publishing.get()
            if round_.ended:
                continue
            try:
                complaint = self._publish(round_)
            except Outrun as outrun:
                self._outrun(round_, outrun)
            except (StoreFailed, OSError) as error:
                self._fail(round_, str(error))
            else:
                self._tell(round_, stored=True, note=complaint)

    def _publish(self, round_: Round) -> str:
        """A complaint, or nothing. Raises `Outrun`, `StoreFailed`, `OSError`."""
        staging, complaints = round_.staging, []
        if not staging.is_complete():
            assert round_.outline is not None
            assert round_.position is not None
            parts = staging.gather(round_.position, round_.hosts, self._limits.store_s)
            complaints.append(staging.assemble(parts, round_.outline, round_.position))
        complaints += [staging.publish(), staging.retire()]
        return "; ".join(filter(None, complaints))

    def _outrun(self, round_: Round, outrun: Outrun) -> None:
        if round_.publishes:
            round_.staging.discard("", 0)
        note = "" if outrun.published else f"step {round_.order.step} was not stored from memory: {outrun}"
        self._tell(round_, stored=outrun.published, note=note)

    def _fail(self, round_: Round, why: str) -> None:
        needed_bytes = size_of(round_.outline) if round_.outline is not None else 0
        told = round_.staging.discard(why, needed_bytes)
        self._tell(round_, stored=False, note=f"step {round_.order.step} was not stored from memory: {told}")

    # --- what came of it ---

    def _tell(self, round_: Round, *, stored: bool, note: str) -> None:
        """Ends a round here, and where rank 0 is, everywhere."""
        order = round_.order
        outcome = Outcome(attempt=order.attempt, epoch=order.epoch, step=order.step, stored=stored, note=note)
        self._end(round_, outcome)
        if not round_.publishes:
            return
        for place in round_.places:
            if place != self._own:
                try:
                    with connected(place, self._writer, self._limits.silent_s) as connection:
                        send(connection, outcome)
                        connection.shutdown(socket.SHUT_WR)
                except OSError as error:
                    _say(f"{place.host} was not told what came of step {order.step}: {error}")

    def _end(self, round_: Round, outcome: Outcome) -> None:
        with self._lock:
            if round_.ended:
                return
            round_.ended = True
            owners = list(round_.owners.values())
        round_.cancel.set()
        if outcome.note:
            _say(outcome.note)
        for own in owners:
            if outcome.stored:
                own.stored(outcome.step, outcome.note)
            else:
                own.not_stored(outcome.note)


def _shard(writing: Writing, snapshot: Snapshot | None, order: Order) -> Shard:
    if snapshot is None:
        nowhere = Position(samples=0, global_batch=0, step=order.step)
        return Shard(rank=writing.rank, sequence=writing.sequence, position=nowhere, items=())
    table = snapshot.table
    return Shard(rank=writing.rank, sequence=writing.sequence, position=table.position, items=table.items)


def _say(sentence: str) -> None:
    print(f"vault: {sentence}", file=sys.stderr, flush=True)
