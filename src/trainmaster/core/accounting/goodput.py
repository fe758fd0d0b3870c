"""Where the time of a job went.

The life of a job is cut into spans by the marks of its attempts and epochs, each span belongs to one phase, and they
add up to the wall time exactly: a clock that jumps or a mark that is missing makes a span empty, never negative or
double. Phases:

    queue       waiting for hosts (also between attempts)
    place       from the decision on a membership until its ranks have a store to meet at
    launch      until the processes run and their group stands
    restore     until the state is restored (or made fresh)
    first_step  until the first step is done (allocators, caches, connections warm up; its work counts as overhead)
    productive  steps that were done for the first time
    replay      steps that had been done before an unplanned interruption, done again
    save        blocking saves of checkpoints
    interrupt   from the last completed step to the failure: work on a step that was never completed
    detect      from the failure on its host until the server knew of it
    decide      until the cause had a name and the next membership was wanted
    finish      from the last step to the end of the job

Goodput is productive / wall, the effective training time ratio (ETTR) of the reliability literature, with waiting in
the queue counted as unproductive. Replay is estimated as (steps lost) x (mean step time of the epoch that repeats
them), since the steps in between are not in the log.
"""

from collections.abc import Iterable, Sequence

from trainmaster.core.accounting.report import Incident, JobAccount
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.recovery.attempt import Attempt, Epoch, lasting
from trainmaster.core.scheduling.job import Job

OVERHEAD_PHASES = ("interrupt", "detect", "decide", "place", "launch", "restore", "first_step", "replay")


class Span(Value):
    start: Instant
    end: Instant
    phase: str
    attempt: str
    epoch: int
    """0: between epochs of different attempts."""


def timeline(
    job: Job, attempts: Sequence[Attempt], now: Instant, still_since: Instant | None = None
) -> tuple[Span, ...]:
    """The spans of a job from its submission to its end (or `now`), in order, without gaps. A stretch of steps is one
    span `training`; `account` divides it into productive, replay and save. `still_since`: see there."""
    end = job.ended_at if job.ended_at is not None else now
    marks: list[tuple[Instant | None, str, str, int]] = []
    for attempt in attempts:
        marks.append((attempt.placed_at, "queue", attempt.id, 0))
        for epoch in attempt.epochs:
            marks += _epoch_marks(attempt, epoch)
        if attempt.ended_at is not None:
            closing = "finish" if attempt.epochs and attempt.epoch.ended_by == "finished" else "decide"
            marks.append((attempt.ended_at, closing, attempt.id, len(attempt.epochs)))
    last = "queue" if not attempts or not attempts[-1].is_live() else _open_phase(attempts[-1])
    name, number = (attempts[-1].id, len(attempts[-1].epochs)) if attempts else ("", 0)
    if still_since is not None and last == "training":
        marks.append((still_since, last, name, number))
        last = "interrupt"
    marks.append((end, last, name, number))
    return tuple(_spans(job.submitted_at, end, marks))


def _epoch_marks(attempt: Attempt, epoch: Epoch) -> list[tuple[Instant | None, str, str, int]]:
    """(end of the span, its phase): each mark closes the span that began at the mark before it."""
    grouped = epoch.grouped_at if epoch.grouped_at is not None else epoch.launched_at
    last = epoch.last_step_at if epoch.first_step_at is not None else None
    stopped = {"yielded": "save", "finished": "finish"}.get(epoch.ended_by, "interrupt")
    rows = [
        (epoch.formed_at, "decide"),
        (epoch.reserved_at, "place"),
        (grouped, "launch"),
        (epoch.restored_at, "restore"),
        (epoch.first_step_at, "first_step"),
        (last, "training"),
        (epoch.failed_at, stopped),
        (epoch.detected_at, "finish" if epoch.ended_by == "finished" else "detect"),
        (epoch.decided_at, "decide"),
    ]
    return [(at, phase, attempt.id, epoch.number) for at, phase in rows]


def _open_phase(attempt: Attempt) -> str:
    """What a live attempt is doing now."""
    epoch = attempt.epoch
    if epoch.ended_by:
        return "decide"
    if epoch.first_step_at is not None:
        return "training"
    if epoch.restored_at is not None:
        return "first_step"
    if epoch.grouped_at is not None:
        return "restore"
    return "launch" if epoch.reserved_at is not None else "place"


def _spans(start: Instant, end: Instant, marks: Iterable[tuple[Instant | None, str, str, int]]) -> Iterable[Span]:
    at = start
    for mark, phase, attempt, epoch in marks:
        until = min(max(mark, at), end) if mark is not None else at
        if until > at:
            yield Span(start=at, end=until, phase=phase, attempt=attempt, epoch=epoch)
            at = Instant(until)


def account(
    job: Job, attempts: Sequence[Attempt], now: Instant, last_step: int = -1, still_since: Instant | None = None
) -> JobAccount:
    """The account of a job at `now`. `last_step`: newest step that heartbeats tell of, for an epoch that still runs;
    `still_since`: the end of that step, if the job stands still since then (no step was completed within the bound)."""
    seconds: dict[str, float] = {}
    steps_again = _steps_again(attempts)
    for span in timeline(job, attempts, now, still_since):
        length = in_seconds(span.end - span.start)
        if span.phase != "training":
            seconds[span.phase] = seconds.get(span.phase, 0.0) + length
            continue
        epoch = _epoch(attempts, span.attempt, span.epoch)
        again = steps_again.get((span.attempt, span.epoch), 0)
        for phase, share in _divide(length, epoch, again, last_step).items():
            seconds[phase] = seconds.get(phase, 0.0) + share
    incidents = tuple(_incidents(attempts))
    end = job.ended_at if job.ended_at is not None else now
    wall_s = in_seconds(end - job.submitted_at)
    productive_s = seconds.get("productive", 0.0)
    assert abs(sum(seconds.values()) - wall_s) < 1e-3, (seconds, wall_s)
    return JobAccount(
        wall_s=wall_s,
        productive_s=productive_s,
        goodput=productive_s / wall_s if wall_s > 0 else 0.0,
        seconds_by_phase=dict(sorted(seconds.items())),
        steps=max([last_step, 0, *(epoch.last_step for attempt in attempts for epoch in attempt.epochs)]),
        steps_lost_planned=sum(incident.steps_lost for incident in incidents if incident.planned),
        steps_lost_unplanned=sum(incident.steps_lost for incident in incidents if not incident.planned),
        planned_handovers=sum(1 for incident in incidents if incident.planned and incident.resumed_at is not None),
        unplanned_recoveries=sum(
            1 for incident in incidents if not incident.planned and incident.resumed_at is not None
        ),
        failed_saves=sum(epoch.failed_saves for attempt in attempts for epoch in attempt.epochs),
        incidents=incidents,
    )


def _epoch(attempts: Sequence[Attempt], name: str, number: int) -> Epoch:
    attempt = next(attempt for attempt in attempts if attempt.id == name)
    return attempt.epochs[number - 1]


def _divide(length: float, epoch: Epoch, again: int, last_step: int) -> dict[str, float]:
    """A stretch of steps, from the end of the first to the end of the last, in productive, replay and save seconds."""
    last = max(epoch.last_step, last_step if not epoch.ended_by else -1)
    steps = max(last - max(epoch.restored_step, 0) - 1, 0)
    with_save = epoch.ended_by in ("yielded", "finished")
    final_save = in_seconds(lasting(epoch.last_step_at, epoch.failed_at)) if with_save else 0.0
    save = min(max(epoch.save_s - final_save, 0.0), length)
    stepping = length - save
    replayed = min(max(again - 1, 0), steps)
    replay = stepping * replayed / steps if steps else 0.0
    return {"productive": stepping - replay, "replay": replay, "save": save}


def _steps_again(attempts: Sequence[Attempt]) -> dict[tuple[str, int], int]:
    """Steps that an epoch has to do again, because earlier ones had done them and lost them."""
    again: dict[tuple[str, int], int] = {}
    done = 0
    for attempt in attempts:
        for epoch in attempt.epochs:
            if epoch.restored_at is not None:
                again[attempt.id, epoch.number] = max(done - max(epoch.restored_step, 0), 0)
            done = max(done, epoch.last_step)
    return again


def _steps_lost(epochs: Iterable[Epoch]) -> list[int]:
    """For each epoch the steps that the next one that restored anything did not find in its checkpoint."""
    lost: list[int] = []
    restored: int | None = None
    for epoch in reversed(list(epochs)):
        lost.append(max(epoch.last_step - max(restored, 0), 0) if restored is not None else 0)
        restored = epoch.restored_step if epoch.restored_at is not None else restored
    return lost[::-1]


def _incidents(attempts: Sequence[Attempt]) -> Iterable[Incident]:
    epochs = [(attempt, epoch) for attempt in attempts for epoch in attempt.epochs]
    lost = _steps_lost(epoch for _, epoch in epochs)
    for (attempt, epoch), later, steps_lost in zip(epochs, [*epochs[1:], None], lost, strict=False):
        if epoch.ended_by in ("", "finished") or (later is None and not attempt.is_live()):
            continue
        left, joined = _moved(attempt, *later) if later is not None else ((), ())
        yield _incident(attempt, epoch, later[1] if later is not None else None, steps_lost, left, joined)


def _moved(attempt: Attempt, later: Attempt, after: Epoch) -> tuple[tuple[HostId, ...], tuple[HostId, ...]]:
    """Who left the attempt and who joined when the epoch `after` followed, as another membership or another attempt."""
    if later is attempt:
        before = [change.left for change in after.changes]
        now = [change.joined for change in after.changes]
    else:
        before, now = list(attempt.members), list(later.hosts_of(after.number))
    stayed = set(before).intersection(now)
    return tuple(name for name in before if name not in stayed), tuple(name for name in now if name not in stayed)


def _incident(
    attempt: Attempt,
    epoch: Epoch,
    after: Epoch | None,
    steps_lost: int,
    left: tuple[HostId, ...],
    joined: tuple[HostId, ...],
) -> Incident:
    cause = (
        epoch.cause if epoch.cause is not None else Reason(token=Token.UNDECIDED, sentence="the cause is not known yet")
    )
    detected = epoch.detected_at if epoch.detected_at is not None else epoch.formed_at
    decided = epoch.decided_at if epoch.decided_at is not None else detected
    last = epoch.last_step_at if epoch.last_step_at is not None else detected
    marks: list[tuple[Instant | None, str]] = [
        (epoch.failed_at, "interrupt"),
        (detected, "detect"),
        (decided, "decide"),
    ]
    if after is not None:
        grouped = after.grouped_at if after.grouped_at is not None else after.launched_at
        marks += [
            (after.formed_at, "decide"),
            (after.reserved_at, "place"),
            (grouped, "launch"),
            (after.restored_at, "restore"),
            (after.first_step_at, "first_step"),
        ]
    phases: dict[str, float] = {}
    at = last
    for mark, phase in marks:
        if mark is not None and mark > at:
            phases[phase] = phases.get(phase, 0.0) + in_seconds(mark - at)
            at = mark
    return Incident(
        attempt=attempt.id,
        epoch=epoch.number,
        planned=epoch.ended_by in ("yielded", "stopped"),
        cause=cause,
        left=left,
        joined=joined,
        last_step_at=last,
        detected_at=detected,
        decided_at=decided,
        resumed_at=after.first_step_at if after is not None else None,
        steps_lost=steps_lost,
        seconds_by_phase=phases,
    )
