"""The account of one job: every second between its submission and its end belongs to exactly one phase."""

from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value


class Incident(Value):
    """One interruption of training and how it ended."""

    attempt: AttemptId
    epoch: int
    """The epoch that ended."""
    planned: bool
    cause: Reason
    left: tuple[HostId, ...]
    joined: tuple[HostId, ...]
    last_step_at: Instant
    """End of the last completed step."""
    detected_at: Instant
    decided_at: Instant
    resumed_at: Instant | None
    """End of the first step afterwards; None: not yet, or never."""
    steps_lost: int
    """Steps that had been done and had to be done again."""
    seconds_by_phase: dict[str, float]
    """interrupt, detect, decide, place, launch, restore, first_step, replay (see `goodput.py`)."""


class JobAccount(Value):
    wall_s: float
    productive_s: float
    goodput: float
    """productive_s / wall_s: the effective training time ratio (ETTR). 0 when nothing has run."""
    seconds_by_phase: dict[str, float]
    """Adds up to wall_s (within a microsecond a phase)."""
    steps: int
    steps_lost_planned: int
    steps_lost_unplanned: int
    planned_handovers: int
    unplanned_recoveries: int
    failed_saves: int
    incidents: tuple[Incident, ...]
