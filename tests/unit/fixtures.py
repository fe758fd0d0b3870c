"""A stage for the engine: the test says what happens, the stage answers as healthy agents would.

Every event goes through `tell`, which checks all invariants, so that each scenario tests them by the way. Times are
seconds since the start; nothing here sleeps or draws lots.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from trainmaster.core.accounting.goodput import account
from trainmaster.core.accounting.report import JobAccount
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, BootId, HostId, JobId, Owner, SessionId
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
    VerifyHost,
    for_host,
    parts,
)
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    AnyEvent,
    DrainRequested,
    FleetDeclared,
    JobCancelled,
    JobRequeued,
    JobSubmitted,
    LeaseTaken,
    ResumeRequested,
    TimePassed,
)
from trainmaster.core.fleet.events import Reached
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.invariants import broken
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.recovery.events import (
    CheckpointPublished,
    EffectEnded,
    EpochPhase,
    Failure,
    How,
    Outcome,
    WorkerExited,
)
from trainmaster.core.scheduling.job import Job
from trainmaster.core.scheduling.request import JobSpec, RestartBudget

E = TypeVar("E", bound=AnyEffect)
OPS, ALICE = Owner("person:ops"), Owner("person:alice")
ECHO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:43210"


def host_spec(name: str, cluster: str = "c", pod: str = "p1", rack: str = "r1") -> HostSpec:
    return HostSpec(
        id=HostId(name), cluster=cluster, pod=f"{cluster}-{pod}", rack=f"{cluster}-{rack}", platform="laptop", gpus=0
    )  # type: ignore[arg-type]


def job_spec(name: str = "llama", hosts: int = 2, **more: Any) -> JobSpec:
    restart = more.pop("restart", RestartBudget())
    return JobSpec(name=name, command=("python", "train.py"), hosts=hosts, restart=restart, **more)


def failure(exception: str = "", message: str = "", at: float = 0.0) -> Failure:
    return Failure(at=Instant(seconds(at)), exception=exception, message=message)


class Stage:
    """An engine with a declared fleet; nobody has registered yet."""

    def __init__(self, *specs: HostSpec, lease: int = 1) -> None:
        self.engine = Engine()
        self.now = Instant(seconds(0))
        self.sent: list[AnyEffect] = []
        """Every effect so far, as the hosts are sent them."""
        self.told: list[AnyEvent] = []
        """Every event so far."""
        self.silent: set[HostId] = set()
        """Hosts that leave effects unanswered in `settle`."""
        self.tell(LeaseTaken(at=self.now, lease=lease, by=Owner("policy:server")))
        self.tell(FleetDeclared(at=self.now, hosts=specs, by=OPS))

    # --- events

    def tell(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        effects = tuple(part for effect in self.engine.handle(event) for _, part in parts(effect))
        wrong = broken(self.engine.state, self.engine._derived)
        assert not wrong, f"after {event}: {wrong}"
        self.sent += effects
        self.told.append(event)
        return effects

    def at(self, second: float) -> None:
        """Lets time pass until `second`, with a TimePassed for each wake-up on the way."""
        target = Instant(seconds(second))
        while (due := self.engine.next_wake()) is not None and due <= target:
            self.now = max(self.now, due)
            self.tell(TimePassed(at=self.now))
        assert target >= self.now, "time runs forward"
        self.now = target

    def wait(self, delay_s: float) -> None:
        self.at(self.now / 1e6 + delay_s)

    def register(self, *names: str, boot: str = "b1", session: str = "s1", attempts: Any = ()) -> None:
        for name in names:
            self.tell(
                AgentRegistered(
                    at=self.now,
                    host=HostId(name),
                    session=SessionId(session),
                    boot=BootId(boot),
                    address=f"10.0.0.{name.lstrip('abcdefgh-') or 0}",
                    attempts=tuple((AttemptId(attempt), epoch) for attempt, epoch in attempts),
                )
            )

    def disconnect(self, name: str, *reached: Reached) -> None:
        session = self.host(name).session
        self.tell(AgentDisconnected(at=self.now, host=HostId(name), session=session, reached=reached))

    def fall_silent(self, name: str) -> None:
        session = self.host(name).session
        self.tell(AgentSilent(at=self.now, host=HostId(name), session=session, silent_s=3.0))

    def lose(self, name: str) -> None:
        """The host dies: its connection closes, and the grace passes."""
        self.disconnect(name)
        self.wait(5.0)

    def drain(self, *names: str, by: Owner = OPS, deadline_s: float | None = None, evict: bool = False) -> None:
        hosts = tuple(map(HostId, names))
        deadline = Instant(self.now + seconds(deadline_s)) if deadline_s is not None else None
        self.tell(DrainRequested(at=self.now, hosts=hosts, reason="firmware", by=by, deadline=deadline, evict=evict))

    def resume(self, *names: str, by: Owner = OPS) -> None:
        self.tell(ResumeRequested(at=self.now, hosts=tuple(map(HostId, names)), reason="done", by=by))

    def submit(self, spec: JobSpec) -> Job:
        self.tell(JobSubmitted(at=self.now, spec=spec, by=ALICE))
        return self.job(f"job-{len(self.engine.state.jobs)}")

    def cancel(self, job: str) -> None:
        self.tell(JobCancelled(at=self.now, job=JobId(job), by=ALICE, reason="enough"))

    def requeue(self, job: str) -> None:
        self.tell(JobRequeued(at=self.now, job=JobId(job), by=ALICE, reason="again"))

    # --- what agents answer

    def answer(
        self, effect: AnyEffect, outcome: Outcome = "done", detail: str = "", **numbers: int | float | str
    ) -> tuple[AnyEffect, ...]:
        ended = EffectEnded(
            at=self.now, host=effect.host, effect=effect.id, outcome=outcome, detail=detail, numbers=numbers
        )
        return self.tell(ended)

    def settle(self, *kinds: type) -> None:
        """Answers pending effects (of these kinds; default: all) with success until none is left."""
        wanted = kinds or (object,)
        while due := [e for e in self.waiting() if isinstance(e, wanted) and e.host not in self.silent]:
            for effect in due:
                if self.is_open(effect):
                    numbers = {"port": 29_500} if isinstance(effect, ReserveStore) else {}
                    self.answer(effect, **numbers)

    def ready(self, *names: str) -> None:
        self.register(*names)
        self.settle(VerifyHost)

    def phase(self, attempt: Attempt, phase: Phase, step: int = -1, note: str = "", origin: str = "") -> None:
        self.tell(
            EpochPhase(
                at=self.now,
                host=attempt.members[0],
                attempt=attempt.id,
                epoch=attempt.epoch.number,
                phase=phase,
                step=step,
                note=note,
                origin=origin,
            )
        )

    def published(self, attempt: Attempt, step: int) -> None:
        host, epoch = attempt.members[0], attempt.epoch.number
        self.tell(CheckpointPublished(at=self.now, host=host, attempt=attempt.id, epoch=epoch, step=step))

    def train(self, attempt: Attempt, restored: int = 0) -> None:
        """From any point of forming to the first step."""
        self.settle(PrepareAttempt, ReserveStore, LaunchWorkers, StopWorkers, ReleaseAttempt)
        for phase in (Phase.ATTACHED, Phase.GROUPED):
            self.phase(attempt, phase)
        self.phase(attempt, Phase.RESTORED, restored)
        self.phase(attempt, Phase.TRAINING, restored + 1)

    def running(self, spec: JobSpec) -> Attempt:
        """A job that is submitted, placed and past its first step."""
        job = self.submit(spec)
        assert job.attempts, job.reason
        attempt = self.attempt(job.attempts[-1])
        self.train(attempt)
        return attempt

    def exit(
        self,
        attempt: Attempt,
        rank: int,
        how: How,
        error: Failure | None = None,
        signal: int | None = None,
        step: int = 1,
        epoch: int = 0,
        attached: bool = True,
        at: float | None = None,
        step_at: float | None = None,
        save_s: float = 0.0,
        warm: bool = True,
    ) -> tuple[AnyEffect, ...]:
        number = epoch or attempt.epoch.number
        spec = self.engine.state.jobs[attempt.job].spec
        host = attempt.hosts_of(number)[rank // spec.ranks_per_host]
        when = Instant(seconds(at)) if at is not None else self.now
        code = None if signal is not None else 0 if how in ("finished", "yielded") else 1
        return self.tell(
            WorkerExited(
                at=when,
                host=host,
                attempt=attempt.id,
                epoch=number,
                rank=rank,
                how=how,
                exit_code=code,
                signal=signal,
                attached=attached,
                phase=Phase.TRAINING if attached else Phase.SPAWNED,
                step=step,
                step_at=Instant(seconds(step_at)) if step_at is not None else when,
                save_s=save_s,
                failure=error,
                warm=warm,
            )
        )

    def all_exit(self, attempt: Attempt, how: Literal["finished", "yielded"], step: int = 10) -> None:
        spec = self.engine.state.jobs[attempt.job].spec
        epoch = attempt.epoch.number
        for rank in range(spec.hosts * spec.ranks_per_host):
            self.exit(attempt, rank, how, step=step, epoch=epoch)

    # --- what there is

    def host(self, name: str) -> Host:
        return self.engine.state.hosts[HostId(name)]

    def job(self, name: str) -> Job:
        return self.engine.state.jobs[JobId(name)]

    def attempt(self, name: str) -> Attempt:
        return self.engine.state.attempts[AttemptId(name)]

    def states(self, *names: str) -> list[str]:
        return [self.host(name).state.value for name in names]

    def waiting(self) -> list[AnyEffect]:
        """What each host has not answered, in the order in which it was asked."""
        found = [(effect, host) for effect in self.engine.pending() for host in effect.hosts]
        return [for_host(e, host) for e, host in found if host in self.engine.state.pending[e.id].open_at]

    def is_open(self, part: AnyEffect) -> bool:
        pending = self.engine.state.pending.get(part.id)
        return pending is not None and part.host in pending.open_at

    def pending(self, kind: type[E], host: str | None = None) -> list[E]:
        found = self.engine.pending(HostId(host)) if host is not None else self.waiting()
        return [effect for effect in found if isinstance(effect, kind)]

    def account(self, name: str, last_step: int = -1) -> JobAccount:
        job = self.job(name)
        attempts = [self.engine.state.attempts[each] for each in job.attempts]
        return account(job, attempts, self.now, last_step)


def stage(hosts: int, ready: bool = True) -> Stage:
    """One pod of hosts h1 .. hN, two a rack, ready for work."""
    made = Stage(*(host_spec(f"h{n}", rack=f"r{(n + 1) // 2}") for n in range(1, hosts + 1)))
    if ready:
        made.ready(*(f"h{n}" for n in range(1, hosts + 1)))
    return made


def of_kind(effects: Iterable[AnyEffect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


__all__ = ["ALICE", "ECHO", "OPS", "AskWorkers", "Stage", "failure", "host_spec", "job_spec", "of_kind", "stage"]
