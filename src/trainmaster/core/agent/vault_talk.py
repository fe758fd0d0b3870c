"""What ranks and the vault of their host say to each other.

A *vault* is a process beside the ranks of a host. It copies their snapshots to another host and writes them to storage,
so that training does neither. They meet in the attempt's memory directory of the host:

    arena-R        the snapshots of rank R, which runs on this host (`storage/arena.py`); the rank writes it
    replica-R      a copy of a snapshot of rank R of another host, an arena as well; the vault writes it
    vault.sock     the vault listens here for datagrams of ranks, each one JSON value of this module
    vault.json     who the vault is (`Place`), written before it listens

Ranks speak and don't wait for an answer: what came of it stands in the words of the arena's header. A datagram that is
lost (the vault is being started again) is sent again when `vault.json` has changed.

At the start of an epoch all ranks tell each other their `Place`s over their process group, and each tells its vault all
of them (`Peers`); after a snapshot that is whole on all ranks each says what to do with its own (`Announce`).

Limit: a datagram holds some 200 KB, so some thousand hosts.
"""

from typing import Final

import msgspec

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value

ARENA_PREFIX: Final = "arena-"
REPLICA_PREFIX: Final = "replica-"
SOCKET_NAME: Final = "vault.sock"
PLACE_NAME: Final = "vault.json"


class Place(Value):
    """A vault: where other vaults reach it, and what they say to be let in. Hosts of one failure domain are likely to
    be lost together."""

    host: str
    domain: str
    address: str
    port: int
    token: str


class Peers(Value, tag="peers", tag_field="type"):
    """All vaults of an epoch. `place_of` says for each rank which of `places` is its vault (-1: it has none). The rest
    is what a vault has to know to publish checkpoints of this job: `directory` (empty: none are kept) and `keep`;
    `job` is the owner of checkpoints (`ids.owner_id`)."""

    rank: int
    world: int
    epoch: int
    job: JobId
    attempt: AttemptId
    arena: str
    """Path of the arena of this rank."""
    directory: str
    keep: int
    places: tuple[Place, ...]
    place_of: tuple[int, ...]


class Announce(Value, tag="announce", tag_field="type"):
    """The snapshot `sequence` in the arena of this rank is whole. All ranks say the same of a step. `replicate`, said
    as soon as it is whole: copy it to a peer, then set `replicated_sequence`; or `given_up_sequence`, if that can't be
    in a bounded time, and leave a note: training goes on, and the next one is tried again. `store`, said when those of
    all ranks are whole: write it to storage, together with the vaults of all others; then set `stored_step`, or count
    in `failed_stores` and leave a note. The two are said in one or in two of these."""

    rank: int
    world: int
    epoch: int
    arena: str
    sequence: int
    step: int
    replicate: bool
    store: bool


ToVault = Peers | Announce

to_vault: Final = msgspec.json.Decoder(ToVault)
