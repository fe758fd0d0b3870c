"""Rollouts at work: what happens to hosts becomes evidence, and the verdict becomes operations.

Rollouts ride on trains; here they are only judged. After every operation of a version on trial, every failure of a host
and once an hour the evidence is looked at. A rejected version is off-boarded in the same event: its operations that
have not begun are taken back, and its hosts are rolled back, or held for a person.
"""

from collections.abc import Iterable
from typing import Final

from trainmaster.core.base.ids import HostId, Owner, RolloutId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, after
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, HostState
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.events import (
    OperationSpec,
    RolloutDeclared,
    RolloutPassed,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    VersionTargeted,
)
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.rollout import Aftermath, Rollout, RolloutState
from trainmaster.core.maintenance.stages import OnFailure
from trainmaster.core.step import Step

_OWNER: Final = "policy:rollout/"
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


def passed(step: Step, event: RolloutPassed) -> None:
    """A held stage passes, since a person says so."""
    rollout = step.state.maintenance.rollouts[event.rollout]
    assert rollout.state is RolloutState.HELD, (rollout.id, rollout.state)
    reason = because(Token.STAGE_PASSED, f"passed by {event.by}: {event.reason}", stage=rollout.stage + 1)
    rollouts.pass_stage(rollout, step.derived.planner.plan_of(rollout), step.now, reason)
    _conclude(step, rollout)


def stop(step: Step, event: RolloutStopped) -> None:
    rollout = step.state.maintenance.rollouts[event.rollout]
    plan = step.derived.planner.plan_of(rollout)
    _take_back(step, rollout, because(Token.ROLLOUT_STOPPED, f"{event.by}: {event.reason}"))
    rollouts.stop(rollout, plan, step.now, event.by, event.reason)
    step.derived.planner.reroll()


def operation_ended(step: Step, operation: Operation) -> None:
    """An upgrade to a version on trial is evidence, unless it was taken back or never began (what had to come before it
    failed): then it says nothing about the version. One that was under way when the version was rejected leaves a host
    to clear up."""
    if operation.by.startswith(_OWNER) and operation.state is OperationState.FAILED:
        _not_cleared_up(step, operation)
        return
    rollout = step.state.maintenance.rollouts.get(operation.rollout) if operation.rollout is not None else None
    if rollout is None or operation.started_at is None:
        return
    if rollout.state is RolloutState.OFF_BOARDED:
        _clear_up(step, rollout, rollout.spec.on_failure, operation.executor)
    elif operation.state in (OperationState.DONE, OperationState.FAILED):
        plan = step.derived.planner.plan_of(rollout)
        rollouts.operation_ended(rollout, plan, operation.executor, succeeded=operation.state is OperationState.DONE)
        _judge(step, rollout)


def host_failed(step: Step, unit: HostId, loaded: bool) -> None:
    """A host failed by itself, not by an operation on it."""
    for rollout in sorted(step.state.maintenance.rollouts.values(), key=lambda one: one.id):
        if not rollout.is_live():
            continue
        plan = step.derived.planner.plan_of(rollout)
        if unit not in plan.rank:
            continue
        upgraded = _carries(step, rollout, unit)
        n1, n0 = _compared(step, rollout, plan.peers(unit))
        rollouts.host_failed(
            rollout,
            plan,
            unit,
            upgraded=upgraded,
            under_load=loaded,
            n1=n1 + (loaded and upgraded),
            n0=n0 + (loaded and not upgraded),
        )
        _judge(step, rollout)


def _carries(step: Step, rollout: Rollout, unit: HostId) -> bool:
    return step.state.hosts[unit].versions.get(rollout.spec.component) == rollout.spec.version


def _compared(step: Step, rollout: Rollout, peers: Iterable[HostId]) -> tuple[int, int]:
    """Hosts that a job loads now and that were not counted yet: with the version, and without it. A failed host is
    compared with those of its own stratum: a pod that is hot, or that the train has just shaken, is no evidence."""
    counted = rollout.evidence.counted
    return _loaded(step, rollout, (unit for unit in peers if unit not in counted))


def _loaded(step: Step, rollout: Rollout, units: Iterable[HostId]) -> tuple[int, int]:
    """Those of the units that a job loads now: with the version, and without it."""
    component, version = rollout.spec.component, rollout.spec.version
    loaded = [host for host in map(step.state.hosts.__getitem__, units) if host.role == "member"]
    with_it = sum([host.versions.get(component) == version for host in loaded])
    return with_it, len(loaded) - with_it


def judge(step: Step, name: str) -> None:
    """Counts the loaded hours since the last look, and judges."""
    rollout = step.state.maintenance.rollouts[RolloutId(name)]
    if not rollout.is_live():
        return
    counted_at = step.state.maintenance.counted_at
    hours = step.now - counted_at[rollout.id]
    with_it, without = _loaded(step, rollout, step.derived.planner.plan_of(rollout).order)
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
        _clear_up_all(step, rollout, aftermath)
    _conclude(step, rollout)


def _conclude(step: Step, rollout: Rollout) -> None:
    """What follows from its end, if it has ended."""
    if rollout.state is RolloutState.COMPLETE:
        step.state.maintenance.targets[rollout.spec.component] = rollout.spec.version
    if not rollout.is_live():
        step.unwake(f"rollout/{rollout.id}")
        step.derived.planner.reroll()


def _take_back(step: Step, rollout: Rollout, reason: Reason) -> None:
    for operation in sorted(step.state.maintenance.operations.values(), key=lambda one: one.sequence):
        if operation.rollout == rollout.id:
            gate.withdraw(step, operation, OperationState.OFF_BOARDED, reason)


def _clear_up_all(step: Step, rollout: Rollout, aftermath: Aftermath) -> None:
    """The hosts that had the rejected version. Where an operation of it is under way still, its end comes first."""
    assert aftermath.action != "keep", rollout.id
    under_way = {one.executor for one in step.state.maintenance.operations.values() if one.rollout == rollout.id}
    for unit in aftermath.hosts:
        if unit not in under_way:
            _clear_up(step, rollout, aftermath.action, unit)


def _clear_up(step: Step, rollout: Rollout, action: OnFailure, unit: HostId) -> None:
    """Back to the proven version, or held. Also a host on which the version was not seen: it was touched, and one that
    did not come back may carry it when it does. Its operation waits at the gate until then."""
    owner = Owner(f"{_OWNER}{rollout.id}")
    before = step.state.maintenance.targets.get(rollout.spec.component, "")
    if action == "hold" or not before:
        reason = f"{rollout.spec.component} {rollout.spec.version} was rejected"
        hosts.hold(step, step.state.hosts[unit], Hold(owner=owner, reason=reason, since=step.now))
        return
    spec = OperationSpec(
        scope=(f"host/{unit}",),
        component=rollout.spec.component,
        version=before,
        priority=Priority.REPAIR,
        reason=f"{rollout.id} was off-boarded",
    )
    gate.consider(step, gate.create(step, spec, owner))


def _not_cleared_up(step: Step, operation: Operation) -> None:
    """The way back failed. Where the host was lost on it, it is tried again after the repair; else the host is held:
    what it carries is not for production, and the same steps would fail the same way."""
    rollout = step.state.maintenance.rollouts[RolloutId(operation.by.removeprefix(_OWNER))]
    lost = step.state.hosts[operation.executor].state is HostState.OUT_FAILED
    _clear_up(step, rollout, "roll-back" if lost else "hold", operation.executor)
