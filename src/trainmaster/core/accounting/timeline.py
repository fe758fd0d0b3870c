"""The life of a job as spans of time: what it did, and which incident made it do so.

The marks of attempts and epochs cut the time between submission and end into spans, each of one phase. A clock that
jumps or a mark that is missing makes a span empty, never negative or double, so the spans are the wall time exactly.

A span that would not be there without an interruption carries its *incident*: the key of the epoch that ended. That is
everything from the last step of this epoch to the first step of the next one that gets so far, a wait in the queue
between them included. Spans without one are steps, blocking saves, the start of the job and its end.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.recovery.attempt import Attempt, Epoch
from trainmaster.core.scheduling.job import Job

_INCIDENTS: Final = ("yielded", "interrupted", "stopped")
"""Ends of an epoch that are incidents; the others are `finished`, and none yet."""
_Mark = tuple[Instant | None, str, str, int, str]


class Span(Value):
    start: Instant
    end: Instant
    phase: str
    """One of those of `goodput`; a stretch of steps is `training`, which the account divides."""
    attempt: str
    epoch: int
    """0: between epochs of different attempts."""
    incident: str = ""
    """`key` of the epoch whose end it belongs to; empty: it belongs to none."""


def key(attempt: Attempt, epoch: Epoch) -> str:
    """Names the end of an epoch: ATTEMPT/EPOCH."""
    return f"{attempt.id}/{epoch.number}"


def incident_keys(job: Job, attempts: Sequence[Attempt]) -> frozenset[str]:
    """Those of the epochs whose ends were incidents. An end that somebody asked for, and that ended the job, is none; a
    failure that ended it is one."""
    epochs = [(attempt, epoch) for attempt in attempts for epoch in attempt.epochs]
    found = {key(attempt, epoch) for attempt, epoch in epochs if epoch.ended_by in _INCIDENTS}
    if epochs and job.ended_at is not None and epochs[-1][1].ended_by != "interrupted":
        found.discard(key(*epochs[-1]))
    return frozenset(found)


def timeline(
    job: Job, attempts: Sequence[Attempt], now: Instant, still_since: Instant | None = None
) -> tuple[Span, ...]:
    """The spans of a job from its submission to its end (or `now`), in order, without gaps. `still_since`: the end of
    its last step, if a running job stands still since then."""
    end = job.ended_at if job.ended_at is not None else now
    known = incident_keys(job, attempts)
    marks: list[_Mark] = []
    ended = ""
    for attempt in attempts:
        marks.append((attempt.placed_at, "queue", attempt.id, 0, ended))
        for epoch in attempt.epochs:
            own = key(attempt, epoch) if key(attempt, epoch) in known else ""
            marks += _epoch_marks(attempt, epoch, ended, own)
            ended = own or (ended if epoch.first_step_at is None else "")
        if attempt.ended_at is not None:
            over = attempt.epochs and attempt.epoch.ended_by and key(attempt, attempt.epoch) not in known
            closing = "finish" if over else "decide"
            marks.append((attempt.ended_at, closing, attempt.id, len(attempt.epochs), ended))
    last = "queue" if not attempts or not attempts[-1].is_live() else _open_phase(attempts[-1])
    name, number = (attempts[-1].id, len(attempts[-1].epochs)) if attempts else (AttemptId(""), 0)
    if still_since is not None and last == "training":
        marks.append((still_since, last, name, number, ""))
        last = "interrupt"
    marks.append((end, last, name, number, ended))
    return tuple(_spans(job.submitted_at, end, marks))


def _epoch_marks(attempt: Attempt, epoch: Epoch, before: str, own: str) -> list[_Mark]:
    """(end of the span, its phase, ...): each mark closes the span that began at the mark before it. `before` is the
    incident that led to this epoch, `own` that of its end. Ranks that nobody reaches go on after they were given up:
    what they do then is nobody's training."""
    grouped = epoch.grouped_at if epoch.grouped_at is not None else epoch.launched_at
    last = epoch.last_step_at if epoch.first_step_at is not None else None
    if last is not None and epoch.ended_by == "interrupted" and epoch.decided_at is not None:
        last = min(last, epoch.decided_at)
    over = bool(epoch.ended_by) and not own
    stopped = "save" if epoch.ended_by == "yielded" else "finish" if over else "interrupt"
    rows = [
        (epoch.formed_at, "decide", before),
        (epoch.reserved_at, "place", before),
        (grouped, "launch", before),
        (epoch.restored_at, "restore", before),
        (epoch.first_step_at, "first_step", before),
        (last, "training", ""),
        (epoch.failed_at, stopped, own),
        (epoch.detected_at, "finish" if over else "detect", own),
        (epoch.decided_at, "finish" if over else "decide", own),
    ]
    return [(at, phase, attempt.id, epoch.number, incident) for at, phase, incident in rows]


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


def _spans(start: Instant, end: Instant, marks: Iterable[_Mark]) -> Iterable[Span]:
    at = start
    for mark, phase, attempt, epoch, incident in marks:
        until = min(max(mark, at), end) if mark is not None else at
        if until > at:
            yield Span(start=at, end=until, phase=phase, attempt=attempt, epoch=epoch, incident=incident)
            at = Instant(until)


class Stay(Value):
    """A host was a member."""

    host: HostId
    start: Instant
    end: Instant


def members(job: Job, attempts: Sequence[Attempt], now: Instant) -> tuple[Stay, ...]:
    """Stays of the hosts that were not members of every epoch, by host; there are few of them in any fleet."""
    over = job.ended_at if job.ended_at is not None else now
    epochs = [(attempt, epoch) for attempt in attempts for epoch in attempt.epochs]
    if not epochs:
        return ()
    held = [frozenset(attempt.hosts_of(epoch.number)) for attempt, epoch in epochs]
    always = frozenset.intersection(*held)
    ends = [*(epoch.formed_at for _, epoch in epochs[1:]), over]
    stays: list[Stay] = []
    for (attempt, epoch), hosts, until in zip(epochs, held, ends, strict=True):
        end = min(until, attempt.ended_at if attempt.ended_at is not None else until, over)
        for host in hosts - always:
            if end > epoch.formed_at:
                stays.append(Stay(host=host, start=epoch.formed_at, end=Instant(end)))
    return tuple(sorted(stays, key=lambda stay: (stay.host, stay.start)))
