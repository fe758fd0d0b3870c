"""What planned work means for units, jobs and books: how long they are out, whom that hits, what is taken.

Asked by the plans of operations, trains, rollouts and gang upgrades. Nothing here decides: it asks the functions that
do.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, JobId, KindName
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.maintenance import contract
from trainmaster.core.maintenance.catalogue import Component, Kind, takes_capacity
from trainmaster.core.maintenance.ledger import BookAccount
from trainmaster.core.maintenance.plan import JobHit, Limit, Outcome
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.scheduling.job import Job
from trainmaster.core.step import Step
from trainmaster.core.words import count_text

USUAL_BOOT: Final = Duration(8 * MINUTE)
"""Of a reboot, where the catalogue has no kind `reboot` that says how long one takes."""


def duration(step: Step, unit: HostId, works: Iterable[Component | Kind]) -> Duration:
    """From the notice to the return, with what is pending on the unit already."""
    index, maintenance = step.derived.planner, step.state.maintenance
    together = list(works)
    visit = maintenance.visits.get(unit)
    if visit is not None:
        for name in visit.pending:
            work = index.work(maintenance.operations[name].spec)
            assert work is not None, name
            together.append(work)
    total: int = sum(work.duration.median for work in together)
    if any(map(takes_capacity, together)):
        total += _notice(step, unit)
    if any(work.disturbs == "reboot" and not _is_boot(work) for work in together):
        total += boot(step)
    return Duration(total)


def _is_boot(work: Component | Kind) -> bool:
    """Nothing but a reboot: its own duration has it."""
    return isinstance(work, Kind) and work.name == "reboot"


def boot(step: Step) -> Duration:
    kind = step.state.maintenance.catalogue.kind(KindName("reboot"))
    return kind.duration.median if kind is not None else USUAL_BOOT


def _notice(step: Step, unit: HostId) -> Duration:
    """How long the job on the unit may keep it at the most."""
    attempt = attempt_on(step, unit)
    if attempt is None:
        return Duration(0)
    asked = step.state.jobs[attempt.job].spec.contract
    return Duration(asked.notice + asked.checkpoint_wait)


def attempt_on(step: Step, unit: HostId) -> Attempt | None:
    host = step.state.hosts[unit]
    if host.allocation is None or host.role != "member":
        return None
    attempt = step.state.attempts[host.allocation]
    return attempt if attempt.is_live() else None


def total_gpu_hours(step: Step, out: dict[HostId, Duration]) -> float:
    total = sum(step.state.hosts[unit].spec.gpus * duration for unit, duration in out.items())
    return total / HOUR


def hits(step: Step, units: Sequence[HostId], told: bool) -> tuple[JobHit, ...]:
    """The jobs that run on these units, and what becomes of them if all leave. `told`: those that can't be moved are
    stopped after a checkpoint."""
    members: dict[JobId, list[HostId]] = {}
    for unit in units:
        attempt = attempt_on(step, unit)
        if attempt is not None:
            members.setdefault(attempt.job, []).append(unit)
    refusals = contract.refusals(step, units, told=told)
    return tuple(
        _hit(step, step.state.jobs[job], tuple(leaving), set(units), refusals.get(leaving[0]), told)
        for job, leaving in sorted(members.items())
    )


def hits_later(step: Step, units: dict[HostId, Reason]) -> Iterator[JobHit]:
    """Jobs on units that leave when their turn has come: each unit is looked at alone, in the world as it is now."""
    jobs: dict[JobId, list[HostId]] = {}
    for unit in units:
        attempt = attempt_on(step, unit)
        if attempt is not None:
            jobs.setdefault(attempt.job, []).append(unit)
    for name, leaving in sorted(jobs.items()):
        job = step.state.jobs[name]
        refused = [units[unit] for unit in leaving if units[unit].token in contract.TOKENS]
        singly = [hit for unit in leaving for hit in hits(step, (unit,), told=False)]
        worst = max(singly, key=lambda hit: hit.outcome == "waits")
        outcome: Outcome = "waits" if refused else worst.outcome
        what = {"finishes": "it may finish first", "moves": "it moves to a spare or a free host after a checkpoint"}
        told = what.get(outcome) or (refused[0].sentence if refused else worst.sentence)
        yield JobHit(
            job=name,
            name=job.spec.name,
            leaving=tuple(leaving),
            outcome=outcome,
            gpus=sum(step.state.hosts[unit].spec.gpus for unit in leaving),
            sentence=f"{fold(leaving)} of {job.spec.name} ({name}), each when its turn has come: {told}",
            later=True,
        )


def _hit(
    step: Step, job: Job, leaving: tuple[HostId, ...], units: set[HostId], refusal: Reason | None, told: bool
) -> JobHit:
    attempt = step.state.attempts[job.attempts[-1]]
    usable = (name for name in attempt.spares if name not in units and step.state.hosts[name].is_usable())
    spares = tuple(name for name, _ in zip(usable, leaving, strict=False))
    free = step.derived.free.count(attempt.cluster, attempt.stack)
    free -= sum(1 for unit in units if unit in step.derived.free and step.state.hosts[unit].stack == attempt.stack)
    lost = f"{fold(leaving)} of {job.spec.name} ({job.id})"
    outcome: Outcome
    if job.spec.on_drain == "finish":
        outcome, sentence = "finishes", f"{lost}: it may finish first"
    elif refusal is not None:
        outcome, sentence = "waits", f"{lost}: {refusal.sentence}"
    elif told and len(spares) + free < len(leaving):
        outcome, sentence = "stops", f"{lost}: no hosts are there to replace them, so it is stopped after a checkpoint"
    else:
        to = [fold(spares)] if spares else []
        others = len(leaving) - len(spares)
        to += [count_text(others, "free host")] if others else []
        outcome, sentence = "moves", f"{lost}: it moves to {' and '.join(to)} after a checkpoint"
    return JobHit(
        job=job.id,
        name=job.spec.name,
        leaving=leaving,
        outcome=outcome,
        to=spares if outcome == "moves" else (),
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in leaving),
        sentence=sentence,
    )


def limits(before: Sequence[BookAccount], after: Step, units: Iterable[HostId]) -> tuple[Limit, ...]:
    """The books that count one of the units, as they were before, and as the engine has them now."""
    ledger = after.derived.planner.ledger
    names = ledger.books_of(units)
    then = {book.name: book for book in ledger.account().books}
    return tuple(
        Limit(
            book=book.name,
            total=book.total,
            in_service=book.in_service,
            taken_before=book.maintenance.used,
            taken_after=then[book.name].maintenance.used,
            most=book.maintenance.size,
            failed=book.out_failed,
            failed_most=book.failure.size,
        )
        for book in before
        if book.name in names
    )
