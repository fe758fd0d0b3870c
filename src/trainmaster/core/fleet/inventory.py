"""What the fleet is made of: clusters, pods, racks and hosts, as declared."""

from trainmaster.core.base.ids import ClusterId, HostId, PodId, RackId
from trainmaster.core.base.value import Value


class HostSpec(Value):
    """A host as declared: where it stands and what it has."""

    id: HostId
    cluster: ClusterId
    pod: PodId
    rack: RackId
    platform: str
    gpus: int
