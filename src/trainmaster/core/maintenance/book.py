"""The state of maintenance: what is declared, what is under way, and a short memory of what has ended."""

import msgspec

from trainmaster.core.base.ids import ComponentName, HostId, JobId, OperationId, Owner, RolloutId, TrainName
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.core.maintenance.operation import EndedOperation, Operation
from trainmaster.core.maintenance.rollout import Rollout
from trainmaster.core.maintenance.train import Train
from trainmaster.core.maintenance.visit import Visit


class GangUpgrade(msgspec.Struct, kw_only=True):
    """A breaking upgrade of all hosts of a job, from the wish to the end of its last operation."""

    job: JobId
    component: ComponentName
    version: str
    by: Owner
    why: str
    asked_at: Instant
    began_at: Instant | None = None
    hosts: tuple[HostId, ...] = ()
    operations: tuple[OperationId, ...] = ()
    """Those that have not ended."""
    reason: Reason | None = None
    """What it waits on, or what the job waits on."""


class Maintenance(msgspec.Struct, kw_only=True):
    """Part of the state. Mutable, private to the engine."""

    catalogue: Catalogue = Catalogue()
    capacity: CapacityPolicy = CapacityPolicy(books=())
    requested: int = 0
    """Operations that were ever requested; the last one has this number."""
    operations: dict[OperationId, Operation] = {}
    """Those that have not ended."""
    ended: list[EndedOperation] = []
    """The newest `ENDED_KEPT`, oldest first."""
    counts: dict[str, int] = {}
    """Ended operations by `state`, and by `kind/state`."""
    keys: dict[str, OperationId] = {}
    """Askers' keys of operations that have not ended, and of those in `ended`."""
    visits: dict[HostId, Visit] = {}
    trains: dict[TrainName, Train] = {}
    rollouts: dict[RolloutId, Rollout] = {}
    gangs: dict[JobId, GangUpgrade] = {}
    targets: dict[ComponentName, str] = {}
    """Proven versions, which trains bring to every unit."""
    counted_at: dict[RolloutId, Instant] = {}
    """When the loaded hours of a rollout were last counted."""
    paused: dict[TrainName, Reason] = {}
    """Trains that are paused, and why."""
    visited: dict[HostId, int] = {}
    """Visits that ended with a return, by unit."""
