"""What people declare and decide about the health of hosts."""

from collections.abc import Sequence

from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.events import ResumeRequested
from trainmaster.core.health import cases, remedies, returns, standing
from trainmaster.core.health.book import Breaker, Case, CaseState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.health.events import (
    BreakerSet,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.step import Step


def declare(step: Step, event: HealthConductDeclared) -> None:
    """From now on verdicts are acted on like this; pools that were promoted by hand keep their mode."""
    health = step.state.health
    health.conduct = event.conduct
    step.derived.pools.reread(event.conduct)
    known = {pool.name for pool in event.conduct.pools}
    for name in sorted(health.breakers.keys() - known):
        del health.breakers[name]
        step.unwake(f"breaker/{name}")
    health.modes = {name: mode for name, mode in health.modes.items() if name in known}
    _reconsider(step)


def set_mode(step: Step, event: HealthModeSet) -> None:
    """A pool is promoted: what stands now is acted on, nothing that is over. Or it is set back: what runs ends."""
    step.state.health.modes[event.pool] = event.mode
    _reconsider(step)


def _reconsider(step: Step) -> None:
    """Cases that are not under way are judged by the new rules, oldest first; then what can wait."""
    waiting = (CaseState.OBSERVED, CaseState.WAITING)
    for case in sorted(step.state.health.cases.values(), key=Case.number):
        if case.state in waiting and not case.taken:
            step.ailing.append(case.host)
    step.ailing += [name for name in sorted(step.state.health.standings) if name not in step.state.health.case_of]


def acknowledge(step: Step, event: HealthAcknowledged) -> None:
    """Somebody takes on what stands against these hosts."""
    standings = step.state.health.standings
    for name in event.hosts:
        if name in standings:
            standings[name] = tuple(
                each.but(acknowledged_by=event.by, acknowledged_until=event.until, acknowledged_why=event.reason)
                for each in standings[name]
            )


def release(step: Step, event: HealthReleased) -> None:
    """The hosts are repaired: what stands against them is closed, and they return."""
    _release(step, event.hosts, event.by, event.reason)


def _release(step: Step, names: Sequence[HostId], by: Owner, reason: str) -> None:
    for name in names:
        standing.clear(step, name)
        offenders.repaired(step, name)
        case = cases.of_host(step, name)
        if case is None:
            continue
        why = f"{by} says it is repaired: {reason}"
        remedies.withdraw(step, case, because(Token.CASE_CLOSED, why))
        if case.stage == "returning" or not case.taken:
            cases.close(step, case, "released", why)
        else:
            cases.let_go(step, case, "released", why)


def resumed(step: Step, event: ResumeRequested) -> None:
    """A person lifts holds. Where health waited for them it goes on; who lifts the hold of health itself says with it
    that the host is repaired."""
    if event.by == HEALTH:
        _release(step, event.hosts, event.by, event.reason)
    hosts.resume(step, event)
    step.ailing += [name for name in event.hosts if name in step.state.health.case_of]


def set_breaker(step: Step, event: BreakerSet) -> None:
    """Trips the breaker of a pool until somebody resets it. A reset forgets what was taken lately, and goes on with
    what stands now."""
    breakers = step.state.health.breakers
    if event.tripped:
        breaker = breakers.setdefault(event.pool, Breaker())
        breaker.tripped_at, breaker.by = step.now, event.by
        breaker.reason = Reason(token=Token.BREAKER_TRIPPED, sentence=f"tripped by {event.by}: {event.reason}")
        return
    breakers[event.pool] = Breaker()
    step.unwake(f"breaker/{event.pool}")
    cases.due(step, event.pool)


def open_rma(step: Step, event: RmaOpened) -> None:
    """A part goes back to its vendor, and its host is held."""
    returns.opened(step, event)


def close_rma(step: Step, event: RmaClosed) -> None:
    """What came of it; the host goes back, if nothing else keeps it."""
    returns.closed(step, event)
