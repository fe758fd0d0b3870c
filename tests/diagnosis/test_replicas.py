"""Who is right where replicas differ: the majority, if there is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.diagnosis.replicas import TIED, WORDS, judge, sentence

NAMES = ("embedding", "head", "head/exp_avg")


def test_the_odd_one_is_named() -> None:
    """1. Rank 3 of four holds another head. 2. It is named with its host, the tensor, and between which steps."""
    sums = dict.fromkeys(range(4), (7, 8, 9)) | {3: (7, 88, 9)}
    found = judge(NAMES, sums)
    assert found is not None
    assert (found.odd, found.majority, found.tensors) == ((3,), (0, 1, 2), ("head",))
    told = sentence(found, {3: "h4"}, step=120, agreed=110)
    assert told == (
        f"{WORDS}: rank 3 on h4 differs from ranks 0-2 in head (1 of 3 tensors) after step 120; "
        "they agreed after step 110"
    )


@pytest.mark.parametrize(
    "sums", [{0: (1, 2, 3), 1: (1, 2, 4)}, {0: (1, 1, 1), 1: (1, 1, 1), 2: (1, 1, 2), 3: (1, 1, 2)}]
)
def test_without_a_majority_nobody_is_blamed(sums: dict[int, tuple[int, ...]]) -> None:
    """1. Two replicas differ; two against two. 2. All are told, and that nobody can say who is right."""
    found = judge(NAMES, sums)
    assert found is not None
    assert (found.odd, found.majority, found.tensors) == (tuple(sums), (), ("head/exp_avg",))
    assert TIED in sentence(found, {}, step=20, agreed=10)


def test_two_that_differ_in_different_ways() -> None:
    """1. Of five ranks one holds another embedding, one another head. 2. Both are odd, both tensors are named."""
    found = judge(NAMES, {0: (1, 2, 3), 1: (9, 2, 3), 2: (1, 2, 3), 3: (1, 9, 3), 4: (1, 2, 3)})
    assert found is not None
    assert (found.odd, found.majority, found.tensors) == ((1, 3), (0, 2, 4), ("embedding", "head"))


@given(st.integers(3, 20), st.data())
def test_any_minority_is_found(ranks: int, data: st.DataObject) -> None:
    """1. Any set of fewer than half of the ranks holds something else. 2. It is they who are named."""
    odd = data.draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=(ranks - 1) // 2))
    sums = {rank: (1, 2, 3 + data.draw(st.integers(1, 3)) * (rank in odd)) for rank in range(ranks)}
    found = judge(NAMES, sums)
    assert found is not None
    assert set(found.odd) == odd
    assert judge(NAMES, dict.fromkeys(range(ranks), (1, 2, 3))) is None
