"""A checkpoint written by many who do not speak to each other: each leaves its part and says so in a small file.

Who writes from memory (the vaults of the hosts) has no process group. Each writes the shards of its ranks into the
staging directory, syncs them, and puts `part-R.json` beside: what lies where in the shard, what it sums to, how long
that took; or why there is no shard. The vault of rank 0 waits until the part of every rank is there. The parts are the
vote: all there and of one moment, it publishes; one that says why not, or is not there in time, and it doesn't.

A part is put after its shard is durable and is never taken back, so whoever has read it may rely on the shard.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import ITEM_BYTES, Outline, Stored
from trainmaster.core.checkpoint.listing import Problem, parts_name
from trainmaster.core.checkpoint.manifest import FileEntry
from trainmaster.core.checkpoint.pace import Pace
from trainmaster.core.checkpoint.position import Position

_PART: Final = re.compile(r"part-(\d{1,9})\.json", re.ASCII)
_NAMED: Final = 3
"""So many are named; of the others the number is told."""


class Order(Value):
    """What is to be stored, by whom, where, and how many checkpoints are kept there."""

    directory: str
    job: JobId
    attempt: AttemptId
    epoch: int
    step: int
    world: int
    keep: int

    @property
    def staging(self) -> str:
        return parts_name(self.step, self.epoch, self.job)

    def attempt_number(self) -> int:
        """Number of the attempt in its job; 0 if its name has none."""
        match = re.search(r"\.a(\d+)$", self.attempt)
        return int(match[1]) if match else 0


class Part(Value):
    """What became of the shard of one rank. `file` is None if the rank has nothing to write, or if it failed."""

    rank: int
    sequence: int
    epoch: int
    world: int
    position: Position
    writer: str
    items: tuple[Stored, ...] = ()
    file: FileEntry | None = None
    sums: str = ""
    pace: Pace | None = None
    failure: str = ""


def part_name(rank: int) -> str:
    assert rank >= 0
    return f"part-{rank}.json"


def rank_of(name: str) -> int | None:
    """The rank whose part a file is; None for other files."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None


def objection(parts: Mapping[int, Part], order: Order, position: Position) -> Problem | None:
    """Why these parts will never make the checkpoint of `position`; None if nothing speaks against it so far."""
    failed = [part for _, part in sorted(parts.items()) if part.failure]
    if failed:
        told = "; ".join(f"rank {part.rank} on {part.writer}: {part.failure}" for part in failed[:_NAMED])
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        return Problem(token="part-failed", sentence=f"{told}{more}", numbers={"failed": len(failed)})
    wanted = (order.epoch, order.world, position)
    other = [part for _, part in sorted(parts.items()) if (part.epoch, part.world, part.position) != wanted]
    if other:
        part = other[0]
        sentence = (
            f"rank {part.rank} on {part.writer} wrote step {part.position.step} of epoch {part.epoch} with "
            f"{part.world} ranks, not step {position.step} of epoch {order.epoch} with {order.world}"
        )
        return Problem(token="part-of-another-moment", sentence=sentence, numbers={"rank": part.rank})
    return None


def missing(parts: Mapping[int, Part], world: int) -> tuple[int, ...]:
    return tuple(rank for rank in range(world) if rank not in parts)


def late(ranks: Sequence[int], hosts: Mapping[int, str], waited_s: float) -> Problem:
    """Names those whose part did not come in time."""
    assert ranks
    told = ", ".join(f"rank {rank}" + (f" on {hosts[rank]}" if rank in hosts else "") for rank in ranks[:_NAMED])
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    sentence = f"nothing came from {told}{more} in {waited_s:.0f} s"
    return Problem(token="part-missing", sentence=sentence, numbers={"missing": len(ranks), "first_rank": ranks[0]})


def size_of(outline: Outline) -> int:
    """Bytes of all tensors of a state: what storing it needs, headers apart."""
    return sum(prod(form.shape) * ITEM_BYTES.get(form.dtype, 0) for form in outline.tensors.values())
