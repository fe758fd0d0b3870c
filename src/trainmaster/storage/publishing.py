"""How a save becomes visible, by the kind of place: in a directory by a rename, in a bucket by its manifest.

In a directory a save begins with a hidden directory that bears a token of this very save. A second writer of the step
takes what it finds for a leftover and begins anew; if the first one was alive after all, it finds its token gone when
it wants to publish, and publishes nothing.

In a bucket nothing can be hidden and nothing renamed, so a save begins with a claim: the owner's mark, put on condition
that there is none. It carries a token of this very save, and shards carry the token in their names. So two writers of
one step never write to the same object: the second one finds the claim of another job, or of a published checkpoint,
and is refused; or it finds a save of its own job that has not ended, takes that for a leftover, clears it and claims
anew; the first one then publishes nothing, as above.

What is published in a bucket is not written over, by nobody: there is no moment at which one could be there for the
other. Remove it first.
"""

import uuid
from pathlib import Path
from typing import Protocol

from trainmaster.core.checkpoint.listing import MANIFEST_NAME, staging_name, step_name
from trainmaster.core.checkpoint.manifest import Manifest, Observed, check, sealed
from trainmaster.storage import directory
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.directory import OWNER_NAME, OwnerMark, encoded
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.place import Place, Shelf
from trainmaster.storage.saving import complete, publish, refuse_foreign, refuse_full, see


class Publishing(Protocol):
    """A save of one step. `store` and `group` are where its blobs go."""

    store: BlobStore
    group: str

    def open(self, needed_bytes: int) -> None:
        """The coordinator, before anybody writes. Raises `OSError`, `FileExistsError` for what must not be replaced."""
        ...

    def see(self) -> str:
        """Every rank, before it writes: what to add to the names of shards. Raises `OSError` if it does not see what
        the coordinator made."""
        ...

    def publish(self, manifest: Manifest) -> None:
        """The coordinator, when all is written. Raises `OSError`."""
        ...


def publishing(place: Place, mark: OwnerMark, step: int) -> Publishing:
    """Raises `NoClient`, `NoAccess`."""
    if place.path is not None:
        return InDirectory(place.path, mark, step)
    return InBucket(place.shelf(), str(place), mark, step)


class InDirectory:
    """See `Publishing`."""

    def __init__(self, root: Path, mark: OwnerMark, step: int) -> None:
        self._root, self._step = root, step
        self._mark = mark.but(token=uuid.uuid4().hex[:12])
        self.store: BlobStore = DirectoryStore(root)
        self.group = staging_name(step, mark.epoch, mark.job)

    def open(self, needed_bytes: int) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        refuse_foreign(self._root, directory.look(self._root), self._step, self._mark.job)
        refuse_full(self._root, needed_bytes)
        directory.open_staging(self._root / self.group, self._mark)

    def see(self) -> str:
        see(self._root, self.group)
        return ""

    def publish(self, manifest: Manifest) -> None:
        staging = self._root / self.group
        if not staging.exists() or directory.owner_of(staging) != self._mark:
            raise OSError(f"another writer took {self.group} in {self._root} over; this one publishes nothing")
        complete(staging, manifest)
        publish(staging, self._root / step_name(self._step), self._mark)


class InBucket:
    """See `Publishing`."""

    def __init__(self, shelf: Shelf, where: str, mark: OwnerMark, step: int) -> None:
        self._shelf, self._where = shelf, where
        self._mark = mark.but(token=uuid.uuid4().hex[:12])
        self.store: BlobStore = shelf
        self.group = step_name(step)

    def open(self, needed_bytes: int) -> None:
        there = self._names()
        if MANIFEST_NAME in there:
            raise FileExistsError(f"{self.group} in {self._where} is published already; it is not written over")
        if there:
            found = directory.mark_in(self.store.get(self.group, OWNER_NAME)) if OWNER_NAME in there else None
            if found is None or found.job != self._mark.job:
                raise FileExistsError(f"{self.group} in {self._where} is not this job's; remove it")
            self._clear(there)
        self.store.put(self.group, OWNER_NAME, encoded(self._mark))

    def see(self) -> str:
        found = directory.mark_in(self.store.get(self.group, OWNER_NAME))
        if found is None or found.job != self._mark.job:
            raise OSError(f"{self.group} in {self._where} is claimed by somebody else")
        return f".{found.token}"

    def publish(self, manifest: Manifest) -> None:
        found = directory.mark_in(self.store.get(self.group, OWNER_NAME))
        if found != self._mark:
            raise OSError(f"another writer took {self.group} in {self._where} over; this one publishes nothing")
        sizes = self.store.sizes(self.group)
        seen = [Observed(name=name, size_bytes=size) for name, size in sizes.items()]
        problems = check(manifest, seen, step=manifest.step, deep=False)
        if problems:
            raise OSError(f"what was written does not verify: {problems[0].sentence}")
        self.store.put(self.group, MANIFEST_NAME, sealed(manifest))

    def _names(self) -> list[str]:
        try:
            return sorted(self.store.sizes(self.group))
        except FileNotFoundError:
            return []

    def _clear(self, names: list[str]) -> None:
        """Takes a leftover away, the claim last: cut at any point, what is left is still a leftover of this job."""
        self._shelf.remove(self.group, [name for name in names if name != OWNER_NAME])
        self._shelf.remove(self.group, [OWNER_NAME])
