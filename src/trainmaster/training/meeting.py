"""How the ranks of a membership meet, and how they part.

They meet at a store of this membership's own, so that no key of an earlier one is met. They part through the store as
well: who tears a group down while others still use it turns a success into a failure.
"""

import datetime
import os
import sys
from typing import Final

import torch.distributed as dist

from trainmaster.training.surroundings import Surroundings

_TIMEOUT: Final = datetime.timedelta(minutes=10)
_LEAVE_TIMEOUT: Final = datetime.timedelta(seconds=30)


def form_group(here: Surroundings) -> dist.Store:
    """Forms the process group with a store of this membership's own, so that no key of an earlier one is met."""
    if here.master_addr in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store: dist.Store
    if here.alone:
        store = dist.HashStore()
    elif not here.managed:
        store = next(iter(dist.rendezvous("env://", timeout=_TIMEOUT)))[0]
    else:
        store = dist.TCPStore(
            here.master_addr,
            here.master_port,
            here.world,
            is_master=here.rank == 0,
            timeout=_TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=here.store_fd if here.rank == 0 else None,
        )
    store = dist.PrefixStore(f"{here.attempt}/e{here.epoch}", store)
    dist.init_process_group("gloo", store=store, rank=here.rank, world_size=here.world, timeout=_TIMEOUT)
    return store


def part(store: dist.Store, rank: int, world: int) -> None:
    """Returns when every rank is out of its last collective; rank 0, which may host the store, returns last.

    A rank that dies here takes nothing with it, since all work is saved: it is reported, not waited for.
    """
    store.set_timeout(_LEAVE_TIMEOUT)
    try:
        if store.add("parting/arrived", 1) == world:
            store.set("parting/all", "1")
        store.wait(["parting/all"])
        if store.add("parting/gone", 1) == world:
            store.set("parting/last", "1")
        if rank == 0:
            store.wait(["parting/last"])
    except (dist.DistError, RuntimeError) as error:
        print(f"trainmaster: rank {rank} left without the others: {error}", file=sys.stderr, flush=True)
