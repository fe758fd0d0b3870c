"""Which state of memory a job goes on from, given who holds what.

Each host holds the snapshots of its own ranks and copies of others'. A state is usable if every shard of one moment is
held by somebody: of a moment, not of a step, since shards that different memberships wrote, or other numbers of ranks,
do not fit together. The newest such moment is chosen, and who gives which shard to whom: a rank takes what its own host
has; else the holders take turns. It is a function of facts that all ranks share, so all choose alike.

A copy that turned out damaged is barred, and the choice made again: another copy, an older moment, or none.
"""

from collections.abc import Collection, Iterable, Sequence

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.position import Position


class Moment(Value):
    """What must be equal for shards to fit together."""

    position: Position
    epoch: int
    world: int

    @property
    def age(self) -> tuple[int, int, int]:
        """Grows with newness. Of one step that two memberships reached the later one counts."""
        return self.position.step, self.epoch, self.world


class Copy(Value):
    """The shard of rank `shard` in the file `file` at `place` (the number of a host's directory)."""

    moment: Moment
    shard: int
    place: int
    file: str
    sequence: int
    replica: bool


class Choice(Value):
    """For each shard of the moment those who hold it, own snapshots before copies."""

    moment: Moment
    holders: tuple[tuple[Copy, ...], ...]

    def source(self, shard: int, place: int, turn: int) -> Copy:
        """Whose copy of a shard is taken at `place`; those who ask in other turns are given others."""
        here = [copy for copy in self.holders[shard] if copy.place == place]
        return here[0] if here else self.holders[shard][turn % len(self.holders[shard])]


def choose(copies: Iterable[Copy], barred: Collection[Copy] = ()) -> Choice | None:
    """The newest moment of which every shard is held; None if there is none."""
    by_moment: dict[Moment, dict[int, list[Copy]]] = {}
    for copy in copies:
        if copy not in barred:
            by_moment.setdefault(copy.moment, {}).setdefault(copy.shard, []).append(copy)
    whole = [moment for moment, shards in by_moment.items() if set(range(moment.world)) <= shards.keys()]
    if not whole:
        return None
    newest = max(whole, key=lambda moment: moment.age)
    held = by_moment[newest]
    return Choice(moment=newest, holders=tuple(_ordered(held[shard]) for shard in range(newest.world)))


def _ordered(copies: Sequence[Copy]) -> tuple[Copy, ...]:
    return tuple(sorted(copies, key=lambda copy: (copy.replica, copy.place, copy.file)))
