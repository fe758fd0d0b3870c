"""What a plan of maintenance says: complete, immutable, and made without changing anything.

A plan names who leaves production, which jobs that hits and what becomes of them, what it would wait for if it were
asked for now, and what it costs. It carries the index of the log that it was made from, and a *fingerprint* of all that
it says apart from times that pass by themselves. Whoever applies it sends both: if the log went on and the plan made
anew has another fingerprint, it is refused. Comparing the index alone was rejected: a busy fleet has an event each
millisecond, and nothing could ever be applied.
"""

import hashlib
from typing import Literal

import msgspec

from trainmaster.core.base.ids import ComponentName, HostId, JobId, OperationId, RolloutId, TrainName
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.value import Value, encode
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.maintenance.train import TrainSpec

Outcome = Literal["moves", "waits", "stops", "finishes"]
"""What becomes of a job whose hosts leave: it moves after a checkpoint; the work waits for it; it is stopped after a
checkpoint and queued again; it may finish first."""


class JobHit(Value):
    """A job that runs on units that leave."""

    job: JobId
    name: str
    leaving: tuple[HostId, ...]
    """Its members that leave."""
    outcome: Outcome
    to: tuple[HostId, ...] = ()
    """Spares of its own that take over; where these are too few, free hosts do."""
    gpus: int
    """Of the hosts that leave."""
    sentence: str
    later: bool = False
    """They leave when their turn has come, not at once."""


class Limit(Value):
    """A book before and after, in units."""

    book: str
    total: int
    in_service: int
    """Before."""
    taken_before: int
    """Out for planned work, or promised to it."""
    taken_after: int
    """With all that would begin at once."""
    most: int
    """The maintenance buffer."""
    failed: int
    failed_most: int


class OperationPlan(Value):
    """One operation of a plan."""

    kind: str
    component: ComponentName
    version: str
    scope: tuple[str, ...]
    refused: Reason | None = None
    """Why it can't be asked for; then the rest says nothing."""
    units: int = 0
    """That leave production for it; 0: it disturbs nothing."""
    hosts: str = ""
    """The same, folded."""
    executor: HostId = HostId("")
    """Whose agent runs the steps."""
    disturbs: str = ""
    steps: tuple[str, ...] = ()
    """Their names, in order."""
    expected_s: float = 0.0
    """From the drain to the return of a unit, with what is pending there already."""
    waits: Reason | None = None
    """What it would wait for if it were asked for now."""
    known: OperationId | None = None
    """It was asked for before, with the same key; then the rest says nothing."""


class OperationsPlan(Value):
    index: int
    fingerprint: str = ""
    items: tuple[OperationPlan, ...]
    units: int
    """That leave sooner or later, each counted once."""
    hosts: str
    at_once: str = ""
    """Those that would begin to leave now, folded; the others wait for their turn."""
    gpus: int
    jobs: tuple[JobHit, ...]
    capacity: tuple[Limit, ...]
    """Books that count a unit of the plan."""
    expected_s: float
    """Of the unit that takes longest."""
    gpu_hours: float
    """GPUs that leave, times how long."""
    waiting: int
    """Operations that would wait."""
    refused: int = 0


class DueCount(Value):
    component: ComponentName
    version: str
    units: int


class HeldUpdate(Value):
    """An update that a train leaves behind, since versions would not go together."""

    component: ComponentName
    reason: Reason


class DomainPlan(Value):
    """A stop of a train."""

    number: int
    """From 1."""
    hosts: str
    units: int
    jobs: tuple[str, ...]
    """Names of jobs that run there now."""
    due: tuple[DueCount, ...]
    """What it would bring, with how many units get it."""
    leaving: int
    """Units that leave for it."""
    expected_s: float
    at: int | None = None
    """When it is due, if nothing holds it up; None: it was before."""


class TrainPlan(Value):
    index: int
    fingerprint: str = ""
    spec: TrainSpec
    known: bool
    """A train of this name is there."""
    changes: bool
    """False: the train is there just so, and nothing would happen."""
    goes_on: bool = False
    """It goes on in its present cycle; else it begins a new one."""
    domains: tuple[DomainPlan, ...]
    next: int
    """Number of the domain of the next stop."""
    jobs: tuple[JobHit, ...]
    """Hit at the next stop."""
    waits: Reason | None
    """What the next stop would wait for if it were due now."""
    capacity: tuple[Limit, ...]
    """At the next stop."""
    every_s: float
    """Between two stops."""
    stops_per_job: float
    """In a cycle, for the jobs that run now, on average."""
    gpu_hours: float
    """Out of service over a cycle with what is due now."""
    held_back: tuple[HeldUpdate, ...] = ()
    """At the next stop."""


class StagePlan(Value):
    """A stage of a rollout."""

    number: int
    """From 1; the first one is the canary."""
    hosts: int
    """Up to and with this stage."""
    new: str
    """Hosts that it adds, folded."""
    least_soak_h: float
    """Loaded hours that each of its hosts must have on average."""


class RolloutPlan(Value):
    index: int
    fingerprint: str = ""
    rollout: RolloutId
    spec: RolloutSpec
    seed: int
    """Draws the hosts; apply with the same to get the stages that are shown."""
    stages: tuple[StagePlan, ...]
    jobs: tuple[JobHit, ...]
    """Hit by the first stage, if all its hosts left now."""
    carriers: int
    """Hosts of the pool that were seen with the version already."""
    trains: tuple[TrainName, ...]
    """That would bring it; none: nothing happens until there is one."""
    expected_s: float
    """A host is out so long."""
    gpu_hours: float
    """Of the whole pool."""


class GangPlan(Value):
    index: int
    fingerprint: str = ""
    job: JobId
    name: str
    component: ComponentName
    version: str
    hosts: str
    units: int
    gpus: int
    expected_s: float
    """From the checkpoint to the restart."""
    steps_lost: int
    """None: it leaves after a checkpoint."""
    gpu_hours: float
    waits: Reason | None
    capacity: tuple[Limit, ...]


Plan = OperationsPlan | TrainPlan | RolloutPlan | GangPlan

_PASSING = frozenset({"index", "fingerprint", "sentence", "numbers", "at", "capacity"})
"""What changes by itself, or says in words or figures what other fields say: tokens tell whether it would wait."""


def fingerprint_of(plan: Plan) -> str:
    """16 hexadecimal digits; equal for plans that mean the same."""
    return hashlib.sha256(encode(_lasting(msgspec.to_builtins(plan)))).hexdigest()[:16]


def _lasting(part: object) -> object:
    if isinstance(part, dict):
        return {key: _lasting(value) for key, value in part.items() if key not in _PASSING}
    if isinstance(part, (list, tuple)):
        return [_lasting(value) for value in part]
    return part
