"""What a worker and the keeper that forked it say to each other while the worker lives.

Think of a crew between two voyages: who is still in the old boat, who stands on the quay, who sails next. A worker
*listens* (it runs under `tm.run` and can leave an epoch without ending), *lost* its peers (its epoch is over, it is on
its way out), is *adrift* (out, holding nothing of the epoch, waiting). The keeper tells it to *abandon* an epoch, or to
*join* the next one; a worker that is not wanted any more is killed, which needs no word.

One JSON value a packet, on a socket pair that is made at the fork (its number is in the environment). The socket of the
rendezvous store comes beside a `Join` as a descriptor. Every word names its epoch, so that a late one is known as such.
"""

import msgspec

from trainmaster.core.base.value import Value
from trainmaster.core.recovery.events import Failure

PACKET_LIMIT = 1 << 17
"""Bytes of a packet; an environment is some kilobytes."""


class Listens(Value, tag_field="type", tag="listens"):
    """This worker can leave an epoch and join another."""


class Lost(Value, tag_field="type", tag="lost"):
    """A connection of the process group is gone: the worker leaves the epoch."""

    epoch: int
    failure: Failure


class Adrift(Value, tag_field="type", tag="adrift"):
    """Out of the epoch (0: never was in one) and waiting for another."""

    epoch: int
    yielded: bool = False
    """It left on request, with a checkpoint."""
    failure: Failure | None = None


class Abandon(Value, tag_field="type", tag="abandon"):
    """Leave the epoch: its collectives will not complete."""

    epoch: int


class Join(Value, tag_field="type", tag="join"):
    """Take part in an epoch, with these variables on top of the present ones."""

    epoch: int
    environment: dict[str, str]
    has_store: bool
    """The socket for the store comes with this packet."""


ToWorker = Abandon | Join
FromWorker = Listens | Lost | Adrift

to_worker = msgspec.json.Decoder(ToWorker)
from_worker = msgspec.json.Decoder(FromWorker)
