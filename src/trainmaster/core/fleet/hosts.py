"""What events do to hosts: the applier of the fleet's part of the state.

Losing a host settles all that was asked of it and tells whoever uses it (signal *host-lost*); what may still run there
is cleaned up when its agent comes back, before the host can become ready.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.ids import AttemptId, ComponentName, HostId, Owner
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant, after, in_seconds
from trainmaster.core.effects import RebootHost, ReleaseAttempt, RunSteps, VerifyHost
from trainmaster.core.fleet.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    DrainRequested,
    FleetDeclared,
    ResumeRequested,
)
from trainmaster.core.fleet.lifecycle import (
    CLEAN_DEADLINE,
    DEADLINES,
    DEMANDED_DEADLINE,
    HOST_MACHINE,
    RECONNECT_GRACE,
    RESTART_GRACE,
    VERIFICATION_TASKS,
    Hold,
    Host,
    HostState,
)
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.maintenance.ledger import side_of
from trainmaster.core.recovery.events import EffectEnded, EffectsEnded
from trainmaster.core.step import Step, UnitSignal

_TOLD: Final[dict[HostState, UnitSignal]] = {
    HostState.READY: "ready",
    HostState.OUT_PLANNED: "out",
    HostState.OUT_FAILED: "lost",
}


def move(step: Step, host: Host, state: HostState, reason: Reason) -> None:
    """Takes an edge of the host machine."""
    name = host.spec.id
    host.story = HOST_MACHINE.step(name, host.story, host.state, state, step.now, reason.sentence)
    host.state, host.since, host.reason = state, step.now, reason
    if state is HostState.READY:
        host.at_fault = False
    if state is HostState.DRAINING:
        step.derived.draining.add(name)
    else:
        step.derived.draining.discard(name)
    step.derived.planner.ledger.set_side(name, side_of(host))
    told = _TOLD.get(state)
    if told is not None:
        step.unit_signals.append((told, name))
    if state is not HostState.VERIFYING:
        step.lines_due = True  # planned work may have more room now, also by what takes none of it any more
    deadline = DEADLINES.get(state)
    if deadline is None:
        step.unwake(f"host/{name}")
    else:
        step.wake(f"host/{name}", after(step.now, deadline))
    step.refresh(host)


def declare(step: Step, event: FleetDeclared) -> None:
    """Adds hosts that are not known yet."""
    position = len(step.state.hosts)
    for spec in event.hosts:
        if spec.id in step.state.hosts:
            continue
        reason = Reason(token=Token.HOSTS_EXPECTED, sentence="its agent has not registered yet")
        host = Host(spec=spec, position=position, since=step.now, reason=reason)
        step.state.hosts[spec.id] = host
        step.derived.planner.add(host)
        step.derived.pools.add(spec)
        step.wake(f"host/{spec.id}", after(step.now, DEADLINES[HostState.EXPECTED]))
        position += 1
    step.derived.planner.recount()


def lease_taken(step: Step) -> None:
    """A new server: every agent has to come back, and nobody is to blame for what could not be told meanwhile."""
    until = after(step.now, RESTART_GRACE)
    for key, at in sorted(step.state.wakes.items()):
        if at < until and key != "lines/all":  # what waits in lines waits for no agent
            step.wake(key, until)
    for host in step.state.hosts.values():
        if host.connected:
            host.connected = False
            step.wake(f"reconnect/{host.id}", until)
            step.refresh(host)


def registered(step: Step, event: AgentRegistered) -> None:
    host = step.state.hosts[event.host]
    rebooted = host.boot != "" and host.boot != event.boot
    if rebooted and host.state is not HostState.OUT_FAILED:
        if host.state in (HostState.READY, HostState.DRAINING, HostState.VERIFYING):
            lose(step, host, "it rebooted")
        else:
            step.drop_effects(host.id, survives=(RunSteps, RebootHost))
    host.boot, host.session, host.address = event.boot, event.session, event.address
    host.connected, host.gone_at = True, None
    if host.role == "spare":
        step.lines_due = True  # it may take the place of a host that planned work wants
    if event.versions:
        host.versions = {**host.versions, **event.versions}
        step.restack(host, step.derived.planner.stack_of(host.versions))
    step.unwake(f"reconnect/{host.id}")
    for attempt, _ in event.attempts:
        if host.allocation != attempt and not _releasing(step, host, attempt):
            step.emit(ReleaseAttempt(id=step.next_id(), hosts=(host.id,), attempt=attempt))
    free_of_holds = host.state is HostState.OUT_PLANNED and not host.holds  # resumed while its agent was away
    in_repair = host.id in step.state.maintenance.visits  # it verifies the host when it ends
    if host.state is HostState.EXPECTED or (host.state is HostState.OUT_FAILED and not in_repair) or free_of_holds:
        verify(step, host, "its agent registered")
    if host.allocation is not None:
        step.signal("host-kept", host.id, host.allocation)
    step.refresh(host)


def _releasing(step: Step, host: Host, attempt: AttemptId) -> bool:
    return any(isinstance(effect, ReleaseAttempt) and effect.attempt == attempt for effect in step.pending_at(host.id))


def verify(step: Step, host: Host, why: str) -> None:
    host.verified = False
    reason = Reason(token=Token.VERIFICATION_PENDING, sentence=f"{why}; it proves that it works before it takes work")
    move(step, host, HostState.VERIFYING, reason)
    _ask_to_verify(step, host)


def _ask_to_verify(step: Step, host: Host) -> None:
    tasks = tuple(dict.fromkeys((*VERIFICATION_TASKS, *host.demands)))
    if host.demands:
        step.wake(f"host/{host.id}", after(step.now, DEMANDED_DEADLINE))
    step.emit(VerifyHost(id=step.next_id(), host=host.id, tasks=tasks))


def verification_ended(step: Step, effect: VerifyHost, event: EffectEnded) -> None:
    host = step.state.hosts[event.host]
    if host.state is not HostState.VERIFYING:
        return
    if event.outcome == "done" and set(host.demands) - set(effect.tasks):
        _ask_to_verify(step, host)  # more was demanded meanwhile
    elif event.outcome == "done":
        host.verified, host.demands = True, ()
        _pass_if_clean(step, host)
    elif event.outcome == "failed":
        sentence = f"verification failed: {event.detail}"
        move(step, host, HostState.OUT_FAILED, Reason(token=Token.VERIFICATION_FAILED, sentence=sentence))
    else:
        _ask_to_verify(step, host)


def _pass_if_clean(step: Step, host: Host) -> None:
    """Verified and with nothing of an older attempt left: back to work, or to its holds."""
    if not host.verified or host.allocation is not None or _is_busy(step, host):
        return
    if host.holds:
        move(step, host, HostState.OUT_PLANNED, _held(host))
    else:
        offenders.in_service(step, host.id)
        move(step, host, HostState.READY, Reason(token=Token.VERIFIED, sentence="verification passed"))


def _is_busy(step: Step, host: Host) -> bool:
    """Something of attempts is asked of it still. Steps of maintenance concern its visit, or nobody's jobs."""
    return any(not isinstance(effect, RunSteps | RebootHost) for effect in step.pending_at(host.id))


def _held(host: Host) -> Reason:
    first = host.holds[0]
    sentence = f"held by {first.owner}: {first.reason}"
    return Reason(token=Token.HELD, sentence=sentence, numbers={"holds": len(host.holds)})


def disconnected(step: Step, event: AgentDisconnected) -> None:
    host = step.state.hosts[event.host]
    if host.session != event.session or not host.connected:
        return
    host.connected, host.gone_at = False, step.now
    step.wake(f"reconnect/{host.id}", after(step.now, RECONNECT_GRACE))
    step.refresh(host)
    if host.allocation is not None:
        step.signal("host-gone", host.id, host.allocation)


def silent(step: Step, event: AgentSilent) -> None:
    host = step.state.hosts[event.host]
    if host.session != event.session or not host.connected:
        return
    host.connected, host.gone_at = False, step.now
    if host.state is HostState.OUT_PLANNED:
        return
    lose(step, host, f"no heartbeat for {event.silent_s:.1f} s")


def lose(step: Step, host: Host, how: str) -> None:
    """The host counts as failed from now on."""
    if host.state is HostState.OUT_FAILED:
        return
    attempt = host.allocation
    if host.state in (HostState.READY, HostState.DRAINING):
        step.failed_hosts.append((host.id, attempt is not None and host.role == "member"))
    step.drop_effects(host.id)
    host.allocation, host.role, host.evict_at = None, "", None
    move(step, host, HostState.OUT_FAILED, Reason(token=Token.HOST_LOST, sentence=how))
    step.unwake(f"reconnect/{host.id}")
    step.unwake(f"drain/{host.id}")
    step.unwake(f"clean/{host.id}")
    if attempt is not None:
        step.signal("host-lost", host.id, attempt)


def allocate(step: Step, host: Host, attempt: AttemptId, role: str) -> None:
    assert host.allocation is None or host.allocation == attempt, (host.id, host.allocation)
    host.allocation, host.role = attempt, role
    step.refresh(host)


def let_go(step: Step, hosts: Sequence[Host]) -> None:
    """Their attempt needs these hosts no longer; they are free when they are clean."""
    if not hosts:
        return
    attempt = hosts[0].allocation
    assert attempt is not None, hosts[0].id
    for host in hosts:
        assert host.allocation == attempt, (host.id, host.allocation)
        host.role = "releasing"
        clean_soon(step, host)
    names = tuple([host.id for host in hosts])
    step.withdraw(names, attempt)
    step.emit(ReleaseAttempt(id=step.next_id(), hosts=names, attempt=attempt))


def clean_soon(step: Step, host: Host) -> None:
    """What an attempt leaves behind has to be gone in time; maintenance that waits for it need not wait longer."""
    step.unit_signals.append(("left", host.id))
    step.lines_due = True
    step.wake(f"clean/{host.id}", after(step.now, CLEAN_DEADLINE))


def clean_overdue(step: Step, name: HostId) -> None:
    host = step.state.hosts[name]
    assert host.role in ("stopping", "releasing"), (name, host.role)
    lose(step, host, f"what ran there was not cleaned up within {in_seconds(CLEAN_DEADLINE):g} s")


def released(step: Step, effect: ReleaseAttempt, event: EffectEnded | EffectsEnded, names: Sequence[HostId]) -> None:
    for name in names:
        _released(step, effect, event, step.state.hosts[name])


def _released(step: Step, effect: ReleaseAttempt, event: EffectEnded | EffectsEnded, host: Host) -> None:
    if event.outcome != "done":
        lose(step, host, f"what ran there could not be cleaned up: {event.detail or event.outcome}")
        return
    if host.allocation == effect.attempt:
        host.allocation, host.role = None, ""
        step.unwake(f"clean/{host.id}")
    if host.state is HostState.DRAINING and host.allocation is None:
        leave(step, host)
    elif host.state is HostState.VERIFYING:
        _pass_if_clean(step, host)
    step.refresh(host)


def leave(step: Step, host: Host) -> None:
    """Drained: out for planned work."""
    host.evict_at = None
    step.unwake(f"drain/{host.id}")
    move(step, host, HostState.OUT_PLANNED, _held(host))


def drain(step: Step, event: DrainRequested) -> None:
    for name in event.hosts:
        host = step.state.hosts[name]
        evict_at = event.deadline if event.evict else None
        hold(step, host, Hold(owner=event.by, reason=event.reason, since=step.now, evict_at=evict_at))


def hold(step: Step, host: Host, wanted: Hold) -> None:
    """Adds a hold, or the eviction that it asks for to the one that its owner has; a ready host begins to drain."""
    held = host.hold_of(wanted.owner)
    if held is None:
        host.holds = (*host.holds, wanted)
    elif wanted.evict_at is not None:
        host.holds = tuple(one.but(evict_at=wanted.evict_at) if one is held else one for one in host.holds)
    _plan_eviction(step, host)
    if host.state is not HostState.READY:
        return
    move(step, host, HostState.DRAINING, _held(host))
    if host.allocation is None:
        leave(step, host)
    else:
        step.signal("host-draining", host.id, host.allocation)


def take_out(step: Step, host: Host, wanted: Hold) -> None:
    """Holds a host that is at fault: from now on, until it is in service again, it counts as failed."""
    host.at_fault = True
    hold(step, host, wanted)
    step.derived.planner.ledger.set_side(host.id, side_of(host))
    step.lines_due = True


def lift(step: Step, host: Host, owner: Owner, why: str) -> None:
    """Takes an owner's hold off. A host that is on its way out stays if nobody else holds it; one that is out stays
    out, since its return is another question."""
    host.holds = tuple(one for one in host.holds if one.owner != owner)
    _plan_eviction(step, host)
    if not host.holds and host.state is HostState.DRAINING:
        move(step, host, HostState.READY, Reason(token=Token.DRAIN_WITHDRAWN, sentence=why))
        if host.allocation is not None:
            step.signal("host-kept", host.id, host.allocation)


def bring_back(step: Step, host: Host, owner: Owner, demands: tuple[str, ...], why: str) -> None:
    """The owner's work on a host that is out has ended: it returns through the verification that the work demands, as
    far as others allow."""
    lift(step, host, owner, why)
    host.demands = tuple(dict.fromkeys((*host.demands, *demands)))
    if host.state in (HostState.OUT_PLANNED, HostState.OUT_FAILED):
        verify(step, host, why)


def observed(step: Step, host: Host, component: ComponentName, version: str) -> None:
    """This version of a component was seen on the host."""
    if host.versions.get(component) != version:
        host.versions[component] = version
        if step.derived.planner.is_shared(component):
            step.restack(host, step.derived.planner.stack_of(host.versions))


def removed(step: Step, host: Host, component: ComponentName) -> None:
    """No version of a component is on the host any more."""
    if component not in host.versions:
        return
    host.versions = {name: version for name, version in host.versions.items() if name != component}
    if step.derived.planner.is_shared(component):
        step.restack(host, step.derived.planner.stack_of(host.versions))


def _plan_eviction(step: Step, host: Host) -> None:
    """The earliest eviction that a hold asks for counts; with its hold it goes."""
    host.evict_at = min((hold.evict_at for hold in host.holds if hold.evict_at is not None), default=None)
    if host.evict_at is None:
        step.unwake(f"drain/{host.id}")
    else:
        step.wake(f"drain/{host.id}", host.evict_at)


def resume(step: Step, event: ResumeRequested) -> None:
    for name in event.hosts:
        host = step.state.hosts[name]
        lift(step, host, event.by, event.reason)
        if not host.holds and host.state in (HostState.OUT_PLANNED, HostState.OUT_FAILED) and host.connected:
            verify(step, host, f"resumed: {event.reason}")


def deadline_passed(step: Step, name: HostId) -> None:
    """A state lasted too long: the host counts as failed. A drain that waits for a running job goes on waiting: the
    request may carry a deadline with eviction; one that nobody asked for must not kill a job."""
    host = step.state.hosts[name]
    if host.state is HostState.DRAINING and host.allocation is not None:
        step.wake(f"host/{name}", after(step.now, DEADLINES[HostState.DRAINING]))
        return
    sentence = f"it stayed {host.state.value} for longer than {in_seconds(DEADLINES[host.state]):g} s"
    lose(step, host, sentence)


def reconnect_passed(step: Step, name: HostId) -> None:
    host = step.state.hosts[name]
    if host.connected or host.state in (HostState.OUT_PLANNED, HostState.EXPECTED):
        return
    if host.gone_at is None:
        lose(step, host, "its agent did not come back after the server had restarted")
    else:
        lose(step, host, f"its agent has been away for {in_seconds(step.now - host.gone_at):.1f} s")


def loss_of(host: Host) -> tuple[Instant, str]:
    """When the host was last known to be there, and how it was lost; also of one that is back already."""
    if host.gone_at is not None:
        how = host.reason.sentence if host.state is HostState.OUT_FAILED else "its agent's connection closed"
        return host.gone_at, how
    lost = [chapter for chapter in host.story if chapter.end == HostState.OUT_FAILED.value]
    assert lost, host.id
    return lost[-1].at, lost[-1].cause
