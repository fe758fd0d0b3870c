"""Milliseconds of engine time to interrupt and re-form one job of 2,048 hosts, told by batch events as a launcher of
gangs tells them (and as a twin does).

    interruption   one host dies: its connection closes, all other ranks fail together, the job re-forms on a spare
    hand-over      one host drains: a spare is warmed, all ranks are asked to save and go, the job re-forms

Limit: a pass over the members that looks at the state of each, which a decision about all of them can't do without;
`ratio` is how many such passes a cycle costs. The other figures are what a cycle adds to the log (events and effects as
they are stored) and to a snapshot. All are figures of the bench `engine`.
"""

import statistics
from collections.abc import Iterator

from bench.figure import ROUNDS, Figure, timed
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, BootId, ClusterId, HostId, Owner, PodId, RackId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.effects import AnyEffect, LaunchWorkers, ReserveStore
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AgentDisconnected,
    AgentRegistered,
    AnyEvent,
    DrainRequested,
    EffectsEnded,
    EpochPhase,
    FleetDeclared,
    JobSubmitted,
    LeaseTaken,
    ResumeRequested,
    WorkersExited,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.recovery.events import Failure, How
from trainmaster.core.scheduling.request import JobSpec

BY = Owner("person:bench")
HOSTS, FLEET = 2_048, 2_112
GOAL_MS = 15.0
SESSION = SessionId("s")


class Gang:
    """One job on a fleet; the engine's time is summed in `engine_s`, bytes of the log in `logged`."""

    def __init__(self) -> None:
        self.engine, self.now, self.boots = Engine(), 1_000_000, 0
        self.engine_s, self.logged = 0.0, 0
        names = [HostId(f"gpu-{n:04d}") for n in range(FLEET)]
        specs = tuple(
            HostSpec(
                id=name, cluster=ClusterId("c"), pod=PodId(f"p{n // 384}"), rack=RackId(f"r{n // 2}"),
                platform="grand-teton", gpus=8,
            )
            for n, name in enumerate(names)
        )  # fmt: skip
        self.happen(LeaseTaken(at=self.at(), lease=1, by=BY))
        self.happen(FleetDeclared(at=self.at(), hosts=specs, by=BY))
        for name in names:
            self.register(name)
        gang = JobSpec(name="wide", command=("train",), hosts=HOSTS, spares=1, ranks_per_host=8)
        self.happen(JobSubmitted(at=self.at(), spec=gang, by=BY))

    @property
    def attempt(self) -> Attempt:
        return self.engine.state.attempts[AttemptId("job-1.a1")]

    def at(self) -> Instant:
        self.now += 1000
        return Instant(self.now)

    def happen(self, event: AnyEvent) -> None:
        """Applies the event, and does everything that is asked for because of it."""
        effects: tuple[AnyEffect, ...] = ()

        def apply() -> None:
            nonlocal effects
            effects = self.engine.handle(event)

        self.engine_s += timed(apply)
        self.logged += len(encode(event)) + len(encode(effects))
        for effect in effects:
            self.answer(effect)

    def answer(self, effect: AnyEffect) -> None:
        numbers: dict[str, int | float | str] = {"port": 29_500} if isinstance(effect, ReserveStore) else {}
        here = tuple(host for host in effect.hosts if self.engine.state.hosts[host].connected)
        self.happen(EffectsEnded(at=self.at(), hosts=here, effect=effect.id, outcome="done", numbers=numbers))
        if isinstance(effect, LaunchWorkers):
            for phase in (Phase.ATTACHED, Phase.GROUPED, Phase.RESTORED, Phase.TRAINING):
                self.happen(
                    EpochPhase(
                        at=self.at(), host=effect.hosts[0], attempt=effect.attempt, epoch=effect.epoch, phase=phase,
                        step=effect.epoch,
                    )
                )  # fmt: skip

    def register(self, host: HostId) -> None:
        self.boots += 1
        boot = BootId(f"b{self.boots}")
        self.happen(
            AgentRegistered(at=self.at(), host=host, session=SESSION, boot=boot, address="10.0.0.1", attempts=())
        )

    def exit(self, hosts: tuple[HostId, ...], how: How, failure: Failure | None) -> None:
        at, epoch, code = self.at(), self.attempt.epoch.number, 0 if failure is None else 1
        self.happen(
            WorkersExited(
                at=at, attempt=self.attempt.id, epoch=epoch, hosts=hosts, how=how, exit_code=code,
                signal=None, attached=True, phase=Phase.TRAINING, step=epoch, step_at=at, save_s=0.0, failure=failure,
            )
        )  # fmt: skip

    def interruption(self) -> None:
        number, lost = self.attempt.epoch.number, self.attempt.members[HOSTS // 2]
        self.happen(AgentDisconnected(at=self.at(), host=lost, session=SESSION))
        others = tuple(host for host in self.attempt.members if host != lost)
        echo = Failure(at=self.at(), exception="DistBackendError", message="NCCL error: remote process exited")
        self.exit(others, "failed", echo)
        assert self.attempt.state is AttemptState.RUNNING, self.attempt.state
        assert self.attempt.epoch.number == number + 1
        self.register(lost)

    def hand_over(self) -> None:
        number, leaving = self.attempt.epoch.number, self.attempt.members[HOSTS // 2]
        self.happen(DrainRequested(at=self.at(), hosts=(leaving,), reason="firmware", by=BY))
        assert self.attempt.handover is not None
        self.exit(self.attempt.members, "yielded", None)
        assert self.attempt.state is AttemptState.RUNNING, self.attempt.state
        assert self.attempt.epoch.number == number + 1
        self.happen(ResumeRequested(at=self.at(), hosts=(leaving,), reason="done", by=BY))

    def look(self) -> int:
        """The limit: one look at each member."""
        hosts = self.engine.state.hosts
        return sum(hosts[name].connected for name in self.attempt.members)


def figures() -> Iterator[Figure]:
    gang = Gang()
    cycles = {"gang_cycle_ms": gang.interruption, "gang_handover_ms": gang.hand_over}
    limit_ms = 1000 * statistics.median(timed(gang.look) for _ in range(ROUNDS))
    for name, cycle in cycles.items():
        times = []
        for _ in range(ROUNDS):
            gang.engine_s = 0.0
            cycle()
            times.append(1000 * gang.engine_s)
        ours = statistics.median(times)
        yield Figure(
            bench="engine",
            figure=f"engine.{name}",
            value=round(ours, 2),
            unit="ms",
            better="lower",
            peer=round(limit_ms, 3),
            ratio=round(ours / limit_ms, 1),
            goal=f"under {GOAL_MS:g} ms",
            holds=ours < GOAL_MS,
            note="one job of 2,048 hosts",
        )
    gang.logged, before = 0, len(gang.engine.snapshot())
    gang.interruption()
    for name, grown, goal in (
        ("gang_cycle_log_kib", gang.logged, 256.0),
        ("gang_cycle_state_kib", len(gang.engine.snapshot()) - before, 4.0),
    ):
        yield Figure(
            bench="engine",
            figure=f"engine.{name}",
            value=round(grown / 1024, 1),
            unit="KiB",
            better="lower",
            goal=f"under {goal:g} KiB",
            holds=grown / 1024 < goal,
            note="one interruption of a job of 2,048 hosts",
        )
