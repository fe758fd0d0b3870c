"""When a job stands still, and when it only takes its time."""

import pytest

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.recovery.stall import RankMark, stalled


def mark(
    rank: int, step: int = 40, at_s: float = 100.0, phase: Phase = Phase.TRAINING, step_s: float = 0.5
) -> RankMark:
    at = Instant(seconds(at_s))
    return RankMark(rank=rank, host=HostId(f"h{rank}"), phase=phase, step=step, step_at=at, step_s=step_s)


def test_names_the_ranks_that_are_behind() -> None:
    """1. Three ranks are at step 41, one at step 40. 2. A minute passes. 3. The one is named, with the numbers."""
    ranks = [mark(0, 41), mark(1, 41), mark(2, 40), mark(3, 41)]
    reason = stalled(ranks, Instant(seconds(160)))
    assert reason is not None
    assert reason.token is Token.STEP_STALLED
    assert "behind: rank 2 on h2" in reason.sentence
    assert reason.numbers == {"age_s": 60.0, "bound_s": 30.0, "step": 41}


@pytest.mark.parametrize(
    ("ranks", "now_s"),
    [
        ([], 1000.0),
        ([mark(0)], 129.0),
        ([mark(0, step_s=20.0)], 299.0),
        ([mark(0), mark(1, phase=Phase.SAVING)], 1000.0),
        ([mark(0, step=0, phase=Phase.RESTORED)], 1000.0),
    ],
    ids=["nothing known", "within half a minute", "within ten steps", "a slow save", "a first step"],
)
def test_is_silent_where_it_may_take_its_time(ranks: list[RankMark], now_s: float) -> None:
    assert stalled(ranks, Instant(seconds(now_s))) is None
