"""Asking: a writer or reader of a store takes a piece's turn before it moves the piece.

    with Asking.of(root, Open(...)) as asking:
        with asking.turn(size_bytes):
            ...                       # move the piece

Several threads may use one `Asking`; one at a time waits for its grant, and moves its piece while the next one waits.
Where nobody answers, `turn` waits for nothing any more and `free` says why.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.value import Value, encode
from trainmaster.storage.admission.talk import (
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
    to_writer,
)
from trainmaster.storage.blob_store import Sink, Source

SILENT_S: Final = 5.0
"""A broker that says nothing for so long is taken for gone."""


class NotAdmitted(Exception):
    """The broker refuses: this writer does something that can't be right. `token` says what."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.token = refused.token


class Asking:
    """A writer's connection to the broker of its store. Raises `NotAdmitted` if it may not come."""

    def __init__(self, at: str, opening: Open, silent_s: float = SILENT_S) -> None:
        self.free = ""
        """Why nobody is asked any more; empty while somebody is."""
        self._lock = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._quantum_bytes = 0
        try:
            self._connection.settimeout(silent_s)
            self._connection.connect(at)
            if not is_ours(self._connection):
                self._leave("the broker of this store is another user's")
                return
            self._connection.send(encode(opening))
            welcome = self._hear()
        except OSError as error:
            self._leave(f"no broker answers: {error}")
        except BaseException:
            self._connection.close()
            raise
        else:
            assert isinstance(welcome, Welcome), welcome
            self._quantum_bytes = welcome.quantum_bytes

    @classmethod
    def of(cls, root: Path, opening: Open, silent_s: float = SILENT_S) -> "Asking":
        """Asks the broker of a store."""
        return cls(address(root), opening, silent_s)

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """It has ended. May be called again."""
        self._connection.close()

    @contextlib.contextmanager
    def turn(self, size_bytes: int) -> Iterator[None]:
        """Waits until so many bytes may be moved; they count as moved when the block ends. Raises `NotAdmitted`."""
        pieces = self._wait(size_bytes)
        try:
            yield
        finally:
            for piece in pieces:
                self._say(Done(size_bytes=piece))

    def _wait(self, size_bytes: int) -> list[int]:
        """What was granted: one piece, if it is no larger than what is granted at once. What is larger asks for that
        much only: to hold one piece and to wait for another could have two wait for each other."""
        with self._lock:
            if self.free or not size_bytes:
                return []
            piece = min(size_bytes, self._quantum_bytes)
            self._say(Want(size_bytes=piece))
            while not self.free:
                try:
                    heard = self._hear()
                except OSError as error:
                    self._leave(f"the broker answers no more: {error}")
                    break
                if isinstance(heard, Granted):
                    return [piece]
                assert isinstance(heard, Waits), heard
            return []

    def _hear(self) -> Value:
        """Raises `OSError`, `NotAdmitted`."""
        data = self._connection.recv(PACKET_BYTES)
        if not data:
            raise ConnectionResetError("it has closed the connection")
        try:
            message = to_writer.decode(data)
        except msgspec.MsgspecError as error:
            raise ConnectionAbortedError(f"it is of another version: {error}") from error
        if isinstance(message, Refused):
            raise NotAdmitted(message)
        return message

    def _say(self, message: Value) -> None:
        if self.free:
            return
        try:
            self._connection.send(encode(message))
        except OSError as error:
            self._leave(f"the broker answers no more: {error}")

    def _leave(self, why: str) -> None:
        self.free = why
        self._connection.close()


class AdmittedSink:
    """See `Sink`: each write takes its turn."""

    def __init__(self, sink: Sink, asking: Asking) -> None:
        self._sink, self._asking = sink, asking

    def write(self, parts: Sequence[memoryview], offset: int) -> None:
        with self._asking.turn(sum(map(len, parts))):
            self._sink.write(parts, offset)

    def close(self) -> None:
        try:
            self._sink.close()
        finally:
            self._asking.close()

    def abandon(self) -> None:
        self._asking.close()
        self._sink.abandon()


class AdmittedSource:
    """See `Source`: each read takes its turn."""

    def __init__(self, source: Source, asking: Asking) -> None:
        self._source, self._asking = source, asking

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        with self._asking.turn(sum(map(len, parts))):
            self._source.read_into(parts, offset)

    def close(self) -> None:
        self._asking.close()
        self._source.close()
