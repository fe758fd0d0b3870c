"""Places: where in its rack a host stands. Counted in the order in which the hosts of a rack were declared, so the n-th
host of every rack has the same height, if racks are declared alike.
"""

from collections.abc import Mapping

from trainmaster.core.base.ids import HostId
from trainmaster.core.fleet.lifecycle import Host


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
