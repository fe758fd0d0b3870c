"""Simulated worker groups: what the ranks of an attempt do, seen from outside.

A gang is the workers of one attempt in its newest epoch. It joins and restores, then trains until it is done, is asked
to yield, or loses a host. Nothing happens in between: how far it is, and what a stop costs it, is computed from the
instant at which it began to train. Periodic checkpoints are events only where something waits for one, or where the
engine chooses how often (`checkpoint_auto`): then each is, since each is a measurement.

All hosts of a gang answer at one time, and what they answer is told at once, so a change of a gang is a few timers
however large it is. How long a request takes a gang is what it takes its slowest host.
"""

from typing import TYPE_CHECKING, Final

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, HostId, JobId, Owner, job_of
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Duration, Instant, after, in_seconds
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
)
from trainmaster.core.events import EpochPhase, JobSubmitted
from trainmaster.core.recovery.events import CheckpointPublished, EffectsEnded, Failure, How, WorkersExited
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import CheckpointPolicy, JobSpec, MaintenanceContract, RestartBudget
from trainmaster.twin.chance import Purpose
from trainmaster.twin.kernel import Timer
from trainmaster.twin.scenario import QUICK, SETTLING, JobClass

if TYPE_CHECKING:
    from trainmaster.twin.world import World

PEOPLE: Final = Owner("person:twin")
ECHO: Final = "Connection closed by peer"

Part = PrepareAttempt | ReserveStore | LaunchWorkers | AskWorkers | StopWorkers | ReleaseAttempt


class Gang:
    """One job through all of its attempts."""

    __slots__ = (
        "attempt", "cause", "done", "epoch", "every", "hosts", "job", "lost", "name", "shape", "since", "steps",
        "stopped_at", "stream", "stretch", "timer", "trains", "work",
    )  # fmt: skip

    def __init__(self, job: JobId, name: str, shape: JobClass, work: Duration, stream: Stream, now: Instant) -> None:
        self.job, self.name, self.shape, self.work, self.stream = job, name, shape, work, stream
        self.attempt = AttemptId("")
        self.epoch = 0
        self.hosts: tuple[HostId, ...] = ()
        """Of the epoch that runs, in rank order."""
        self.trains = False
        self.since = now
        """Since when it trains."""
        self.done = 0
        """Work that a checkpoint holds."""
        self.steps = 0
        self.stopped_at = now
        """Since when it does not train."""
        self.cause = "start"
        self.lost = 0
        """Work of the epoch before that no checkpoint held."""
        self.timer: Timer | None = None
        self.every = shape.checkpoint_every
        """Work between two saves."""
        self.stretch = self.every
        """Work of the stretch that is under way, until its save."""


class Gangs:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.by_job: dict[JobId, Gang] = {}
        self.interruptions: dict[str, dict[str, int]] = {}
        """By job, then by cause: how often it stood still."""
        self.lost_gpu_us: dict[str, int] = {}
        """By cause: GPU time in which a job stood still, or did what it had done before."""
        self.jobs_ended: dict[str, int] = {}
        self.trained_gpu_us = 0
        self._numbers: dict[str, int] = {}
        self._work = Purpose(world.scenario.seed, "jobs")
        self.gpus = max((host.gpus for host in world.scenario.fleet.hosts), default=0) or 1
        self._told: set[AttemptId] = set()
        """Attempts whose next checkpoint is an event, since a visit waits for it."""

    def start(self) -> None:
        for shape in self.world.scenario.jobs:
            for number in range(shape.count):
                self.world.kernel.after(SETTLING + number, self._submit, shape)

    def _submit(self, shape: JobClass) -> None:
        world = self.world
        number = self._numbers[shape.name] = self._numbers.get(shape.name, 0) + 1
        name = f"{shape.name}-{number}"
        hosts = f"{shape.hosts} host" + ("s" if shape.hosts > 1 else "")
        if world.inputs is not None and not world.inputs.admits(name, world.kernel.now, f"a job of {hosts}"):
            return
        stream = self._work.stream(name)
        work = max(world.law(shape.work).draw(stream), shape.step)
        contract = MaintenanceContract(
            notice=shape.notice,
            checkpoint_wait=shape.checkpoint_wait,
            wait_for_end=shape.wait_for_end,
            expected_duration=work if shape.wait_for_end else None,
        )
        spec = JobSpec(
            name=name,
            command=("python", "train.py"),
            hosts=shape.hosts,
            spares=shape.spares,
            priority=shape.priority,
            checkpoint=CheckpointPolicy(directory="/checkpoints", auto=shape.checkpoint_auto),
            restart=RestartBudget(max_restarts=1000),
            contract=contract,
            yield_deadline=Duration(10 * (shape.step + shape.save)),
        )
        job = JobId(f"job-{len(world.engine.state.jobs) + 1}")
        self.by_job[job] = Gang(job, name, shape, work, stream, world.kernel.now)
        world.submit(JobSubmitted(at=world.kernel.now, spec=spec, by=PEOPLE))

    # --- what the engine asks of gangs

    def deliver(self, effects: tuple[AnyEffect, ...]) -> None:
        """Sets a timer for the answer to each."""
        for effect in effects:
            if not isinstance(effect, Part):
                continue
            gang = self.by_job.get(job_of(effect.attempt))
            wait: int = QUICK
            if isinstance(effect, PrepareAttempt):
                assert gang is not None, effect.id
                wait = gang.shape.prepare
            elif isinstance(effect, LaunchWorkers):
                assert gang is not None, effect.id
                gang.attempt, gang.epoch, gang.hosts = effect.attempt, effect.epoch, effect.hosts
                wait = gang.shape.launch
            elif isinstance(effect, AskWorkers) and gang is not None and effect.request == "interval":
                every = Duration(effect.every_steps * gang.shape.step)
                self.world.kernel.after(QUICK, self._paced, (gang, effect.epoch, every))
            elif isinstance(effect, AskWorkers) and gang is not None:
                leave = QUICK + gang.stream.integer(gang.shape.step) + gang.shape.save
                self.world.kernel.after(leave, self._yielded, (gang, effect.epoch))
            self.world.kernel.after(wait, self._carried_out, (gang, effect))

    def _carried_out(self, told: tuple[Gang | None, Part]) -> None:
        gang, effect = told
        world = self.world
        down = world.down
        pending = world.engine.state.pending.get(effect.id)
        if pending is None:
            return
        open_at = pending.open_at
        hosts = effect.hosts
        if len(open_at) < len(hosts) or not down.isdisjoint(open_at):  # two sets: as long as the smaller one takes
            hosts = tuple([host for host in hosts if host in open_at and host not in down])
        numbers: dict[str, int | float | str] = {"port": 20_000} if isinstance(effect, ReserveStore) else {}
        if hosts:
            world.submit(
                EffectsEnded(at=world.kernel.now, hosts=hosts, effect=effect.id, outcome="done", numbers=numbers)
            )
        if not isinstance(effect, LaunchWorkers) or gang is None or not self._is_present(gang, effect):
            return
        if down.isdisjoint(effect.hosts):
            gang.timer = world.kernel.after(gang.shape.restore, self._trains, gang)

    def _is_present(self, gang: Gang, effect: LaunchWorkers) -> bool:
        return gang.attempt == effect.attempt and gang.epoch == effect.epoch and bool(gang.hosts)

    # --- the life of a gang

    def _trains(self, gang: Gang) -> None:
        gang.trains, gang.since = True, self.world.kernel.now
        self._lose(gang, gang.since - gang.stopped_at + gang.lost)
        gang.lost = 0
        self.go_on(gang)
        for phase in (Phase.ATTACHED, Phase.TRAINING):
            if gang.hosts:
                self._phase(gang, phase)

    def go_on(self, gang: Gang) -> None:
        """Sets the timer of a gang that trains: its end, or the next save where each one is an event."""
        rest = gang.work - gang.done
        if not gang.shape.checkpoint_auto:
            saves = rest // gang.every
            gang.timer = self.world.kernel.after(max(rest + saves * gang.shape.save, 1), self._finished, gang)
            return
        now = self.world.kernel.now
        trained = now - gang.since
        gang.stretch = Duration(min(max(gang.every, trained), rest))
        last = gang.stretch == rest
        at = after(gang.since, gang.stretch + (0 if last else gang.shape.save))
        gang.timer = self.world.kernel.at(max(at, now), self._finished if last else self._saved, gang)

    def _saved(self, gang: Gang) -> None:
        """A save of a gang whose saves are events: what it did is kept, and the next stretch begins."""
        gang.done += gang.stretch
        gang.steps = gang.done // gang.shape.step
        self.trained_gpu_us += gang.stretch * len(gang.hosts) * self.gpus
        self._lose_save(gang, gang.shape.save)
        gang.since = self.world.kernel.now
        self.go_on(gang)
        self._publish(gang, gang.hosts)

    def _paced(self, told: tuple[Gang, int, Duration]) -> None:
        """The ranks have been told another interval."""
        gang, epoch, every = told
        gang.every = every
        if gang.trains and gang.epoch == epoch and self.world.kernel.now - gang.since <= gang.stretch:
            assert gang.timer is not None, gang.name
            self.world.kernel.cancel(gang.timer)
            self.go_on(gang)

    def _phase(self, gang: Gang, phase: Phase) -> None:
        now = self.world.kernel.now
        self.world.submit(
            EpochPhase(at=now, host=gang.hosts[0], attempt=gang.attempt, epoch=gang.epoch, phase=phase, step=gang.steps)
        )

    def _lose(self, gang: Gang, duration: int) -> None:
        gpus = len(gang.hosts or (1,)) * self.gpus
        self.lost_gpu_us[gang.cause] = self.lost_gpu_us.get(gang.cause, 0) + duration * gpus

    def stop(self, gang: Gang, cause: str, saved: bool) -> tuple[HostId, ...]:
        """The ranks leave, with all they did (`saved`) or with what the last periodic checkpoint has."""
        hosts, now = gang.hosts, self.world.kernel.now
        if gang.timer is not None:
            self.world.kernel.cancel(gang.timer)
            gang.timer = None
        if gang.trains:
            trained = now - gang.since
            every, save = gang.stretch, gang.shape.save
            rounds, rest = divmod(trained, every + save)
            held = rounds * every
            gang.lost = 0 if saved else min(rest, every)
            gang.done += held + (rest if saved else 0)
            self.trained_gpu_us += (held + (rest if saved else 0)) * len(hosts) * self.gpus
            self._lose_save(gang, rounds * save)
            gang.steps = gang.done // gang.shape.step
            gang.stopped_at, gang.cause = now, cause
            row = self.interruptions.setdefault(gang.name, {})
            row[cause] = row.get(cause, 0) + 1
        gang.trains, gang.hosts = False, ()
        return hosts

    def _lose_save(self, gang: Gang, duration: int) -> None:
        self.lost_gpu_us["save"] = self.lost_gpu_us.get("save", 0) + duration * len(gang.hosts) * self.gpus

    def _yielded(self, told: tuple[Gang, int]) -> None:
        """The ranks have agreed on a step, saved, and left."""
        gang, epoch = told
        if not gang.trains or gang.epoch != epoch:
            return
        hosts = self.stop(gang, "train" if self._leaves_for_train(gang) else "hand-over", saved=True)
        self._publish(gang, hosts)
        self.exited(gang, hosts, "yielded")

    def _leaves_for_train(self, gang: Gang) -> bool:
        visits = self.world.engine.state.maintenance.visits.values()
        by_train = {visit.unit for visit in visits if visit.train is not None}
        return not by_train.isdisjoint(gang.hosts) if by_train else False

    def _finished(self, gang: Gang) -> None:
        hosts = self.stop(gang, "finished", saved=True)
        del self.interruptions[gang.name]["finished"]
        self._publish(gang, hosts)
        self.exited(gang, hosts, "finished")
        self.ended(gang)

    def ended(self, gang: Gang) -> None:
        state = self.world.engine.state.jobs[gang.job].state
        assert state in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED), (gang.job, state)
        self.jobs_ended[state.value] = self.jobs_ended.get(state.value, 0) + 1
        del self.by_job[gang.job]
        if gang.shape.count:  # of a job that was there before the world began, no other one follows
            self.world.kernel.after(QUICK, self._submit, gang.shape)

    def host_died(self, host: HostId) -> None:
        """Peers of a dead host fail a moment later: their connections break."""
        allocation = self.world.engine.state.hosts[host].allocation
        gang = self.by_job.get(job_of(allocation)) if allocation is not None else None
        if gang is None or host not in gang.hosts:
            return
        hosts = self.stop(gang, "host-lost", saved=False)
        place = hosts.index(host)
        self.exited(gang, hosts[:place] + hosts[place + 1 :], "failed")
        if self.world.engine.state.jobs[gang.job].state is JobState.FAILED:
            self.ended(gang)

    def _publish(self, gang: Gang, hosts: tuple[HostId, ...]) -> None:
        now = self.world.kernel.now
        self.world.submit(
            CheckpointPublished(
                at=now,
                host=hosts[0],
                attempt=gang.attempt,
                epoch=gang.epoch,
                step=gang.steps,
                stall_s=in_seconds(gang.shape.save),
            )
        )

    def exited(self, gang: Gang, hosts: tuple[HostId, ...], how: How) -> None:
        now = self.world.kernel.now
        failure = Failure(at=now, exception="RuntimeError", message=ECHO) if how == "failed" else None
        phase = {"finished": Phase.FINISHED, "yielded": Phase.YIELDED}.get(how, Phase.TRAINING)
        if not hosts:
            return
        self.world.submit(
            WorkersExited(
                at=now,
                attempt=gang.attempt,
                epoch=gang.epoch,
                hosts=hosts,
                how=how,
                exit_code=1 if how == "failed" else 0,
                signal=None,
                attached=True,
                phase=phase,
                step=gang.steps,
                step_at=now,
                save_s=0.0,
                failure=failure,
            )
        )

    def under_way_gpu_us(self) -> tuple[int, int]:
        """What gangs that train now have trained since they began, and saved: no stop has booked it yet."""
        trained = saved = 0
        for gang in self.by_job.values():
            if gang.trains:
                gpus = len(gang.hosts) * self.gpus
                rounds, rest = divmod(self.world.kernel.now - gang.since, gang.stretch + gang.shape.save)
                trained += (rounds * gang.stretch + min(rest, gang.stretch)) * gpus
                saved += (rounds * gang.shape.save + max(rest - gang.stretch, 0)) * gpus
        return trained, saved

    # --- checkpoints that somebody waits for

    def tell_checkpoints(self) -> None:
        """The next checkpoint of a gang on which a visit waits is an event."""
        noticed = self.world.engine._derived.planner.noticed
        if noticed.keys() <= self._told:
            return
        for attempt in sorted(noticed.keys() - self._told):
            gang = self.by_job.get(job_of(attempt))
            if gang is None or not gang.trains or gang.attempt != attempt:
                continue
            self._told.add(attempt)
            if gang.shape.checkpoint_auto:
                continue  # its next one is an event anyway
            period = gang.every + gang.shape.save
            rounds = (self.world.kernel.now - gang.since) // period + 1
            self.world.kernel.at(after(gang.since, rounds * period), self._periodic, (gang, gang.epoch))

    def _periodic(self, told: tuple[Gang, int]) -> None:
        gang, epoch = told
        self._told.discard(gang.attempt)
        if gang.trains and gang.epoch == epoch:
            self._publish(gang, gang.hosts)
