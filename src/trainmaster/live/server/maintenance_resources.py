"""What the API shows of maintenance: the values behind its JSON bodies. See `resources.py` for what all routes share.

    GET  /v1/maintenance                             MaintenanceView
    GET  /v1/operations                              Operations   ?state=S&host=H&train=T&rollout=R&limit=N
    POST /v1/operations                              OperationsRequest -> OperationsReport   (with a plan when dry_run)
    GET  /v1/operations/O                            OperationDetail
    POST /v1/operations/O/cancel                     MaintenanceChange -> MaintenanceReport
    GET  /v1/visits                                  Visits       ?hosts=LIST
    GET  /v1/capacity                                CapacityView
    GET  /v1/trains                                  Trains
    POST /v1/trains                                  TrainRequest -> TrainReport
    GET  /v1/trains/T                                TrainDetail
    POST /v1/trains/T/pause | resume | abort         MaintenanceChange -> MaintenanceReport
    GET  /v1/rollouts                                Rollouts
    POST /v1/rollouts                                RolloutRequest -> RolloutReport
    GET  /v1/rollouts/R                              RolloutDetail
    POST /v1/rollouts/R/pause | resume | pass | stop MaintenanceChange -> MaintenanceReport
    POST /v1/versions                                VersionRequest -> MaintenanceReport
    POST /v1/gang-upgrades                           GangRequest -> GangReport
    POST /v1/plans                                   PlanRequest -> PlanReport

A plan (`dry_run`) has an index and a fingerprint. A request that sends them as `check_index` and `check_plan` is
refused (409, world-moved) if the log went on since and the plan would be another one now; with `check_index` alone, if
the log went on at all. A request is carried out as a whole or not at all.
"""

from typing import Annotated

import msgspec

from trainmaster.core.base.ids import ComponentName, EffectId, HostId, JobId, OperationId, Owner, RolloutId, TrainName
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.core.maintenance.ledger import Account
from trainmaster.core.maintenance.plan import GangPlan, HeldUpdate, OperationsPlan, RolloutPlan, TrainPlan
from trainmaster.core.maintenance.stages import Exponential, Fixed, OnFailure, Percentages, RolloutSpec
from trainmaster.core.maintenance.train import CycleProof, TrainSpec
from trainmaster.core.maintenance.wish import TrainWish

OPERATIONS_MAX = 1_000
"""Of one request."""


class OperationView(Value):
    id: OperationId
    kind: str
    component: ComponentName
    version: str
    scope: tuple[str, ...]
    """Names of the resources that it takes."""
    priority: str
    state: str
    """requested, admitted, draining, running, verifying; done, failed, off-boarded, cancelled."""
    since: Instant
    requested_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    """None while it has not ended."""
    by: Owner | None
    """None: it has ended, and only the log knows."""
    hosts: str
    """Units that leave production for it, folded; of an ended one, empty."""
    units: int
    reason: Reason | None
    """What it waits on, or why it ended."""
    train: TrainName | None
    rollout: RolloutId | None
    job: JobId | None
    """The job whose gang it belongs to."""


class Operations(Value):
    index: int
    """Log index that the answer reflects."""
    at: Instant
    items: tuple[OperationView, ...]
    """Those that live in the order of their places in line, then ended ones, newest first."""
    total: int
    """Before the limit."""


class VisitView(Value):
    """A unit that is out for maintenance, on its way out, or on its way back."""

    unit: HostId
    phase: str
    since: Instant
    opened_at: Instant
    train: TrainName | None
    current: OperationId | None
    """Whose step runs."""
    pending: tuple[OperationId, ...]
    """In the order in which they will be carried out."""
    applied: tuple[OperationId, ...]
    wide: tuple[OperationId, ...]
    """Operations that need it out together with other units."""
    needs_reboot: bool
    rebooting: bool
    tasks: tuple[str, ...]
    """Verification that the operations demand."""
    drain_by: Instant | None
    """It drains now at the latest."""
    evict_at: Instant | None


class Visits(Value):
    index: int
    at: Instant
    items: tuple[VisitView, ...]


class StepView(Value):
    leg: str
    """apply, check (after a reboot), undo."""
    name: str
    command: tuple[str, ...]
    deadline_s: float


class EffectView(Value):
    """What an agent was asked and has not answered."""

    id: EffectId
    leg: str
    host: HostId
    asked_at: Instant


class OperationDetail(Value):
    index: int
    at: Instant
    operation: OperationView
    spec: OperationSpec
    executor: HostId
    """Whose agent runs the steps."""
    after: tuple[OperationId, ...]
    """Predecessors that have not ended."""
    steps: tuple[StepView, ...]
    observed: str
    previous: str
    tries: int
    effect: EffectView | None
    visit: VisitView | None
    """Of its first unit."""
    history: tuple[Chapter, ...]
    """From the request on; of an ended one to its end."""


class OperationAsk(Value):
    spec: OperationSpec
    """`after` may also name the `key` of another operation, of this request or of one before."""
    key: str = ""
    """The asker's own: asking again with it is the same operation."""


class OperationsRequest(Value):
    operations: Annotated[tuple[OperationAsk, ...], msgspec.Meta(min_length=1, max_length=OPERATIONS_MAX)]
    reason: str = ""
    """For those whose spec has none."""
    dry_run: bool = False
    check_index: int | None = None
    check_plan: str = ""


class OperationAnswer(Value):
    operation: OperationId
    known: bool
    """Its key was used before for just this."""
    state: str
    reason: Reason | None
    """What it waits on."""


class OperationsReport(Value):
    index: int
    dry_run: bool
    items: tuple[OperationAnswer, ...] = ()
    """In the order of the request; none in a dry run."""
    plan: OperationsPlan | None = None
    """In a dry run."""
    sentence: str = ""


class MaintenanceChange(Value):
    reason: str
    dry_run: bool = False


class MaintenanceReport(Value):
    index: int
    dry_run: bool
    changed: bool
    """False: it was so already."""
    sentence: str


class CapacityView(Value):
    index: int
    at: Instant
    policy: CapacityPolicy
    account: Account


class StopView(Value):
    """The present stop of a train."""

    domain: int
    """From 1."""
    began_at: Instant
    hosts: str
    units: int
    open: int
    """Units with operations that have not ended."""
    requested: int
    failed: int
    over: bool
    """Its time is over: nothing more begins."""


class TrainView(Value):
    name: TrainName
    state: str
    """resting, waiting, stopping, ended."""
    since: Instant
    mode: str
    emergency: bool
    paused: Reason | None
    reason: Reason | None
    """What the next stop waits for, or why it ended."""
    cycle: int
    cycle_began: Instant
    cycle_s: float
    domains: int
    units: int
    next_domain: int
    """From 1."""
    next_due_at: Instant | None
    """None: it has ended."""
    visited: int
    """Units of the present cycle."""
    carried: int
    missed_before: int
    """Units that the last whole cycle missed."""
    stop: StopView | None


class Trains(Value):
    index: int
    at: Instant
    items: tuple[TrainView, ...]


class DomainView(Value):
    number: int
    """From 1."""
    hosts: str
    units: int
    visited: int
    """In the present cycle."""
    due_at: Instant
    """In the present cycle."""
    due: int
    """Units with something due now."""


class CarriedView(Value):
    host: HostId
    reason: Reason


class TrainDetail(Value):
    index: int
    at: Instant
    train: TrainView
    spec: TrainSpec
    domains: tuple[DomainView, ...]
    carried: tuple[CarriedView, ...]
    proof: CycleProof
    """Of the present cycle, so far: who was not reached yet counts as missed."""
    proofs: tuple[CycleProof, ...]
    """Of whole cycles, oldest first."""
    advice: tuple[str, ...]
    """In observe: what the last stop would have done."""
    history: tuple[Chapter, ...]
    held_back: tuple[HeldUpdate, ...] = ()
    """Updates that the last stop left behind, since versions would not go together."""


class TrainRequest(Value):
    train: TrainWish
    reason: str = ""
    dry_run: bool = False
    check_index: int | None = None
    check_plan: str = ""


class TrainReport(Value):
    index: int
    dry_run: bool
    changed: bool
    plan: TrainPlan
    sentence: str


class RolloutView(Value):
    id: RolloutId
    component: ComponentName
    version: str
    state: str
    """canary, stage, paused, held, complete, stopped, off-boarded."""
    reason: Reason | None
    by: Owner
    began_at: Instant
    stage: int
    """From 1."""
    stages: int
    stage_hosts: int
    """That may carry the version in this stage."""
    pool: int
    carriers: int
    """Hosts of the pool that were seen with the version."""
    operations: int
    """Ended ones, well or not."""
    operations_failed: int
    failures_upgraded: int
    """Under load, of hosts with the version."""
    failures_others: int
    stage_ends_at: Instant
    """When too little evidence holds it."""
    proven: bool


class Rollouts(Value):
    index: int
    at: Instant
    items: tuple[RolloutView, ...]
    """Those that live first, then newest first."""


class StageView(Value):
    number: int
    """From 1."""
    hosts: int
    new: str
    """Hosts that it adds, folded."""
    carriers: int
    """Of those."""


class RolloutDetail(Value):
    index: int
    at: Instant
    rollout: RolloutView
    spec: RolloutSpec
    seed: int
    stages: tuple[StageView, ...]
    numbers: dict[str, int | float | str]
    """The evidence: counts, hours, and the state of both tests."""
    history: tuple[Chapter, ...]


class RolloutRequest(Value):
    component: ComponentName
    version: str
    hosts: str = ""
    """A host list; empty: all units that the component is for."""
    canary: int = 0
    stages: Percentages | Fixed | Exponential = Percentages()
    criteria: Criteria = Criteria()
    soak_s: float = 43_200.0
    unproven_percent: float = 10.0
    stage_limit_s: float = 1_209_600.0
    on_failure: OnFailure = "roll-back"
    by_pod: bool = True
    """Each stage has its share of every pod."""
    seed: int | None = None
    """Draws the hosts; None: the server draws one. Apply with that of the plan."""
    reason: str = ""
    dry_run: bool = False
    check_index: int | None = None
    check_plan: str = ""


class RolloutReport(Value):
    index: int
    dry_run: bool
    rollout: RolloutId
    plan: RolloutPlan
    sentence: str


class VersionRequest(Value):
    """A version is proven: trains bring it to all units of the component's kinds."""

    component: ComponentName
    version: str
    reason: str = ""
    dry_run: bool = False


class GangRequest(Value):
    """All hosts of a job get a version together; the job leaves after a checkpoint and starts again."""

    job: str
    """Id, or the name of the newest job of that name."""
    component: ComponentName
    version: str
    reason: str = ""
    dry_run: bool = False
    check_index: int | None = None
    check_plan: str = ""


class GangReport(Value):
    index: int
    dry_run: bool
    plan: GangPlan
    sentence: str


class PlanRequest(Value):
    """Parts that are planned together, in this order; `dry_run` and what a plan is bound to are not read."""

    operations: Annotated[tuple[OperationAsk, ...], msgspec.Meta(max_length=OPERATIONS_MAX)] = ()
    gangs: tuple[GangRequest, ...] = ()
    versions: tuple[VersionRequest, ...] = ()
    rollouts: tuple[RolloutRequest, ...] = ()
    trains: tuple[TrainRequest, ...] = ()


class PlanReport(Value):
    """Each part in the world that those before it would make."""

    index: int
    operations: OperationsPlan | None
    gangs: tuple[GangPlan, ...]
    versions: tuple[MaintenanceReport, ...]
    rollouts: tuple[RolloutPlan, ...]
    trains: tuple[TrainPlan, ...]


class GangView(Value):
    job: JobId
    component: ComponentName
    version: str
    by: Owner
    why: str
    asked_at: Instant
    began_at: Instant | None
    hosts: str
    operations: tuple[OperationId, ...]
    """Those that have not ended."""
    reason: Reason | None


class TargetView(Value):
    component: ComponentName
    version: str
    """The proven one."""
    units: int
    """That it is for."""
    with_it: int
    """Of them, those seen with it."""


class MaintenanceView(Value):
    index: int
    at: Instant
    catalogue: str
    """Name of the declared one; empty: none is declared."""
    components: int
    kinds: int
    requested: int
    """Operations ever."""
    live: dict[str, int]
    """Operations that have not ended, by state."""
    ended: dict[str, int]
    """Ever, by state."""
    waits: dict[str, int]
    """Operations that wait, by token."""
    visits: dict[str, int]
    """By phase."""
    capacity: Account
    targets: tuple[TargetView, ...]
    trains: tuple[TrainView, ...]
    rollouts: tuple[RolloutView, ...]
    """Those that have not ended."""
    gangs: tuple[GangView, ...]
