"""What a plan would do to the fleet as it is now: its state, simulated onward with the plan and without.

Both branches begin with the same state and have the same chance, seed by seed; the plan is all that differs. What comes
out is simulated, with the guesses of `onward`, and says so wherever it is shown. The real fleet is not asked for
anything and told nothing: all there is of it here are the bytes of a snapshot.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from trainmaster.core.base.ids import OperationId, RolloutId, TrainName
from trainmaster.core.base.time import Duration, Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.engine import Engine
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.twin.figures import figures
from trainmaster.twin.onward import Asks, Onward, scenario_of
from trainmaster.twin.paired import TEST, Compared, compare
from trainmaster.twin.report import RunReport, Sample
from trainmaster.twin.run import Options, Run

UNWATCHED = Options(whole_every=0)


class PlannedOperation(Value):
    """An operation of the plan, over all seeds."""

    operation: OperationId
    """The id that it would have."""
    kind: str
    component: str
    version: str
    scope: tuple[str, ...]
    done: int
    """Seeds in which it was done by the end."""
    ended_otherwise: int
    """Seeds in which it failed or was cancelled."""
    done_at: Instant | None
    """Mean over the seeds in which it was done; None: in no seed."""
    done_first_at: Instant | None
    """In the luckiest seed."""
    done_last_at: Instant | None


class PlannedTrain(Value):
    """A train of the plan."""

    train: TrainName
    units: int
    visited: float
    """Mean number of units that it visited by the end."""
    carried: float
    """Mean number of units that are carried over at the end."""
    mode: str


class PlannedRollout(Value):
    """A rollout of the plan."""

    rollout: RolloutId
    component: str
    version: str
    pool: int
    carriers: float
    """Mean number of units with the version at the end."""
    states: dict[str, int]
    """Seeds by its state at the end."""


class BookSamples(Value):
    """Units of a book in service at even times, over all seeds: with the plan, and without."""

    name: str
    units: int
    with_plan: tuple[float, ...]
    """Mean."""
    with_plan_least: tuple[int, ...]
    without: tuple[float, ...]
    without_least: tuple[int, ...]


class JobStops(Value):
    job: str
    with_plan: float
    """Mean number of stops."""
    without: float


class WhatIfReport(Value):
    simulated: bool = True
    """Never a measurement of the real fleet."""
    index: int
    """Log index of the state that it begins with."""
    began_at: Instant
    simulated_s: float
    """Of each run."""
    seeds: tuple[int, ...]
    test: str
    operations: tuple[PlannedOperation, ...]
    trains: tuple[PlannedTrain, ...]
    rollouts: tuple[PlannedRollout, ...]
    figures: tuple[Compared, ...]
    """A is without the plan, B with it."""
    jobs: tuple[JobStops, ...]
    sample_times_s: tuple[float, ...]
    books: tuple[BookSamples, ...]


class _Lived(NamedTuple):
    """A run that has ended."""

    world: Onward
    report: RunReport


def what_if(
    snapshot: bytes,
    asks: Asks,
    duration: Duration,
    seeds: Sequence[int],
    per_thousand_host_days: float,
    told: Callable[[int, int], None] | None = None,
) -> WhatIfReport:
    """Simulates `duration` onward from the snapshot, with the plan and without, once a seed.

    `asks` is called in every run with its plan; what it raises, the first run raises.
    """
    assert seeds
    began = Engine.restore(snapshot).state
    scenario = scenario_of(began, duration, per_thousand_host_days)
    branches: tuple[list[_Lived], list[_Lived]] = ([], [])
    for place, seed in enumerate(seeds):
        for side, asked in enumerate((asks, None)):
            chosen = scenario.but(seed=seed)
            world = Onward(chosen, snapshot, asked)
            branches[side].append(_Lived(world, Run(chosen, UNWATCHED, world=world).run()))
            if told is not None:
                told(2 * place + side + 1, 2 * len(seeds))
    planned, plain = branches
    return WhatIfReport(
        index=began.index,
        began_at=began.now,
        simulated_s=in_seconds(duration),
        seeds=tuple(seeds),
        test=TEST,
        operations=tuple(_operations(planned)),
        trains=tuple(_train(planned, name) for name in planned[0].world.trains),
        rollouts=tuple(_rollout(planned, name) for name in planned[0].world.rollouts),
        figures=compare([figures(one.report) for one in plain], [figures(one.report) for one in planned]),
        jobs=tuple(_jobs(planned, plain)),
        sample_times_s=tuple(sample.at_s for sample in planned[0].report.samples),
        books=tuple(_books(planned, plain)),
    )


def _operations(planned: Sequence[_Lived]) -> list[PlannedOperation]:
    rows = []
    for name, spec in planned[0].world.asked.items():
        ends = [one.world.ended[name] for one in planned if name in one.world.ended]
        done = [at for state, at in ends if state is OperationState.DONE]
        rows.append(
            PlannedOperation(
                operation=name,
                kind=spec.kind,
                component=spec.component,
                version=spec.version,
                scope=spec.scope,
                done=len(done),
                ended_otherwise=len(ends) - len(done),
                done_at=Instant(round(fmean(done))) if done else None,
                done_first_at=min(done, default=None),
                done_last_at=max(done, default=None),
            )
        )
    return rows


def _train(planned: Sequence[_Lived], name: TrainName) -> PlannedTrain:
    trains = [one.world.engine.state.maintenance.trains[name] for one in planned]
    visited = [
        sum(at > one.world.began for at in train.visited_at.values())
        for one, train in zip(planned, trains, strict=True)
    ]
    return PlannedTrain(
        train=name,
        units=trains[0].units(),
        visited=fmean(visited),
        carried=fmean(len(train.carried) for train in trains),
        mode=trains[0].spec.mode,
    )


def _rollout(planned: Sequence[_Lived], name: RolloutId) -> PlannedRollout:
    rollouts = [one.world.engine.state.maintenance.rollouts[name] for one in planned]
    spec = rollouts[0].spec
    carriers = [
        sum(one.world.engine.state.hosts[unit].versions.get(spec.component) == spec.version for unit in spec.pool)
        for one in planned
    ]
    return PlannedRollout(
        rollout=name,
        component=spec.component,
        version=spec.version,
        pool=len(spec.pool),
        carriers=fmean(carriers),
        states=dict(sorted(Counter(rollout.state.value for rollout in rollouts).items())),
    )


def _jobs(planned: Sequence[_Lived], plain: Sequence[_Lived]) -> list[JobStops]:
    names = sorted({name for one in (*planned, *plain) for name in one.report.interruptions_by_job})

    def stops(branch: Sequence[_Lived], name: str) -> float:
        return fmean(sum(one.report.interruptions_by_job.get(name, {}).values()) for one in branch)

    return [JobStops(job=name, with_plan=stops(planned, name), without=stops(plain, name)) for name in names]


def _books(planned: Sequence[_Lived], plain: Sequence[_Lived]) -> list[BookSamples]:
    first = planned[0].report.samples
    rows = []
    for name, book in first[0].books.items() if first else ():
        (mean, least), (plain_mean, plain_least) = (_served(branch, name) for branch in (planned, plain))
        rows.append(
            BookSamples(
                name=name,
                units=sum(book),
                with_plan=mean,
                with_plan_least=least,
                without=plain_mean,
                without_least=plain_least,
            )
        )
    return rows


def _served(branch: Sequence[_Lived], name: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Mean and least number in service at each sample, over the seeds."""
    columns: list[tuple[Sample, ...]] = list(zip(*(one.report.samples for one in branch), strict=True))
    counts = [[sum(sample.books[name][:2]) for sample in column] for column in columns]
    return tuple(fmean(row) for row in counts), tuple(min(row) for row in counts)
