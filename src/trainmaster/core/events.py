"""Everything that can happen: the union of the areas' events. The log is a list of these."""

from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import Owner
from trainmaster.core.fleet.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    DrainRequested,
    FleetDeclared,
    ResumeRequested,
)
from trainmaster.core.health.events import (
    BreakerSet,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    HealthReported,
    PartsSeen,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.maintenance.events import (
    CapacityDeclared,
    CatalogueDeclared,
    GangUpgradeRequested,
    OperationCancelled,
    OperationRequested,
    RolloutDeclared,
    RolloutPassed,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
)
from trainmaster.core.recovery.events import (
    CheckpointFailed,
    CheckpointPublished,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    HangFound,
    WorkerExited,
    WorkersExited,
)
from trainmaster.core.scheduling.events import JobCancelled, JobRequeued, JobSubmitted

__all__ = [
    "AgentDisconnected",
    "AgentRegistered",
    "AgentReport",
    "AgentSilent",
    "AnyEvent",
    "BreakerSet",
    "CapacityDeclared",
    "CatalogueDeclared",
    "CheckpointFailed",
    "CheckpointPublished",
    "DrainRequested",
    "EffectEnded",
    "EffectsEnded",
    "EpochPhase",
    "FleetDeclared",
    "GangUpgradeRequested",
    "HangFound",
    "HealthAcknowledged",
    "HealthConductDeclared",
    "HealthModeSet",
    "HealthReleased",
    "HealthReported",
    "JobCancelled",
    "JobRequeued",
    "JobSubmitted",
    "LeaseTaken",
    "OperationCancelled",
    "OperationRequested",
    "PartsSeen",
    "ResumeRequested",
    "RmaClosed",
    "RmaOpened",
    "RolloutDeclared",
    "RolloutPassed",
    "RolloutPaused",
    "RolloutResumed",
    "RolloutStopped",
    "TimePassed",
    "TrainAborted",
    "TrainDeclared",
    "TrainPaused",
    "TrainResumed",
    "VersionTargeted",
    "WorkerExited",
    "WorkersExited",
]


class LeaseTaken(Event):
    """A server became the one writer. Its lease number fences effects of earlier ones; agents must register anew."""

    lease: int
    by: Owner
    fleet: str = ""
    """An id for the fleet, drawn by the server at its first start, when there was none yet."""


class TimePassed(Event):
    """Nothing happened until `at`, and a policy had asked to be woken by then."""


AnyEvent = (
    LeaseTaken
    | TimePassed
    | FleetDeclared
    | AgentRegistered
    | AgentDisconnected
    | AgentSilent
    | DrainRequested
    | ResumeRequested
    | JobSubmitted
    | JobCancelled
    | JobRequeued
    | EffectEnded
    | EffectsEnded
    | WorkerExited
    | WorkersExited
    | HangFound
    | EpochPhase
    | CheckpointPublished
    | CheckpointFailed
    | CatalogueDeclared
    | CapacityDeclared
    | OperationRequested
    | OperationCancelled
    | GangUpgradeRequested
    | RolloutDeclared
    | RolloutPassed
    | RolloutPaused
    | RolloutResumed
    | RolloutStopped
    | TrainAborted
    | TrainDeclared
    | TrainPaused
    | TrainResumed
    | VersionTargeted
    | BreakerSet
    | HealthAcknowledged
    | HealthConductDeclared
    | HealthModeSet
    | HealthReleased
    | HealthReported
    | PartsSeen
    | RmaClosed
    | RmaOpened
)

AgentReport = (
    EffectEnded | WorkerExited | EpochPhase | CheckpointPublished | CheckpointFailed | HealthReported | PartsSeen
)
"""What an agent may report; everything else comes from the server or from people."""
