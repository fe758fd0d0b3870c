"""Which checkpoint a job resumes from: the newest published one that still verifies.

Verifying reads every byte, so it is asked for one candidate at a time, newest first: `select` is called with what has
been verified so far and answers what to do next. A pointer file ("latest") is never read: it can be newer or older than
what is there, and be gone. If the newest does not verify, the next older one does it, and the answer says so; if
checkpoints exist and none verifies, the answer is a refusal and not a fresh start, because a start from zero that
nobody asked for destroys more than it saves.
"""

from collections.abc import Mapping, Sequence

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

Verdicts = Mapping[int, tuple[Problem, ...]]


class Verify(Value, tag=True):
    """Verify this step and ask again."""

    step: int


class Resume(Value, tag=True):
    """Resume from this step. `sentence` is empty if there is nothing to say."""

    step: int
    sentence: str


class Fresh(Value, tag=True):
    """Nothing was ever published: start at the beginning."""


class Refused(Value, tag=True):
    problem: Problem


Choice = Verify | Resume | Fresh | Refused


def select(published: Sequence[int], verdicts: Verdicts, requested: int | None = None) -> Choice:
    """What to do next, given the published steps and the verdicts of those verified so far (empty: it is whole)."""
    assert set(verdicts) <= set(published)
    if requested is not None:
        return _explicit(published, verdicts, requested)
    ordered = sorted(set(published), reverse=True)
    for step in ordered:
        if step not in verdicts:
            return Verify(step=step)
        if not verdicts[step]:
            return Resume(step=step, sentence=_why_older(ordered, verdicts, step))
    if not ordered:
        return Fresh()
    sentence = (
        f"{len(ordered)} published checkpoints, none verifies (newest: {verdicts[ordered[0]][0].sentence}); "
        f"starting over would lose {ordered[0]} steps, so move them away if that is what you want"
    )
    numbers = {"published": len(ordered), "newest_step": ordered[0]}
    return Refused(problem=Problem(token="no-checkpoint-verifies", sentence=sentence, numbers=numbers))


def _explicit(published: Sequence[int], verdicts: Verdicts, requested: int) -> Choice:
    if requested not in published:
        have = ", ".join(str(step) for step in sorted(set(published))) or "none"
        sentence = f"there is no published checkpoint of step {requested}; published: {have}"
        return Refused(problem=Problem(token="no-such-checkpoint", sentence=sentence, numbers={"step": requested}))
    if requested not in verdicts:
        return Verify(step=requested)
    if verdicts[requested]:
        sentence = f"the checkpoint of step {requested} does not verify: {verdicts[requested][0].sentence}"
        return Refused(problem=Problem(token="checkpoint-invalid", sentence=sentence, numbers={"step": requested}))
    return Resume(step=requested, sentence="")


def _why_older(ordered: Sequence[int], verdicts: Verdicts, step: int) -> str:
    if step == ordered[0]:
        return ""
    newest = ordered[0]
    skipped = sum(1 for other in ordered if other > step)
    return (
        f"resumed from step {step}, not from the newest published step {newest}: {verdicts[newest][0].sentence}"
        f" ({skipped} checkpoints passed over, {newest - step} steps to replay)"
    )


def identify(digests: Mapping[str, str], requested: str, loaded: str) -> Problem | None:
    """Compares the digest of loaded weights with the checkpoint that was asked for; None if they are its own.

    What a loader says it loaded (a path, a step in some metadata) is not evidence.
    """
    assert requested in digests
    if digests[requested] == loaded:
        return None
    others = sorted(name for name, digest in digests.items() if digest == loaded)
    belongs = f"they belong to {others[0]}" if others else "they belong to no known checkpoint"
    sentence = f"asked for {requested}, but the loaded weights are not its own: {belongs}"
    return Problem(token="weights-of-another-checkpoint", sentence=sentence, files=tuple(others))
