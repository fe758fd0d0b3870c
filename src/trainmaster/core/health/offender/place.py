"""Places: where in its rack a host stands. Counted in the order in which the hosts of a rack were declared, so the n-th
host of every rack has the same height, if racks are declared alike. What fails at one height of many racks has a cause
there: how the racks are cooled, fed or cabled at that height.
"""

from collections.abc import Mapping
from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health.offender.lemon import poisson_bound
from trainmaster.core.health.offender.notes import cases, of_place
from trainmaster.core.health.offender.record import History

RACKS: Final = 3
"""So many racks must have had cases at a height before it is one."""
CHANCE: Final = 0.001


def place_of(hosts: Mapping[HostId, Host], name: HostId) -> str:
    """`RACK/NUMBER`, the number from 1; empty for a host that is not there. Walks all hosts: ask it when something
    happened, not all the time."""
    host = hosts.get(name)
    if host is None:
        return ""
    before = sum(other.spec.rack == host.spec.rack and other.position < host.position for other in hosts.values())
    return f"{host.spec.rack}/{before + 1}"


def height_of(place: str) -> str:
    """The number within the rack."""
    return place.rpartition("/")[2]


def height_hint(history: History, place: str, since: Instant) -> str:
    """If far more cases came at the height of this place than at others, in several racks: that, in words."""
    here = height_of(place)
    counts: dict[str, int] = {}
    racks = 0
    for other in history.places:
        found = len(cases(of_place(history, other, since).incidents))
        counts[height_of(other)] = counts.get(height_of(other), 0) + found
        racks += found > 0 and height_of(other) == here
    heights = max((int(height) for height in counts if height.isdigit()), default=0)
    if racks < RACKS or heights < 2:
        return ""
    mean = (sum(counts.values()) - counts[here]) / (heights - 1)
    if counts[here] < poisson_bound(mean, CHANCE):
        return ""
    return f"height {here} of the racks: {counts[here]} cases in {racks} racks, {mean:.1f} at other heights"
