"""The device `/dev/fuse`: requests come out of it, answers go in.

Several threads read from one descriptor; the kernel gives each request to one of them. Descriptors are not cloned per
thread, though the kernel offers it: requests that a dead process had taken from its clone are answered with an error,
while those of the common descriptor, which the holder of the mount keeps open, can be sent once more (`resend`).

Fresh memory is the cost of a request of a mebibyte, so each thread has one buffer for life.
"""

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Final

from trainmaster.storage.fuse.protocol import NOTIFY_RESEND, PREFIX_BYTES, REQUEST_BYTES, notice

_BACKING_OPEN: Final = 0x4010E501
_BACKING_CLOSE: Final = 0x4004E502
_BUFFER_BYTES: Final = REQUEST_BYTES + 4096
_ENDED: Final = (errno.ENODEV, errno.ECONNABORTED)


class Buffer:
    """Where a request lies: header and fixed part, then the rest at whole pages."""

    def __init__(self) -> None:
        self.prefix = bytearray(PREFIX_BYTES)
        self.rest = memoryview(mmap.mmap(-1, _BUFFER_BYTES))
        self.into = (self.prefix, self.rest)


class Unsendable(Exception):
    """An answer that the kernel does not take: a defect of ours."""


class Channel:
    def __init__(self, device: int) -> None:
        self._device = device

    def receive(self, buffer: Buffer) -> int:
        """The length of the next request; 0 when the mount has ended. Raises `OSError`."""
        while True:
            try:
                return os.readv(self._device, buffer.into)
            except OSError as error:
                if error.errno in _ENDED:
                    return 0
                if error.errno not in (errno.ENOENT, errno.EAGAIN):  # a request that was taken back
                    raise

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """An answer. Raises `Unsendable` for what the kernel does not take, but not if nobody waits any more."""
        try:
            os.writev(self._device, parts)
        except OSError as error:
            if error.errno not in (*_ENDED, errno.ENOENT):
                raise Unsendable(f"the kernel refuses an answer: {error.strerror}") from error

    def resend(self) -> None:
        """Asks the kernel for all requests that have no answer. Raises `OSError` where it cannot (before Linux 6.9)."""
        os.write(self._device, notice(NOTIFY_RESEND))

    def lend(self, file: int) -> int:
        """Lets the kernel read and write a file itself; the number to name it by. Raises `OSError` where it may not."""
        number: int = fcntl.ioctl(self._device, _BACKING_OPEN, bytearray(struct.pack("<iIQ", file, 0, 0)), True)
        return number

    def take_back(self, number: int) -> None:
        fcntl.ioctl(self._device, _BACKING_CLOSE, struct.pack("<I", number))
