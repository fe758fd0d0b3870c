"""The index: which bytes of which file are which part of which tensor, and what every block of them sums to.

The manifest says that a checkpoint is whole; the index says what is in it. Together they replace the pickle that
PyTorch's format keeps for the same purpose: nothing has to be executed to know what lies there, to read it at another
number of ranks, to compare two checkpoints or to export one. It is a file of its own, because a list of checkpoints
reads all manifests and needs none of this.

Sums are CRC-32 of blocks of one mebibyte, so that a rank which needs a tenth of a file reads and verifies a tenth of
it, and damage has a place. A tensor is a list of chunks (boxes that do not overlap and together fill it), as in
PyTorch's metadata; a box lies in its file in row-major order.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final

import msgspec

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

INDEX_NAME: Final = "index.json"
BLOCK_BYTES: Final = 1 << 20
UNKNOWN: Final = -1
"""Place of the first element in a file whose layout another program chose."""

ITEM_BYTES: Final = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of an element, by the name of the type in PyTorch."""


class Chunk(Value):
    """A box of a tensor. Its item is `length` bytes at `offset`; its elements begin at `payload` in the same file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    offset: int
    length: int
    payload: int = UNKNOWN


class Tensor(Value):
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    def size_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES.get(self.dtype, 0)


class Plain(Value):
    """A value that is no tensor (a counter, a learning rate): an item in a file."""

    file: str
    offset: int
    length: int


class Stored(Value):
    """One item that a writer put into a file; `offsets` is None for a value that is no tensor."""

    name: str
    offsets: tuple[int, ...] | None
    file: str
    offset: int
    length: int
    payload: int = UNKNOWN


class Form(Value):
    """A tensor without its place: its chunks are (offsets, sizes)."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class Outline(Value):
    """What a state consists of, before anybody has written it."""

    tensors: dict[str, Form]
    values: tuple[str, ...] = ()
    paths: dict[str, tuple[str | int, ...]] = msgspec.field(default_factory=dict)


class Index(Value):
    """`paths` are the places of the names in the nested state; `sums` the CRC-32 of each block, eight digits each."""

    tensors: dict[str, Tensor]
    values: dict[str, Plain] = msgspec.field(default_factory=dict)
    paths: dict[str, tuple[str | int, ...]] = msgspec.field(default_factory=dict)
    sums: dict[str, str] = msgspec.field(default_factory=dict)
    block_bytes: int = BLOCK_BYTES

    def files(self) -> frozenset[str]:
        """Names of the files that the index points into."""
        chunks = (chunk.file for tensor in self.tensors.values() for chunk in tensor.chunks)
        return frozenset(chunks) | {value.file for value in self.values.values()}

    def sum_of(self, file: str, block: int) -> int:
        """The CRC-32 of a block. Raises `KeyError` or `ValueError` where the index has none."""
        return int(self.sums[file][8 * block : 8 * block + 8], 16)


def index_of_items(outline: Outline, items: Iterable[Stored], sums: dict[str, str]) -> Index:
    """The index of a save, from its plan and what the writers tell. Raises `KeyError` if one told too little."""
    places = {(item.name, item.offsets): item for item in items}
    tensors: dict[str, Tensor] = {}
    for name, form in outline.tensors.items():
        chunks = tuple(_chunk(offsets, sizes, places[name, offsets]) for offsets, sizes in form.boxes)
        tensors[name] = Tensor(dtype=form.dtype, shape=form.shape, chunks=chunks)
    values = {}
    for name in outline.values:
        item = places[name, None]
        values[name] = Plain(file=item.file, offset=item.offset, length=item.length)
    return Index(tensors=tensors, values=values, paths=outline.paths, sums=sums)


def _chunk(offsets: tuple[int, ...], sizes: tuple[int, ...], item: Stored) -> Chunk:
    return Chunk(
        offsets=offsets, sizes=sizes, file=item.file, offset=item.offset, length=item.length, payload=item.payload
    )


def within(chunk: Chunk, offsets: Sequence[int], lengths: Sequence[int]) -> tuple[int, int] | None:
    """First element and number of elements of a box inside a chunk, if they lie one after the other; else None."""
    assert len(offsets) == len(lengths) == len(chunk.sizes)
    first, step = 0, 1
    for offset, size in zip(reversed(offsets), reversed(chunk.sizes), strict=True):
        first += offset * step
        step *= size
    partial = [place for place, size in enumerate(chunk.sizes) if lengths[place] != size]
    if partial and any(lengths[place] != 1 for place in range(partial[-1])):
        return None
    return first, prod(lengths)


def rows(chunk: Chunk, offsets: Sequence[int], lengths: Sequence[int]) -> tuple[int, int]:
    """First element and number of elements of the whole rows (of the first dimension) that hold a box of a chunk."""
    row = prod(chunk.sizes[1:])
    return offsets[0] * row, lengths[0] * row


def gaps(name: str, tensor: Tensor) -> Problem | None:
    """A problem if the chunks of a tensor do not have as many elements as it has."""
    wanted, held = prod(tensor.shape), sum(prod(chunk.sizes) for chunk in tensor.chunks)
    if wanted == held:
        return None
    sentence = f"{name} has {wanted} elements, its chunks hold {held}"
    return Problem(token="missing-chunk", sentence=sentence, numbers={"elements": wanted, "held": held})


def lost_moments(stored: Index, requested: Iterable[str]) -> Problem | None:
    """A problem if an optimizer is loaded whose stored moments nobody asks for: they would come back as nothing.

    An optimizer that has made no step has no state yet, so its own `state_dict()` names no moment and a load fills
    none. It is known by its shape: groups of parameters are asked for, states that lie beside them are not.
    """
    wanted = frozenset(requested)
    parts = {name: stored.paths.get(name) or tuple(name.split(".")) for name in (*stored.tensors, *stored.values)}
    groups = {_before(parts[name], "param_groups") for name in wanted if name in parts}
    for owner in sorted((each for each in groups if each is not None), key=str):
        states = [name for name in parts if _before(parts[name], "state") == owner]
        if states and not wanted & frozenset(states):
            label = ".".join(str(part) for part in owner) or "the optimizer"
            sentence = (
                f"{label} would load without its state: {len(states)} stored values ({states[0]}, ...) are not asked "
                "for, since an optimizer that has made no step names none; save and load with get_state_dict and "
                "set_state_dict of torch.distributed.checkpoint.state_dict"
            )
            return Problem(token="optimizer-state-lost", sentence=sentence, numbers={"stored": len(states)})
    return None


def _before(path: Sequence[str | int], word: str) -> tuple[str | int, ...] | None:
    """What stands before a word in a path; None if the word is not there or ends it."""
    return tuple(path[: path.index(word)]) if word in path and path[-1] != word else None


class Difference(Value):
    """How one tensor differs between two checkpoints: `added`, `removed`, `shape`, `dtype` or `content`."""

    name: str
    kind: str
    left: str
    right: str


def differences(left: Index, right: Index) -> Iterator[Difference]:
    """What can be told from two indexes alone, in order of name. Equal shape and type say nothing about content."""
    for name in sorted({*left.tensors, *right.tensors}):
        one, other = left.tensors.get(name), right.tensors.get(name)
        if one is None or other is None:
            kind = "added" if one is None else "removed"
            yield Difference(name=name, kind=kind, left=_form(one), right=_form(other))
        elif one.shape != other.shape:
            yield Difference(name=name, kind="shape", left=_form(one), right=_form(other))
        elif one.dtype != other.dtype:
            yield Difference(name=name, kind="dtype", left=_form(one), right=_form(other))


def _form(tensor: Tensor | None) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]" if tensor is not None else ""
