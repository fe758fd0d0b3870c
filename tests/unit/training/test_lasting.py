"""How often the last save of a session is tried again."""

import pytest

from trainmaster.training.lasting import LONGEST_S, pauses


@pytest.mark.parametrize(
    ("wait_s", "expected"), [(0, []), (1, [1]), (10, [1, 2, 4, 3]), (100, [1, 2, 4, 8, 16, 30, 30, 9])]
)
def test_pauses_grow_and_end(wait_s: int, expected: list[int]) -> None:
    """1. Pauses double up to half a minute. 2. They come to exactly the time that is allowed. 3. Each says what is left
    before it."""
    told = list(pauses(wait_s))
    assert [pause_s for pause_s, _ in told] == expected
    assert max([0, *expected]) <= LONGEST_S
    left_s = wait_s
    for pause_s, sentence in told:
        assert sentence == f"; its state is kept in memory; tried again in {pause_s} s, for {left_s} s more"
        left_s -= pause_s
    assert left_s == 0
