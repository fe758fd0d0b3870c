"""Requests of the kernel, answered from names and contents.

A node is the number of a file, and a handle is the same number: nothing has to be remembered between two requests but
which files are open, so a daemon that takes over can go on in the middle. How often the kernel has been told of a node
is not counted either. A file without a name is buried when the kernel lets go of its node, which it does only when
nobody has it open; of other nodes it may let go as it likes.

Rights are checked by the kernel (mount option `default_permissions`), locks are the kernel's own, since all users of
the mount are on this host. What reaches this module is allowed.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from trainmaster.storage.fuse import protocol
from trainmaster.storage.fuse.contents import Contents, reserve
from trainmaster.storage.fuse.database import Database, Ticket
from trainmaster.storage.fuse.names import TARGET_BYTES_MAX, Accepted, File, Made, Names
from trainmaster.storage.fuse.opened import Opened
from trainmaster.storage.fuse.protocol import NAME_BYTES_MAX, RESENT, Attributes, OpenFlag, Operation, Valid

Parts = Sequence[bytes | memoryview]

STATE: Final = b"user.trainmaster.state"
"""A virtual attribute of regular files: `written`, or `accepted` when what it is now was synced."""
_COARSE: Final = 5
"""CLOCK_REALTIME_COARSE, which file systems take their times from: a finer one would be ahead of them."""
_COPY_BYTES_MAX: Final = 1 << 30
_WRITE_KILL_SUIDGID: Final = 1 << 2
_SPACES: Final = (b"user.", b"trusted.", b"security.")
_NOTHING: Final = b""


class Request(NamedTuple):
    """`body` is what follows the header, without the bytes of a write; those are at the start of `buffer`, which also
    takes the bytes of a read. `slot` numbers the thread."""

    operation: int
    unique: int
    node: int
    uid: int
    gid: int
    body: bytes
    buffer: memoryview
    slot: int

    @property
    def ticket(self) -> Ticket:
        return Ticket(self.slot, self.unique & ~RESENT & (1 << 63) - 1)


class Tree:
    """Answers by one or several threads. `bury` is told of each file that nobody can reach any more; `cache_ns` is for
    how long the kernel may believe names and attributes."""

    def __init__(
        self, database: Database, contents: Contents, opened: Opened, bury: Callable[[int], None], cache_ns: int
    ) -> None:
        self._db, self._contents, self._opened, self._bury, self._cache_ns = database, contents, opened, bury, cache_ns
        self._names = Names(database)
        self._ids = self._names.id_max()
        self._lock = threading.Lock()
        self._unlinked = set(self._names.unlinked())
        self._ending: set[int] = set()
        self._carried_out: frozenset[int] = frozenset()
        self._answers: dict[int, Callable[[Request], Parts]] = {
            Operation.LOOKUP: self._lookup,
            Operation.FORGET: self._forget,
            Operation.BATCH_FORGET: self._forget,
            Operation.INTERRUPT: lambda _: (),
            Operation.GETATTR: self._getattr,
            Operation.SETATTR: self._setattr,
            Operation.READLINK: lambda request: (self._names.target(request.node),),
            Operation.SYMLINK: self._symlink,
            Operation.MKNOD: self._mknod,
            Operation.MKDIR: self._mkdir,
            Operation.UNLINK: self._unlink,
            Operation.RMDIR: self._rmdir,
            Operation.RENAME: self._rename,
            Operation.RENAME2: self._rename,
            Operation.LINK: self._link,
            Operation.OPEN: self._open,
            Operation.CREATE: self._create,
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.RELEASE: self._release,
            Operation.FSYNC: self._fsync,
            Operation.FSYNCDIR: self._fsyncdir,
            Operation.STATFS: self._statfs,
            Operation.SETXATTR: self._setxattr,
            Operation.GETXATTR: self._getxattr,
            Operation.LISTXATTR: self._listxattr,
            Operation.REMOVEXATTR: self._removexattr,
            Operation.OPENDIR: lambda _: (protocol.opened(0, 0),),
            Operation.RELEASEDIR: lambda _: (_NOTHING,),
            Operation.READDIR: self._readdir,
            Operation.READDIRPLUS: self._readdir,
            Operation.FALLOCATE: self._fallocate,
            Operation.LSEEK: self._lseek,
            Operation.COPY_FILE_RANGE: self._copy,
            Operation.IOCTL: _no_ioctl,
            Operation.DESTROY: lambda _: (_NOTHING,),
        }

    def answer(self, request: Request) -> Parts:
        """What the answer carries. Raises `OSError` with the number to refuse it with."""
        found = self._answers.get(request.operation)
        if found is None:
            raise OSError(errno.ENOSYS, f"operation {request.operation} is not offered")
        return found(request)

    def take_over(self) -> None:
        """Goes on where another process died: what it did without telling is told, and not done again."""
        self._carried_out = self._db.carried_out()

    def _was_done(self, request: Request) -> bool:
        return bool(request.unique & RESENT) and request.ticket.number in self._carried_out

    # --- names

    def _lookup(self, request: Request) -> Parts:
        found = self._names.find(request.node, protocol.name(request.body))
        if found is None:
            return (protocol.no_entry(self._cache_ns),)
        return (self._entry(found),)

    def _entry(self, file: File) -> bytes:
        return protocol.entry(self._attributes(file), self._cache_ns)

    def _attributes(self, file: File) -> Attributes:
        if not file.is_regular:
            size = len(self._names.target(file.id)) if stat.S_ISLNK(file.mode) else 0
            times = (file.atime, file.mtime, file.ctime)
            return Attributes(file.id, size, 0, *times, file.mode, file.links, file.uid, file.gid, file.rdev)
        status = self._status(file.id)
        times = (status.st_atime_ns, status.st_mtime_ns, max(status.st_ctime_ns, file.ctime))
        what = (file.mode, file.links, file.uid, file.gid, 0)
        return Attributes(file.id, status.st_size, status.st_blocks, *times, *what)

    def _status(self, id: int) -> os.stat_result:
        return self._contents.status(id)

    def _made(self, request: Request, mode: int, rdev: int = 0, target: bytes | None = None) -> Made:
        with self._lock:
            self._ids += 1
            return Made(self._ids, mode, request.uid, request.gid, now(), rdev, target)

    def _make(self, request: Request, name: bytes, made: Made) -> File:
        """Raises `OSError`. A request that was carried out before gives what it made."""
        if self._was_done(request):
            found = self._names.find(request.node, name)
            if found is not None:
                return found
        if not stat.S_ISREG(made.mode):
            return self._names.make(request.node, name, made, request.ticket)
        os.close(self._contents.create(made.id))
        try:
            return self._names.make(request.node, name, made, request.ticket)
        except OSError:
            self._contents.remove(made.id)
            raise

    def _mknod(self, request: Request) -> Parts:
        mode, rdev = protocol.numbers(request.body, 2)
        return (self._entry(self._make(request, protocol.name(request.body, 16), self._made(request, mode, rdev))),)

    def _mkdir(self, request: Request) -> Parts:
        made = self._made(request, stat.S_IFDIR | protocol.numbers(request.body, 1)[0] & 0o7777)
        return (self._entry(self._make(request, protocol.name(request.body, 8), made)),)

    def _symlink(self, request: Request) -> Parts:
        name, target = request.body.split(b"\0")[:2]
        if len(name) > NAME_BYTES_MAX or len(target) > TARGET_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "a name or a target is too long")
        made = self._made(request, stat.S_IFLNK | 0o777, 0, target)
        return (self._entry(self._make(request, name, made)),)

    def _link(self, request: Request) -> Parts:
        name = protocol.name(request.body, 8)
        if self._was_done(request) and (found := self._names.find(request.node, name)) is not None:
            return (self._entry(found),)
        found = self._names.link(protocol.quads(request.body, 1)[0], request.node, name, now(), request.ticket)
        return (self._entry(found),)

    def _unlink(self, request: Request) -> Parts:
        if not self._was_done(request):
            name = protocol.name(request.body)
            self._lost_name(self._names.unlink(request.node, name, now(), request.ticket))
        return (_NOTHING,)

    def _rmdir(self, request: Request) -> Parts:
        if not self._was_done(request):
            self._lost_name(self._names.rmdir(request.node, protocol.name(request.body), now(), request.ticket))
        return (_NOTHING,)

    def _rename(self, request: Request) -> Parts:
        if self._was_done(request):
            return (_NOTHING,)
        target = protocol.quads(request.body, 1)[0]
        with_flags = request.operation == Operation.RENAME2
        how = protocol.numbers(request.body, 3)[2] if with_flags else 0
        old, new = protocol.names(request.body, 16 if with_flags else 8)
        self._lost_name(self._names.rename(request.node, old, target, new, how, now(), request.ticket))
        return (_NOTHING,)

    def _lost_name(self, file: File | None) -> None:
        if file is not None and file.links == 0:
            self._unlinked.add(file.id)

    def _forget(self, request: Request) -> Parts:
        if self._unlinked:
            one = request.operation == Operation.FORGET
            for node in (request.node,) if one else protocol.forgotten(request.body):
                self._let_go(node)
        return ()

    def _let_go(self, node: int) -> None:
        """Ends a file without a name. If it is open this thread is late to hear of it, or another one is late to close
        it: it ends when it is closed."""
        with self._lock:
            if node not in self._unlinked:
                return
            if self._opened.get(node) is not None:
                self._ending.add(node)
                return
            self._unlinked.discard(node)
            self._ending.discard(node)
        self._bury(node)

    def _readdir(self, request: Request) -> Parts:
        """Lines while they fit. The directory itself and the one above have the cookies 1 and 2."""
        asked = protocol.transfer(request.body)
        plus = request.operation == Operation.READDIRPLUS
        lines: list[bytes] = []
        left = asked.size
        if asked.offset < 2:
            directory = self._names.file(request.node)
            nodes = (directory.id, directory.parent)
            for cookie, (name, node) in enumerate(zip((b".", b".."), nodes, strict=True), 1):
                if cookie > asked.offset:
                    line = protocol.directory_entry(node, directory.mode, cookie, name)
                    lines.append(bytes(protocol.ENTRY_BYTES) + line if plus else line)
                    left -= len(lines[-1])
        count = asked.size // (protocol.ENTRY_BYTES + 32 if plus else 32)
        for cookie, name, file in self._names.listing(request.node, max(0, asked.offset - 2), count):
            line = protocol.directory_entry(file.id, file.mode, cookie + 2, name)
            if len(line) + (protocol.ENTRY_BYTES if plus else 0) > left:
                break
            if plus:
                line = self._entry(file) + line
            lines.append(line)
            left -= len(line)
        return (b"".join(lines),)

    # --- attributes

    def _getattr(self, request: Request) -> Parts:
        return (protocol.attributes_out(self._attributes(self._names.file(request.node)), self._cache_ns),)

    def _setattr(self, request: Request) -> Parts:
        wanted, at = protocol.change(request.body), now()
        file = self._names.file(request.node)
        fields = _owner_and_mode(file, wanted)
        times = wanted.valid & (Valid.ATIME | Valid.MTIME | Valid.ATIME_NOW | Valid.MTIME_NOW)
        if file.is_regular:
            if wanted.valid & Valid.SIZE:
                self._contents.truncate(file.id, wanted.size)
            if times:
                status = self._status(file.id)
                self._contents.set_times(file.id, *_times(wanted, status.st_atime_ns, status.st_mtime_ns, at))
        elif times:
            fields["atime"], fields["mtime"] = _times(wanted, file.atime, file.mtime, at)
        if fields or not file.is_regular:
            file = self._names.change(file.id, at, **fields)
        return (protocol.attributes_out(self._attributes(file), self._cache_ns),)

    def _setxattr(self, request: Request) -> Parts:
        size, how = protocol.numbers(request.body, 2)
        name, _, rest = request.body[8:].partition(b"\0")
        if name == STATE:
            raise OSError(errno.EPERM, "the state is what it is")
        if not name.startswith(_SPACES):
            raise OSError(errno.EOPNOTSUPP, "there are no such attributes here")
        self._names.set_attribute(request.node, name, rest[:size], how, now())
        return (_NOTHING,)

    def _getxattr(self, request: Request) -> Parts:
        size = protocol.numbers(request.body, 1)[0]
        name = request.body[8:].partition(b"\0")[0]
        return _sized(self._state(request.node) if name == STATE else self._names.attribute(request.node, name), size)

    def _state(self, id: int) -> bytes:
        if not self._names.file(id).is_regular:
            raise OSError(errno.ENODATA, "only regular files have a state")
        status, accepted = self._status(id), self._names.accepted(id)
        return b"accepted" if accepted == Accepted(status.st_size, status.st_mtime_ns) else b"written"

    def _listxattr(self, request: Request) -> Parts:
        listed = b"".join(name + b"\0" for name in self._names.attributes(request.node))
        return _sized(listed, protocol.numbers(request.body, 1)[0])

    def _removexattr(self, request: Request) -> Parts:
        self._names.remove_attribute(request.node, protocol.name(request.body), now())
        return (_NOTHING,)

    def _statfs(self, request: Request) -> Parts:
        found = self._contents.statistics()
        files = self._names.count()
        free = found.f_favail
        sizes = (found.f_blocks, found.f_bfree, found.f_bavail)
        return (protocol.statistics(*sizes, files + free, free, found.f_frsize),)

    # --- bytes

    def _open(self, request: Request) -> Parts:
        flags = protocol.numbers(request.body, 1)[0]
        return (self._opening(request.node, flags, request.ticket),)

    def _opening(self, id: int, flags: int, ticket: Ticket, file: int | None = None) -> bytes:
        found = self._opened.add(id, ticket, file)
        if flags & os.O_TRUNC:
            try:
                os.ftruncate(found.file, 0)
            except OSError:
                self._opened.remove(id, ticket)
                raise
        if found.backing:
            return protocol.opened(id, OpenFlag.PASSTHROUGH, found.backing)
        # What is only written passes by the kernel's cache: nobody there would read it again.
        stream = flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_DIRECT
        return protocol.opened(id, OpenFlag.DIRECT_IO if stream else 0)

    def _create(self, request: Request) -> Parts:
        flags, mode = protocol.numbers(request.body, 2)
        name = protocol.name(request.body, 16)
        if self._was_done(request) and (found := self._names.find(request.node, name)) is not None:
            return (self._entry(found), self._opening(found.id, flags, request.ticket))
        made = self._made(request, stat.S_IFREG | mode & 0o7777)
        file = self._contents.create(made.id)
        try:
            found = self._names.make(request.node, name, made, request.ticket)
        except OSError:
            os.close(file)
            self._contents.remove(made.id)
            raise
        opening = self._opening(found.id, flags & ~os.O_TRUNC, request.ticket, file)
        return (self._entry(found), opening)

    def _release(self, request: Request) -> Parts:
        self._opened.remove(request.node, request.ticket)
        if request.node in self._ending:
            self._let_go(request.node)
        return (_NOTHING,)

    def _read(self, request: Request) -> Parts:
        asked = protocol.transfer(request.body)
        into = request.buffer[: asked.size]
        count = os.preadv(self._opened.descriptor(request.node), [into], asked.offset)
        return (into[:count],)

    def _write(self, request: Request) -> Parts:
        asked = protocol.transfer(request.body)
        if protocol.numbers(request.body, 6)[5] & _WRITE_KILL_SUIDGID:
            self._kill_setid(request.node)
        file, done = self._opened.descriptor(request.node), 0
        while done < asked.size:
            done += os.pwritev(file, [request.buffer[done : asked.size]], asked.offset + done)
        return (protocol.written(done),)

    def _kill_setid(self, id: int) -> None:
        file = self._names.file(id)
        mode = without_setid(file.mode)
        if mode != file.mode:
            self._names.change(id, now(), mode=mode)

    def _fsync(self, request: Request) -> Parts:
        """First the bytes, then the names: what has a durable name has durable bytes."""
        found = self._opened.get(request.node)
        if found is None:
            raise OSError(errno.EBADF, "the file is not open")
        data_only = bool(protocol.numbers(request.body, 3)[2] & 1)
        status = os.fstat(found.file)
        self._contents.sync(request.node, found.file, data_only)
        accepted = Accepted(status.st_size, status.st_mtime_ns)
        if found.accepted != accepted:
            self._names.accept(request.node, accepted)
            found.accepted = accepted
        self._db.sync()
        return (_NOTHING,)

    def _fsyncdir(self, request: Request) -> Parts:
        self._db.sync()
        return (_NOTHING,)

    def _fallocate(self, request: Request) -> Parts:
        asked = protocol.reservation(request.body)
        reserve(self._opened.descriptor(request.node), asked.mode, asked.offset, asked.size)
        return (_NOTHING,)

    def _lseek(self, request: Request) -> Parts:
        _, offset = protocol.quads(request.body, 2)
        whence = protocol.numbers(request.body, 5)[4]
        return (protocol.offset(os.lseek(self._opened.descriptor(request.node), offset, whence)),)

    def _copy(self, request: Request) -> Parts:
        asked = protocol.copying(request.body)
        source, target = self._opened.descriptor(asked.source), self._opened.descriptor(asked.target)
        size = min(asked.size, _COPY_BYTES_MAX)
        done = os.copy_file_range(source, target, size, asked.source_offset, asked.target_offset)
        return (protocol.written(done),)


def now() -> int:
    return time.clock_gettime_ns(_COARSE)


def without_setid(mode: int) -> int:
    """As the system takes set-user-id and set-group-id away from a file that changes hands or content."""
    mode &= ~stat.S_ISUID
    return mode & ~stat.S_ISGID if mode & stat.S_IXGRP else mode


def _owner_and_mode(file: File, wanted: protocol.Change) -> dict[str, int]:
    """Columns to be set."""
    fields: dict[str, int] = {}
    mode = file.mode
    if wanted.valid & Valid.MODE:
        mode = stat.S_IFMT(file.mode) | wanted.mode & 0o7777
    elif wanted.valid & (Valid.UID | Valid.GID | Valid.KILL_SUIDGID) and not file.is_directory:
        mode = without_setid(mode)
    if mode != file.mode or wanted.valid & Valid.MODE:
        fields["mode"] = mode
    if wanted.valid & Valid.UID:
        fields["uid"] = wanted.uid
    if wanted.valid & Valid.GID:
        fields["gid"] = wanted.gid
    return fields


def _times(wanted: protocol.Change, atime: int, mtime: int, at: int) -> tuple[int, int]:
    """Those asked for; else those that are."""
    if wanted.valid & Valid.ATIME:
        atime = at if wanted.valid & Valid.ATIME_NOW else wanted.atime
    if wanted.valid & Valid.MTIME:
        mtime = at if wanted.valid & Valid.MTIME_NOW else wanted.mtime
    return atime, mtime


def _sized(value: bytes, room: int) -> Parts:
    """An attribute's value; its size if the caller has no room and only asks."""
    if room == 0:
        return (protocol.attribute_size(len(value)),)
    if len(value) > room:
        raise OSError(errno.ERANGE, f"{len(value)} bytes do not fit")
    return (value,)


def _no_ioctl(request: Request) -> Parts:
    raise OSError(errno.ENOTTY, "there are no such controls here")
