"""One record an incident: the cause, where, for how long, what was lost."""

from collections.abc import Iterator, Mapping, Sequence

from trainmaster.core.accounting.replay import published_step, steps_lost
from trainmaster.core.accounting.report import Incident
from trainmaster.core.accounting.timeline import Span, incident_keys, key
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant
from trainmaster.core.recovery.attempt import Attempt, Epoch
from trainmaster.core.scheduling.job import Job


def cause_of(epoch: Epoch) -> Reason:
    """Why an epoch ended."""
    return epoch.cause if epoch.cause is not None else because(Token.UNDECIDED, "the cause is not known yet")


def incidents(
    job: Job, attempts: Sequence[Attempt], spans: Sequence[Span], phases: Mapping[str, Mapping[str, float]], gpus: int
) -> Iterator[Incident]:
    """The incidents of a job, in order. `phases` holds the seconds of each by its key."""
    known = incident_keys(job, attempts)
    begun: dict[str, Instant] = {}
    for span in spans:
        if span.incident:
            begun.setdefault(span.incident, span.start)
    epochs = [(attempt, epoch) for attempt in attempts for epoch in attempt.epochs]
    failed = job.ended_at is not None and bool(epochs) and key(*epochs[-1]) in known
    left = published_step(epoch for _, epoch in epochs) if failed else None  # what was in memory is gone
    lost = steps_lost((epoch for _, epoch in epochs), left)
    for (attempt, epoch), later, steps in zip(epochs, [*epochs[1:], None], lost, strict=False):
        name = key(attempt, epoch)
        if name in known:
            found = _incident(job, attempt, epoch, later, dict(phases.get(name, {})))
            lost_s = sum(found.seconds_by_phase.values())
            started = begun.get(name, found.detected_at)
            yield found.but(steps_lost=steps, last_step_at=started, lost_s=lost_s, lost_gpu_s=lost_s * gpus)


def _incident(
    job: Job, attempt: Attempt, epoch: Epoch, later: tuple[Attempt, Epoch] | None, phases: dict[str, float]
) -> Incident:
    """Without what was lost."""
    cause = cause_of(epoch)
    left, joined = _moved(attempt, *later) if later is not None else ((), ())
    hosts, ranks = _where(job, attempt, epoch, cause, left)
    detected = epoch.detected_at if epoch.detected_at is not None else epoch.formed_at
    stayed, ranks_of_all = later[1].stayed if later is not None else None, job.spec.hosts * job.spec.ranks_per_host
    return Incident(
        attempt=attempt.id,
        epoch=epoch.number,
        planned=epoch.ended_by in ("yielded", "stopped"),
        cause=cause,
        hosts=hosts,
        ranks=ranks,
        left=left,
        joined=joined,
        last_step_at=detected,
        detected_at=detected,
        decided_at=epoch.decided_at if epoch.decided_at is not None else detected,
        resumed_at=later[1].first_step_at if later is not None else None,
        steps_lost=0,
        seconds_by_phase=phases,
        restored_from=later[1].restored_from if later is not None else "",
        stayed=stayed,
        started=ranks_of_all - stayed if stayed is not None else None,
    )


def _where(
    job: Job, attempt: Attempt, epoch: Epoch, cause: Reason, left: tuple[HostId, ...]
) -> tuple[tuple[HostId, ...], tuple[int, ...]]:
    """The hosts and ranks that an incident is about."""
    named, rank = cause.numbers.get("host"), cause.numbers.get("rank")
    hosts = (HostId(named),) if isinstance(named, str) else left
    if isinstance(rank, int):
        return hosts, (rank,)
    each, wanted = job.spec.ranks_per_host, set(hosts)
    places = [place for place, host in enumerate(attempt.hosts_of(epoch.number)) if host in wanted]
    return hosts, tuple(rank for place in places for rank in range(place * each, (place + 1) * each))


def _moved(attempt: Attempt, later: Attempt, after: Epoch) -> tuple[tuple[HostId, ...], tuple[HostId, ...]]:
    """Who left the attempt and who joined when the epoch `after` followed, as another membership or another attempt."""
    if later is attempt:
        before = [change.left for change in after.changes]
        now = [change.joined for change in after.changes]
    else:
        before, now = list(attempt.members), list(later.hosts_of(after.number))
    stayed = set(before).intersection(now)
    return tuple(name for name in before if name not in stayed), tuple(name for name in now if name not in stayed)
