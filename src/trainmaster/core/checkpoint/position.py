"""Where a job stands in its data: a count of global samples, and nothing else.

The count does not depend on how many ranks share a batch, so a job may go on with half or twice the hosts and neither
repeats nor skips a sample. Rejected: a count of steps (it changes its meaning with the batch size), a state per rank
(it changes its meaning with the world size), and "skip the first N of a new shuffle" (the order must be the old one:
it is a function of seed, epoch and index here, see `order.py`, so there is nothing to skip).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

SPARSE: Final = "2:4"
"""In the name of an arithmetic: half of the weights take no part."""


class Position(Value):
    """`samples` is the number of global samples consumed, which is the index of the next one; `numerics` names the
    arithmetic of the last step, empty if nobody said."""

    samples: int
    global_batch: int
    step: int
    numerics: str = ""


class Continuation(Value):
    """How a job goes on: the first global sample, and the share of each rank (the first ranks get the larger one)."""

    first_sample: int
    share_max: int
    share_min: int
    warnings: tuple[Problem, ...]


class EpochAudit(Value):
    """How often the samples of one epoch were seen."""

    size: int
    seen_twice: int
    never_seen: int
    foreign: int
    problems: tuple[Problem, ...]


def proceed(position: Position, world: int, global_batch: int, numerics: str = "") -> Continuation:
    """Where to go on from `position` with `world` ranks, this batch size and this arithmetic."""
    assert world > 0
    assert global_batch > 0
    warnings: list[Problem] = []
    if position.global_batch not in (0, global_batch):
        sentence = (
            f"the global batch changed from {position.global_batch} to {global_batch}: the data goes on at sample "
            f"{position.samples}, but step {position.step} no longer stands for that many samples, so a learning rate "
            "schedule in steps runs differently"
        )
        numbers = {"saved_batch": position.global_batch, "batch": global_batch, "samples": position.samples}
        warnings.append(Problem(token="batch-changed", sentence=sentence, numbers=numbers))
    if global_batch % world:
        sentence = f"{global_batch} samples do not divide among {world} ranks: some ranks take one more than others"
        warnings.append(
            Problem(token="uneven-share", sentence=sentence, numbers={"batch": global_batch, "world": world})
        )
    if position.numerics and numerics and position.numerics != numerics:
        warnings.append(_numerics_changed(position, numerics))
    share = global_batch // world
    return Continuation(
        first_sample=position.samples,
        share_max=share + (global_batch % world > 0),
        share_min=share,
        warnings=tuple(warnings),
    )


def _numerics_changed(position: Position, numerics: str) -> Problem:
    sentence = (
        f"step {position.step} was computed in {position.numerics}, and {numerics} goes on: weights and moments are "
        f"kept in float32 and taken over bit for bit, losses are those of {numerics} from here on"
    )
    before, after = SPARSE in position.numerics, SPARSE in numerics
    if after and not before:
        sentence += "; half of the feed-forward weights fall out at once, so the loss jumps before it falls"
    if before and not after:
        sentence += "; weights that masks held at zero count again, so the loss may jump"
    return Problem(token="numerics-changed", sentence=sentence, numbers={"step": position.step})


def audit_epoch(seen: Iterable[int], size: int) -> EpochAudit:
    """Compares the sample ids that an epoch consumed with the multiset it must consume: each of `size` once.

    Adding up counts ("20 before and 44 after make 64") finds nothing; only the ids do.
    """
    assert size > 0
    counts = Counter(seen)
    twice = sum(1 for times in counts.values() if times > 1)
    never = sum(1 for sample in range(size) if sample not in counts)
    foreign = sum(1 for sample in counts if not 0 <= sample < size)
    problems: list[Problem] = []
    if twice or never:
        sentence = f"{twice} of {size} samples were seen more than once and {never} never: the order changed on resume"
        numbers = {"seen_twice": twice, "never_seen": never, "size": size}
        problems.append(Problem(token="order-changed", sentence=sentence, numbers=numbers))
    if foreign:
        sentence = f"{foreign} sample ids lie outside of the epoch of {size}"
        problems.append(Problem(token="foreign-samples", sentence=sentence, numbers={"foreign": foreign}))
    return EpochAudit(size=size, seen_twice=twice, never_seen=never, foreign=foreign, problems=tuple(problems))
