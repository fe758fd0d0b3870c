"""What people declare and decide about the health of hosts."""

from trainmaster.core.health.events import (
    BreakerSet,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.health.offender import rma
from trainmaster.core.step import Step


def declare(step: Step, event: HealthConductDeclared) -> None:
    step.state.health.conduct = event.conduct


def set_mode(step: Step, event: HealthModeSet) -> None:
    step.state.health.modes[event.pool] = event.mode


def acknowledge(step: Step, event: HealthAcknowledged) -> None:
    raise NotImplementedError


def release(step: Step, event: HealthReleased) -> None:
    raise NotImplementedError


def set_breaker(step: Step, event: BreakerSet) -> None:
    raise NotImplementedError


def open_rma(step: Step, event: RmaOpened) -> None:
    """A part goes back to its vendor."""
    rma.opened(step, event)


def close_rma(step: Step, event: RmaClosed) -> None:
    """What came of it."""
    rma.closed(step, event)
