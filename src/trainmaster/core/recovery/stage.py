"""Where an attempt is that makes no steps yet: what a look at its ranks cannot tell.

While an epoch is formed, its processes are those of two epochs, or none. What their recorders hold is of the epoch that
is over, and a verdict on it would name the ranks that did as they should.
"""

from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch


def forming(attempt: Attempt) -> Diagnosis | None:
    """What is said of an attempt between two epochs, or whose ranks are being started; None: they run."""
    epoch = attempt.epoch
    over = epoch.ended_by != "" or attempt.undecided
    if attempt.state is AttemptState.RUNNING and not over:
        return None
    cause = next((each.cause.sentence for each in reversed(attempt.epochs) if each.cause is not None), "")
    what = "re-forms" if len(attempt.epochs) > 1 or over else "starts"
    return Diagnosis(
        kind=Kind.FORMING,
        summary=f"the job {what}: epoch {epoch.number} {'is over' if over else 'begins'}, {_stage(attempt, over)}",
        first_cause=cause,
        confidence="high",
        details=("no rank was asked: their recorders say nothing yet that would hold for this epoch",),
        next_evidence=("the same question, when it trains",),
        advice=("wait: this takes seconds, with a cold start minutes",),
    )


def _stage(attempt: Attempt, over: bool) -> str:
    if attempt.waiting is not None:
        return f"and it waits: {attempt.waiting.sentence}"
    if attempt.undecided:
        return "and what interrupted it is not known yet"
    if over:
        return "and its ranks leave"
    starting = attempt.state is AttemptState.LAUNCHING
    return "its ranks are being started" if starting else "its hosts are being made ready"


def before_first_step(epoch: Epoch) -> str:
    """Where the ranks of an epoch that run are, if their session has made no step in it; empty: it has, or there is no
    session that would tell."""
    if epoch.first_step_at is not None or epoch.attached_at is None:
        return ""
    if epoch.restored_at is not None:
        where = "its state is restored, and the first step is under way"
    else:
        where = "its ranks restore their state" if epoch.grouped_at is not None else "its ranks find each other"
    return f"epoch {epoch.number} has told of no step yet: {where}"
