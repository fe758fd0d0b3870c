"""Copies of our ranks' snapshots, sent to the vault of a peer host. One thread for each rank.

Only the newest snapshot is of interest: a newer one takes the place of one that is being tried, and so does a newer
membership. A try that breaks off (a bit that flipped on the way, a peer that was started anew, a connection that went)
is made again from the beginning, after a growing pause, until it works or its time is over: then the rank is told that
there is no copy, and why, and training goes on with the copy that there was. A peer that is slow but moves has the same
time. What is sent from is a part that the rank may need again: so at the end it is looked whether it was whole until
then, and only then the other side is told to hold it.
"""

import contextlib
import socket
import sys
import threading
import time
from typing import Final

from trainmaster.core.agent.vault_talk import Place
from trainmaster.core.base.value import Value
from trainmaster.live.agent.vault.arenas import OwnArena
from trainmaster.live.agent.vault.frames import (
    Answer,
    Broken,
    Commit,
    Offer,
    Refused,
    connected,
    receive,
    send,
    send_blocks,
    timed,
)
from trainmaster.storage.arena import Snapshot

_PAUSE_S: Final = 0.05
_PAUSE_LONG_S: Final = 1.0
_SLOWEST_BYTES_S: Final = 256 << 20
"""A copy has a second more for so many bytes."""


class Limits(Value):
    """How long the vault waits, in seconds. `silent_s`: for one call on a connection to move a byte. `copy_s`: for a
    copy at a peer, all tries together (large ones have more). `store_s`: for the parts of all others."""

    silent_s: float = 5.0
    copy_s: float = 30.0
    store_s: float = 300.0


class Overtaken(Exception):
    """There is something newer to send."""


class Wish:
    """A snapshot that is to be copied to a peer."""

    def __init__(self, own: OwnArena, sequence: int, epoch: int, peer: Place | None) -> None:
        self.own, self.sequence, self.epoch, self.peer = own, sequence, epoch, peer


class Sender:
    """Sends the snapshots of one rank."""

    def __init__(self, rank: int, host: str, limits: Limits) -> None:
        self._rank, self._host, self._limits = rank, host, limits
        self._changed = threading.Condition()
        self._wish: Wish | None = None
        self._connection: socket.socket | None = None
        self._connected_to: Place | None = None
        threading.Thread(target=self._work, name=f"vault-send-{rank}", daemon=True).start()

    def want(self, wish: Wish) -> None:
        """In place of what is wanted until now."""
        with self._changed:
            self._wish = wish
            self._changed.notify()

    def drop_before(self, epoch: int) -> None:
        """What older memberships wanted is of no interest any more."""
        with self._changed:
            if self._wish is not None and self._wish.epoch < epoch:
                self._wish = None
                self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wish is not None)
                wish = self._wish
            assert wish is not None
            with contextlib.suppress(Overtaken):
                self._satisfy(wish)
            with self._changed:
                if self._wish is wish:
                    self._wish = None

    def _satisfy(self, wish: Wish) -> None:
        """Tries until it is there or the time is over. Raises `Overtaken`."""
        if wish.peer is None:
            wish.own.given_up(wish.sequence, "there is no other host with a vault, so snapshots have no copy")
            return
        snapshot = wish.own.arena.find(wish.sequence)
        if snapshot is None:
            raise Overtaken
        copy_s = self._limits.copy_s + len(snapshot.payload) / _SLOWEST_BYTES_S
        deadline = time.monotonic() + copy_s
        pause_s = _PAUSE_S
        while True:
            try:
                self._copy(wish, wish.peer, snapshot, deadline)
                wish.own.replicated(wish.sequence)
                return
            except (OSError, EOFError, Broken, Refused) as error:
                self._hang_up()
                final = isinstance(error, Refused) and error.final
                why = f"the snapshot of rank {self._rank} has no copy on {wish.peer.host}: {error}"
            _say(why)
            if final or time.monotonic() + pause_s > deadline:
                wish.own.given_up(wish.sequence, why)
                return
            self._pause(wish, pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LONG_S)

    def _copy(self, wish: Wish, peer: Place, snapshot: Snapshot, deadline: float) -> None:
        """Raises `Overtaken`, `Refused`, `Broken`, `OSError`, `EOFError`."""
        if not snapshot.is_whole():
            raise Overtaken
        if self._connected_to != peer:
            self._hang_up()
        if self._connection is None:
            self._connection = connected(peer, self._host, self._limits.silent_s)
            self._connected_to = peer
        connection = self._connection
        send(
            connection,
            Offer(sequence=wish.sequence, payload_bytes=len(snapshot.payload), table=snapshot.table.but(sums="")),
        )
        timed(connection, max(self._limits.silent_s, deadline - time.monotonic()))  # it may have to make an arena first
        _agreed(connection)
        timed(connection, self._limits.silent_s)
        self._send_payload(wish, snapshot, connection, deadline)
        _agreed(connection)

    def _send_payload(self, wish: Wish, snapshot: Snapshot, connection: socket.socket, deadline: float) -> None:
        def go_on() -> None:
            if self._wish is not wish:
                raise Overtaken
            if time.monotonic() > deadline:
                raise TimeoutError("it takes too long")

        try:
            if not send_blocks(connection, snapshot.payload, go_on):
                return  # the answer that follows says why
            if not snapshot.is_whole():
                raise Overtaken
        except Overtaken:
            self._hang_up()  # in the middle of an offer
            raise
        send(connection, Commit(sequence=wish.sequence))

    def _pause(self, wish: Wish, pause_s: float) -> None:
        """Raises `Overtaken`."""
        with self._changed:
            if self._changed.wait_for(lambda: self._wish is not wish, pause_s):
                raise Overtaken

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._connected_to = None


def _agreed(connection: socket.socket) -> None:
    answer = receive(connection, Answer)
    if not answer.yes:
        raise Refused(answer)


def _say(sentence: str) -> None:
    print(f"vault: {sentence}", file=sys.stderr, flush=True)
