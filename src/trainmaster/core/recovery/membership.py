"""Who takes part in the next epoch.

Members that can stay keep their place (and so their ranks, their data and their caches); a place that becomes vacant is
filled by a spare, in the order of the spares. A draining member leaves if there is somebody for its place; if not, it
stays for the moment: a drain is a wish, a running job a promise. A lost member always leaves.
"""

from collections.abc import Callable, Sequence

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
    must_leave: Callable[[HostId], bool],
    should_leave: Callable[[HostId], bool],
) -> Membership:
    """Fills the places of those who must leave first, then of those who should."""
    assert all(must_leave(host) for host in members if host in spares), (members, spares)
    pool = list(spares)
    places: list[HostId | None] = [None if must_leave(host) else host for host in members]
    joined: list[HostId] = []
    for leaves in (_is_vacant, lambda host: host is not None and host not in joined and should_leave(host)):
        for place, host in enumerate(places):
            if leaves(host) and pool:
                places[place] = pool.pop(0)
                joined.append(places[place])  # type: ignore[arg-type]
    stay = tuple(host for host in places if host is not None)
    left = tuple(host for host in members if host not in stay)
    return Membership(members=stay, left=left, joined=tuple(joined), missing=len(members) - len(stay))


def _is_vacant(host: HostId | None) -> bool:
    return host is None
