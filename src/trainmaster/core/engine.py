"""The one door of the core.

`Engine.handle(event)` applies one event to the state and returns the effects that it causes; nothing else changes the
state. The engine only dispatches: each area has its applier. After the event itself come the signals that it caused,
and last, if hosts became free or jobs were queued, attempts that want hosts are served and then the queue.

Work per event grows with what the event touches: the hosts it names, the attempt it is about, the attempts and the head
of the queue that wait for hosts. Only a change of the server looks at every host.

If `handle` raises, the event has no meaning in this state (a defect or a world that we do not understand); the state
may then be half changed and must be thrown away: restore it from the log, which does not have the event.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import AttemptId, ComponentName, HostId, PoolName
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import AnyEffect, RebootHost, ReleaseAttempt, RunSteps, VerifyHost, for_host
from trainmaster.core.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    AnyEvent,
    BreakerSet,
    CapacityDeclared,
    CatalogueDeclared,
    CheckpointFailed,
    CheckpointPublished,
    DrainRequested,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    FleetDeclared,
    GangUpgradeRequested,
    HangFound,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    HealthReported,
    JobCancelled,
    JobRequeued,
    JobSubmitted,
    LeaseTaken,
    OperationCancelled,
    OperationRequested,
    PartsSeen,
    ResumeRequested,
    RmaClosed,
    RmaOpened,
    RolloutDeclared,
    RolloutPassed,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    TimePassed,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
    WorkerExited,
    WorkersExited,
)
from trainmaster.core.fleet import hosts
from trainmaster.core.glance import Glance
from trainmaster.core.health import acts, cases, errands, standing
from trainmaster.core.health.offender import daily
from trainmaster.core.maintenance import drains, gangs, gate, maintain, running, trains, trials, visits
from trainmaster.core.recovery import forming, handover, interrupt, reports
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.recovery.ending import end
from trainmaster.core.scheduling import jobs
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.state import ClusterState, Derived, effect_order
from trainmaster.core.step import Step

E = TypeVar("E", AgentDisconnected, AgentSilent)


class Engine:
    def __init__(self, state: ClusterState | None = None) -> None:
        self.state = state if state is not None else ClusterState()
        """Read only for everyone else."""
        self._derived = Derived(self.state)

    @property
    def index(self) -> int:
        """Index of the last event applied."""
        return self.state.index

    def handle(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        """Applies the event with index `self.index + 1`. Raises `IllegalTransition`, `KeyError` or `AssertionError` for
        an event that can't happen in this state; the engine must then be thrown away."""
        state = self.state
        state.index += 1
        if event.at > state.now:
            state.now = event.at
        step = Step(state, self._derived, state.now)
        _APPLY[type(event)](step, event)
        if step.signals:
            self._pass_signals(step)
        if step.capacity_came:
            self._serve(step)
        maintain.settle(step, self._pass_signals)
        if step.capacity_came:
            self._serve(step)
        return tuple(step.effects)

    def next_wake(self) -> Instant | None:
        """When a policy wants a TimePassed, at the latest; None: never."""
        found = self._derived.next_wake(self.state)
        return found[0] if found is not None else None

    def pending(self, host: HostId | None = None) -> tuple[AnyEffect, ...]:
        """Effects without an outcome, in the order in which they were caused; of one host, as it is sent them. Who has
        not answered an effect of several hosts: `state.pending[effect.id].open_at`."""
        if host is None:
            names = list(self.state.pending)
        else:
            names = self._derived.effects_at(host, self.state.pending)
        effects = (self.state.pending[name].effect for name in sorted(names, key=effect_order))
        return tuple(effect if host is None else for_host(effect, host) for effect in effects)

    def free_hosts(self) -> Mapping[str, int]:
        """Free hosts by cluster."""
        return {str(cluster): count for cluster, count in self._derived.free.counts().items()}

    def preview_placement(self, count: int, spares: int) -> Reason | tuple[HostId, ...]:
        """Where a gang would go now, if it were alone; changes nothing."""
        found = self._derived.free.place(count, spares)
        return found if isinstance(found, Reason) else found.members

    def glance(self, now: Instant) -> Glance:
        """The state and what is derived from it, to be asked at an instant; changes nothing."""
        return Glance(self.state, self._derived, max(now, self.state.now))

    def snapshot(self) -> bytes:
        """The state as canonical bytes: equal states give equal bytes."""
        return encode(self.state)

    @classmethod
    def restore(cls, snapshot: bytes) -> "Engine":
        return cls(decode(snapshot, ClusterState))

    def _pass_signals(self, step: Step) -> None:
        while step.signals:
            kind, host, name = step.signals.pop(0)
            attempt = step.state.attempts[name]
            if attempt.is_live():
                _SIGNALS[kind](step, attempt, host)

    def _serve(self, step: Step) -> None:
        """Attempts that want hosts first, oldest first; then the queue, strictly in order."""
        for name in tuple(step.state.wanting):
            handover.serve(step, step.state.attempts[name])
        while step.state.queue:
            job = step.state.jobs[step.state.queue[0]]
            gang = step.state.maintenance.gangs.get(job.id)
            if gang is not None and gang.began_at is not None:
                job.reason = gang.reason
                break
            found = step.derived.free.place(job.spec.hosts, job.spec.spares)
            if isinstance(found, Reason):
                job.reason = found
                break
            forming.start(step, job, found)
        step.capacity_came = False


def _time_passed(step: Step, event: TimePassed) -> None:
    while (due := step.derived.next_wake(step.state)) is not None and due[0] <= step.now:
        key = due[1]
        step.unwake(key)
        kind, _, name = key.partition("/")
        _WAKES[kind](step, name)


def _agent_left(apply: Callable[[Step, E], object]) -> Callable[[Step, E], None]:
    def left(step: Step, event: E) -> None:
        reports.agent_left(step, event)
        apply(step, event)

    return left


def _on_attempt(act: Callable[[Step, Attempt], None]) -> Callable[[Step, str], None]:
    def wake(step: Step, name: str) -> None:
        attempt = step.state.attempts[AttemptId(name)]
        if attempt.is_live():
            act(step, attempt)

    return wake


def _on_host(act: Callable[[Step, HostId], None]) -> Callable[[Step, str], None]:
    return lambda step, name: act(step, HostId(name))


def _registered(step: Step, event: AgentRegistered) -> None:
    hosts.registered(step, event)
    standing.booted(step, event.host)


def _lease_taken(step: Step, event: LeaseTaken) -> None:
    assert event.lease > step.state.lease, (event.lease, step.state.lease)
    step.state.lease = event.lease
    step.state.fleet = step.state.fleet or event.fleet
    hosts.lease_taken(step)


def _seen_late(step: Step, event: EffectEnded | EffectsEnded) -> None:
    """Nobody waits for this outcome any more, but what was observed on the host is true all the same."""
    component, version = event.numbers.get("component"), event.numbers.get("version")
    if isinstance(component, str) and isinstance(version, str) and version:
        for name in event.hosts:
            hosts.observed(step, step.state.hosts[name], ComponentName(component), version)


def _effects_ended(step: Step, event: EffectEnded | EffectsEnded) -> None:
    pending = step.state.pending.get(event.effect)
    if pending is None:
        _seen_late(step, event)
        return
    effect, told = pending.effect, event.hosts
    answered = step.settle(event.effect, told)
    if len(answered) < len(told):
        strangers = set(told).difference(effect.hosts)
        assert not strangers, f"{fold(sorted(strangers))} answers for {fold(effect.hosts)}"
    if not answered:
        return
    if isinstance(effect, RunSteps):
        visits.leg_ended(step, effect, _alone(event))
    elif isinstance(effect, VerifyHost):
        hosts.verification_ended(step, effect, _alone(event))
    elif isinstance(effect, RebootHost):
        visits.booted(step, effect, _alone(event))
    elif isinstance(effect, ReleaseAttempt):
        hosts.released(step, effect, event, answered)
    else:
        reports.effect_ended(step, effect, event, answered)


def _alone(event: EffectEnded | EffectsEnded) -> EffectEnded:
    """The outcome of an effect of a single host, however it was told."""
    if isinstance(event, EffectEnded):
        return event
    (host,) = event.hosts
    return EffectEnded(
        at=event.at, host=host, effect=event.effect, outcome=event.outcome, detail=event.detail, numbers=event.numbers
    )


def _live_attempt(step: Step, job: Job) -> Attempt | None:
    attempt = step.state.attempts[job.attempts[-1]] if job.attempts else None
    return attempt if attempt is not None and attempt.is_live() else None


def _cancelled(step: Step, event: JobCancelled) -> None:
    job = step.state.jobs[event.job]
    reason = Reason(token=Token.CANCELLED_BY_REQUEST, sentence=f"cancelled by {event.by}: {event.reason}")
    attempt = _live_attempt(step, job)
    if attempt is not None:
        end(step, attempt, AttemptState.CANCELLED, JobState.CANCELLED, reason, gently=True)
    elif job.state is JobState.QUEUED:
        jobs.move(step, job, JobState.CANCELLED, reason)
        step.capacity_came = True


def _requeued(step: Step, event: JobRequeued) -> None:
    job = step.state.jobs[event.job]
    reason = Reason(token=Token.REQUEUED, sentence=f"requeued by {event.by}: {event.reason}")
    attempt = _live_attempt(step, job)
    if attempt is not None:
        handover.leave_for_queue(step, attempt, reason)
    elif job.state is not JobState.QUEUED:
        job.failures = ()
        jobs.move(step, job, JobState.QUEUED, reason)


def _published(step: Step, event: CheckpointPublished) -> None:
    reports.published(step, event)
    drains.checkpoint_published(step, event.attempt)


_APPLY: Mapping[type, Callable[..., object]] = {
    LeaseTaken: _lease_taken,
    TimePassed: _time_passed,
    FleetDeclared: hosts.declare,
    AgentRegistered: _registered,
    AgentDisconnected: _agent_left(hosts.disconnected),
    AgentSilent: _agent_left(hosts.silent),
    DrainRequested: hosts.drain,
    ResumeRequested: acts.resumed,
    JobSubmitted: jobs.submit,
    JobCancelled: _cancelled,
    JobRequeued: _requeued,
    EffectEnded: _effects_ended,
    EffectsEnded: _effects_ended,
    WorkerExited: reports.workers_exited,
    WorkersExited: reports.workers_exited,
    HangFound: reports.hang_found,
    EpochPhase: reports.phase_reached,
    CheckpointPublished: _published,
    CheckpointFailed: reports.save_failed,
    CatalogueDeclared: maintain.catalogue_declared,
    CapacityDeclared: maintain.capacity_declared,
    OperationRequested: gate.request,
    OperationCancelled: gate.cancel,
    TrainDeclared: trains.declare,
    TrainPaused: trains.pause,
    TrainResumed: trains.resume,
    TrainAborted: trains.abort,
    VersionTargeted: trials.target,
    RolloutDeclared: trials.declare,
    RolloutPaused: trials.pause,
    RolloutPassed: trials.passed,
    RolloutResumed: trials.resume,
    RolloutStopped: trials.stop,
    GangUpgradeRequested: gangs.request,
    HealthReported: standing.reported,
    PartsSeen: standing.parts_seen,
    HealthConductDeclared: acts.declare,
    HealthModeSet: acts.set_mode,
    HealthAcknowledged: acts.acknowledge,
    HealthReleased: acts.release,
    BreakerSet: acts.set_breaker,
    RmaOpened: acts.open_rma,
    RmaClosed: acts.close_rma,
}

_SIGNALS: Mapping[str, Callable[[Step, Attempt, HostId], None]] = {
    "host-lost": interrupt.host_lost,
    "host-gone": lambda step, attempt, host: interrupt.host_gone(step, attempt),
    "host-draining": handover.host_draining,
    "host-kept": lambda step, attempt, host: handover.serve(step, attempt),
}

_WAKES: Mapping[str, Callable[[Step, str], None]] = {
    "host": _on_host(hosts.deadline_passed),
    "reconnect": _on_host(hosts.reconnect_passed),
    "drain": _on_host(handover.evict_deadline),
    "clean": _on_host(hosts.clean_overdue),
    "op": running.overdue,
    "gate": gate.again,
    "visit": visits.drain_now,
    "reboot": visits.reboot_overdue,
    "train": trains.look,
    "stop": trains.stop_overdue,
    "rollout": trials.judge,
    "stands": _on_host(standing.expired),
    "look": _on_host(cases.look_again),
    "away": _on_host(cases.away_too_long),
    "errand": _on_host(errands.consider),
    "breaker": lambda step, name: cases.due(step, PoolName(name)),
    "lemons": daily.look,
    "lines": lambda step, name: gate.serve_lines(step),
    "settle": _on_attempt(interrupt.settled),
    "form": _on_attempt(interrupt.form_overdue),
    "yield": _on_attempt(handover.yield_overdue),
}
