"""The connections of a process group, so that a rank can be freed from a collective that will not complete.

A collective waits in C++ for peers that may be gone. Gloo notices a broken connection only on those that the waiting
operation uses, so a rank that is no neighbour of the dead one waits until the timeout of the group; destroying the
group waits for the operation. But the sockets are ours: a shutdown from any thread ends every wait on them at once, and
peers see it too. So the sockets that came while the group formed are remembered, as duplicates: a number that the group
closes is soon somebody else's, a duplicate stays what it is.

A shutdown of a listening socket ends the process (gloo's loop throws), so those are left alone.
Limits: it sees TCP. Groups of other transports are freed by their own abort, or by the end of the process; so is a rank
that waits for a connection that never came, since there is no socket yet.
"""

import contextlib
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

_WATCHED: Final = re.compile(r"^tfd:\s*(\d+)", re.MULTILINE)


class Links:
    """Not thread-safe; the owner locks."""

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()
        self._formed = False
        self.held: list[socket.socket] = []

    def begin(self) -> None:
        """A group is about to form: what is open now is none of it."""
        assert not self.held, "links of an earlier group are still held"
        self._known, self._formed = frozenset(_inodes()), False

    def hold(self) -> None:
        """The group has formed."""
        self.held = _connections(set(_descriptors()), self._known)
        self._formed = True

    def cut(self) -> None:
        """Ends all connections of the group: whoever waits on one, here or there, gets an error."""
        later = set(_descriptors()) if not self._formed else _watched(self._known)
        for connection in (*self.held, *_connections(later, self._known)):
            with contextlib.suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)
            if connection not in self.held:
                connection.close()

    def release(self) -> None:
        for connection in self.held:
            connection.close()
        self.held = []


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _inodes() -> list[int]:
    found = []
    for number in _descriptors():
        with contextlib.suppress(OSError):  # closed in between
            found.append(os.fstat(number).st_ino)
    return found


def _watched(known: frozenset[int]) -> set[int]:
    """Descriptors that event loops of C++ watch, as those of groups that were made later do (Python's own loops are
    among them if a script uses any; their connections go with the epoch)."""
    found: set[int] = set()
    for number in _descriptors():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[eventpoll]":
                found.update(map(int, _WATCHED.findall(Path(f"/proc/self/fdinfo/{number}").read_text())))
    return found


def _connections(numbers: set[int], known: frozenset[int]) -> list[socket.socket]:
    """Duplicates of those that are connected TCP sockets and not known, one each (a number that was free when they were
    listed may be that of a duplicate by now)."""
    found: list[socket.socket] = []
    seen = set(known)
    for number in sorted(numbers):
        try:
            duplicate = os.dup(number)
        except OSError:  # closed in between
            continue
        status = os.fstat(duplicate)
        if status.st_ino in seen or not stat.S_ISSOCK(status.st_mode):
            os.close(duplicate)
            continue
        seen.add(status.st_ino)
        connection = socket.socket(fileno=duplicate)
        if _is_connected(connection):
            found.append(connection)
        else:
            connection.close()
    return found


def _is_connected(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    try:
        connection.getpeername()
    except OSError:
        return False
    return True
