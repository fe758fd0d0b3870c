"""What is said between a broker and those who ask it. One connection is one writer; a message is one packet of JSON.

> Open                 who it is, and what it will move
< Welcome or Refused
> Want      < Granted  again and again; `Waits` in between says that the broker is alive
> Done
(closed)               it has ended, or died: what it held is free
"""

import hashlib
import os
import socket
import struct
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.value import Value
from trainmaster.core.storage.classes import Kind

PACKET_BYTES: Final = 64 << 10
ALIVE_S: Final = 0.5
"""So often a broker tells those who wait that it is alive."""
_CREDENTIALS: Final = struct.Struct("3i")


class Open(Value, tag="open", tag_field="type"):
    """`save` empty: a stream, whose size nobody knows. `writers`: of this save, on this host."""

    writer: str
    kind: Kind
    size_bytes: int = 0
    save: str = ""
    writers: int = 1


class Want(Value, tag="want", tag_field="type"):
    size_bytes: int


class Done(Value, tag="done", tag_field="type"):
    size_bytes: int


class Welcome(Value, tag="welcome", tag_field="type"):
    quantum_bytes: int


class Granted(Value, tag="granted", tag_field="type"):
    size_bytes: int


class Waits(Value, tag="waits", tag_field="type"):
    """Not yet."""


class Refused(Value, tag="refused", tag_field="type"):
    token: str
    sentence: str


ToBroker = Open | Want | Done
ToWriter = Welcome | Granted | Waits | Refused
to_broker: Final = msgspec.json.Decoder(ToBroker)
to_writer: Final = msgspec.json.Decoder(ToWriter)


def address(root: Path) -> str:
    """Where the broker of a store listens, for this user."""
    place = f"{os.getuid()}:{root.resolve()}"
    return f"\0trainmaster-admission-{hashlib.sha256(place.encode()).hexdigest()[:32]}"


def is_ours(connection: socket.socket) -> bool:
    """Whether the other side is of this user. An abstract name has no mode that keeps others out."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(told)[1] == os.getuid())
