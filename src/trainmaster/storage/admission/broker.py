"""The broker of a store on this host: one thread, one selector, the policy of the core.

It never waits for anybody: sockets don't block, and who doesn't take what it is told is closed. Time is the monotonic
clock. A save's report is made when as many of its writers have gone as it said that it has.
"""

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value, encode
from trainmaster.core.storage.admission import Admission, Refusal
from trainmaster.core.storage.classes import Kind, Policy
from trainmaster.core.storage.turns import SaveReport, Turn, report
from trainmaster.storage.admission.talk import (
    ALIVE_S,
    PACKET_BYTES,
    Done,
    Granted,
    Open,
    Refused,
    Waits,
    Want,
    Welcome,
    address,
    is_ours,
    to_broker,
)

_BACKLOG: Final = 512
_SAVES_MAX: Final = 64
"""Of saves whose writers have not all gone, so many are remembered for their report."""


class _Peer:
    """A connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.opened: Open | None = None
        self.waits = 0


class Broker:
    """Serves from `begin` to `end`. `told` hears what became of each save, in the broker's thread."""

    def __init__(self, root: Path, policy: Policy, told: Callable[[SaveReport], object] = lambda _: None) -> None:
        self._policy, self._told = policy, told
        self._admission = Admission(policy, _now())
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(address(root))
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(_BACKLOG)
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._peers: dict[socket.socket, _Peer] = {}
        self._by_writer: dict[str, _Peer] = {}
        self._turns: dict[str, list[Turn]] = {}
        self._thread = threading.Thread(target=self._serve, name="admission", daemon=True)
        self._alive_at = 0.0

    @classmethod
    def first(
        cls, root: Path, policy: Policy, told: Callable[[SaveReport], object] = lambda _: None
    ) -> "Broker | None":
        """The broker of a store, serving; None if another process is that already. Raises `OSError`."""
        try:
            broker = cls(root, policy, told)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        broker.begin()
        return broker

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Closes all connections; those who ask go on without."""
        self._waker.close()
        self._thread.join()

    def moved(self) -> dict[Kind, int]:
        """Bytes of each class that were moved, until now."""
        return self._admission.moved()

    def _serve(self) -> None:
        with contextlib.ExitStack() as closing:
            closing.callback(self._close_all)
            while True:
                for key, _ in self._selector.select(self._pause_s()):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._peers:  # it may have been closed a moment ago
                        self._hear(self._peers[key.fileobj])
                self._grant()
                self._tell_alive()

    def _pause_s(self) -> float:
        now = _now()
        later = self._admission.next_at(now)
        return ALIVE_S if later is None else min(ALIVE_S, max(0.0, (later - now) / 1e6))

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            if not is_ours(connection):
                connection.close()
                return
            self._peers[connection] = _Peer(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, peer: _Peer) -> None:
        """One message, or its end."""
        try:
            data = peer.connection.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        try:
            self._do(peer, to_broker.decode(data))
        except msgspec.MsgspecError as error:
            self._send(peer, Refused(token="bad-message", sentence=f"a message of another version: {error}"))
            self._drop(peer)
        except Refusal as refusal:
            self._send(peer, Refused(token=refusal.problem.token, sentence=refusal.problem.sentence))
            self._drop(peer)

    def _do(self, peer: _Peer, message: Open | Want | Done) -> None:
        """Raises `Refusal`."""
        now = _now()
        writer = peer.opened.writer if peer.opened is not None else ""
        match message:
            case Open() if peer.opened is None:
                self._admission.open(message.writer, message.kind, message.size_bytes, now, message.save)
                peer.opened = message
                self._by_writer[message.writer] = peer
                self._send(peer, Welcome(quantum_bytes=self._policy.quantum_bytes))
            case Want():
                self._admission.want(writer, message.size_bytes, now)
                peer.waits += 1
            case Done():
                self._admission.done(writer, message.size_bytes, now)
            case _:
                self._drop(peer)

    def _grant(self) -> None:
        for grant in self._admission.grants(_now()):
            peer = self._by_writer[grant.writer]
            peer.waits -= 1
            self._send(peer, Granted(size_bytes=grant.size_bytes))

    def _tell_alive(self) -> None:
        now_s = time.monotonic()
        if now_s < self._alive_at:
            return
        self._alive_at = now_s + ALIVE_S
        self._admission.lapse(_now())
        for peer in list(self._peers.values()):
            if peer.waits:
                self._send(peer, Waits())

    def _send(self, peer: _Peer, message: Value) -> None:
        """What can't be sent is not told: the peer is gone, which its end of the connection says, or hangs, which its
        lease ends."""
        with contextlib.suppress(OSError):
            peer.connection.send(encode(message))

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection, None) is None:
            return
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer.opened is None:
            return
        del self._by_writer[peer.opened.writer]
        turn = self._admission.close(peer.opened.writer, _now())
        if turn.save:
            self._count(turn, peer.opened.writers)

    def _count(self, turn: Turn, writers: int) -> None:
        turns = self._turns.setdefault(turn.save, [])
        turns.append(turn)
        if len(turns) >= writers:
            del self._turns[turn.save]
            self._told(report(turns))
        while len(self._turns) > _SAVES_MAX:
            del self._turns[next(iter(self._turns))]

    def _close_all(self) -> None:
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._selector.close()
        for each in (self._listener, self._woken):
            each.close()


def _now() -> Instant:
    return Instant(time.monotonic_ns() // 1000)
