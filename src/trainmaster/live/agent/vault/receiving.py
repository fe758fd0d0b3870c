"""Replicas: snapshots of other hosts' ranks, taken in over TCP into arenas of our own.

One thread for each connection. What arrives goes into a part that holds nothing, and is declared whole only after all
of it has been compared and the sender has said that it was whole until then; so whatever breaks off leaves the last
replica as it was. A rank has one sender: who comes later takes over from one who may hang in a dead connection, unless
it is of an older membership.
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.core.agent.vault_talk import REPLICA_PREFIX
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.live.agent.vault.frames import (
    Answer,
    Broken,
    Commit,
    Offer,
    Outcome,
    await_more,
    receive,
    receive_blocks,
    receive_message,
    send,
    timed,
    welcome,
)
from trainmaster.storage import arena as arenas
from trainmaster.storage.arena import Arena, Part

_SPARE_BYTES: Final = 1 << 20
_BACKLOG: Final = 1024


class Held:
    """The replica of one rank: whose turn it is to write it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: socket.socket | None = None
        self.epoch = 0
        self.arena: Arena | None = None
        self.file: int | None = None


class Receiver:
    """Takes in what other vaults send to `listener`. `told` is called with the outcome of a store."""

    def __init__(
        self, listener: socket.socket, token: str, directory: Path, told: Callable[[Outcome], None], silent_s: float
    ) -> None:
        self._listener, self._token, self._directory, self._told = listener, token, directory, told
        self._silent_s = silent_s
        self._held: dict[int, Held] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        self._listener.listen(_BACKLOG)
        threading.Thread(target=self._accept, name="vault-accept", daemon=True).start()

    def keep_only(self, ranks: frozenset[int]) -> None:
        """Removes the replicas of all other ranks: their hosts have other peers now, and newer copies there."""
        for path in self._directory.glob(f"{REPLICA_PREFIX}*"):
            rank = path.name.removeprefix(REPLICA_PREFIX).partition(".")[0]
            if int(rank) not in ranks:
                path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="vault-replica", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                timed(connection, self._silent_s)
                hello = welcome(connection, self._token)
            except (Broken, OSError, EOFError) as error:
                _say(f"a connection was refused: {error}")
                return
            try:
                while await_more(connection):
                    message = receive_message(connection)
                    match message:
                        case Offer():
                            self._take(connection, message)
                        case Outcome():
                            self._told(message)
            except EOFError:
                return  # they have said what they had to
            except (Broken, OSError) as error:
                _say(f"{hello.host} broke off: {error}")

    def _take(self, connection: socket.socket, offer: Offer) -> None:
        """Raises `Broken`, `OSError`, `EOFError`."""
        rank, epoch = offer.table.rank, offer.table.epoch
        with self._lock:
            held = self._held.setdefault(rank, Held())
            if epoch < held.epoch:
                send(connection, Answer(yes=False, why=f"epoch {held.epoch} is under way", final=True))
                return
            held.epoch = epoch
            last, held.connection = held.connection, connection
        if last is not None and last is not connection:
            with contextlib.suppress(OSError):  # it has gone by itself
                last.shutdown(socket.SHUT_RDWR)
        with held.lock:
            try:
                self._fill(connection, offer, held)
            finally:
                with self._lock:
                    if held.connection is connection:
                        held.connection = None

    def _fill(self, connection: socket.socket, offer: Offer, held: Held) -> None:
        try:
            part = self._part(offer, held)
        except OSError as error:
            send(connection, Answer(yes=False, why=f"no memory for a replica: {error}", final=True))
            return
        send(connection, Answer(yes=True))
        try:
            sums = receive_blocks(connection, part.payload[: offer.payload_bytes])
            receive(connection, Commit)
        except Broken as error:
            send(connection, Answer(yes=False, why=str(error)))
            _drain(connection)
            raise
        part.commit(offer.table.but(sums=sums), offer.payload_bytes)
        send(connection, Answer(yes=True))

    def _part(self, offer: Offer, held: Held) -> Part:
        """Where an offer goes, which is declared empty by now. Raises `OSError` if there is not enough memory."""
        path = self._directory / f"{REPLICA_PREFIX}{offer.table.rank}"
        table_bytes = 2 * len(encode(offer.table)) + offer.payload_bytes // BLOCK_BYTES * 8 + _SPARE_BYTES
        if held.arena is not None and held.file == _inode(path):
            if len(held.arena.snapshots()) > 1:  # so all ranks have one that is newer than what was set aside
                arenas.before(path).unlink(missing_ok=True)
            part = held.arena.begin()
            assert part is not None, "nobody stores replicas, so one of three parts is free"
            if len(part.table) >= table_bytes and len(part.payload) >= offer.payload_bytes:
                return part
        held.arena = arenas.open_file(path, table_bytes, offer.payload_bytes + _SPARE_BYTES)
        held.file = _inode(path)
        part = held.arena.begin()
        assert part is not None, "nobody stores replicas, so one of three parts is free"
        return part


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _drain(connection: socket.socket) -> None:
    """Lets the other side read an answer: a connection that is closed with bytes unread takes the answer along."""
    connection.shutdown(socket.SHUT_WR)
    scrap = bytearray(1 << 20)
    with contextlib.suppress(OSError):
        while connection.recv_into(scrap):
            continue


def _say(sentence: str) -> None:
    print(f"vault: {sentence}", file=sys.stderr, flush=True)
