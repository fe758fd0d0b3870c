"""Tokens in shards: files in a store with an index, read by all ranks of a host through one cache.

    python -m trainmaster.training.shards DIRECTORY      # the shipped corpus, as an example of the form

`index.json` names each shard with its place, size and CRC-32; it is written last, so a directory without it is not
finished. A rank reads shards when a sample of them comes; the host fetches each once. Tokens are 16-bit numbers, little
end first.
"""

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.value import Value, decode, encode
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.checksum import crc32
from trainmaster.storage.contents import locate
from trainmaster.storage.host_cache import Corrupt, HostCache
from trainmaster.training.errors import TrainingError

SCHEMA: Final = "trainmaster.tokens/v1"
INDEX: Final = "index.json"
TOKEN_BYTES: Final = 2
SHARD_TOKENS: Final = 1 << 18


class Shard(Value):
    name: str
    tokens: int
    crc32: int


class Index(Value):
    schema: str = SCHEMA
    shards: tuple[Shard, ...]


def write(store: BlobStore, group: str, tokens: "array[int]", shard_tokens: int = SHARD_TOKENS) -> Index:
    """Puts tokens into a group, the index last. Raises `OSError`."""
    assert shard_tokens > 0
    shards = []
    for number, first in enumerate(range(0, len(tokens), shard_tokens)):
        data = _swapped(tokens[first : first + shard_tokens]).tobytes()
        shard = Shard(name=f"shard-{number:05d}.tokens", tokens=len(data) // TOKEN_BYTES, crc32=crc32(data))
        store.put(group, shard.name, data)
        shards.append(shard)
    index = Index(shards=tuple(shards))
    store.put(group, INDEX, encode(index))
    return index


class Tokens:
    """The tokens of a group, in order. Safe for threads."""

    def __init__(self, store: BlobStore, group: str, cache: HostCache) -> None:
        """Reads the index. Raises `TrainingError`."""
        self._store, self._group, self._cache = store, group, cache
        self._index = _index(store, group)
        self._ends = list(accumulate(shard.tokens for shard in self._index.shards))
        self._read: dict[int, memoryview] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, start: int, stop: int) -> "array[int]":
        """Tokens from `start` up to `stop`. Raises `TrainingError` if a shard can't be had."""
        assert 0 <= start <= stop <= len(self)
        result = array("H")
        for number, (shard, end) in enumerate(zip(self._index.shards, self._ends, strict=True)):
            first = end - shard.tokens
            if first < stop and start < end:
                low, high = max(start, first) - first, min(stop, end) - first
                result.frombytes(self._shard(number)[low * TOKEN_BYTES : high * TOKEN_BYTES])
        return _swapped(result)

    def _shard(self, number: int) -> memoryview:
        view = self._read.get(number)
        if view is None:
            view = self._read[number] = memoryview(self._fetched(self._index.shards[number]))
        return view

    def _fetched(self, shard: Shard) -> "memoryview | bytes":
        size_bytes = shard.tokens * TOKEN_BYTES

        def stream(piece: memoryview, offset: int) -> None:
            source = self._store.open(self._group, shard.name)
            try:
                source.read_into([piece], offset)
            finally:
                source.close()

        try:
            return memoryview(self._cache.get(f"{self._group}/{shard.name}", size_bytes, shard.crc32, stream))
        except Corrupt as error:
            raise TrainingError(f"data {self._group}: {error}; copy the shard again from where it came") from error
        except (OSError, EOFError) as error:
            raise TrainingError(
                f"data {self._group}: {shard.name} ({size_bytes} bytes) can't be brought to this host: {error}; check "
                "the store, and the room in the memory file system of the host"
            ) from error


def _index(store: BlobStore, group: str) -> Index:
    try:
        index = decode(store.get(group, INDEX), Index)
    except FileNotFoundError as error:
        raise TrainingError(
            f"data {group}: there is no {INDEX}, so it is no data of this form, or not finished; make it with "
            "python -m trainmaster.training.shards DIRECTORY"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise TrainingError(f"data {group}: {INDEX} can't be read: {error}; copy it again") from error
    if index.schema != SCHEMA or not index.shards or any(shard.tokens < 1 for shard in index.shards):
        raise TrainingError(f"data {group}: {INDEX} is {index.schema} with {len(index.shards)} shards, not {SCHEMA}")
    return index


def _swapped(tokens: "array[int]") -> "array[int]":
    """From this machine's order of bytes to the file's, or back."""
    if sys.byteorder == "big":
        tokens = tokens[:]
        tokens.byteswap()
    return tokens


def main(argv: Sequence[str]) -> int:
    from trainmaster.training.reference import corpus

    if len(argv) != 1 or argv[0].startswith("-"):
        sys.stderr.write("usage: python -m trainmaster.training.shards DIRECTORY\n")
        return 2
    directory = Path(argv[0])
    try:
        directory.mkdir(parents=True)
        index = write(*locate(directory), corpus.tokens())
    except FileExistsError:
        sys.stderr.write(f"trainmaster: {directory} is there already; give a new directory, or remove it first\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"trainmaster: {directory} can't be written: {error}; check the path and the room there\n")
        return 2
    sys.stdout.write(
        f"{len(index.shards)} shards, {sum(shard.tokens for shard in index.shards)} tokens in {directory}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
