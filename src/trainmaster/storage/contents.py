"""What is in a checkpoint, as far as small files tell: manifest, index, sizes.

`look_into` answers without reading a shard. It is sound as far as it goes (the manifest's seal, the index's checksum,
every file there with its size), so a reader needs to verify no more than the blocks that it reads. A checkpoint of
another program has no manifest; its table of contents is believed as it is, and it is said that nothing guards it.
"""

import os
from collections.abc import Mapping

import msgspec

from trainmaster.core.base.value import Value, decode
from trainmaster.core.checkpoint.index import INDEX_NAME, Chunk, Index, Plain, gaps
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, Problem, step_of
from trainmaster.core.checkpoint.manifest import FileEntry, Manifest, Observed, check, unsealed
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.checksum import crc32
from trainmaster.storage.directory import OWNER_NAME
from trainmaster.storage.foreign import METADATA_NAME, NoTable, index_of
from trainmaster.storage.place import Place


class Unsound(Exception):
    """A checkpoint that cannot be used, and why. The first problem is the message."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        assert problems
        super().__init__(problems[0].sentence)
        self.problems = problems

    def __reduce__(self) -> tuple[type["Unsound"], tuple[tuple[Problem, ...]]]:
        return Unsound, (self.problems,)


class Contents(Value):
    """`manifest` is None for a checkpoint that another program wrote."""

    manifest: Manifest | None
    index: Index


def locate(path: str | os.PathLike[str]) -> tuple[BlobStore, str]:
    """The store and the name of a checkpoint given by the path of its directory, or by `s3://BUCKET/PREFIX/NAME`.
    Raises as `Place`."""
    return Place(os.fspath(path)).located()


def look_into(store: BlobStore, group: str) -> Contents:
    """What is in a checkpoint. Raises `Unsound`, also for what cannot be read."""
    try:
        sizes = store.sizes(group)
        if MANIFEST_NAME in sizes:
            return _ours(store, group, sizes)
        left = [name for name in (OWNER_NAME, INDEX_NAME) if name in sizes]
        if left:
            sentence = f"{group} is one of ours without its {MANIFEST_NAME} ({left[0]} is there): nothing says what its"
            raise Unsound((_problem("manifest-missing", f"{sentence} bytes should be"),))
        if METADATA_NAME in sizes:
            return _foreign(store, group, sizes)
    except FileNotFoundError:
        raise Unsound((_problem("no-such-checkpoint", f"there is no checkpoint {group}"),)) from None
    except OSError as error:
        raise Unsound((_problem("unreadable-file", f"{group} cannot be read: {error}"),)) from error
    sentence = f"{group} has neither {MANIFEST_NAME} nor {METADATA_NAME}: it is no checkpoint, or was never finished"
    raise Unsound((_problem("no-checkpoint", sentence),))


def manifest_in(store: BlobStore, group: str) -> Manifest:
    """Raises `Unsound` if it is damaged, `OSError`."""
    try:
        return unsealed(store.get(group, MANIFEST_NAME))
    except (msgspec.MsgspecError, ValueError) as error:
        sentence = f"{group}/{MANIFEST_NAME} cannot be read: {error}"
        raise Unsound((_problem("manifest-unreadable", sentence),)) from error


def _ours(store: BlobStore, group: str, sizes: Mapping[str, int]) -> Contents:
    manifest = manifest_in(store, group)
    step = step_of(group)
    seen = [Observed(name=name, size_bytes=size) for name, size in sizes.items()]
    problems = check(manifest, seen, step=manifest.step if step is None else step, deep=False)
    if problems:
        raise Unsound(problems)
    listed = {file.name: file for file in manifest.files}
    if INDEX_NAME not in listed:
        raise Unsound((_problem("missing-file", f"the manifest does not list {INDEX_NAME}"),))
    data = store.get(group, INDEX_NAME)
    if crc32(data) != listed[INDEX_NAME].crc32:
        sentence = f"{INDEX_NAME} has its size but not its content: its checksum differs"
        raise Unsound((_problem("checksum-mismatch", sentence),))
    return Contents(manifest=manifest, index=_within(decode(data, Index), listed))


def _foreign(store: BlobStore, group: str, sizes: Mapping[str, int]) -> Contents:
    try:
        index = index_of(store.get(group, METADATA_NAME))
    except NoTable as error:
        raise Unsound((_problem("metadata-unreadable", f"{group}: {error}"),)) from error
    missing = sorted(index.files() - sizes.keys())
    if missing:
        sentence = f"{missing[0]} is missing; {len(missing)} of {len(index.files())} files are not there"
        raise Unsound((_problem("missing-file", sentence, missing=len(missing)),))
    ends: dict[str, int] = {}
    items: list[Chunk | Plain] = [chunk for tensor in index.tensors.values() for chunk in tensor.chunks]
    for item in (*items, *index.values.values()):
        ends[item.file] = max(ends.get(item.file, 0), item.offset + item.length)
    short = sorted(name for name, end in ends.items() if sizes[name] < end)
    if short:
        sentence = f"{short[0]} has {sizes[short[0]]} of at least {ends[short[0]]} bytes"
        raise Unsound((_problem("short-file", sentence, size_bytes=sizes[short[0]]),))
    return Contents(manifest=None, index=_whole(index))


def _within(index: Index, listed: Mapping[str, FileEntry]) -> Index:
    outside = sorted(index.files() - listed.keys())
    if outside:
        sentence = f"the index points to {outside[0]}, which the manifest does not list; refused"
        raise Unsound((_problem("unlisted-file", sentence),))
    return _whole(index)


def _whole(index: Index) -> Index:
    problems = tuple(problem for name, tensor in index.tensors.items() if (problem := gaps(name, tensor)))
    if problems:
        raise Unsound(problems)
    return index


def _problem(token: str, sentence: str, **numbers: int) -> Problem:
    return Problem(token=token, sentence=sentence, numbers=numbers)
