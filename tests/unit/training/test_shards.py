"""Tokens in shards are the tokens, through one cache a host; what is wrong with them is a sentence."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.storage.contents import locate
from trainmaster.storage.host_cache import HostCache
from trainmaster.training import shards
from trainmaster.training.errors import TrainingError
from trainmaster.training.shards import INDEX, Tokens, write

TOKENS = array("H", [value * 7919 % 65536 for value in range(1000)])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[HostCache]:
    made = HostCache(tmp_path / "memory", "job-1.a1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    assert len(write(*locate(directory), TOKENS, 128).shards) == 8
    return directory


@pytest.fixture(scope="module")
def tokens(group: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    made = HostCache(tmp_path_factory.mktemp("memory"), "a")
    yield Tokens(*locate(group), made)
    made.close()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_any_stretch_is_that_of_the_whole(tokens: Tokens, one: int, other: int) -> None:
    """Inside of a shard, over its edge, over several, empty."""
    start, stop = sorted((one, other))
    assert tokens.read(start, stop) == TOKENS[start:stop]
    assert len(tokens) == 1000


def test_shards_come_when_they_are_needed(group: Path, cache: HostCache) -> None:
    """1. A stretch of one shard: one is fetched. 2. Over an edge: one more. 3. Another rank of the host: none."""
    first, second = (Tokens(*locate(group), cache) for _ in range(2))
    first.read(10, 20)
    assert cache.fetched == 1
    first.read(100, 130)
    assert cache.fetched == 2
    second.read(0, 256)
    assert cache.fetched == 2


def test_samples_are_those_of_the_array(group: Path, cache: HostCache) -> None:
    """The same order, the same rows."""
    torch = pytest.importorskip("torch")
    from trainmaster.training.reference.data import Samples

    one, other = Samples(TOKENS, 10, 3), Samples(Tokens(*locate(group), cache), 10, 3)
    assert one.count == other.count
    for first in (0, 40, 95):
        for left, right in zip(one.batch(first, 8, 1, 2), other.batch(first, 8, 1, 2), strict=True):
            assert torch.equal(left, right)


def test_what_is_no_data(tmp_path: Path, cache: HostCache) -> None:
    """1. No index. 2. An index that is no JSON, or of another schema, or empty. Each is told with what to do."""
    with pytest.raises(TrainingError, match=r"there is no index\.json.*python -m trainmaster\.training\.shards"):
        Tokens(*locate(tmp_path), cache)
    for content, words in (
        (b"{", "can't be read"),
        (b'{"shards":[]}', "0 shards"),
        (b'{"schema":"x/v9","shards":[]}', "x/v9"),
    ):
        (tmp_path / INDEX).write_bytes(content)
        with pytest.raises(TrainingError, match=words):
            Tokens(*locate(tmp_path), cache)


def test_a_shard_that_is_damaged_or_gone(tmp_path: Path, cache: HostCache) -> None:
    """1. One bit is flipped in the store. 2. Both sums are told, and no token is given. 3. One that is cut or gone."""
    write(*locate(tmp_path), TOKENS, 400)
    file = tmp_path / "shard-00001.tokens"
    data = bytearray(file.read_bytes())
    data[17] ^= 4
    file.write_bytes(data)
    found = Tokens(*locate(tmp_path), cache)
    assert found.read(0, 400) == TOKENS[:400]
    with pytest.raises(TrainingError, match=r"shard-00001\.tokens has CRC-32 .* expected"):
        found.read(390, 410)
    file.write_bytes(data[:100])
    with pytest.raises(TrainingError, match="can't be brought to this host"):
        found.read(390, 410)
    file.unlink()
    with pytest.raises(TrainingError, match="can't be brought to this host"):
        found.read(390, 410)


def test_the_command(tmp_path: Path, cache: HostCache, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The shipped corpus as shards. 2. A directory that is there is left alone. 3. Without one: how to use it."""
    from trainmaster.training.reference import corpus

    assert shards.main([str(tmp_path / "new")]) == 0
    assert "7 shards, 1813107 tokens" in capsys.readouterr().out
    whole = corpus.tokens()
    assert Tokens(*locate(tmp_path / "new"), cache).read(262_000, 262_300) == whole[262_000:262_300]
    assert shards.main([str(tmp_path / "new")]) == 2
    assert "is there already" in capsys.readouterr().err
    assert shards.main([]) == 2
    assert "usage" in capsys.readouterr().err
