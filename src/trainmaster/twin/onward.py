"""A simulated world that goes on from a state of the real fleet.

The engine is restored from a snapshot, and the world is built around it: hosts are up or down as the engine knows them,
running attempts become gangs, and whatever agents were asked for and have not answered is answered. Nothing is taken
from the real fleet but the snapshot, so nothing of what happens here reaches it.

What a snapshot cannot say is guessed, and each guess is one that does not favour a policy:
- what is under way (steps, verifications, boots, repairs) begins anew, since nobody knows how far it is;
- how long a job will go on: what it said when it was submitted, else beyond the end;
- how long a start of the job takes: as in its last epochs, else the twin's own figures;
- failures come by their law from now on; a host that is away with a failure takes the law of repairs;
- nothing new is asked for or submitted by people: only the trains, rollouts and operations that are there.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from trainmaster.core.base.ids import (
    BootId,
    HostId,
    KindName,
    OperationId,
    RolloutId,
    SessionId,
    TrainName,
    operation_id,
)
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, SECOND, Duration, Instant, seconds
from trainmaster.core.effects import AnyEffect, AskWorkers, RebootHost
from trainmaster.core.engine import Engine
from trainmaster.core.events import AgentRegistered, AnyEvent, OperationRequested, RolloutDeclared, TrainDeclared
from trainmaster.core.fleet.inventory import FleetSpec
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.maintenance.catalogue import Spread
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.state import ClusterState
from trainmaster.twin.chance import REPAIR, Purpose
from trainmaster.twin.gangs import Gang
from trainmaster.twin.scenario import QUICK, Failures, JobClass, Operations, Scenario
from trainmaster.twin.world import Unit, World

LONG: Final = Duration(20 * 365 * 24 * HOUR)
"""The work of a job of which nobody said how long it takes."""

Asks = Callable[[Engine], Iterator[AnyEvent]]
"""What is asked of the engine at the beginning, one event after the other; each is applied before the next is made."""


class Onward(World):
    """Begins where the snapshot ends. `asks` is applied before anything else happens."""

    def __init__(self, scenario: Scenario, snapshot: bytes, asks: Asks | None = None) -> None:
        engine = Engine.restore(snapshot)
        super().__init__(scenario, engine=engine, began=engine.state.now)
        self._asks = asks
        self._sessions: dict[HostId, SessionId] = {}
        self.asked: dict[OperationId, OperationSpec] = {}
        """Operations that were asked for at the beginning, in their order."""
        self.trains: list[TrainName] = []
        """Trains that were declared at the beginning."""
        self.rollouts: list[RolloutId] = []
        self.ended: dict[OperationId, tuple[OperationState, Instant]] = {}
        """Of those, how they ended, and when."""
        self._newest: OperationId | None = None
        self.watch = self._note_ended

    def session_of(self, unit: Unit) -> SessionId:
        known = self._sessions.get(unit.id)
        return known if known is not None and unit.boot == 1 else SessionId(f"what-if-{unit.boot}")

    def boot_of(self, unit: Unit) -> BootId:
        return BootId(f"what-if-{unit.boot}")

    def start(self) -> None:
        """Sets the timers of all that is under way, then asks."""
        state = self.engine.state
        failures = Purpose(self.scenario.seed, "failures")
        rebooting = {one.effect.hosts[0] for one in state.pending.values() if isinstance(one.effect, RebootHost)}
        for host in state.hosts.values():
            unit = Unit(host.id, host.spec.kind, self._steps_chance.stream(host.id))
            self.units[host.id] = unit
            unit.boot = 1
            self._sessions[host.id] = host.session
            unit.up = _is_up(state, host)
            if not unit.up:
                self.down.add(host.id)
            self._plan(unit, host, host.id in rebooting, failures)
        for job in state.jobs.values():
            if job.state in (JobState.QUEUED, JobState.ACTIVE):
                self._take_over(job)
        for effect in self.engine.pending():
            self._go_on(effect)
        for host in tuple(state.hosts.values()):
            if self.units[host.id].up and host.is_unheard():
                self._register(host)
        self._wake_up()
        self._ask()

    def _plan(self, unit: Unit, host: Host, reboots: bool, failures: Purpose) -> None:
        """What becomes of a unit by itself: it comes back, or fails one day."""
        if not unit.up and host.state is not HostState.EXPECTED:
            if reboots or host.state is not HostState.OUT_FAILED:
                self.kernel.after(self._boot.draw(unit.stream), self._power_on, unit)
            else:
                unit.repaired = True
                self.kernel.after(max(REPAIR.draw(unit.stream), SECOND), self._mended, unit)
        if unit.kind == "compute" and self.scenario.failures.per_thousand_host_days > 0:
            self._failure_streams[unit.id] = failures.stream(unit.id)
            self._plan_failure(unit)

    def _register(self, host: Host) -> None:
        """A host that the server has not heard of since it started, and of which nothing bad is known."""
        running = self.engine.state.attempts[host.allocation].epoch.number if host.allocation is not None else 0
        attempts = ((host.allocation, running),) if host.allocation is not None else ()
        self.submit(
            AgentRegistered(
                at=self.kernel.now,
                host=host.id,
                session=host.session,
                boot=host.boot,
                address=host.address,
                attempts=attempts,
            )
        )

    def _go_on(self, effect: AnyEffect) -> None:
        answer = self._answers.get(type(effect))
        if answer is None:
            self.gangs.deliver((effect,))
        elif self.units[effect.hosts[0]].up:
            answer(effect)

    def _wake_up(self) -> None:
        due = self.engine.next_wake()
        if due is not None:
            self._armed = max(due, self.kernel.now)
            self.kernel.at(self._armed, self._wake, self._armed, 1)

    def _ask(self) -> None:
        if self._asks is None:
            return
        maintenance = self.engine.state.maintenance
        for event in self._asks(self.engine):
            before = maintenance.requested
            self.submit(event)
            if isinstance(event, TrainDeclared):
                self.trains.append(event.spec.name)
            elif isinstance(event, RolloutDeclared):
                self.rollouts.append(event.rollout)
            elif isinstance(event, OperationRequested):
                for number in range(before + 1, maintenance.requested + 1):
                    name = operation_id(number)
                    self.asked[name] = event.spec
                    self._note(name)

    # --- operations that were asked for

    def _note(self, name: OperationId) -> None:
        """It may have ended in the very event that asked for it."""
        found = next((one for one in reversed(self.engine.state.maintenance.ended) if one.id == name), None)
        if found is not None:
            self.ended[name] = (found.state, found.ended_at)

    def _note_ended(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> None:
        ended = self.engine.state.maintenance.ended
        if not ended or ended[-1].id == self._newest:
            return
        before, self._newest = self._newest, ended[-1].id
        for one in reversed(ended):
            if one.id == before:
                break
            if one.id in self.asked:
                self.ended.setdefault(one.id, (one.state, one.ended_at))

    # --- gangs that are there

    def _take_over(self, job: Job) -> None:
        """A gang for a job that waits or runs, as far as it is."""
        state, now = self.engine.state, self.kernel.now
        attempts = [state.attempts[name] for name in job.attempts]
        shape = shape_of(job, attempts)
        known = max((epoch.last_step for attempt in attempts for epoch in attempt.epochs), default=-1)
        done = Duration(max(known, 0) * shape.step)
        work = Duration(done + _left(job, attempts, now))
        gang = Gang(job.id, f"{job.id} {job.spec.name}", shape, work, self._stream_of(job), now)
        gang.done, gang.steps, gang.cause = done, max(known, 0), "before"
        self.gangs.by_job[job.id] = gang
        if attempts and attempts[-1].is_live():
            self._resume(gang, attempts[-1])

    def _stream_of(self, job: Job) -> Stream:
        return Purpose(self.scenario.seed, "jobs").stream(job.id)

    def _resume(self, gang: Gang, attempt: Attempt) -> None:
        epoch, kernel = attempt.epoch, self.kernel
        gang.attempt, gang.epoch = attempt.id, epoch.number
        if attempt.state is not AttemptState.RUNNING or epoch.ended_by or attempt.exits.failed:
            return
        gang.hosts = attempt.members
        ways = {told.first.how for told in attempt.exits.told}
        if epoch.first_step_at is None and not ways:
            gang.timer = kernel.after(gang.shape.restore, self.gangs._trains, gang)
            return
        gang.trains, gang.since = True, kernel.now
        if ways == {"finished"}:
            gang.timer = kernel.after(1, self.gangs._finished, gang)
        else:
            self.gangs.go_on(gang)
        pending = [one for one in self._pending_of(attempt) if isinstance(one, AskWorkers)]
        asked = any(one.request == "yield" for one in pending)
        if attempt.handover is not None and not asked:  # they were told, and are about to leave
            kernel.after(QUICK + gang.shape.step + gang.shape.save, self.gangs._yielded, (gang, epoch.number))

    def _pending_of(self, attempt: Attempt) -> Iterator[AnyEffect]:
        for name in self.engine._derived.effects_by_attempt.get(attempt.id, ()):
            yield self.engine.state.pending[name].effect


def _is_up(state: ClusterState, host: Host) -> bool:
    """Its agent answers, or nothing says that it does not."""
    if host.state is HostState.EXPECTED or (not host.connected and host.gone_at is not None):
        return False
    return host.state is not HostState.OUT_FAILED or (host.connected and host.id in state.maintenance.visits)


# What the state says of jobs and of the fleet


def shape_of(job: Job, attempts: list[Attempt]) -> JobClass:
    """How the job behaves, as far as its epochs tell."""
    usual = JobClass(name=job.spec.name, count=0, hosts=job.spec.hosts)
    epochs = [epoch for attempt in attempts for epoch in attempt.epochs][-8:]
    step = _median([step for epoch in epochs for step in _step_times(epoch)], usual.step)
    asked, pacing = job.spec.checkpoint, job.pacing
    every = pacing.every_steps if asked.auto else asked.every_steps
    stall_s = pacing.stall_s()
    return usual.but(
        spares=job.spec.spares,
        priority=job.spec.priority,
        step=step,
        checkpoint_every=Duration(every * step) if every else LONG,
        checkpoint_auto=asked.auto,
        save=seconds(stall_s) if stall_s is not None else min(usual.save, Duration(10 * step)),
        prepare=_median([_between(one.reserved_at, one.launched_at) for one in epochs], usual.prepare),
        launch=_median([_between(one.reserved_at, one.launched_at) for one in epochs], usual.launch),
        restore=_median([_between(one.launched_at, one.first_step_at) for one in epochs], usual.restore),
    )


def _step_times(epoch: Epoch) -> Iterator[int]:
    steps = epoch.last_step - max(epoch.restored_step, 0) - 1
    length = _between(epoch.first_step_at, epoch.last_step_at)
    if steps > 0 and length > 0:
        yield length // steps


def _between(start: Instant | None, end: Instant | None) -> int:
    """Zero: not known."""
    return max(end - start, 0) if start is not None and end is not None else 0


def _median(lengths: list[int], usual: Duration) -> Duration:
    known = [length for length in lengths if length > 0]
    return Duration(max(round(median(known)), 1)) if known else usual


def _left(job: Job, attempts: list[Attempt], now: Instant) -> int:
    """The training that the job still needs, by what it said of itself."""
    expected = job.spec.contract.expected_duration
    if expected is None:
        return LONG
    began = attempts[0].placed_at if attempts else now
    return max(expected - (now - began), SECOND)


def scenario_of(state: ClusterState, duration: Duration, per_thousand_host_days: float) -> Scenario:
    """The scenario of a fleet to which nothing happens but failures: its hosts, catalogue and capacity."""
    hosts = tuple(host.spec for host in sorted(state.hosts.values(), key=lambda host: host.position))
    maintenance, usual = state.maintenance, Failures()
    reboot = maintenance.catalogue.kind(KindName("reboot"))
    failures = usual.but(
        per_thousand_host_days=per_thousand_host_days,
        boot=reboot.duration if reboot is not None else usual.boot,
        verify=_verification(state, usual.verify),
    )
    return Scenario(
        name="live",
        fleet=FleetSpec(name="live", clusters=(), hosts=hosts),
        catalogue=maintenance.catalogue,
        capacity=maintenance.capacity,
        duration=duration,
        failures=failures,
        operations=Operations(fails=0.0, boot_fails=0.0),
    )


def _verification(state: ClusterState, usual: Spread) -> Spread:
    """How long verifications took, by the stories of the hosts."""
    lengths = sorted(
        chapter.at - before.at
        for host in state.hosts.values()
        for before, chapter in zip(host.story, host.story[1:], strict=False)
        if chapter.start == HostState.VERIFYING.value and chapter.end != HostState.OUT_FAILED.value
    )
    known = [length for length in lengths if length > 0]
    if not known:
        return usual
    middle, high = known[len(known) // 2], known[len(known) * 9 // 10]
    return Spread(median=Duration(middle), p90=Duration(max(high, middle)), limit=Duration(max(2 * known[-1], high)))
