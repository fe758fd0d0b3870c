"""Whether a job stands still: workers run, and no step is completed.

This is what can be told without asking anybody, from heartbeats alone, so it has the patience of `diagnosis/pace.py`,
the policy of progress, and not its bound. It only tells; who is to blame, and whether something is done, is decided by
a diagnosis (`hang.py`). A save has no bound here: it waits for storage, and a watchdog that takes a slow save for a
hang kills healthy jobs. Which ranks are behind is told with it: in a synchronous job they are the ones to look at.
"""

from collections.abc import Sequence

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.pace import STEPS_LEAST, Bound, bound


class RankMark(Value):
    """Where a rank was last seen."""

    rank: int
    host: HostId
    phase: Phase
    step: int
    step_at: Instant
    step_s: float


def stalled(ranks: Sequence[RankMark], known: Bound | None, now: Instant) -> Reason | None:
    """The reason if the job stands still; None if it steps, saves, starts, or nothing is known of it. `known`: what its
    steps have taught; where they taught nothing yet, its last step stands for them."""
    if not ranks or any(rank.phase is not Phase.TRAINING for rank in ranks):
        return None
    lead = max(ranks, key=lambda rank: (rank.step, rank.step_at))
    if known is None or (known.steps < STEPS_LEAST and not known.told):
        known = bound([lead.step_s] * STEPS_LEAST)
    age_s, bound_s = in_seconds(now - lead.step_at), known.patience_s()
    if lead.step <= 0 or age_s <= bound_s:
        return None
    behind = [f"rank {rank.rank} on {rank.host}" for rank in ranks if rank.step < lead.step]
    who = f"; behind: {', '.join(behind[:8])}" if behind else "; all ranks are at the same step"
    sentence = f"no step was completed for {age_s:.0f} s after step {lead.step}; steps take {lead.step_s:.2f} s{who}"
    numbers: dict[str, int | float | str] = {"age_s": round(age_s, 1), "bound_s": round(bound_s, 1), "step": lead.step}
    return Reason(token=Token.STEP_STALLED, sentence=sentence, numbers=numbers)
