"""The state of maintenance: what is declared, what is under way, and a short memory of what has ended."""

import msgspec

from trainmaster.core.base.ids import HostId, OperationId, TrainName
from trainmaster.core.base.reasons import Reason
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.core.maintenance.operation import EndedOperation, Operation
from trainmaster.core.maintenance.visit import Visit


class Maintenance(msgspec.Struct, kw_only=True):
    """Part of the state. Mutable, private to the engine."""

    catalogue: Catalogue = Catalogue()
    capacity: CapacityPolicy = CapacityPolicy(books=())
    requested: int = 0
    """Operations that were ever requested; the last one has this number."""
    operations: dict[OperationId, Operation] = {}
    """Those that have not ended."""
    ended: list[EndedOperation] = []
    """The newest `ENDED_KEPT`, oldest first."""
    counts: dict[str, int] = {}
    """Ended operations by `state`, and by `kind/state`."""
    keys: dict[str, OperationId] = {}
    """Askers' keys of operations that have not ended, and of those in `ended`."""
    visits: dict[HostId, Visit] = {}
    paused: dict[TrainName, Reason] = {}
    """Trains that are paused, and why."""
    visited: dict[HostId, int] = {}
    """Visits that ended with a return, by unit."""
