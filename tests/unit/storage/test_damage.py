"""Disks, quotas, clocks and neighbours that do harm: the right message, and never a checkpoint that is half of two."""

import csv
import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.checkpoints import checkpoint
from tests.fakes.command import CommandLine

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import Index
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest, sealed
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import directory, directory_store
from trainmaster.storage.checksum import crc32
from trainmaster.storage.contents import Unsound, locate, look_into
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.pieces import Pieces
from trainmaster.storage.place import Place
from trainmaster.storage.publishing import publishing
from trainmaster.storage.saving import with_shortage
from trainmaster.storage.transfer import write

CASES = Path(__file__).parents[2] / "cases"
ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [0.5, 0.25, 0.125]]
MARK = OwnerMark(job=JobId("job-1"), attempt=0, epoch=0)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """As the kernel does it for a process whose files must not grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("promises", [True, False])
def test_a_limit_is_met_before_the_first_byte_or_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promises: bool
) -> None:
    """1. Files of this process may have a mebibyte. 2. Where the file system promises space, a larger blob is refused
    before anything is written; where it does not, the write says so. 3. No file handle is left, and a blob that fits
    is written then."""
    store = DirectoryStore(tmp_path)
    (tmp_path / "group").mkdir()
    if not promises:
        monkeypatch.setattr(directory_store, "_reserve", lambda file, size_bytes: None)
    before = len(os.listdir("/proc/self/fd"))
    data = bytes(9 << 20)
    with files_of_at_most(1 << 20):
        with pytest.raises(OSError) as caught:
            write(store.create("group", "large", len(data)), Pieces([data]))
        assert caught.value.errno == errno.EFBIG
        write(store.create("group", "small", 1 << 19), Pieces([data[: 1 << 19]]))
    assert len(os.listdir("/proc/self/fd")) == before
    assert store.sizes("group")["small"] == 1 << 19
    assert (tmp_path / "group" / "large").stat().st_size == 0 or not promises


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_quota_is_told_from_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """1. The kernel refuses space on a volume that has plenty. 2. The save fails with that, and the explanation names
    a quota and the command that shows it, and says that what was written is no checkpoint."""

    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    store = DirectoryStore(tmp_path)
    (tmp_path / "group").mkdir()
    monkeypatch.setattr(directory_store, "_reserve", refused)
    with pytest.raises(OSError) as caught:
        store.create("group", "blob", 1 << 20)
    said = with_shortage(str(caught.value), tmp_path / "group", 1 << 20)
    assert "a quota or reserved blocks" in said
    assert "are no checkpoint (see: quota -s" in said
    assert with_shortage("rank 1: it rained", tmp_path / "group", 1) == "rank 1: it rained"


def test_clocks_have_no_say_in_which_is_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The oldest step was written by a host whose clock is in 2096, and its files say so; the newest by one that
    starts in 1970. 2. `ls` and `pull` take the newest step, and cleaning keeps it."""
    line = CommandLine(tmp_path, monkeypatch)
    root = tmp_path / "c"
    clocks = {4: 4_000_000_000_000_000, 8: 1_796_040_000_000_000, 12: 60_000_000}
    for step, at in clocks.items():
        path = checkpoint(root, step, {"w": ROWS, "s": [[float(step)]]})
        manifest = directory.read_manifest(path)
        (path / "manifest.json").write_bytes(sealed(manifest.but(written_at=at)))
        for file in (*path.iterdir(), path):
            os.utime(file, (at / 1e6, at / 1e6))
    listed = json.loads(line.run("ckpt", "ls", str(root), "-o", "json").out)["items"]
    assert [(each["step"], each["written_at"]) for each in listed] == sorted(clocks.items(), reverse=True)
    assert json.loads(line.run("ckpt", "pull", str(root), "d", "-o", "json").out)["name"] == "step-00000012"
    gone = line.run("ckpt", "gc", str(root), "--keep", "1", "--reason", "room", "--yes")
    assert gone.code == 0, gone.err
    assert sorted(each.name for each in root.iterdir()) == ["step-00000012"]


def manifest_of(step: int, files: dict[str, bytes]) -> Manifest:
    return Manifest(
        schema=SCHEMA, job=MARK.job, attempt=AttemptId("job-1.a0"), epoch=0, step=step, world=1,
        position=Position(samples=0, global_batch=1, step=step), writer="host-1",
        files=tuple(FileEntry(name=name, size_bytes=len(each), crc32=crc32(each)) for name, each in files.items()),
    )  # fmt: skip


def test_two_writers_of_one_step_never_mix(tmp_path: Path) -> None:
    """1. Two saves of one step by one job; the second begins while the first one writes shards of the same size.
    2. The first one may not publish what the second one wrote, and says why. 3. The second one publishes its own. 4. A
    third, of another job, is refused, and nothing changes."""
    index = encode(Index(tensors={}))
    first, second = (publishing(Place(str(tmp_path)), MARK, 7) for _ in (0, 1))
    first.open(0)
    assert first.see() == ""
    first.store.put(first.group, "__0_0.distcp", b"first!")
    second.open(0)
    second.store.put(second.group, "__0_0.distcp", b"second")
    second.store.put(second.group, "index.json", index)
    with pytest.raises(OSError, match=r"another writer took \.staging-step-00000007-e0-j[0-9a-f]{8} in .* over"):
        first.publish(manifest_of(7, {"__0_0.distcp": b"first!", "index.json": index}))
    with pytest.raises(FileExistsError):
        first.store.put(first.group, "index.json", index)
    second.publish(manifest_of(7, {"__0_0.distcp": b"second", "index.json": index}))
    with pytest.raises(OSError, match="another writer took"):
        first.publish(manifest_of(7, {"__0_0.distcp": b"first!", "index.json": index}))
    with pytest.raises(FileExistsError, match="is not this job's; move it away"):
        publishing(Place(str(tmp_path)), MARK.but(job=JobId("theirs")), 7).open(0)
    published = tmp_path / "step-00000007"
    assert [each.name for each in tmp_path.iterdir()] == [published.name]
    assert (published / "__0_0.distcp").read_bytes() == b"second"
    assert look_into(*locate(published)).manifest is not None


def test_a_shard_of_a_rank_that_is_not_there(tmp_path: Path) -> None:
    """1. A checkpoint of four ranks lost the shard of one. 2. Another one got the shard of a save at another number of
    ranks in its place. 3. Both are refused with the file, before any tensor is touched."""
    lost = checkpoint(tmp_path / "a", 4, {"w": ROWS}, world=4)
    (lost / "__2_0.distcp").unlink()
    with pytest.raises(Unsound, match=r"__2_0\.distcp is missing"):
        look_into(*locate(lost))
    other = checkpoint(tmp_path / "b", 4, {"w": ROWS}, world=2)
    mixed = checkpoint(tmp_path / "c", 4, {"w": ROWS}, world=4)
    (mixed / "__1_0.distcp").write_bytes((other / "__1_0.distcp").read_bytes())
    with pytest.raises(Unsound, match=r"__1_0\.distcp has 24 of 12 bytes"):
        look_into(*locate(mixed))


def test_a_name_that_this_host_remembers_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The recorded calls of a host whose cache of names is stale: opens fail from the rename elsewhere until the
    directory is listed. 2. The manifest is read all the same, at the first try, so no older checkpoint is taken for
    the newest. 3. What no listing shows is missing; what a listing shows and can't be opened is told as it is."""
    calls = list(csv.DictReader((CASES / "86-enoent-that-listing-cures/trace.csv").read_text().splitlines()))
    failing = [call for call in calls if call["host"] == "B" and call["result"] == "ENOENT"]
    assert [call["t_s"] for call in failing] == ["1.2", "2.0", "9.0"]
    path = checkpoint(tmp_path, 4, {"w": ROWS})
    stale, real_open, real_list = True, os.open, os.listdir

    def opened(name: object, *rest: int, **more: int) -> int:
        if stale and Path(str(name)).name == "manifest.json":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name))
        return real_open(name, *rest, **more)  # type: ignore[arg-type]

    def listed(name: Path) -> list[str]:
        nonlocal stale
        stale = stale and cured is False
        return real_list(name)

    cured = True
    monkeypatch.setattr(os, "listdir", listed)
    monkeypatch.setattr(Path, "read_bytes", lambda self: _read(opened(self, os.O_RDONLY)))
    assert look_into(*locate(path)).manifest is not None
    assert not stale
    with pytest.raises(FileNotFoundError):
        DirectoryStore(tmp_path).get(path.name, "absent.json")
    stale, cured = True, False
    with pytest.raises(FileNotFoundError):
        DirectoryStore(tmp_path).get(path.name, "manifest.json")


def _read(file: int) -> bytes:
    with os.fdopen(file, "rb") as stream:
        return stream.read()
