"""Which kills a run gets: a pure function of a seed.

A *shot* kills one thing or two at once, at a *moment*. Some moments (a save) come by themselves; others (the gap
between two memberships) only exist while the job re-forms, so such a shot has an *opener*: a rank that is killed first.
Victims and moments are dealt like cards, not rolled: within fifty shots every kind, every pair of kinds and every
moment has its turn, whatever the seed; what meets what, and when, is chance.

Victims are named by rank or by number, never by host: who holds a rank is known when the shot is fired.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, TypeVar

from trainmaster.core.base.value import Value

T = TypeVar("T")


class Kind(Enum):
    WORKER = "worker"
    AGENT = "agent"
    KEEPER = "keeper"
    HOST = "host"
    SPARE = "spare"  # the host of a spare, with its memory and its directory
    STANDBY = "standby"  # the worker that was started ahead on a spare
    SERVER = "server"
    VAULT = "vault"


ENDS_EPOCH: Final = frozenset({Kind.WORKER, Kind.KEEPER, Kind.HOST})
"""After the death of one of these a step is finished only in a later membership."""
ENDS_VAULT: Final = frozenset({Kind.VAULT, Kind.KEEPER, Kind.HOST})
ON_SPARES: Final = frozenset({Kind.SPARE, Kind.STANDBY})
ALONE: Final = frozenset({Kind.SERVER})
"""There is one of it, so it can't die twice at once."""


class Moment(Enum):
    ANY = "at a random moment"
    SAVE = "in a save"
    PUBLISH = "in a publish"
    STOPPED = "between the fence and the launch"
    JOINING = "while the ranks meet"
    ADRIFT = "while a rank is adrift"
    FIRST_STEP = "in the first step"
    COPY = "in the copy of a snapshot"
    REPLICATION = "in a replication"


OPENED: Final = frozenset({Moment.STOPPED, Moment.JOINING, Moment.ADRIFT, Moment.FIRST_STEP})
"""Moments of a re-forming."""
SEED: Final = 124
"""Of runs that name none. Its first five shots meet hosts, the server, two at once, and ranks that meet."""
ANY_SHARE: Final = 3
"""Unaimed shots for one of each aimed moment."""
PAIRS_OF_TEN: Final = 7
LATEST_STEP: Final = 12
"""A shot comes after at most so many steps."""
RESTED_SHARE: Final = 0.6


class Victim(Value):
    kind: Kind
    place: int
    """The rank whose host, keeper, agent, vault or worker it is; on a spare the number among the spares."""

    def words(self) -> str:
        if self.kind is Kind.SERVER:
            return "the server"
        if self.kind in ON_SPARES:
            return f"{self.kind.value} {self.place}"
        return f"the {self.kind.value} of rank {self.place}" if self.kind is not Kind.WORKER else f"rank {self.place}"


class Shot(Value):
    number: int
    victims: tuple[Victim, ...]
    """One, or two of which none is the other's host."""
    moment: Moment
    opener: int | None
    """The rank whose worker is killed to bring the moment about."""
    after_steps: int
    """Steps to let pass first."""
    part_of_step: float
    """How far into the next step, of 1."""
    rested: bool
    """Whether all is whole again before the next shot; else that comes as soon as a step was finished."""

    def label(self) -> str:
        """Its kind, for figures."""
        return " + ".join(sorted(victim.kind.value for victim in self.victims))

    def words(self) -> str:
        opened = f", opened by rank {self.opener}" if self.opener is not None else ""
        return f"{' and '.join(victim.words() for victim in self.victims)} {self.moment.value}{opened}"


def pairs(kinds: Sequence[Kind]) -> tuple[tuple[Kind, Kind], ...]:
    """Every two kinds that can die at once."""
    both = itertools.combinations_with_replacement(kinds, 2)
    return tuple((one, other) for one, other in both if one is not other or one not in ALONE)


def draw(
    seed: int,
    count: int,
    ranks: int,
    spares: int,
    kinds: Sequence[Kind] = tuple(Kind),
    moments: Sequence[Moment] = tuple(Moment),
) -> tuple[Shot, ...]:
    """The shots of a run. `kinds` and `moments`: those that are possible in it."""
    assert count > 0
    assert ranks > 1
    assert spares > 1
    chance = random.Random(f"random kills {seed}")
    of_two = count * PAIRS_OF_TEN // 10
    groups: list[tuple[Kind, ...]] = [*_dealt(chance, pairs(kinds), of_two)]
    groups += _dealt(chance, [(kind,) for kind in kinds], count - of_two)
    chance.shuffle(groups)
    aimed = [moment for moment in moments if moment is not Moment.ANY]
    when = _dealt(chance, [*[Moment.ANY] * ANY_SHARE, *aimed], count)
    return tuple(
        _shot(chance, number, group, moment, ranks, spares)
        for number, (group, moment) in enumerate(zip(groups, when, strict=True), 1)
    )


def _dealt(chance: random.Random, deck: Sequence[T], count: int) -> Iterator[T]:
    """`count` cards: a shuffled deck, and another when it is used up."""
    left: list[T] = []
    for _ in range(count):
        if not left:
            left = list(deck)
            chance.shuffle(left)
        yield left.pop()


def _shot(chance: random.Random, number: int, group: tuple[Kind, ...], moment: Moment, ranks: int, spares: int) -> Shot:
    of_ranks = chance.sample(range(ranks), 2)
    of_spares = chance.sample(range(spares), 2)
    places = {Kind.SERVER: [0, 0], **dict.fromkeys(ON_SPARES, of_spares)}
    victims = [Victim(kind=kind, place=places.get(kind, of_ranks)[at]) for at, kind in enumerate(group)]
    return Shot(
        number=number,
        victims=tuple(victims),
        moment=moment,
        opener=chance.randrange(ranks) if moment in OPENED else None,
        after_steps=chance.randint(1, LATEST_STEP),
        part_of_step=chance.random(),
        rested=chance.random() < RESTED_SHARE,
    )
