"""Microseconds of processor time that the locks of one operation cost, from request to release.

Operations on 6,144 hosts in two clusters with racks, pods, power rows and planes: 90 % on one host, 8 % on a rack, 1 %
on a selection of 16 hosts, 1 % on pods, rows, planes, and a few on a whole cluster. They last for random times and
arrive so densely that most have to wait (`planner.lock_us`), or so rarely that none does (`planner.lock_idle_us`).

What the planner does as a whole, with a log and agents, is measured in `live`.

`peer` is the least that any lock can do: a set of the names of those that hold, to which each is added and taken from.
`ratio` is ours over that.
"""

import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from bench.figure import Figure, interleaved
from bench.live import figures as live
from trainmaster.core.base.ids import ClusterId, HostId, PodId, RackId
from trainmaster.core.base.seed import Stream
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.locks import LockTable
from trainmaster.core.maintenance.scope import ResourceIndex, Scope

OPERATIONS = 100_000
HOSTS = 6_144
MEAN_DURATION = 1_000


def fleet() -> ResourceIndex:
    index = ResourceIndex()
    for number in range(HOSTS):
        cluster = number * 2 // HOSTS
        spec = HostSpec(
            id=HostId(f"gpu-{number:04d}"), cluster=ClusterId(f"c{cluster}"), pod=PodId(f"p{number // 192}"),
            rack=RackId(f"r{number // 8}"), platform="grand-teton", gpus=8, row=f"w{number // 96}",
            plane=f"f{cluster}{number % 4}",
        )  # fmt: skip
        index.add(spec)
    return index


def scopes(index: ResourceIndex, stream: Stream) -> Iterator[Scope]:
    while True:
        draw, host = stream.integer(100_000), stream.integer(HOSTS)
        if draw < 90_000:
            names: tuple[str, ...] = (f"host/gpu-{host:04d}",)
        elif draw < 98_000:
            names = (f"rack/r{host // 8}",)
        elif draw < 99_000:
            names = tuple(f"host/gpu-{(host + 37 * step) % HOSTS:04d}" for step in range(16))
        elif draw < 99_400:
            names = (f"pod/p{host // 192}",)
        elif draw < 99_960:
            names = (f"row/w{host // 96}",)
        else:
            names = (f"cluster/c{host * 2 // HOSTS}",) if draw >= 99_995 else (f"plane/f{host * 2 // HOSTS}{host % 4}",)
        scope = index.resolve(names)
        assert isinstance(scope, Scope)
        yield scope


class Day:
    """The calls of a day that was lived through once, so that replaying them costs nothing beside the table."""

    def __init__(self, operations: int, gap: float) -> None:
        stream = Stream.of(1, "bench", "locks")
        drawn = scopes(fleet(), stream)
        self.scopes = [next(drawn) for _ in range(operations)]
        self.keys = [(int(number * gap), number) for number in range(operations)]
        self.names = [f"op-{number}" for number in range(operations)]
        self.calls: list[int] = []
        """Requests by number, ends by its complement (~number)."""
        self.waited = 0
        self._live([1 + stream.integer(MEAN_DURATION * 2) for _ in range(operations)])

    def _live(self, lasts: list[int]) -> None:
        table, ends = LockTable(), list[tuple[int, int]]()

        def end() -> None:
            now, number = heappop(ends)
            self.calls.append(~number)
            for name in table.release(self.names[number]):
                other = int(name[3:])
                heappush(ends, (now + lasts[other], other))

        for number, scope in enumerate(self.scopes):
            now, _ = key = self.keys[number]
            while ends and ends[0][0] <= now:
                end()
            self.calls.append(number)
            if table.request(self.names[number], key, scope):
                heappush(ends, (now + lasts[number], number))
            else:
                self.waited += 1
        while ends:
            end()
        assert len(table) == 0

    def replay(self) -> float:
        """Microseconds an operation, in the table."""
        table, scopes, keys, names = LockTable(), self.scopes, self.keys, self.names

        def run() -> None:
            for call in self.calls:
                if call >= 0:
                    table.request(names[call], keys[call], scopes[call])
                else:
                    table.release(names[~call])

        return _processor_time(run) * 1e6 / len(names)

    def floor(self) -> float:
        """The same of a set that only knows who is there."""
        holding, names = set[str](), self.names

        def run() -> None:
            for call in self.calls:
                if call >= 0:
                    holding.add(names[call])
                else:
                    holding.remove(names[~call])

        return _processor_time(run) * 1e6 / len(names)


def _processor_time(act: Callable[[], object]) -> float:
    """Seconds; what else runs on the machine counts less than in wall time."""
    start = time.process_time()
    act()
    return time.process_time() - start


def figures() -> Iterator[Figure]:
    for figure, gap, limit in (("planner.lock_us", 5.0, 30.0), ("planner.lock_idle_us", 1000.0, 5.0)):
        day = Day(OPERATIONS, gap)
        ours, least = interleaved(day.replay, day.floor, rounds=3)
        yield Figure(
            bench="planner",
            figure=figure,
            value=round(ours, 2),
            unit="us/operation",
            better="lower",
            peer=round(least, 2),
            ratio=round(ours / least, 1),
            goal=f"at most {limit:.0f} us",
            holds=ours <= limit,
            note=f"{OPERATIONS} operations, {HOSTS} hosts, {100 * day.waited // OPERATIONS} % wait",
        )
    yield from live.figures()
