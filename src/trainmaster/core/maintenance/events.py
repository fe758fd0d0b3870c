"""What people, policies and files ask of maintenance. All of it was checked before it became an event."""

from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import ComponentName, JobId, KindName, OperationId, Owner, RolloutId, TrainName
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import UPGRADE, Catalogue, Priority
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.maintenance.train import TrainSpec


class OperationSpec(Value):
    """A change that is asked for."""

    kind: KindName = UPGRADE
    scope: tuple[str, ...]
    """Resources that it takes exclusively: "host/h1", "rack/r2", "row/w1"; several make a selection."""
    component: ComponentName = ComponentName("")
    """Of an upgrade."""
    version: str = ""
    """To which; empty where the kind changes no version."""
    priority: Priority = Priority.PLANNED
    after: tuple[OperationId, ...] = ()
    """These must be done before; if one of them fails, this one is cancelled."""
    not_before: Instant | None = None
    deadline: Instant | None = None
    """When it should be done; a late one goes ahead of others."""
    reason: str = ""


class CatalogueDeclared(Event):
    catalogue: Catalogue
    by: Owner


class CapacityDeclared(Event):
    capacity: CapacityPolicy
    by: Owner


class OperationRequested(Event):
    spec: OperationSpec
    by: Owner
    key: str = ""
    """The asker's own key: asking again with the same key is the same operation. Empty: none."""


class OperationCancelled(Event):
    """Take it back, as far as it is not carried out; what was started ends its present step and is undone if it can."""

    operation: OperationId
    by: Owner
    reason: str


class TrainDeclared(Event):
    """A new train, or another plan for one that is known: what it has visited stays true."""

    spec: TrainSpec
    by: Owner


class VersionTargeted(Event):
    """This version of a component is proven: trains bring it to every unit of its kinds that has another one."""

    component: ComponentName
    version: str
    by: Owner


class RolloutDeclared(Event):
    """A version that is not proven boards the trains by stages. `seed` draws its hosts."""

    rollout: RolloutId
    spec: RolloutSpec
    seed: int
    by: Owner


class TrainPaused(Event):
    train: TrainName
    by: Owner
    reason: str


class TrainResumed(Event):
    train: TrainName
    by: Owner
    reason: str


class TrainAborted(Event):
    """The present stop ends as soon as nothing is half done; what was not started is cancelled everywhere."""

    train: TrainName
    by: Owner
    reason: str


class RolloutPaused(Event):
    rollout: RolloutId
    by: Owner
    reason: str


class RolloutResumed(Event):
    rollout: RolloutId
    by: Owner
    reason: str


class RolloutPassed(Event):
    """A person lets a stage pass that is held for want of evidence, and takes the risk."""

    rollout: RolloutId
    by: Owner
    reason: str


class RolloutStopped(Event):
    """No further host gets the version; those that have it keep it."""

    rollout: RolloutId
    by: Owner
    reason: str


class GangUpgradeRequested(Event):
    """A breaking upgrade of a job's hosts: all of them together, with the job stopped after a checkpoint meanwhile."""

    job: JobId
    component: ComponentName
    version: str
    by: Owner
    reason: str
