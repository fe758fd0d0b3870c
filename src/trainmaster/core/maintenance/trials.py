"""Rollouts at work: what happens to hosts becomes evidence, and the verdict becomes operations.

Rollouts ride on trains; here they are only judged. After every operation of a version on trial, every failure of a host
and once an hour the evidence is looked at. A rejected version is off-boarded in the same event: its operations that
have not begun are taken back, and its hosts are rolled back, or held for a person.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, Owner, RolloutId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, after
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.events import (
    OperationSpec,
    RolloutDeclared,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    VersionTargeted,
)
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.rollout import Aftermath, Rollout, RolloutState
from trainmaster.core.step import Step

LOOK_EVERY: Final = HOUR
"""Between two counts of the loaded hours; failures and operations are looked at when they happen."""


def target(step: Step, event: VersionTargeted) -> None:
    step.state.maintenance.targets[event.component] = event.version


def declare(step: Step, event: RolloutDeclared) -> None:
    maintenance = step.state.maintenance
    assert event.rollout not in maintenance.rollouts, event.rollout
    rollout = rollouts.begin(event.rollout, event.spec, event.seed, event.by, step.now)
    maintenance.rollouts[event.rollout] = rollout
    maintenance.counted_at[event.rollout] = step.now
    step.derived.planner.reroll()
    step.wake(f"rollout/{event.rollout}", after(step.now, LOOK_EVERY))


def pause(step: Step, event: RolloutPaused) -> None:
    rollouts.pause(step.state.maintenance.rollouts[event.rollout], step.now, event.by, event.reason)


def resume(step: Step, event: RolloutResumed) -> None:
    reason = because(Token.ROLLOUT_RESUMED, f"{event.by}: {event.reason}")
    rollouts.resume(step.state.maintenance.rollouts[event.rollout], step.now, reason)
    judge(step, event.rollout)


def stop(step: Step, event: RolloutStopped) -> None:
    rollout = step.state.maintenance.rollouts[event.rollout]
    plan = step.derived.planner.plan_of(rollout)
    _take_back(step, rollout, because(Token.ROLLOUT_STOPPED, f"{event.by}: {event.reason}"))
    rollouts.stop(rollout, plan, step.now, event.by, event.reason)
    step.derived.planner.reroll()


def operation_ended(step: Step, operation: Operation) -> None:
    """An upgrade to a version on trial: evidence, unless it was taken back."""
    rollout = step.state.maintenance.rollouts.get(operation.rollout) if operation.rollout is not None else None
    if rollout is None or operation.state not in (OperationState.DONE, OperationState.FAILED):
        return
    plan = step.derived.planner.plan_of(rollout)
    rollouts.operation_ended(rollout, plan, operation.executor, succeeded=operation.state is OperationState.DONE)
    _judge(step, rollout)


def host_failed(step: Step, unit: HostId, loaded: bool) -> None:
    """A host failed by itself, not by an operation on it."""
    for rollout in sorted(step.state.maintenance.rollouts.values(), key=lambda one: one.id):
        plan = step.derived.planner.plan_of(rollout)
        if not rollout.is_live() or unit not in plan.rank:
            continue
        upgraded = _carries(step, rollout, unit)
        with_it, without = _loaded(step, rollout)
        n1 = with_it + (loaded and upgraded)
        n0 = without + (loaded and not upgraded)
        rollouts.host_failed(rollout, plan, unit, upgraded=upgraded, under_load=loaded, n1=n1, n0=n0)
        _judge(step, rollout)


def _carries(step: Step, rollout: Rollout, unit: HostId) -> bool:
    return step.state.hosts[unit].versions.get(rollout.spec.component) == rollout.spec.version


def _loaded(step: Step, rollout: Rollout) -> tuple[int, int]:
    """Hosts of the pool that a job loads now: with the version, and without it."""
    plan = step.derived.planner.plan_of(rollout)
    loaded = [
        unit for unit in plan.order if (host := step.state.hosts[unit]).allocation is not None and host.role == "member"
    ]
    with_it = sum(1 for unit in loaded if _carries(step, rollout, unit))
    return with_it, len(loaded) - with_it


def judge(step: Step, name: str) -> None:
    """Counts the loaded hours since the last look, and judges."""
    rollout = step.state.maintenance.rollouts[RolloutId(name)]
    if not rollout.is_live():
        return
    counted_at = step.state.maintenance.counted_at
    hours = step.now - counted_at[rollout.id]
    with_it, without = _loaded(step, rollout)
    rollouts.exposed(rollout, upgraded=with_it * hours, others=without * hours)
    counted_at[rollout.id] = step.now
    step.wake(f"rollout/{name}", after(step.now, LOOK_EVERY))
    _judge(step, rollout)


def _judge(step: Step, rollout: Rollout) -> None:
    if not rollout.is_live():
        return
    plan = step.derived.planner.plan_of(rollout)
    verdict, aftermath = rollouts.decide(rollout, plan, step.now)
    if aftermath is not None:
        _take_back(step, rollout, verdict.reason)
        _clear_up(step, rollout, aftermath)
    if rollout.state is RolloutState.COMPLETE:
        step.state.maintenance.targets[rollout.spec.component] = rollout.spec.version
    if not rollout.is_live():
        step.unwake(f"rollout/{rollout.id}")
        step.derived.planner.reroll()


def _take_back(step: Step, rollout: Rollout, reason: Reason) -> None:
    for operation in sorted(step.state.maintenance.operations.values(), key=lambda one: one.sequence):
        if operation.rollout == rollout.id:
            gate.withdraw(step, operation, OperationState.OFF_BOARDED, reason)


def _clear_up(step: Step, rollout: Rollout, aftermath: Aftermath) -> None:
    """The hosts that had the rejected version go back to the proven one, or are held."""
    owner = Owner(f"policy:rollout/{rollout.id}")
    before = step.state.maintenance.targets.get(rollout.spec.component, "")
    for unit in aftermath.hosts:
        if not _carries(step, rollout, unit):
            continue
        host = step.state.hosts[unit]
        if aftermath.action == "hold" or not before:
            reason = f"{rollout.spec.component} {rollout.spec.version} was rejected"
            hosts.hold(step, host, Hold(owner=owner, reason=reason, since=step.now))
            continue
        spec = OperationSpec(
            scope=(f"host/{unit}",),
            component=rollout.spec.component,
            version=before,
            priority=Priority.REPAIR,
            reason=f"{rollout.id} was off-boarded",
        )
        gate.consider(step, gate.create(step, spec, owner))
