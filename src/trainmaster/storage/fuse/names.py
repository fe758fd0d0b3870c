"""Who is called what: the name layer and the file layer of a store.

A name belongs to a directory and points at a file; a file has a number, which never comes back while a mount lives, and
what `stat` tells of it. Size and times of regular files are not here but where the bytes are (`contents.py`), since the
kernel writes those without asking; a regular file's `mtime` and `atime` here are unused.

A listing goes on behind a cookie, the number of a name, so it needs no memory between two calls and misses nothing that
stays. Renaming keeps the number; directories know their parent, which is all that `..` and the refusal of loops need.

A file without a name stays until nobody has it open (`bury`). Its row is deleted first and its bytes when that is
durable, so no row ever lacks bytes that it once had; `buried` remembers what is to be removed.
"""

import errno
import stat
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from trainmaster.storage.fuse.database import ROOT, Database, Ticket

LINKS_MAX: Final = 1 << 20
TARGET_BYTES_MAX: Final = 4095
ATTRIBUTE_BYTES_MAX: Final = 1 << 16
NOREPLACE: Final = 1
EXCHANGE: Final = 2
_COLUMNS: Final = "files.id, mode, links, uid, gid, rdev, atime, mtime, ctime, files.parent"


class File(NamedTuple):
    """A row of the file layer. Times in nanoseconds since 1970; `parent` counts for directories only."""

    id: int
    mode: int
    links: int
    uid: int
    gid: int
    rdev: int
    atime: int
    mtime: int
    ctime: int
    parent: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)


class Made(NamedTuple):
    """What a new file is to be."""

    id: int
    mode: int
    uid: int
    gid: int
    at: int
    rdev: int = 0
    target: bytes | None = None


class Accepted(NamedTuple):
    """Size and time of a file's bytes when they were last synced."""

    size: int
    mtime: int


class Names:
    """Everything raises `OSError` with the number that the caller of the system expects."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- looking

    def file(self, id: int) -> File:
        row = self._db.row(f"SELECT {_COLUMNS} FROM files WHERE id = ?", (id,))
        if row is None:
            raise OSError(errno.ESTALE, f"file {id} is gone")
        return File(*row)

    def find(self, parent: int, name: bytes) -> File | None:
        query = f"SELECT {_COLUMNS} FROM names JOIN files ON files.id = names.file WHERE names.parent = ? AND name = ?"
        row = self._db.row(query, (parent, name))
        return File(*row) if row is not None else None

    def listing(self, parent: int, after: int, count: int) -> list[tuple[int, bytes, File]]:
        """Up to `count` names behind the cookie `after`, each with its own cookie."""
        query = (
            f"SELECT names.id, name, {_COLUMNS} FROM names JOIN files ON files.id = names.file"
            " WHERE names.parent = ? AND names.id > ? ORDER BY names.id LIMIT ?"
        )
        return [(row[0], row[1], File(*row[2:])) for row in self._db.rows(query, (parent, after, count))]

    def target(self, id: int) -> bytes:
        row = self._db.row("SELECT target FROM files WHERE id = ?", (id,))
        if row is None or row[0] is None:
            raise OSError(errno.EINVAL, f"file {id} is no symbolic link")
        return bytes(row[0])

    def count(self) -> int:
        row = self._db.row("SELECT count(*) FROM files")
        assert row is not None
        return int(row[0])

    def id_max(self) -> int:
        row = self._db.row("SELECT max((SELECT max(id) FROM files), ifnull((SELECT max(file) FROM buried), 0))")
        assert row is not None
        return int(row[0])

    # --- making and removing

    def make(self, parent: int, name: bytes, made: Made, ticket: Ticket | None = None) -> File:
        """A new file under a new name. A directory with the set-group-id bit hands its group down."""
        with self._db.changing(ticket):
            above = self._living(parent)
            mode, gid = made.mode, made.gid
            is_directory = stat.S_ISDIR(mode)
            if above.mode & stat.S_ISGID:
                gid = above.gid
                mode |= stat.S_ISGID if is_directory else 0
            links = 2 if is_directory else 1
            row = (made.id, mode, links, made.uid, gid, made.rdev, made.at, made.at, made.at, parent, made.target)
            self._db.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", row)
            self._enter(parent, name, made.id)
            self._touch(parent, made.at, 1 if is_directory else 0)
        return File(*row[:-1])

    def link(self, id: int, parent: int, name: bytes, at: int, ticket: Ticket | None = None) -> File:
        with self._db.changing(ticket):
            self._living(parent)
            found = self._living(id)
            if found.is_directory:
                raise OSError(errno.EPERM, "a directory has one name")
            if found.links >= LINKS_MAX:
                raise OSError(errno.EMLINK, f"a file has {LINKS_MAX} names at most")
            self._enter(parent, name, id)
            self._db.execute("UPDATE files SET links = links + 1, ctime = ? WHERE id = ?", (at, id))
            self._touch(parent, at, 0)
        return found._replace(links=found.links + 1, ctime=at)

    def unlink(self, parent: int, name: bytes, at: int, ticket: Ticket | None = None) -> File:
        """Takes a name away; returns the file as it is now, which may have no name left."""
        with self._db.changing(ticket):
            found = self._existing(parent, name)
            if found.is_directory:
                raise OSError(errno.EISDIR, "it is a directory")
            return self._remove(parent, name, found, at)

    def rmdir(self, parent: int, name: bytes, at: int, ticket: Ticket | None = None) -> File:
        with self._db.changing(ticket):
            found = self._existing(parent, name)
            if not found.is_directory:
                raise OSError(errno.ENOTDIR, "it is no directory")
            return self._remove(parent, name, found, at)

    def rename(
        self, source: int, old: bytes, target: int, new: bytes, how: int, at: int, ticket: Ticket | None = None
    ) -> File | None:
        """Moves a name, with all that is below it, at once. `how` is a flag of the system call: `NOREPLACE`, or
        `EXCHANGE` for two names that change places. Returns the file that lost its name to the moved one, if any."""
        if how not in (0, NOREPLACE, EXCHANGE):
            raise OSError(errno.EINVAL, f"unknown flags {how}")
        with self._db.changing(ticket):
            moved, other = self._existing(source, old), self.find(target, new)
            self._living(target)
            if other is not None and how == NOREPLACE:
                raise OSError(errno.EEXIST, "the new name exists")
            self._refuse_loop(moved, target)
            if how == EXCHANGE:
                if other is None:
                    raise OSError(errno.ENOENT, "the other name does not exist")
                self._refuse_loop(other, source)
                self._exchange((source, old, moved), (target, new, other), at)
                return None
            if other is not None and other.id == moved.id:
                return None  # two names of one file: nothing happens
            if other is not None:
                _refuse_other_kind(moved, other)
                other = self._remove(target, new, other, at)
            self._db.execute(
                "UPDATE names SET parent = ?, name = ? WHERE parent = ? AND name = ?", (target, new, source, old)
            )
            self._moved(moved, source, target, at)
            return other

    def _exchange(self, one: tuple[int, bytes, File], two: tuple[int, bytes, File], at: int) -> None:
        for (parent, name, _), (_, _, file) in ((one, two), (two, one)):
            self._db.execute("UPDATE names SET file = ? WHERE parent = ? AND name = ?", (file.id, parent, name))
        self._moved(one[2], one[0], two[0], at)
        self._moved(two[2], two[0], one[0], at)

    def _moved(self, file: File, source: int, target: int, at: int) -> None:
        below = 1 if file.is_directory else 0
        self._db.execute("UPDATE files SET parent = ?, ctime = ? WHERE id = ?", (target, at, file.id))
        self._touch(source, at, -below)
        self._touch(target, at, below)

    def _refuse_loop(self, moved: File, target: int) -> None:
        """A directory cannot be moved into itself."""
        while moved.is_directory and target != ROOT:
            if target == moved.id:
                raise OSError(errno.EINVAL, "a directory would be inside itself")
            target = self.file(target).parent

    def _remove(self, parent: int, name: bytes, file: File, at: int) -> File:
        if file.is_directory and self._db.row("SELECT 1 FROM names WHERE parent = ? LIMIT 1", (file.id,)):
            raise OSError(errno.ENOTEMPTY, "the directory is not empty")
        links = 0 if file.is_directory else file.links - 1
        assert links >= 0, file
        self._db.execute("DELETE FROM names WHERE parent = ? AND name = ?", (parent, name))
        self._db.execute("UPDATE files SET links = ?, ctime = ? WHERE id = ?", (links, at, file.id))
        self._touch(parent, at, -1 if file.is_directory else 0)
        return file._replace(links=links, ctime=at)

    def _existing(self, parent: int, name: bytes) -> File:
        found = self.find(parent, name)
        if found is None:
            raise OSError(errno.ENOENT, "there is no such name")
        return found

    def _living(self, id: int) -> File:
        found = self.file(id)
        if found.links == 0:
            raise OSError(errno.ENOENT, f"file {id} has no name any more")
        return found

    def _enter(self, parent: int, name: bytes, id: int) -> None:
        query = "INSERT INTO names(parent, name, file) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self._db.execute(query, (parent, name, id)) == 0:
            raise OSError(errno.EEXIST, "the name exists")

    def _touch(self, directory: int, at: int, links: int) -> None:
        query = "UPDATE files SET mtime = ?, ctime = ?, links = links + ? WHERE id = ?"
        self._db.execute(query, (at, at, links, directory))

    # --- changing

    def change(self, id: int, at: int, **fields: int) -> File:
        """Sets columns of a file (`mode`, `uid`, `gid`, `atime`, `mtime`); its `ctime` becomes `at`."""
        assert fields.keys() <= {"mode", "uid", "gid", "atime", "mtime"}, fields
        sets = "".join(f"{name} = ?, " for name in fields)
        with self._db.changing():
            self._db.execute(f"UPDATE files SET {sets}ctime = ? WHERE id = ?", (*fields.values(), at, id))
            return self.file(id)

    def accept(self, id: int, accepted: Accepted) -> None:
        """Remembers that the bytes of a file were synced as they were then."""
        with self._db.changing():
            self._db.execute("UPDATE files SET accepted_size = ?, accepted_mtime = ? WHERE id = ?", (*accepted, id))

    def accepted(self, id: int) -> Accepted | None:
        row = self._db.row("SELECT accepted_size, accepted_mtime FROM files WHERE id = ?", (id,))
        if row is None:
            raise OSError(errno.ESTALE, f"file {id} is gone")
        return Accepted(*row) if row[0] is not None else None

    # --- attributes

    def attribute(self, id: int, name: bytes) -> bytes:
        row = self._db.row("SELECT value FROM attributes WHERE file = ? AND name = ?", (id, name))
        if row is None:
            raise OSError(errno.ENODATA, "there is no such attribute")
        return bytes(row[0])

    def attributes(self, id: int) -> list[bytes]:
        return [bytes(row[0]) for row in self._db.rows("SELECT name FROM attributes WHERE file = ?", (id,))]

    def set_attribute(self, id: int, name: bytes, value: bytes, how: int, at: int) -> None:
        """`how` is a flag of the system call: 1 only if it is new, 2 only if it is there."""
        if len(value) > ATTRIBUTE_BYTES_MAX:
            raise OSError(errno.E2BIG, f"an attribute has {ATTRIBUTE_BYTES_MAX} bytes at most")
        with self._db.changing():
            there = self._db.row("SELECT 1 FROM attributes WHERE file = ? AND name = ?", (id, name)) is not None
            if there and how & 1:
                raise OSError(errno.EEXIST, "the attribute exists")
            if not there and how & 2:
                raise OSError(errno.ENODATA, "there is no such attribute")
            self._db.execute("INSERT OR REPLACE INTO attributes VALUES (?, ?, ?)", (id, name, value))
            self._db.execute("UPDATE files SET ctime = ? WHERE id = ?", (at, id))

    def remove_attribute(self, id: int, name: bytes, at: int) -> None:
        with self._db.changing():
            if self._db.execute("DELETE FROM attributes WHERE file = ? AND name = ?", (id, name)) == 0:
                raise OSError(errno.ENODATA, "there is no such attribute")
            self._db.execute("UPDATE files SET ctime = ? WHERE id = ?", (at, id))

    # --- the end of files

    def unlinked(self) -> list[int]:
        """Files without a name."""
        return [row[0] for row in self._db.rows("SELECT id FROM files WHERE links = 0")]

    def bury(self, ids: Iterable[int]) -> None:
        """Deletes the rows of files without a name."""
        with self._db.changing():
            for id in ids:
                self._db.execute("DELETE FROM attributes WHERE file = ?", (id,))
                if self._db.execute("DELETE FROM files WHERE id = ? AND links = 0", (id,)):
                    self._db.execute("INSERT OR IGNORE INTO buried VALUES (?)", (id,))

    def buried(self) -> list[int]:
        """Files of which the bytes may be removed once this is durable."""
        return [row[0] for row in self._db.rows("SELECT file FROM buried")]

    def forget_buried(self, ids: Sequence[int]) -> None:
        with self._db.changing():
            for id in ids:
                self._db.execute("DELETE FROM buried WHERE file = ?", (id,))

    # --- beginning and end of a mount

    def regular(self, after: int, count: int) -> list[tuple[int, bool]]:
        """Numbers of regular files in order, each with whether its bytes were ever synced."""
        query = "SELECT id, accepted_size IS NOT NULL FROM files WHERE id > ? AND mode & ? = ? ORDER BY id LIMIT ?"
        rows: list[tuple[Any, ...]] = self._db.rows(query, (after, stat.S_IFMT(0xFFFF), stat.S_IFREG, count))
        return [(id, bool(synced)) for id, synced in rows]

    def begin(self) -> bool:
        """Notes that a mount lives. Whether the last one ended well."""
        with self._db.changing():
            row = self._db.row("SELECT value FROM meta WHERE key = 'clean'")
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('clean', 0)")
            self._db.execute("DELETE FROM carried_out")
        return row is None or bool(row[0])

    def end(self) -> None:
        with self._db.changing():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('clean', 1)")
        self._db.sync()


def _refuse_other_kind(moved: File, other: File) -> None:
    """A directory replaces an (empty) directory only, and a file no directory."""
    if moved.is_directory and not other.is_directory:
        raise OSError(errno.ENOTDIR, "a directory would replace a file")
    if other.is_directory and not moved.is_directory:
        raise OSError(errno.EISDIR, "a file would replace a directory")
