"""Whole checkpoints without PyTorch: verify every byte, put tensors together, compare, export.

One thing is done for all four: a tensor is put together from its chunks, whatever number of ranks wrote them. Memory is
that of the largest tensor (twice for a comparison), not that of the checkpoint.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from trainmaster.core.checkpoint.index import (
    BLOCK_BYTES,
    ITEM_BYTES,
    UNKNOWN,
    Chunk,
    Difference,
    Index,
    Tensor,
    differences,
)
from trainmaster.core.checkpoint.listing import Problem
from trainmaster.core.checkpoint.manifest import FileEntry
from trainmaster.storage.blob_store import BlobStore, Source
from trainmaster.storage.checksum import crc32
from trainmaster.storage.contents import Contents, Unsound, locate, look_into
from trainmaster.storage.directory import sync_directory
from trainmaster.storage.item import NotPlain, payload_of
from trainmaster.storage.place import Place
from trainmaster.storage.transfer import Damage, Want, read, scan

_RUN_BYTES: Final = 8 << 20
SAFETENSORS_TYPES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}  # fmt: skip


class Opened:
    """A checkpoint that was looked into."""

    def __init__(self, path: str | os.PathLike[str] | Place) -> None:
        """Raises as `Place` and `look_into`."""
        self.store, self.group = path.located() if isinstance(path, Place) else locate(path)
        self.contents = look_into(self.store, self.group)

    @property
    def index(self) -> Index:
        return self.contents.index


def verify(opened: Opened) -> tuple[Problem, ...]:
    """Reads every byte of a checkpoint of ours; what is wrong with it, or nothing. Raises `OSError`."""
    manifest = opened.contents.manifest
    assert manifest is not None, "nothing says what the bytes of a foreign checkpoint should be"
    found = [_verify_file(opened.store, opened.group, file, opened.contents) for file in manifest.files]
    return tuple(problem for problem in found if problem is not None)


def _verify_file(store: BlobStore, group: str, file: FileEntry, contents: Contents) -> Problem | None:
    sums = contents.index.sums.get(file.name)
    source = store.open(group, file.name)
    try:
        if sums is not None:
            scan(source, file.name, sums)
        elif (whole := _sum_of(source)) != file.crc32:
            sentence = f"{file.name} has its size but not its content: CRC-32 {whole:08x}, expected {file.crc32:08x}"
            return Problem(token="checksum-mismatch", sentence=sentence, files=(file.name,))
    except Damage as damage:
        return _damage(file.name, damage.blocks, contents.index)
    except EOFError as error:
        return Problem(token="short-file", sentence=str(error), files=(file.name,))
    finally:
        source.close()
    return None


def _sum_of(source: Source) -> int:
    whole = 0
    for start in range(0, source.size_bytes, _RUN_BYTES):
        stretch = memoryview(bytearray(min(_RUN_BYTES, source.size_bytes - start)))
        source.read_into([stretch], start)
        whole = crc32(stretch, whole)
    return whole


def _damage(name: str, blocks: Sequence[int], index: Index) -> Problem:
    """Says where a file is damaged, and what lies there."""
    spans = [range(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES) for block in blocks]
    hit = sorted(
        tensor_name
        for tensor_name, tensor in index.tensors.items()
        if any(_touches(chunk, name, span) for chunk in tensor.chunks for span in spans)
    )
    what = f" (tensors: {', '.join(hit[:3])}{' and others' if len(hit) > 3 else ''})" if hit else ""
    sentence = f"{Damage(name, blocks)}{what}"
    return Problem(token="checksum-mismatch", sentence=sentence, numbers={"blocks": len(blocks)}, files=(name,))


def _touches(chunk: Chunk, file: str, span: range) -> bool:
    return chunk.file == file and chunk.offset < span.stop and span.start < chunk.offset + chunk.length


def assemble(opened: Opened, name: str) -> bytearray:
    """The elements of a tensor in row-major order, verified where there are sums.

    Raises `Damage`, `NotPlain` (a foreign tensor in another layout), `OSError`.
    """
    tensor = opened.index.tensors[name]
    item_bytes = ITEM_BYTES.get(tensor.dtype)
    if item_bytes is None:
        raise NotPlain(f"{name} is of type {tensor.dtype}, whose elements are not whole bytes that we know")
    into = bytearray(tensor.size_bytes())
    view = memoryview(into)
    for chunk in tensor.chunks:
        source = opened.store.open(opened.group, chunk.file)
        try:
            start = chunk.payload if chunk.payload != UNKNOWN else payload_of(source, chunk)
            wants = list(_runs(tensor, chunk, start, item_bytes, view))
            read(source, chunk.file, wants, opened.index.sums.get(chunk.file))
        except NotPlain as error:
            raise NotPlain(f"{name} cannot be read without PyTorch: {error}") from error
        finally:
            source.close()
    return into


def _runs(tensor: Tensor, chunk: Chunk, start: int, item_bytes: int, into: memoryview) -> Iterator[Want]:
    """Stretches of a chunk that lie in one piece in the whole tensor, too."""
    assert len(chunk.sizes) == len(tensor.shape)
    split = len(tensor.shape)
    while split > 0 and chunk.sizes[split - 1] == tensor.shape[split - 1]:
        split -= 1
    outer = max(split - 1, 0)  # dimensions over which the stretches are strewn
    run = item_bytes
    for size in chunk.sizes[outer:]:
        run *= size
    steps = [item_bytes] * len(tensor.shape)
    for place in reversed(range(len(tensor.shape) - 1)):
        steps[place] = steps[place + 1] * tensor.shape[place + 1]
    corner = sum(offset * step for offset, step in zip(chunk.offsets, steps, strict=True))
    for number, at in enumerate(itertools.product(*(range(size) for size in chunk.sizes[:outer]))):
        target = corner + sum(place * step for place, step in zip(at, steps, strict=False))
        yield Want(start + number * run, into[target : target + run])


def compare(left: Opened, right: Opened) -> Iterator[Difference]:
    """Every tensor that differs, in order of name: in being there, shape, type, or any bit. Raises as `assemble`."""
    known = {each.name: each for each in differences(left.index, right.index)}
    for name in sorted({*left.index.tensors, *right.index.tensors}):
        if name in known:
            yield known[name]
            continue
        one, other = assemble(left, name), assemble(right, name)
        if one != other:
            yield _content(name, left.index.tensors[name], one, other)


def _content(name: str, tensor: Tensor, one: bytearray, other: bytearray) -> Difference:
    size = ITEM_BYTES[tensor.dtype]
    places = [at for at in range(0, len(one), size) if one[at : at + size] != other[at : at + size]]
    said = f"{len(places)} of {len(one) // size} elements"
    return Difference(name=name, kind="content", left=said, right=f"the first at {places[0] // size}")


def export(opened: Opened, file: Path, names: Mapping[str, str], about: Mapping[str, str]) -> int:
    """Writes tensors as a safetensors file, whole or not at all; returns its size in bytes.

    `names` gives each tensor of the checkpoint its name in the file; `about` are texts for its header. Raises
    `NotPlain`, `Damage`, `OSError`, and `Unsound` for a type that the format does not have.
    """
    header, at = {"__metadata__": dict(about)} if about else {}, 0
    for name, new in names.items():
        tensor = opened.index.tensors[name]
        if tensor.dtype not in SAFETENSORS_TYPES:
            sentence = f"{name} is of type {tensor.dtype}, which safetensors files do not have"
            raise Unsound((Problem(token="no-such-type", sentence=sentence),))
        end = at + tensor.size_bytes()
        form = {"dtype": SAFETENSORS_TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        header[new] = form  # type: ignore[assignment]
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    hidden = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with hidden.open("xb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                stream.write(assemble(opened, name))
            stream.flush()
            os.fsync(stream.fileno())
        hidden.rename(file)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync_directory(file.absolute().parent)
    return 8 + len(text) + at
