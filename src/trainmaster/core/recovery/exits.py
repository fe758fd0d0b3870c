"""How the ranks of one epoch ended, in little room.

When a gang of two thousand hosts loses one, all others end in the same way at the same moment. So what is kept is one
note for each *way* that was told (which hosts, and the exit of its lowest rank, which stands for all of them), and a
number for each host whose bits say which of its ranks have ended. Booking the end of a whole gang is then one note and
one pass over the hosts; the exit of a single rank goes through the same code.

Limit: a note says nothing of the other ranks it covers. Whoever tells of many hosts at once says that they are alike.
"""

from collections.abc import Sequence

import msgspec

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value
from trainmaster.core.recovery.events import WorkerExited, WorkersExited


class Exit(Value):
    """Ranks that ended in the same way: a single one, or all of some hosts."""

    first: WorkerExited
    """The lowest of these ranks."""
    hosts: tuple[HostId, ...]
    ranks: int


def alone(event: WorkerExited) -> Exit:
    """The exit of a single rank."""
    return Exit(first=event, hosts=(event.host,), ranks=1)


class Exits(msgspec.Struct, kw_only=True, gc=False):
    """What was told so far of the present epoch's ends."""

    told: list[Exit] = []
    """In the order in which it came."""
    by_host: dict[HostId, int] = {}
    """Bit n: the host's n-th rank has ended."""
    count: int = 0
    """Ranks that have ended."""
    failed: int = 0
    """Those of them that failed."""
    attached: bool = False
    """One of them had opened a training session."""

    def add(self, event: WorkerExited | WorkersExited, members: Sequence[HostId], ranks_per_host: int) -> Exit | None:
        """Books what is new in `event`; None if all of it was told before. `members` in rank order."""
        exit = self._one(event, ranks_per_host) if isinstance(event, WorkerExited) else None
        if isinstance(event, WorkersExited):
            exit = self._several(event, members, ranks_per_host)
        if exit is None:
            return None
        self.told.append(exit)
        self.count += exit.ranks
        self.failed += exit.ranks if event.how == "failed" else 0
        self.attached = self.attached or event.attached
        assert self.count <= len(members) * ranks_per_host, (self.count, event)
        return exit

    def _one(self, event: WorkerExited, ranks_per_host: int) -> Exit | None:
        ended, bit = self.by_host.get(event.host, 0), 1 << event.rank % ranks_per_host
        if ended & bit:
            return None
        self.by_host[event.host] = ended | bit
        return alone(event)

    def _several(self, event: WorkersExited, members: Sequence[HostId], ranks_per_host: int) -> Exit | None:
        by_host, whole = self.by_host, (1 << ranks_per_host) - 1
        named = dict.fromkeys(event.hosts, whole)
        assert len(named) == len(event.hosts), f"a host is named twice: {event.hosts}"
        if event.hosts != members:
            assert named.keys() <= set(members), f"no members: {sorted(named.keys() - set(members))}"
        hosts, before = event.hosts, 0
        if not by_host.keys().isdisjoint(hosts):
            hosts = tuple([host for host in hosts if by_host.get(host) != whole])
            before = sum(by_host.get(host, 0).bit_count() for host in hosts)
        if not hosts:
            return None
        ended = by_host.get(hosts[0], 0)
        if by_host:
            by_host.update(named)
        else:
            self.by_host = named
        lowest = (~ended & (ended + 1)).bit_length() - 1
        first = _of_rank(event, hosts[0], members.index(hosts[0]) * ranks_per_host + lowest)
        return Exit(first=first, hosts=hosts, ranks=len(hosts) * ranks_per_host - before)


def _of_rank(event: WorkersExited, host: HostId, rank: int) -> WorkerExited:
    return WorkerExited(
        at=event.at,
        host=host,
        attempt=event.attempt,
        epoch=event.epoch,
        rank=rank,
        how=event.how,
        exit_code=event.exit_code,
        signal=event.signal,
        attached=event.attached,
        phase=event.phase,
        step=event.step,
        step_at=event.step_at,
        save_s=event.save_s,
        failure=event.failure,
    )
