"""Events a second through the engine, on one core: a fleet of 6,144 hosts with 1,000 jobs that start, lose workers,
re-form, yield and end.

Limit: decoding the same events from their JSON, which is the least that a replay has to do. `ratio` is ours over that.
A second figure replays the same life on a fleet of 64 hosts with 10 jobs: work per event must not grow with the fleet,
so the two rates are to be alike (goal: at least half). What a large gang costs is measured in `gang`.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from bench import gang
from bench.figure import Figure, interleaved, timed
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import BootId, ClusterId, HostId, Owner, PodId, RackId, SessionId
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.base.value import encode
from trainmaster.core.effects import AnyEffect, LaunchWorkers, ReserveStore
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AgentRegistered,
    AnyEvent,
    EffectEnded,
    EpochPhase,
    FleetDeclared,
    JobSubmitted,
    LeaseTaken,
    WorkerExited,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.scheduling.request import JobSpec, RestartBudget

BY = Owner("person:bench")


class Life:
    """Plays the other side of every effect at once and records the events."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.events: list[AnyEvent] = []
        self.now = 1_000_000

    def happen(self, make: Callable[[Instant], AnyEvent]) -> tuple[AnyEffect, ...]:
        self.now += 1000
        event = make(Instant(self.now))
        self.events.append(event)
        effects = self.engine.handle(event)
        for effect in effects:
            self.answer(effect)
        return effects

    def answer(self, effect: AnyEffect) -> None:
        numbers: dict[str, int | float | str] = {"port": 29_500} if isinstance(effect, ReserveStore) else {}
        for host in effect.hosts:
            self.happen(
                lambda at, host=host: EffectEnded(  # type: ignore[misc]
                    at=at, host=host, effect=effect.id, outcome="done", numbers=numbers
                )
            )
        if isinstance(effect, LaunchWorkers):
            self.train(effect)

    def train(self, launch: LaunchWorkers) -> None:
        first = self.engine.state.attempts[launch.attempt].members[0]
        for phase in (Phase.ATTACHED, Phase.GROUPED, Phase.RESTORED, Phase.TRAINING):
            self.happen(
                lambda at, phase=phase: EpochPhase(  # type: ignore[misc]
                    at=at, host=first, attempt=launch.attempt, epoch=launch.epoch, phase=phase, step=launch.epoch
                )
            )

    def exit(self, attempt: str, epoch: int, rank: int, host: HostId, how: str) -> None:
        self.happen(
            lambda at: WorkerExited(
                at=at, host=host, attempt=attempt, epoch=epoch, rank=rank, how=how,  # type: ignore[arg-type]
                exit_code=0 if how == "finished" else None, signal=9 if how == "failed" else None, attached=True,
                phase=Phase.TRAINING, step=epoch, step_at=at, save_s=0.0,
            )
        )  # fmt: skip


def record(hosts: int, jobs: int) -> Sequence[AnyEvent]:
    """The events of a fleet's life: everything comes up, each job loses a worker once and then finishes."""
    life = Life()
    life.happen(lambda at: LeaseTaken(at=at, lease=1, by=BY))
    specs = tuple(
        HostSpec(
            id=HostId(f"gpu-{n:04d}"), cluster=ClusterId("c"), pod=PodId(f"p{n // 384}"), rack=RackId(f"r{n // 2}"),
            platform="grand-teton", gpus=8,
        )
        for n in range(hosts)
    )  # fmt: skip
    life.happen(lambda at: FleetDeclared(at=at, hosts=specs, by=BY))
    for spec in specs:
        life.happen(
            lambda at, spec=spec: AgentRegistered(  # type: ignore[misc]
                at=at, host=spec.id, session=SessionId("s"), boot=BootId("b"), address="10.0.0.1", attempts=()
            )
        )
    for number in range(jobs):
        spec = JobSpec(
            name=f"job-{number}", command=("train",), hosts=4, spares=1,
            restart=RestartBudget(max_restarts=10, window=seconds(3600)),
        )  # fmt: skip
        life.happen(lambda at, spec=spec: JobSubmitted(at=at, spec=spec, by=BY))  # type: ignore[misc]
    for attempt in list(life.engine.state.attempts.values()):
        life.exit(attempt.id, attempt.epoch.number, 0, attempt.members[0], "failed")
        for rank, host in enumerate(attempt.members):
            life.exit(attempt.id, attempt.epoch.number, rank, host, "finished")
    return life.events


def replay(events: Sequence[AnyEvent]) -> float:
    """Events a second."""
    engine = Engine()

    def run() -> None:
        for event in events:
            engine.handle(event)

    return len(events) / timed(run)


def figures() -> Iterator[Figure]:
    large, small = record(6_144, 1_000), record(64, 10)
    lines = [encode(event) for event in large]
    decoder = msgspec.json.Decoder(AnyEvent)
    ours, limit = interleaved(
        lambda: replay(large), lambda: len(lines) / timed(lambda: [decoder.decode(line) for line in lines])
    )
    yield Figure(
        bench="engine",
        figure="engine.events_per_s",
        value=round(ours),
        unit="events/s",
        better="higher",
        peer=round(limit),
        ratio=round(ours / limit, 3),
        goal="at least 10,000 events/s",
        holds=ours >= 10_000,
        note=f"{len(large)} events, 6,144 hosts, 1,000 jobs; the limit is decoding the events",
    )
    big, little = interleaved(lambda: replay(large), lambda: replay(list(small)))
    yield Figure(
        bench="engine",
        figure="engine.rate_large_over_small_fleet",
        value=round(big / little, 3),
        unit="ratio",
        better="higher",
        peer=round(little),
        ratio=round(big / little, 3),
        goal="at least 0.5",
        holds=big / little >= 0.5,
        note="6,144 hosts against 64",
    )
    yield from gang.figures()
