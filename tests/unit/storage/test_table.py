"""PyTorch's table of contents, written without PyTorch: equal to what PyTorch writes, read by us as well."""

import io
import pickle
import pickletools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.checkpoint.index import Chunk, Index, Plain, Tensor
from trainmaster.storage.foreign import index_of
from trainmaster.storage.table import table_of

numbers = st.one_of(st.integers(0, 5), st.integers(0, 1 << 48))
chunks = st.builds(
    lambda rank, at, length, shape: Chunk(
        offsets=tuple(0 for _ in shape), sizes=shape, file=f"__{rank}_0.distcp", offset=at, length=length
    ),
    st.integers(0, 99),
    numbers,
    numbers,
    st.lists(numbers, max_size=3).map(tuple),
)
tensors = st.builds(
    lambda dtype, chunk: Tensor(dtype=dtype, shape=chunk.sizes, chunks=(chunk,)),
    st.sampled_from(["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"]),
    chunks,
)
plains = st.builds(lambda at, length: Plain(file="__0_0.distcp", offset=at, length=length), numbers, numbers)
names = st.text(min_size=1, max_size=6)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    held = draw(st.dictionaries(names, tensors, max_size=4))
    values = draw(st.dictionaries(names.map(lambda name: f"value {name}"), plains, max_size=3))
    paths = {name: ("model", 7, name) for name in (*held, *values)}
    return Index(tensors=held, values=values, paths=paths)


@given(indexes())
def test_what_is_written_is_what_is_read(index: Index) -> None:
    data = table_of(index)
    assert index_of(data) == index
    pickletools.dis(data, out=io.StringIO())


@pytest.mark.torch
@given(indexes())
def test_it_is_pytorchs_own(index: Index) -> None:
    pytest.importorskip("torch")
    from trainmaster.training.distcp.tables import metadata_of

    theirs = metadata_of(index)
    loaded = pickle.loads(table_of(index))  # noqa: S301  (our own bytes)
    assert loaded == theirs
    assert loaded.storage_data == theirs.storage_data
    assert [key.index for key in loaded.storage_data] == [key.index for key in theirs.storage_data]


def test_what_belongs_into_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="holds no float"):
        table_of(Index(tensors={}, paths={"x": (1.5,)}))  # type: ignore[dict-item]
