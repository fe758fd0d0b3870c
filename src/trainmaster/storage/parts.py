"""Files of a checkpoint that is stored from memory, part by part; `core/checkpoint/parts.py` says how it is decided.

Everything may be begun again by a process that was started anew: a staging directory of the same membership is gone on
with, a part that lies there is done, and one that has its manifest needs only its name. What was published is then what
ranks publish in a synchronous save, to the last file name.
"""

import errno
import os
import socket
import threading
import time
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.index import INDEX_NAME, Outline, Stored, index_of_items
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, published_steps, step_name
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest, repeats
from trainmaster.core.checkpoint.pace import Pace, slow_writers
from trainmaster.core.checkpoint.parts import Order, Part, late, missing, objection, part_name
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.publish import outrun_by
from trainmaster.core.checkpoint.retention import retire
from trainmaster.storage import directory
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.checksum import crc32
from trainmaster.storage.contents import Unsound, manifest_in
from trainmaster.storage.directory import OWNER_NAME, OwnerMark
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.foreign import METADATA_NAME
from trainmaster.storage.pieces import Memory, Pieces, address_of
from trainmaster.storage.saving import compare, complete, publish_once, refuse_foreign, refuse_full, with_shortage
from trainmaster.storage.table import table_of
from trainmaster.storage.transfer import THREADS, write

T = TypeVar("T")
_LOOK_S: Final = 0.01
_LOOK_LONG_S: Final = 0.2
_CHANGES_BY_A_WRITER: Final = 5
"""Of names, at most: its shard; its part, hidden and under its name; likewise a part that says why there is none."""


class Shard(Value):
    """What there is to write of one rank."""

    rank: int
    sequence: int
    position: Position
    items: tuple[Stored, ...]


class StoreFailed(Exception):
    """It will not be published, and why."""


class Outrun(Exception):
    """There is nothing left to do: this membership has published the step already, or a later one writes here."""

    def __init__(self, name: str, published: bool) -> None:
        super().__init__(f"{name} is of this membership or a later one")
        self.published = published


class Staging:
    """The hidden directory of a checkpoint that is being stored."""

    def __init__(self, order: Order, cancel: threading.Event) -> None:
        self.order, self.cancel = order, cancel
        self.root = Path(order.directory)
        self.path = self.root / order.staging
        self.mark = OwnerMark(job=order.job, attempt=order.attempt_number(), epoch=order.epoch)
        self._store: BlobStore = DirectoryStore(self.root)

    # --- who publishes ---

    def open(self, needed_bytes: int) -> None:
        """Makes the directory, or goes on with it. Raises `Outrun`, `OSError`."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._refuse_outrun()
        if directory.owner_of(self.path) == self.mark:
            return
        refuse_foreign(self.root, directory.look(self.root), self.order.step, self.order.job)
        refuse_full(self.root, needed_bytes)
        directory.open_staging(self.path, self.mark)

    def gather(self, position: Position, hosts: dict[int, str], limit_s: float) -> dict[int, Part]:
        """The parts of all ranks, as soon as they are there. Raises `StoreFailed`, `Outrun`."""
        parts: dict[int, Part] = {}
        started = time.monotonic()
        pause_s = _LOOK_S
        while True:
            names = _listed(self.path)
            for rank in missing(parts, self.order.world):
                part = _read(self.path / part_name(rank), Part) if names and part_name(rank) in names else None
                if part is not None:
                    parts[rank] = part
                    pause_s = _LOOK_S
            problem = objection(parts, self.order, position)
            left = missing(parts, self.order.world)
            waited_s = time.monotonic() - started
            if problem is None and left and waited_s > limit_s:
                problem = late(left, hosts, waited_s)
            if problem is not None:
                raise StoreFailed(problem.sentence)
            if not left:
                return parts
            if names is None:
                self._refuse_outrun()
                raise StoreFailed(f"{self.order.staging} was removed")
            if self.cancel.wait(pause_s):
                raise StoreFailed(f"given up while {len(left)} of {self.order.world} ranks had not written")
            pause_s = min(2 * pause_s, _LOOK_LONG_S)

    def is_complete(self) -> bool:
        """Whether all is there but the name (whoever did this died just before)."""
        try:
            compare(self.path, manifest_in(self._store, self.order.staging))
        except (OSError, Unsound):
            return False
        return True

    def assemble(self, parts: dict[int, Part], outline: Outline, position: Position) -> str:
        """Makes index, table and manifest; a complaint about slow writers, or nothing. Raises `StoreFailed`,
        `OSError`."""
        told = [parts[rank] for rank in range(self.order.world)]
        items = [item for part in told for item in part.items]
        try:
            index = index_of_items(outline, items, {part.file.name: part.sums for part in told if part.file})
        except KeyError as error:
            raise StoreFailed(f"no rank has written {error}") from error
        small = {METADATA_NAME: table_of(index), INDEX_NAME: encode(index)}
        for name in (*small, MANIFEST_NAME):
            (self.path / name).unlink(missing_ok=True)
        for name, data in small.items():
            self._store.put(self.order.staging, name, data)
        entries = [FileEntry(name=name, size_bytes=len(data), crc32=crc32(data)) for name, data in small.items()]
        manifest = Manifest(
            schema=SCHEMA,
            job=self.order.job,
            attempt=self.order.attempt,
            epoch=self.order.epoch,
            step=self.order.step,
            world=self.order.world,
            position=position,
            files=(*(part.file for part in told if part.file is not None), *entries),
            writer=socket.gethostname(),
            written_at=time.time_ns() // 1000,
        )
        complete(self.path, manifest)
        paces = [part.pace for part in told if part.pace is not None]
        return "; ".join(problem.sentence for problem in slow_writers(paces))

    def publish(self) -> str:
        """Gives the directory its name; a complaint if it is equal to an older one. Raises `Outrun`, `OSError`."""
        self._refuse_outrun()
        manifest = manifest_in(self._store, self.order.staging)
        stays = {*(file.name for file in manifest.files), MANIFEST_NAME, OWNER_NAME}
        for name in set(os.listdir(self.path)) - stays:  # parts, and what was left of those who died
            (self.path / name).unlink()
        final = step_name(self.order.step)
        if not publish_once(self.path, self.root / final, self.mark):
            raise Outrun(final, published=True)
        return self._repeated()

    def retire(self) -> str:
        """Deletes what retention says; a complaint or nothing. Saves of this membership may be under way, so what is
        unfinished is judged as if by the one before."""
        try:
            plan = retire(
                directory.look(self.root),
                keep=self.order.keep,
                job=self.order.job,
                attempt=self.mark.attempt,
                epoch=self.mark.epoch - 1,
            )
            for name in plan.delete:
                directory.remove(self.root / name)
        except OSError as error:
            return f"old checkpoints stay: {error}"
        return ""

    def discard(self, sentence: str, needed_bytes: int) -> str:
        """Removes the directory of a save that failed; the sentence, with what a lack of space means here. A writer
        that does not know yet may change what is being removed, but each has only a few files to put. What can't be
        removed even so stays hidden and goes with the retention of a later membership."""
        told, tries = "", _CHANGES_BY_A_WRITER * self.order.world
        while self.path.exists():
            try:
                told = told or with_shortage(sentence, self.path, needed_bytes)
                directory.remove(self.path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or tries == 0:
                    return f"{told or sentence}; and {self.order.staging} could not be removed: {error}"
                tries -= 1
        return told or sentence

    def _refuse_outrun(self) -> None:
        mark, step = self.mark, self.order.step
        entries = directory.look(self.root)
        by = outrun_by(entries, step=step, job=mark.job, attempt=mark.attempt, epoch=mark.epoch)
        if by is not None:
            raise Outrun(by.name, published=by.complete and by.name == step_name(step))

    def _repeated(self) -> str:
        steps = published_steps(directory.look(self.root))
        manifests = []
        for step in steps:
            try:
                manifests.append(manifest_in(self._store, step_name(step)))
            except (Unsound, OSError):
                continue  # damaged, or retired in this moment: whoever loads it says so
        problem = next((repeats(each, manifests) for each in manifests if each.step == self.order.step), None)
        return problem.sentence if problem else ""

    # --- who writes ---

    def await_opened(self, limit_s: float) -> None:
        """Returns when the directory is there. Raises `StoreFailed`, `Outrun`."""
        deadline = time.monotonic() + limit_s
        pause_s = _LOOK_S
        while True:
            names = _listed(self.root)
            if names and self.order.staging in names and directory.owner_of(self.path) == self.mark:
                return
            if names is not None:
                self._refuse_outrun()
            if time.monotonic() > deadline:
                raise StoreFailed(
                    f"{socket.gethostname()} does not see {self.order.staging} in {self.root} after {limit_s:.0f} s: "
                    "the vault of rank 0 has not made it, or the directory is not shared by all hosts"
                )
            if self.cancel.wait(pause_s):
                raise StoreFailed("given up before it began")
            pause_s = min(2 * pause_s, _LOOK_LONG_S)

    def holds(self, shard: Shard) -> bool:
        """Whether the part of this very snapshot was put (whoever wrote it was started anew). A shard whose part was
        put is never touched again: who publishes may be at it. Parts go when the manifest is there: hence the order."""
        names = _listed(self.path) or frozenset()
        part = _read(self.path / part_name(shard.rank), Part) if part_name(shard.rank) in names else None
        if part is not None:
            return part.sequence == shard.sequence and not part.failure
        return MANIFEST_NAME in (_listed(self.path) or ())

    def write(self, shard: Shard, payload: memoryview, writer: str, threads: int = THREADS) -> Part:
        """Writes a shard and makes it durable; its part, which is not put yet. Raises `OSError`."""
        made = Part(
            rank=shard.rank,
            sequence=shard.sequence,
            epoch=self.order.epoch,
            world=self.order.world,
            position=shard.position,
            writer=writer,
            items=shard.items,
        )
        if not shard.items:
            return made
        name = shard.items[0].file
        assert {item.file for item in shard.items} == {name}, "one file a rank"
        (self.path / name).unlink(missing_ok=True)
        started = time.monotonic()
        sink = self._store.create(self.order.staging, name, len(payload))
        written = write(sink, Pieces([Memory(address_of(payload), len(payload), payload)]), threads)
        duration = round(1e6 * (time.monotonic() - started))
        return made.but(
            file=FileEntry(name=name, size_bytes=written.size_bytes, crc32=written.crc32),
            sums=written.sums,
            pace=Pace(writer=f"rank {shard.rank} on {writer}", size_bytes=written.size_bytes, duration=duration),
        )

    def put(self, part: Part) -> None:
        """The last thing that a writer does. Raises `OSError`."""
        hidden = self.path / f".{part_name(part.rank)}.{os.getpid()}"
        hidden.unlink(missing_ok=True)
        directory.write_synced(hidden, encode(part))
        hidden.rename(self.path / part_name(part.rank))
        directory.sync_directory(self.path)

    def fail(self, shard: Shard, writer: str, why: str) -> None:
        """Says that there will be no shard, and frees its space. Raises `OSError`."""
        for name in {item.file for item in shard.items}:
            (self.path / name).unlink(missing_ok=True)
        self.put(
            Part(
                rank=shard.rank,
                sequence=shard.sequence,
                epoch=self.order.epoch,
                world=self.order.world,
                position=shard.position,
                writer=writer,
                failure=why,
            )
        )


def _listed(path: Path) -> frozenset[str] | None:
    """What is in a directory; None if there is none. Asked before a name is: hosts that share a file system remember
    for seconds that a name was not there, and a listing cures that."""
    try:
        return frozenset(os.listdir(path))
    except FileNotFoundError:
        return None


def _read(path: Path, kind: type[T]) -> T | None:
    """A small file that is there whole or not at all; None also for what can't be understood, or not be read yet."""
    try:
        return decode(path.read_bytes(), kind)
    except msgspec.MsgspecError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):
            return None
        raise
