"""The maintenance part of one event: what is left to do after the event itself, until nothing is left.

Operations, visits, lines and locks wake one another. Instead of calling each other to any depth they leave word in the
step, and this loop passes it on in a fixed order: units first, then those who were granted locks, then the gate. Each
round ends something or starts something, so the loop ends.
"""

from collections.abc import Callable

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.health import arrivals, cases, errands
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.maintenance import drains, gangs, gate, losses, running, trains, trials, visits
from trainmaster.core.maintenance.events import CapacityDeclared, CatalogueDeclared
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.step import Step

ROUNDS_MAX = 1_000_000
"""Far more than any event can cause; past it two parts wake each other for ever."""


def settle(step: Step, pass_signals: Callable[[Step], None]) -> None:
    """Passes on what units, locks and lines have to say, and the signals to attempts that this causes."""
    signals, told, orphans, ended = step.signals, step.unit_signals, step.orphans, step.ended_operations
    failed, granted, reconsider = step.failed_hosts, step.granted, step.reconsider
    ailing, pools = step.ailing, step.pools_due
    for _ in range(ROUNDS_MAX):
        if signals:
            pass_signals(step)
        elif told:
            _tell(step, *told.pop(0))
        elif orphans:
            losses.orphaned(step, orphans.pop(0))
        elif ended:
            operation = ended.pop(0)
            trains.operation_ended(step, operation)
            trials.operation_ended(step, operation)
            gangs.operation_ended(step, operation)
            cases.operation_ended(step, operation)
            errands.ended(step, operation)
        elif failed:
            host, loaded = failed.pop(0)
            offenders.lost(step, host)
            trials.host_failed(step, host, loaded)
        elif granted:
            _granted(step, granted.pop(0))
        elif reconsider:
            gate.again(step, reconsider.pop(0))
        elif ailing:
            host = ailing.pop(0)
            cases.examine(step, host)
            errands.consider(step, host)
        elif pools:
            cases.serve(step, pools.pop(0))
        elif step.lines_due:
            step.lines_due = False
            gate.serve_lines(step)
            trains.serve(step)
            gangs.serve(step)
        else:
            return
    raise AssertionError("maintenance wakes itself for ever")


def _tell(step: Step, what: str, unit: HostId) -> None:
    if what == "go-on":
        visits.go_on(step, unit)
    elif what == "out":
        visits.unit_out(step, unit)
        gate.serve_line(step, f"unit/{unit}")
        arrivals.out(step, unit)
    elif what == "left":
        drains.job_left(step, unit)
    elif what == "ready":
        visits.unit_ready(step, unit)
        gate.serve_line(step, f"unit/{unit}")
        arrivals.ready(step, unit)
    elif what == "drain":
        visits.drain_now(step, unit)
    else:
        assert what == "lost", what
        losses.unit_lost(step, unit)
        gate.unit_lost(step, unit)
        arrivals.lost(step, unit)


def _granted(step: Step, name: str) -> None:
    kind, _, unit = name.partition("/")
    if kind == "visit":
        visits.lock_granted(step, HostId(unit))
        return
    operation = step.state.maintenance.operations.get(OperationId(name))
    if operation is None or operation.locked or not step.derived.planner.locks.holds(name):
        return  # it gave them back before it was told
    assert operation.state in (OperationState.ADMITTED, OperationState.DRAINING), (name, operation.state)
    running.granted(step, operation)


def catalogue_declared(step: Step, event: CatalogueDeclared) -> None:
    """From now on this is what can be asked for. Of the old one stays, at the end, what operations that have not ended
    are about; the next declaration after them drops it."""
    maintenance, catalogue = step.state.maintenance, event.catalogue
    specs = [operation.spec for operation in maintenance.operations.values()]
    used = {spec.component for spec in specs if spec.component}, {spec.kind for spec in specs}
    old = maintenance.catalogue
    components = (one for one in old.components if one.name in used[0] and catalogue.component(one.name) is None)
    kinds = (one for one in old.kinds if one.name in used[1] and catalogue.kind(one.name) is None)
    maintenance.catalogue = catalogue.but(
        components=(*catalogue.components, *components), kinds=(*catalogue.kinds, *kinds)
    )
    step.derived.planner.reread()
    for host in step.state.hosts.values():
        step.restack(host, step.derived.planner.stack_of(host.versions))


def capacity_declared(step: Step, event: CapacityDeclared) -> None:
    """From now on these are the limits. What was admitted stays so; lines are sorted into the new books."""
    step.state.maintenance.capacity = event.capacity
    step.derived.planner.recount()
    gate.sort_anew(step)
