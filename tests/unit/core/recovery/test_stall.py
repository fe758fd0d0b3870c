"""When a job stands still, and when it only takes its time."""

import pytest

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.diagnosis.pace import Bound, bound
from trainmaster.core.recovery.stall import RankMark, stalled


def mark(
    rank: int, step: int = 40, at_s: float = 100.0, phase: Phase = Phase.TRAINING, step_s: float = 0.5
) -> RankMark:
    at = Instant(seconds(at_s))
    return RankMark(rank=rank, host=HostId(f"h{rank}"), phase=phase, step=step, step_at=at, step_s=step_s)


def test_names_the_ranks_that_are_behind() -> None:
    """1. Three ranks are at step 41, one at step 40. 2. A minute passes. 3. The one is named, with the numbers."""
    ranks = [mark(0, 41), mark(1, 41), mark(2, 40), mark(3, 41)]
    reason = stalled(ranks, None, Instant(seconds(160)))
    assert reason is not None
    assert reason.token is Token.STEP_STALLED
    assert "behind: rank 2 on h2" in reason.sentence
    assert reason.numbers == {"age_s": 60.0, "bound_s": 30.0, "step": 41}


@pytest.mark.parametrize(
    ("ranks", "known", "now_s"),
    [
        ([], None, 1000.0),
        ([mark(0)], None, 129.0),
        ([mark(0, step_s=20.0)], None, 299.0),
        ([mark(0)], bound([1.0] * 9 + [40.0] * 3), 179.0),
        ([mark(0)], bound([], told_s=120.0), 219.0),
        ([mark(0), mark(1, phase=Phase.SAVING)], None, 1000.0),
        ([mark(0, step=0, phase=Phase.RESTORED)], None, 1000.0),
    ],
    ids=["nothing known", "half a minute", "ten steps", "its habits", "its job file", "a slow save", "a first step"],
)
def test_is_silent_where_it_may_take_its_time(ranks: list[RankMark], known: Bound | None, now_s: float) -> None:
    assert stalled(ranks, known, Instant(seconds(now_s))) is None


def test_the_job_file_has_the_last_word() -> None:
    """1. A step may take two minutes, the file says. 2. Just beyond, it stands still."""
    reason = stalled([mark(0)], bound([], told_s=120.0), Instant(seconds(220.1)))
    assert reason is not None
    assert reason.numbers["bound_s"] == 120.0
