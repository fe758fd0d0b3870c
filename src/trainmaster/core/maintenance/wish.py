"""What people say of a train, before it is known which units that means.

A file or a request names a pool (a cluster, a kind of unit, or hosts) and how large a stop may be; `domains.build`
makes the domains, always in the same way, so a wish that was carried out already asks for nothing. Who wants domains of
another make names them one by one.

A train that nobody said more about only observes: it writes what it would do. It is promoted by asking for it again
with mode "act". A wish without a mode keeps the mode of the train that is there.
"""

from typing import Literal

from trainmaster.core.base.ids import ComponentName, TrainName
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.capacity import Share


class TrainWish(Value):
    name: TrainName
    cluster: str = ""
    """Its units of one kind; or give hosts, or domains."""
    kind: str = "compute"
    hosts: str = ""
    """A host list: exactly these units, of one cluster."""
    domain_size: Share | None = None
    """The most units of a stop; a percentage is of the pool, rounded down, at least 1."""
    domains: tuple[str, ...] = ()
    """Host lists, one a stop, instead of a pool and a size."""
    cycle: Duration
    components: tuple[ComponentName, ...] = ()
    """What it brings; empty: everything that is due."""
    stop_limit: Duration = Duration(8 * HOUR)
    evict_after: Duration | None = None
    emergency: bool = False
    mode: Literal["observe", "act"] | None = None
    """None: as the train of that name, else observe."""
