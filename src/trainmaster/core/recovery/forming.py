"""Forming a membership: prepare the hosts, reserve a store for the ranks to meet at, launch.

Each epoch has its own store on a port that was free a moment ago and stays bound until the launch. A store that
outlives its epoch hands the next one the addresses of dead peers (which is why a plain restart under c10d often fails),
and it must not depend on a host that may be the next to die: a new epoch takes a new one wherever rank 0 is now.
"""

from collections.abc import Iterable

from trainmaster.core.base.ids import HostId, attempt_id
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import after, in_seconds
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReserveStore
from trainmaster.core.fleet import hosts
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.recovery import pacing
from trainmaster.core.recovery.attempt import ATTEMPT_MACHINE, FORM_DEADLINE, Attempt, AttemptState, Change, Epoch
from trainmaster.core.recovery.events import EffectEnded, EffectsEnded
from trainmaster.core.recovery.exits import Exits
from trainmaster.core.scheduling import jobs
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.scheduling.place import Placement
from trainmaster.core.step import Step


def move(step: Step, attempt: Attempt, state: AttemptState, cause: str) -> None:
    """Takes an edge of the attempt machine."""
    attempt.story = ATTEMPT_MACHINE.step(attempt.id, attempt.story, attempt.state, state, step.now, cause)
    attempt.state, attempt.since = state, step.now


def start(step: Step, job: Job, placement: Placement) -> Attempt:
    """A new attempt of a queued job, on hosts that were free until now."""
    attempt = Attempt(
        id=attempt_id(job.id, len(job.attempts) + 1),
        job=job.id,
        cluster=placement.cluster,
        stack=placement.stack,
        since=step.now,
        placed_at=step.now,
        members=placement.members,
    )
    step.state.attempts[attempt.id] = attempt
    job.attempts = (*job.attempts, attempt.id)
    jobs.move(step, job, JobState.ACTIVE, Reason(token=Token.PLACED, sentence=f"placed as {attempt.id}"))
    for host in placement.members:
        hosts.allocate(step, step.state.hosts[host], attempt.id, "member")
    add_spares(step, attempt, placement.spares)
    offenders.job_began(step, placement.members)
    form(step, attempt, placement.members)
    return attempt


def add_spares(step: Step, attempt: Attempt, names: Iterable[HostId]) -> None:
    added = tuple(names)
    for name in added:
        hosts.allocate(step, step.state.hosts[name], attempt.id, "spare")
    attempt.spares = (*attempt.spares, *added)
    _prepare(step, attempt, added)


def _prepare(step: Step, attempt: Attempt, names: tuple[HostId, ...]) -> None:
    """Those of the hosts that have not been asked yet."""
    if attempt.prepared.issuperset(names):
        return
    prepared = attempt.prepared
    names = tuple([name for name in names if name not in prepared])
    job = step.state.jobs[attempt.job]
    spec = job.spec
    attempt.prepared.update(names)
    step.emit(
        PrepareAttempt(
            id=step.next_id(),
            hosts=names,
            attempt=attempt.id,
            job=job.id,
            job_name=spec.name,
            command=spec.command,
            environment=spec.environment,
            workdir=spec.workdir,
            preload=spec.preload,
            preload_needed=spec.preload_needed,
            checkpoint_directory=spec.checkpoint.directory,
            checkpoint_every_steps=spec.checkpoint.every_steps,
            checkpoint_keep=spec.checkpoint.keep,
            max_restarts=spec.restart.max_restarts,
            domains=tuple([step.state.hosts[name].spec.rack for name in names]),
            agreement_every_steps=spec.checks.agreement_every_steps,
            standby=spec.ranks_per_host if spec.restart.standby else 0,
            snapshot_every_steps=spec.checkpoint.snapshot_every_steps,
            replicate_every_steps=spec.checkpoint.replicate_every_steps,
            room_wait_s=spec.checkpoint.room_wait_s,
            fleet=step.state.fleet,
        )
    )


def form(step: Step, attempt: Attempt, members: tuple[HostId, ...]) -> None:
    """Opens the next epoch with these members."""
    spec = step.state.jobs[attempt.job].spec
    assert len(members) == len(attempt.members) == spec.hosts, (attempt.id, members)
    number, before = len(attempt.epochs) + 1, attempt.members
    changed = [place for place, host in enumerate(members) if host != before[place]] if members != before else []
    changes = tuple(Change(place=place, left=before[place], joined=members[place]) for place in changed)
    if attempt.epochs:
        pacing.threw_back(step, attempt, attempt.epoch, lost=len(changes))
    attempt.epochs.append(Epoch(number=number, changes=changes, formed_at=step.now))
    attempt.members = members
    attempt.exits, attempt.refusals = Exits(), {}
    attempt.launch_effect = None
    attempt.undecided, attempt.handover, attempt.waiting = False, None, None
    _prepare(step, attempt, attempt.members)
    store = step.emit(ReserveStore(id=step.next_id(), host=attempt.members[0], attempt=attempt.id, epoch=number))
    attempt.store_effect = store.id
    step.wake(f"form/{attempt.id}", after(step.now, FORM_DEADLINE))


def store_reserved(step: Step, attempt: Attempt, event: EffectEnded | EffectsEnded) -> None:
    """The ranks have a place to meet: launch all of them."""
    assert event.effect == attempt.store_effect, (attempt.id, event.effect)
    attempt.store_effect = None
    epoch, spec = attempt.epoch, step.state.jobs[attempt.job].spec
    epoch.reserved_at = step.now
    move(step, attempt, AttemptState.LAUNCHING, "store reserved")
    address = step.state.hosts[attempt.members[0]].address
    launch = LaunchWorkers(
        id=step.next_id(),
        hosts=attempt.members,
        attempt=attempt.id,
        epoch=epoch.number,
        ranks=spec.ranks_per_host,
        world=spec.hosts * spec.ranks_per_host,
        master_address=address,
        master_port=int(event.numbers["port"]),
        restart_count=epoch.number - 1,
        began_step=step.state.jobs[attempt.job].began_step,
    )
    attempt.launch_effect = step.emit(launch).id


def launched(step: Step, attempt: Attempt) -> None:
    """Hosts run their ranks; with the last one the attempt runs."""
    if step.is_pending(attempt.launch_effect) or attempt.state is not AttemptState.LAUNCHING:
        return
    attempt.epoch.launched_at = step.now
    step.unwake(f"form/{attempt.id}")
    move(step, attempt, AttemptState.RUNNING, "all ranks run")


def overdue(step: Step, attempt: Attempt) -> tuple[HostId, ...]:
    """Members that have not answered what the forming of this epoch asked of them."""
    asked = {attempt.store_effect, attempt.launch_effect}
    late: set[HostId] = set()
    for pending in step.pending_of(attempt.id):
        if pending.effect.id in asked or isinstance(pending.effect, PrepareAttempt):
            late |= pending.open_at
    return tuple([host for host in attempt.members if host in late]) if late else ()


def form_deadline_s() -> float:
    return in_seconds(FORM_DEADLINE)
