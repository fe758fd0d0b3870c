"""The account of one job: every second between its submission and its end belongs to exactly one phase and cause."""

from typing import Literal

from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value

Unit = Literal["GPU", "rank"]
"""What seconds are multiplied with: GPUs, as the fleet file tells them; ranks, where it names none."""


class Incident(Value):
    """One interruption of training, what it cost, and how it ended."""

    attempt: AttemptId
    epoch: int
    """The epoch that ended."""
    planned: bool
    cause: Reason
    hosts: tuple[HostId, ...] = ()
    """Where the cause lies: the host that it names, else those that left."""
    ranks: tuple[int, ...] = ()
    """Those that the cause names, else those of `hosts`, as they were in the epoch that ended."""
    left: tuple[HostId, ...]
    joined: tuple[HostId, ...]
    last_step_at: Instant
    """End of the last completed step; of an epoch that completed none, of what it had reached."""
    detected_at: Instant
    decided_at: Instant
    resumed_at: Instant | None
    """End of the first step afterwards; None: not yet, or never."""
    steps_lost: int
    """Steps that had been done and had to be done again."""
    restored_from: str = ""
    """own memory, peer memory, storage; empty: not restored yet, begun anew, or nobody told."""
    stayed: int | None = None
    """Ranks whose processes lived on in place; None: nobody told, or it was not resumed yet."""
    started: int | None = None
    """Those that were started anew for the membership that followed."""
    seconds_by_phase: dict[str, float]
    """queue, interrupt, save, detect, decide, place, launch, restore, first_step, replay (see `goodput.py`). Without
    `replay` they are the time from `last_step_at` to `resumed_at`."""
    lost_s: float = 0.0
    """All of them together."""
    lost_gpu_s: float = 0.0
    """`lost_s`, times the GPUs of the job (its ranks, where the account's `unit` says so)."""


class Loss(Value):
    """Time that was not productive, of one cause in one phase."""

    cause: str
    """Token of the reason of incidents; else `start`, `queue` (before the first start), `save`, `finish`, or
    `step-stalled` (it stands still now)."""
    phase: str
    seconds: float
    gpu_s: float


class JobAccount(Value):
    wall_s: float
    productive_s: float
    goodput: float
    """productive_s / wall_s: the effective training time ratio (ETTR). 0 when nothing has run."""
    seconds_by_phase: dict[str, float]
    """Adds up to wall_s (within a microsecond a phase)."""
    gpus: int = 0
    """What its seconds are multiplied with, in `unit`s."""
    unit: Unit = "GPU"
    losses: tuple[Loss, ...] = ()
    """All that was not productive, the greatest first: with productive_s it adds up to wall_s."""
    steps: int
    steps_lost_planned: int
    steps_lost_unplanned: int
    planned_handovers: int
    unplanned_recoveries: int
    failed_saves: int
    incidents: tuple[Incident, ...]
