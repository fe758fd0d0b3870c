"""The directory of checkpoints on disk: looking, checksumming, publishing, deleting.

Durability is the order of syncs: files, then the staging directory, then the rename, then the parent directory. A crash
between any two leaves either the old state or the new one. Deleting begins with a
rename out of sight, for the same reason.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, Entry, step_of, torn_name, unpublished_of
from trainmaster.core.checkpoint.manifest import Manifest, Observed, sealed, unsealed
from trainmaster.core.checkpoint.space import Volume
from trainmaster.storage.checksum import crc32 as sum_of

T = TypeVar("T")
OWNER_NAME: Final = "owner.json"
PIN_NAME: Final = "pin.json"
VERDICT_NAME: Final = "verdict.json"
_PSEUDO: Final = frozenset(
    {
        "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "configfs", "securityfs",
        "pstore", "bpf", "mqueue", "hugetlbfs", "efivarfs", "binfmt_misc", "fusectl", "selinuxfs", "autofs",
    }
)  # fmt: skip
"""File systems that keep no files, or none of a program's."""
_CHUNK_BYTES: Final = 1 << 20


class OwnerMark(Value):
    """Lies in every directory that we make, so that a deletion can tell ours from others. `job` is told from those of
    other fleets (`ids.owner_id`); `token` is of one save, where a place needs it."""

    job: JobId
    attempt: int
    epoch: int
    token: str = ""


class Pin(Value):
    """Why a checkpoint is kept, who said so, and when (microseconds)."""

    reason: str
    by: str
    at: int


class Verdict(Value):
    """What came of reading every byte of a checkpoint: nothing wrong, or a sentence. `at` is in microseconds."""

    sound: bool
    sentence: str
    at: int


def look(root: Path) -> tuple[Entry, ...]:
    """All directories under `root`; empty if there is no such directory."""
    if not root.is_dir():
        return ()
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    return tuple(_entry(root, name) for name in names)


def unusable(root: Path) -> str:
    """Why there can be no directory of checkpoints at `root`, in a sentence; empty if nothing speaks against it. Makes
    nothing: what is missing is made by the first save."""
    above = next((each for each in (root, *root.parents) if os.path.lexists(each)), Path("/"))
    if not above.is_dir():
        return f"{above} is no directory" if above.exists() else f"{above} is a link to nothing"
    kind = _mounted(above.resolve())
    if kind in _PSEUDO:
        return f"{above} is on {kind}, a view of the kernel and no storage"
    if os.access(above, os.W_OK | os.X_OK):
        return ""
    if os.statvfs(above).f_flag & os.ST_RDONLY:
        return f"{above} is on a file system that is read-only"
    return f"{above} cannot be written to by user {os.geteuid()}"


def _mounted(path: Path) -> str:
    """The kind of the file system that a path is on; empty where the table of mounts can't be read."""
    try:
        table = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    kinds: dict[str, str] = {}  # of several at one point the last is on top
    for line in table.splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)] = kind
    return next((kinds[str(each)] for each in (path, *path.parents) if str(each) in kinds), "")


def entry_of(path: Path) -> Entry:
    """What the small files of one directory tell."""
    return _entry(path.parent, path.name)


def _entry(root: Path, name: str) -> Entry:
    if step_of(name) is None and unpublished_of(name) is None:
        return Entry(name=name, complete=False)
    path = root / name
    mark, pin, verdict = owner_of(path), pin_of(path), verdict_of(path)
    return Entry(
        name=name,
        complete=(path / MANIFEST_NAME).is_file(),
        owner=mark.job if mark else None,
        attempt=mark.attempt if mark else 0,
        epoch=mark.epoch if mark else 0,
        pin=pin.reason if pin else "",
        sound=verdict.sound if verdict else None,
    )


def owner_of(path: Path) -> OwnerMark | None:
    return _note(path / OWNER_NAME, OwnerMark)


def encoded(mark: OwnerMark) -> bytes:
    """The bytes of an owner marker."""
    return encode(mark)


def mark_in(data: bytes) -> OwnerMark | None:
    """What an owner marker says; None if it cannot be understood."""
    try:
        return decode(data, OwnerMark)
    except (msgspec.MsgspecError, ValueError):
        return None


def _note(path: Path, kind: type[T]) -> T | None:
    """A small file beside a checkpoint; None if it is not there or cannot be understood (it then says nothing)."""
    try:
        return decode(path.read_bytes(), kind)
    except (FileNotFoundError, msgspec.MsgspecError, ValueError):
        return None


def pin_of(path: Path) -> Pin | None:
    """The pin of a checkpoint. One that cannot be read still pins: somebody wanted it to stay."""
    pin = _note(path / PIN_NAME, Pin)
    if pin is None and (path / PIN_NAME).exists():
        return Pin(reason="its pin cannot be read", by="", at=0)
    return pin


def verdict_of(path: Path) -> Verdict | None:
    return _note(path / VERDICT_NAME, Verdict)


def note(path: Path, name: str, value: Pin | Verdict) -> None:
    """Puts a note beside a checkpoint, whole or not at all, in place of an older one."""
    hidden = path / f".{name}.{os.getpid()}"
    hidden.unlink(missing_ok=True)
    write_synced(hidden, encode(value))
    hidden.rename(path / name)


def observe(path: Path, names: list[str], *, read: bool) -> tuple[Observed, ...]:
    """Sizes (and checksums, if `read`) of those of the named files that are there."""
    found = []
    for name in names:
        try:
            size = (path / name).stat().st_size
            found.append(Observed(name=name, size_bytes=size, crc32=crc32(path / name) if read else None))
        except FileNotFoundError:
            continue
    return tuple(found)


def crc32(path: Path) -> int:
    value = 0
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            value = sum_of(view[:count], value)
    return value


def read_manifest(path: Path) -> Manifest:
    """Raises `OSError`, `msgspec.MsgspecError`, or `ValueError` if its seal is broken."""
    return unsealed((path / MANIFEST_NAME).read_bytes())


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_synced(path / MANIFEST_NAME, sealed(manifest))


def open_staging(path: Path, mark: OwnerMark) -> None:
    """Makes a fresh staging directory; a leftover of the same name (the same step and membership) is removed first."""
    if path.exists():
        remove(path)
    path.mkdir(parents=True)
    write_synced(path / OWNER_NAME, encode(mark))


def remove(path: Path) -> None:
    """Deletes a directory. Cut at any point, what is left neither looks published nor loses its owner."""
    step = step_of(path.name)
    if step is not None:
        mark = owner_of(path)
        aside = path.parent / torn_name(step, 0, mark.job if mark is not None else JobId(""))
        if aside.exists():
            shutil.rmtree(aside)
        path.rename(aside)
        path = aside
    shutil.rmtree(path)


def write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def volume(path: Path) -> Volume:
    """The file system that `path` lies on."""
    told = os.statvfs(path)
    inodes_used = 100 - told.f_favail * 100 // told.f_files if told.f_files else 0
    return Volume(
        path=str(path),
        kind=_kind(path),
        size_bytes=told.f_blocks * told.f_frsize,
        free_bytes=told.f_bavail * told.f_frsize,
        inodes_used_percent=inodes_used,
    )


def _kind(path: Path) -> str:
    """Type of the file system, `unknown` where the system does not tell."""
    table = Path("/proc/self/mounts")
    if not table.exists():
        return "unknown"
    rows = [line.split() for line in table.read_text().splitlines()]
    resolved = path.resolve()
    over = [(len(row[1]), row[2]) for row in rows if resolved.is_relative_to(row[1].replace("\\040", " "))]
    return max(over)[1] if over else "unknown"
