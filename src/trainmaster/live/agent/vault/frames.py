"""What two vaults say to each other over TCP: every byte is summed by who sends it and compared by who gets it.

A value is a frame: a word that tells our frames from noise, the CRC-32 of what follows, its length, and JSON. The bytes
of a snapshot follow each other in blocks of one mebibyte, each behind its CRC-32; their number is known from the offer,
so nothing in between can be misread. TCP has a sum of its own of 16 bits, which a bad network card or a bad memory of a
switch gets past about once in 65536 times; these copies are what a job is restored from.

    > Hello     the token that the ranks brought from the other side
    > Offer     the table of a snapshot, and how many bytes it has
    < Answer    whether it is wanted
    > blocks
    > Commit    it was whole until the last block was sent
    < Answer    whether it is held now

Bytes go from the mapped arena to the socket, and from the socket into the mapped arena, without another copy. Waiting
is bounded by the kernel (`SO_SNDTIMEO`, `SO_RCVTIMEO`), for each call: a peer that moves bytes is alive.

Limit: the token is told in the clear. It keeps out those who reach the port by mistake, not those who read the network.
"""

import contextlib
import hmac
import socket
import struct
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from trainmaster.core.agent.vault_talk import Place
from trainmaster.core.base.ids import AttemptId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.storage.arena import Table
from trainmaster.storage.checksum import crc32

T = TypeVar("T")
_HEAD: Final = struct.Struct("<4sIQ")
_SUM: Final = struct.Struct("<I")
_MAGIC: Final = b"TMV1"
_HELLO_LIMIT: Final = 4096
_VALUE_LIMIT: Final = 1 << 28
_GROUP: Final = 8
"""Blocks that are summed and handed to the kernel together."""


class Hello(Value):
    """First on a connection."""

    token: str
    host: str


class Offer(Value, tag="offer", tag_field="type"):
    """A snapshot of `table.rank`. Answered twice: before the bytes, and when it is held."""

    sequence: int
    payload_bytes: int
    table: Table


class Outcome(Value, tag="outcome", tag_field="type"):
    """What became of a store that all took part in; from the vault of rank 0. No answer."""

    attempt: AttemptId
    epoch: int
    step: int
    stored: bool
    note: str


class Commit(Value):
    """Behind the last block."""

    sequence: int


class Answer(Value):
    """`final`: it makes no sense to try it again."""

    yes: bool
    why: str = ""
    final: bool = False


class Broken(Exception):
    """What arrived is not what was sent, or not what one of us says."""


class Refused(Exception):
    """The other side says no. `final`: it will say so again."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.why)
        self.final = answer.final


def timed(connection: socket.socket, silent_s: float) -> None:
    """Bounds each call on a connection: one that moves no byte for so long raises `TimeoutError`."""
    connection.settimeout(None)
    limit = struct.pack("@ll", int(silent_s), int(silent_s % 1 * 1e6))
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def connected(place: Place, host: str, silent_s: float) -> socket.socket:
    """A connection to another vault that was told who we are. Raises `OSError`."""
    connection = socket.create_connection((place.address, place.port), timeout=silent_s)
    try:
        timed(connection, silent_s)
        send(connection, Hello(token=place.token, host=host))
    except BaseException:
        connection.close()
        raise
    return connection


def welcome(connection: socket.socket, token: str) -> Hello:
    """Who is there. Raises `Broken` if they don't know the token, `OSError`."""
    hello = receive(connection, Hello, _HELLO_LIMIT)
    if not hmac.compare_digest(hello.token.encode(), token.encode()):
        raise Broken(f"{hello.host} does not know the token of this vault")
    return hello


def send(connection: socket.socket, value: Value) -> None:
    """Raises `OSError`."""
    data = encode(value)
    _send_all(connection, [memoryview(_HEAD.pack(_MAGIC, crc32(data), len(data))), memoryview(data)])


def receive(connection: socket.socket, kind: type[T], limit: int = _VALUE_LIMIT) -> T:
    """Raises `Broken`, `OSError`, `EOFError`."""
    head = bytearray(_HEAD.size)
    fill(connection, memoryview(head))
    magic, wanted, length = _HEAD.unpack(head)
    if magic != _MAGIC or length > limit:
        raise Broken("what arrived is no frame of ours")
    data = bytearray(length)
    fill(connection, memoryview(data))
    if crc32(data) != wanted:
        raise Broken("a message arrived damaged")
    try:
        return decode(bytes(data), kind)
    except msgspec.MsgspecError as error:
        raise Broken(f"a message of another version: {error}") from error


def receive_message(connection: socket.socket) -> Offer | Outcome:
    """Raises `Broken`, `OSError`, `EOFError`."""
    kind: type[Offer | Outcome] = Offer | Outcome  # type: ignore[assignment]
    return receive(connection, kind)


def send_blocks(connection: socket.socket, payload: memoryview, go_on: Callable[[], None]) -> bool:
    """Sends a payload. False if the other side has something to say in the middle, which can only be no. `go_on` is
    called now and then, and raises what ends it. Raises `OSError`."""
    step = _GROUP * BLOCK_BYTES
    for start in range(0, len(payload), step):
        vectors: list[memoryview] = []
        for at in range(start, min(start + step, len(payload)), BLOCK_BYTES):
            block = payload[at : at + BLOCK_BYTES]
            vectors += [memoryview(_SUM.pack(crc32(block))), block]
        go_on()
        if _has_spoken(connection):
            return False
        _send_all(connection, vectors)
    return True


def await_more(connection: socket.socket) -> bool:
    """Waits without a bound for the beginning of a message; False if the other side has closed. Raises `OSError`."""
    while True:
        with contextlib.suppress(BlockingIOError):  # silence between two snapshots is no fault
            return bool(connection.recv(1, socket.MSG_PEEK))


def _has_spoken(connection: socket.socket) -> bool:
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


def receive_blocks(connection: socket.socket, payload: memoryview) -> str:
    """Fills a payload, comparing each block; the sums of the blocks, eight digits each.
    Raises `Broken`, `OSError`, `EOFError`."""
    sums: list[str] = []
    head = memoryview(bytearray(_SUM.size))
    for at in range(0, len(payload), BLOCK_BYTES):
        block = payload[at : at + BLOCK_BYTES]
        fill(connection, head)
        fill(connection, block)
        (wanted,) = _SUM.unpack(head)
        if crc32(block) != wanted:
            raise Broken(f"the mebibyte at byte {at} arrived damaged")
        sums.append(f"{wanted:08x}")
    return "".join(sums)


def fill(connection: socket.socket, into: memoryview) -> None:
    """Raises `TimeoutError` if nothing comes, `EOFError` if the other side has closed, `OSError`."""
    filled = 0
    while filled < len(into):
        try:
            count = connection.recv_into(into[filled:], flags=socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError("the other side sends nothing") from None
        if count == 0:
            raise EOFError("the other side has closed the connection")
        filled += count


def _send_all(connection: socket.socket, vectors: list[memoryview]) -> None:
    left = [vector for vector in vectors if len(vector)]
    while left:
        try:
            count = connection.sendmsg(left)
        except BlockingIOError:
            raise TimeoutError("the other side takes nothing") from None
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]
