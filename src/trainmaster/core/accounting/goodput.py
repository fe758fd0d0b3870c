"""Where the time of a job went.

The life of a job is cut into spans (`timeline.py`), each belongs to one phase, and they add up to the wall time
exactly. Phases:

    queue       waiting for hosts (also between attempts)
    place       from the decision on a membership until its ranks have a store to meet at
    launch      until the processes run and their group stands
    restore     until the state is restored (or made fresh)
    first_step  until the first step is done (allocators, caches, connections warm up; its work counts as overhead)
    productive  steps that were done for the first time
    replay      steps that had been done before an interruption, done again
    save        blocking saves of checkpoints
    interrupt   from the last completed step to the failure: work on a step that was never completed, or a stall
    detect      from the failure on its host until the server knew of it
    decide      until the cause had a name and the next membership was wanted
    finish      from the last step to the end of the job

Goodput is productive / wall, the effective training time ratio (ETTR) of the reliability literature, with waiting in
the queue counted as unproductive. Replay is estimated as (steps lost) x (mean step time of the epoch that repeats
them), since the steps in between are not in the log.

Each unproductive second also has a cause: the token of the incident that it belongs to, or what it was for. So losses
by cause and phase, and the productive time, add up to the wall time. Times the GPUs of the job they are GPU-seconds;
the fleet file says how many a host has. A fleet that names none counts ranks, and says so. Limits: spares that stand by
are not counted, and a job whose later attempts run on hosts of another size is counted by its newest.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trainmaster.core.accounting.incidents import cause_of, incidents
from trainmaster.core.accounting.replay import Again, steps_again
from trainmaster.core.accounting.report import JobAccount, Loss
from trainmaster.core.accounting.timeline import Span, incident_keys, key, timeline
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.recovery.attempt import Attempt, Epoch, lasting
from trainmaster.core.scheduling.job import Job

OVERHEAD_PHASES = ("interrupt", "detect", "decide", "place", "launch", "restore", "first_step", "replay")
_CAUSES: Final = {"queue": "queue", "save": "save", "finish": "finish", "interrupt": Token.STEP_STALLED.value}
"""Of time that belongs to no incident, by phase; all else is `start`."""


def gpus_of(attempts: Sequence[Attempt], hosts: Mapping[HostId, Host]) -> int:
    """GPUs of a job, by the hosts of its newest attempt; 0: its hosts have none, or it never had any."""
    return sum(hosts[name].spec.gpus for name in attempts[-1].members) if attempts else 0


def account(
    job: Job,
    attempts: Sequence[Attempt],
    now: Instant,
    last_step: int = -1,
    still_since: Instant | None = None,
    gpus: int = 0,
) -> JobAccount:
    """The account of a job at `now`. `last_step`: newest step that heartbeats tell of, for an epoch that still runs;
    `still_since`: the end of that step, if the job stands still since then (no step was completed within the bound);
    `gpus`: of all its hosts, 0 if there are none (then its ranks count)."""
    spans = timeline(job, attempts, now, still_since)
    width = gpus or job.spec.hosts * job.spec.ranks_per_host
    epochs = {key(attempt, epoch): epoch for attempt in attempts for epoch in attempt.epochs}
    again = steps_again(attempts, incident_keys(job, attempts))
    seconds: dict[str, float] = {}
    causes: dict[tuple[str, str], float] = {}
    phases: dict[str, dict[str, float]] = {}
    for span in spans:
        for incident, phase, share in _shares(span, epochs, again, last_step):
            seconds[phase] = seconds.get(phase, 0.0) + share
            if incident:
                phases.setdefault(incident, {})
                phases[incident][phase] = phases[incident].get(phase, 0.0) + share
            if phase != "productive":
                cause = cause_of(epochs[incident]).token.value if incident else _CAUSES.get(phase, "start")
                causes[cause, phase] = causes.get((cause, phase), 0.0) + share
    found = tuple(incidents(job, attempts, spans, phases, width))
    end = job.ended_at if job.ended_at is not None else now
    wall_s = in_seconds(end - job.submitted_at)
    productive_s = seconds.get("productive", 0.0)
    assert abs(sum(seconds.values()) - wall_s) < 1e-3, (seconds, wall_s)
    assert abs(sum(causes.values()) + productive_s - wall_s) < 1e-3, (causes, wall_s)
    losses = [
        Loss(cause=cause, phase=phase, seconds=lost, gpu_s=lost * width) for (cause, phase), lost in causes.items()
    ]
    return JobAccount(
        wall_s=wall_s,
        productive_s=productive_s,
        goodput=productive_s / wall_s if wall_s > 0 else 0.0,
        seconds_by_phase=dict(sorted(seconds.items())),
        gpus=width,
        unit="GPU" if gpus else "rank",
        losses=tuple(sorted((loss for loss in losses if loss.seconds > 0), key=lambda loss: -loss.seconds)),
        steps=max([last_step, 0, *(epoch.last_step for epoch in epochs.values())]),
        steps_lost_planned=sum(incident.steps_lost for incident in found if incident.planned),
        steps_lost_unplanned=sum(incident.steps_lost for incident in found if not incident.planned),
        planned_handovers=sum(1 for incident in found if incident.planned and incident.resumed_at is not None),
        unplanned_recoveries=sum(1 for incident in found if not incident.planned and incident.resumed_at is not None),
        failed_saves=sum(epoch.failed_saves for epoch in epochs.values()),
        incidents=found,
    )


def _shares(
    span: Span, epochs: Mapping[str, Epoch], again: Mapping[str, tuple[Again, ...]], last_step: int
) -> Iterator[tuple[str, str, float]]:
    """(incident, phase, seconds) of a span; a stretch of steps is divided in productive, replay and save."""
    length = in_seconds(span.end - span.start)
    if span.phase != "training":
        yield span.incident, span.phase, length
        return
    name = f"{span.attempt}/{span.epoch}"
    epoch = epochs[name]
    last = max(epoch.last_step, last_step if not epoch.ended_by else -1)
    first = max(epoch.restored_step, 0) + 1
    steps = max(last - first, 0)
    with_save = epoch.ended_by in ("yielded", "finished")
    final_save = in_seconds(lasting(epoch.last_step_at, epoch.failed_at)) if with_save else 0.0
    save = min(max(epoch.save_s - final_save, 0.0), length)
    stepping, repeated = length - save, 0.0
    for each in again[name]:
        count = max(min(each.until, last) - max(each.after, first), 0)
        share = stepping * count / steps if steps else 0.0
        repeated += share
        yield each.incident, "replay", share
    yield "", "replay", 0.0
    yield "", "productive", max(stepping - repeated, 0.0)
    yield "", "save", save
