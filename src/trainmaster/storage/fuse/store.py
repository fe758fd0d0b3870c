"""The directory of a store: metadata, bytes, a lock, a log.

    STORE/names.sqlite     who is called what
    STORE/contents/        the bytes, a file each
    STORE/lock             held while a mount lives; pid and directory of it
    STORE/mount.log        what the mount has to tell

One mount at a time has a store. The lock is the kernel's, so it ends with the last process of the mount, however that
dies. What a dead mount left half done is finished before the next one begins (`prepare`).
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.storage.fuse.contents import Contents, Mended
from trainmaster.storage.fuse.database import Database
from trainmaster.storage.fuse.names import Names
from trainmaster.storage.fuse.refused import Refused

NAMES: Final = "names.sqlite"
CONTENTS: Final = "contents"
LOCK: Final = "lock"
LOG: Final = "mount.log"
_SHOWN: Final = 5


def claim(root: Path, directory: Path) -> int:
    """Takes the store at `root` for a mount at `directory`; makes it where there is none or an empty directory. The
    descriptor of the lock, to be kept open. Raises `Refused`, `OSError`."""
    root.mkdir(mode=0o700, exist_ok=True)
    found = set(os.listdir(root))
    if found and NAMES not in found and not found <= {LOCK, LOG, CONTENTS}:
        raise Refused(
            f"{root} is no store of trainmaster",
            f"it holds other things: {', '.join(sorted(found)[:_SHOWN])}",
            "give a new or an empty directory for a new store",
        )
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        pid, where = holder(root)
        raise Refused(
            f"{root} is mounted already",
            f"process {pid} has it at {where}",
            f"use it there, or: trainmaster umount {where}",
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{directory}\n".encode(), 0)
    return lock


def holder(root: Path) -> tuple[str, str]:
    """Process and directory of the mount that has, or last had, the store."""
    pid, _, where = (root / LOCK).read_text().partition("\n")
    return pid or "unknown", where.strip() or "an unknown place"


def is_claimed(root: Path) -> bool:
    """Whether a mount has the store."""
    with (root / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def prepare(root: Path) -> Mended | None:
    """Finishes what the last mount left; what was not in agreement, or None if it ended well. Only with the lock.
    Raises `Refused`, `OSError`."""
    database = Database(root / NAMES)
    try:
        names, contents = Names(database), Contents(root / CONTENTS)
        try:
            ended_well = names.begin()
            clear(database, contents, names.unlinked())
            mended = None if ended_well else contents.mend(names)
            database.sync()
            _sync_directory(root)
            return mended
        finally:
            contents.close()
    finally:
        database.close()


def conclude(root: Path) -> None:
    """Notes that a mount ended well."""
    database = Database(root / NAMES)
    try:
        Names(database).end()
    finally:
        database.close()


def clear(database: Database, contents: Contents, ids: list[int]) -> None:
    """Ends files without a name: first the rows, then, when that is durable, the bytes; also those of earlier times."""
    names = Names(database)
    if ids:
        names.bury(ids)
    buried = names.buried()
    if buried:
        database.sync()
        for id in buried:
            contents.remove(id)
        names.forget_buried(buried)


def teller(root: Path, at: Callable[[], str]) -> Callable[[str], None]:
    """Writes lines into the log of the store; `at` gives the time."""
    file = os.open(root / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return lambda text: (os.write(file, f"{at()} {text}\n".encode()), None)[1]


def _sync_directory(root: Path) -> None:
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
