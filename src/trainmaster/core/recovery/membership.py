"""Who takes part in the next epoch.

Members that can stay keep their place (and so their ranks, their data and their caches); a place that becomes vacant is
filled by a spare, in the order of the spares. A draining member leaves if there is somebody for its place; if not, it
stays for the moment: a drain is a wish, a running job a promise. A lost member always leaves.
"""

from collections.abc import Collection, Sequence

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value


class Membership(Value):
    members: tuple[HostId, ...]
    left: tuple[HostId, ...]
    joined: tuple[HostId, ...]
    missing: int
    """Places that nobody fills; the membership can't be launched while it is not 0."""


def next_membership(
    members: Sequence[HostId],
    spares: Sequence[HostId],
    must_leave: Collection[HostId],
    should_leave: Collection[HostId],
) -> Membership:
    """Fills the places of those who must leave first, then of those who should. Both are asked for every member, so
    for a large gang they are sets."""
    assert all(host in must_leave for host in set(spares).intersection(members)), (members, spares)
    vacant = [place for place, host in enumerate(members) if host in must_leave] if must_leave else []
    moving = [place for place, host in enumerate(members) if host in should_leave] if should_leave else []
    leaving = [*vacant, *(place for place in moving if members[place] not in must_leave)]
    filled = dict(zip(leaving, spares, strict=False))
    places: list[HostId | None] = list(members)
    for place in vacant:
        places[place] = None
    for place, host in filled.items():
        places[place] = host
    stay = tuple([host for host in places if host is not None])
    joined = tuple(filled.values())
    left = tuple(members[place] for place in sorted({*vacant, *filled}) if members[place] not in joined)
    return Membership(members=stay, left=left, joined=joined, missing=len(members) - len(stay))
