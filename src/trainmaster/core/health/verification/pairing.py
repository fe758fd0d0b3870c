"""Who is paired with whom.

The two members of a pair show the same time, so one pairing says which pair is slow and never which host. In a second
one everybody has another partner; a bad host is slow with both. Hosts stand in a ring and are paired with their right,
then with their left neighbour: two rounds that together join everybody to everybody, so that hosts are compared with
each other and not only within islands. A ring of odd length needs a third round, for the pair that closes it.

What is slow then is tested once more, with partners that are known to be fast (`follow_up`): what was slow by chance is
not slow three times, and a slow host between two slow ones is told from a good one between them.
"""

from collections.abc import Collection, Sequence

Pair = tuple[int, int]
Round = tuple[Pair, ...]


def ring(count: int) -> tuple[Round, ...]:
    """Rounds over `count` places; nobody is in a round twice. Fewer than two places: none. Two: one round, which can't
    tell them apart."""
    assert count >= 0, count
    if count < 2:
        return ()
    if count == 2:
        return (((0, 1),),)
    even = tuple((place, place + 1) for place in range(0, count - 1, 2))
    odd = tuple((place, (place + 1) % count) for place in range(1, count, 2) if place + 1 < count or count % 2 == 0)
    return (even, odd) if count % 2 == 0 else (even, odd, ((count - 1, 0),))


def follow_up(
    doubtful: Sequence[int], cleared: Sequence[int], paths: Sequence[Pair], met: Collection[Pair], most: int = 8
) -> tuple[Round, ...]:
    """Rounds that settle what is doubtful: each doubtful place with a cleared one that it has not met, if there is one,
    and each slow path once more. At most `most` rounds; nothing if nobody is cleared."""
    wanted: list[Pair] = []
    known = {frozenset(pair) for pair in met}
    used: set[int] = set()
    for place in doubtful:
        partners = sorted(cleared, key=lambda other: (frozenset((place, other)) in known, other in used, other))
        if partners:
            wanted.append((place, partners[0]))
            used.add(partners[0])
    return matchings([*wanted, *paths])[:most]


def matchings(pairs: Sequence[Pair]) -> tuple[Round, ...]:
    """The pairs in rounds, nobody twice in one; first come, first served."""
    rounds: list[list[Pair]] = []
    busy: list[set[int]] = []
    for pair in pairs:
        assert pair[0] != pair[1], pair
        place = next((at for at, members in enumerate(busy) if not members & set(pair)), len(rounds))
        if place == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[place].append(pair)
        busy[place] |= set(pair)
    return tuple(map(tuple, rounds))
