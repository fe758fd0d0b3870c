"""Copies a checkpoint from any store into a directory: verified on the way, resumable, there at once or not at all.

Bytes go into a hidden directory beside the final one. What lies in it is believed block by block, as far as its sums
agree with the manifest, and the rest is fetched; so a copy that was cut, by whatever and wherever, goes on where it
was, and a hole, a torn block or a leftover of another checkpoint is only something that is fetched again. Every block
is compared before it is written. When all are there and synced, the manifest goes in, the verdict that every byte was
read, and a rename publishes it.

Only checkpoints of ours are copied: nothing says what the bytes of another program's should be, and to copy unseen what
cannot be verified is what other tools are for. One copy at a time: a second one finds the hidden directory locked.
"""

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, PULL_PREFIX, Problem, step_name, step_of
from trainmaster.core.checkpoint.manifest import FileEntry, Manifest
from trainmaster.core.checkpoint.space import before_save
from trainmaster.storage import directory
from trainmaster.storage.blob_store import BlobStore, Source
from trainmaster.storage.buffers import BUFFER_BYTES, POOL
from trainmaster.storage.checksum import crc32
from trainmaster.storage.contents import Contents, Unsound, look_into
from trainmaster.storage.directory import OWNER_NAME, VERDICT_NAME, Verdict
from trainmaster.storage.place import Shelf
from trainmaster.storage.transfer import THREADS, Damage

_TRIES: Final = 2
_OURS: Final = (MANIFEST_NAME, OWNER_NAME, VERDICT_NAME)
Progress = Callable[[int, int], None]
"""Is told how many bytes of how many are there and verified."""


class Pulled(Value):
    """`fetched_bytes` is what was not there yet; 0 where the whole checkpoint was."""

    name: str
    size_bytes: int
    fetched_bytes: int


class Occupied(Exception):
    """Something else stands where the copy would be, or is copied there right now."""


def candidates(store: Shelf) -> list[str]:
    """Names of what claims to be a checkpoint, newest step first. Clocks have no say in it."""
    named = [(step, name) for name in store.groups() if (step := step_of(name)) is not None]
    return [name for _, name in sorted(named, reverse=True)]


def pull(store: BlobStore, group: str, root: Path, progress: Progress) -> Pulled:
    """Copies a checkpoint below `root`, as `step-NNNNNNNN`.

    Raises `Unsound` for what is no whole checkpoint of ours, `Damage` for bytes that are not those of its manifest,
    `Occupied`, `OSError`, `EOFError`.
    """
    contents = look_into(store, group)
    manifest = contents.manifest
    if manifest is None:
        sentence = f"{group} is another program's: nothing says what its bytes should be, so no copy can be verified"
        raise Unsound((Problem(token="foreign-checkpoint", sentence=sentence),))
    odd = [file.name for file in manifest.files if "/" in file.name or file.name in ("", ".", "..", *_OURS)]
    if odd:
        raise Unsound((Problem(token="unlisted-file", sentence=f"the manifest names {odd[0]!r}, which is refused"),))
    final = root / step_name(manifest.step)
    if final.exists():
        return _there(final, manifest)
    hidden = root / f"{PULL_PREFIX}{final.name}"
    hidden.mkdir(parents=True, exist_ok=True)
    with _locked(hidden):
        _forget_others(hidden, manifest)
        fetched = _Copy(store, group, hidden, contents, progress).run(manifest)
        _finish(store, group, hidden, final, manifest)
    return Pulled(name=final.name, size_bytes=manifest.size_bytes(), fetched_bytes=fetched)


def _there(final: Path, manifest: Manifest) -> Pulled:
    """A copy of the same checkpoint that is there already needs no other. Its bytes were verified when it came."""
    try:
        same = directory.read_manifest(final) == manifest
    except (OSError, ValueError):
        same = False
    if not same:
        raise Occupied(f"{final} is another checkpoint, or a damaged one; it is not replaced")
    return Pulled(name=final.name, size_bytes=manifest.size_bytes(), fetched_bytes=0)


@contextmanager
def _locked(hidden: Path) -> Iterator[None]:
    handle = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Occupied(f"another copy into {hidden} is under way") from None
    try:
        yield
    finally:
        os.close(handle)


def _forget_others(hidden: Path, manifest: Manifest) -> None:
    """Takes away what no file of the manifest is: it would be published with it."""
    known = {file.name for file in manifest.files}
    for entry in list(os.scandir(hidden)):
        if entry.name in known and entry.is_file(follow_symlinks=False):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


class _Copy:
    def __init__(self, store: BlobStore, group: str, hidden: Path, contents: Contents, progress: Progress) -> None:
        self._store, self._group, self._hidden, self._progress = store, group, hidden, progress
        self._sums = contents.index.sums
        self._lock = threading.Lock()
        self._done = self._fetched = self._total = 0

    def run(self, manifest: Manifest) -> int:
        """Bytes that were fetched."""
        self._total = manifest.size_bytes()
        held = sum(os.stat(entry).st_blocks * 512 for entry in os.scandir(self._hidden))
        lacking = before_save(directory.volume(self._hidden), max(0, self._total - held))
        full = [problem for problem in lacking if problem.token == "no-space"]
        if full:
            raise OSError(errno.ENOSPC, full[0].sentence, str(self._hidden.parent))
        for file in sorted(manifest.files, key=lambda each: each.name):
            self._file(file)
        return self._fetched

    def _file(self, file: FileEntry) -> None:
        sums = self._sums.get(file.name)
        source = self._store.open(self._group, file.name)
        handle = os.open(self._hidden / file.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(handle, file.size_bytes)
            if sums is None:
                self._stretch(source, handle, file, 0, file.size_bytes, lambda data: _whole(file, data))
            else:
                self._stretches(source, handle, file, sums)
            os.fsync(handle)
        finally:
            os.close(handle)
            source.close()

    def _stretches(self, source: Source, handle: int, file: FileEntry, sums: str) -> None:
        def one(start: int) -> None:
            size = min(BUFFER_BYTES, file.size_bytes - start)
            self._stretch(source, handle, file, start, size, lambda data: _blocks(start, data, sums))

        with ThreadPoolExecutor(THREADS) as pool:
            futures = [pool.submit(one, start) for start in range(0, file.size_bytes, BUFFER_BYTES)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _stretch(
        self,
        source: Source,
        handle: int,
        file: FileEntry,
        start: int,
        size: int,
        judge: Callable[[memoryview], list[int]],
    ) -> None:
        """Takes a stretch as it is if its sums agree; fetches it otherwise, and once more if it came damaged."""
        with POOL.borrow() as buffer:
            data = buffer[:size] if size <= len(buffer) else memoryview(bytearray(size))
            fetched = 0
            if os.preadv(handle, [data], start) != size or judge(data):
                for tried in range(_TRIES):
                    source.read_into([data], start)
                    damaged = judge(data)
                    if not damaged:
                        break
                    if tried == _TRIES - 1:
                        raise Damage(file.name, damaged)
                fetched = size
                written = 0
                while written < size:
                    written += os.pwrite(handle, data[written:], start + written)
        with self._lock:
            self._done += size
            self._fetched += fetched
            self._progress(self._done, self._total)


def _whole(file: FileEntry, data: memoryview) -> list[int]:
    return [] if crc32(data) == file.crc32 else [0]


def _blocks(start: int, data: memoryview, sums: str) -> list[int]:
    """Numbers of the blocks that are not what they should be."""
    first = start // BLOCK_BYTES
    return [
        first + number
        for number, at in enumerate(range(0, len(data), BLOCK_BYTES))
        if f"{crc32(data[at : at + BLOCK_BYTES]):08x}" != sums[8 * (first + number) : 8 * (first + number) + 8]
    ]


def _finish(store: BlobStore, group: str, hidden: Path, final: Path, manifest: Manifest) -> None:
    """Publishes the copy. Whose it is goes with it; what was noted about it elsewhere (pins, verdicts) does not."""
    if OWNER_NAME in store.sizes(group):
        directory.write_synced(hidden / OWNER_NAME, store.get(group, OWNER_NAME))
    verdict = Verdict(sound=True, sentence="", at=time.time_ns() // 1000)
    directory.note(hidden, VERDICT_NAME, verdict)
    directory.write_manifest(hidden, manifest)
    directory.sync_directory(hidden)
    try:
        hidden.rename(final)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise Occupied(f"{final} appeared while it was copied; it is not replaced") from error
        raise
    directory.sync_directory(final.parent)
