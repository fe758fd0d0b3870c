"""Reports of NCCL's RAS service (`ncclras`), versions 2.24 to 2.28.

A mismatch report counts ranks by how far they have come and lists the *smaller* groups by rank. The larger one is not
listed, so who is printed is the exception and not the culprit: printed ranks with the higher count are ahead, and the
many that are not printed are late. The members that are not printed are the complement in the communicator, whose size
stands in the table above.

One report is a snapshot. A healthy job, caught in the middle of a step, looks the same; only a second report that shows
the same counts shows a hang.
"""

import re
from typing import Final

from trainmaster.core.diagnosis.evidence import Call, Evidence, Group, Remark, Standing, Unusable, What

_TABLE: Final = re.compile(
    r"^\s*(\d+)\s+(\d+)\s+(\d+)\s+([\d-]+)\s+(\d+)\s+(\d+)\s+(?:[A-Z]+)\s+([A-Z]+)\s*$", re.MULTILINE
)
_COMM: Final = re.compile(r"^#(\d+)-(\d+) \(([0-9a-f]+)\) (\w+)")
_OP: Final = re.compile(r"different (\w+) operation counts")
_COUNT: Final = re.compile(r"(\d+) ranks? (?:have|has) launched up to operation (\d+)")
_RANK: Final = re.compile(r"Rank (\d+) -- GPU \S+ managed by process (\d+) on node (\S+)")
_LOST: Final = re.compile(r"[Mm]issing communicator data|[Tt]he missing rank|[Uu]nable to reach|did not respond|DEAD")
_MARK: Final = re.compile(r"^(?:NCCL version .*compiled|Communicators\.\.\.|Job summary)", re.MULTILINE)


def is_report(text: str) -> bool:
    return len(_MARK.findall(text[:20_000])) >= 2 or (
        "launched up to operation" in text
        and re.search(r"ranks? ha(?:ve|s) launched up to operation", text) is not None
    )


class _Comm:
    """A communicator whose ranks differ."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size, self.op = name, size, "collective"
        self.counts: list[tuple[int, int, list[int]]] = []  # (ranks, operation, those listed)
        self.lost: list[int] = []


def read(file: str, text: str, snapshot: int = 0) -> Evidence:
    """Raises `Unusable`."""
    assert is_report(text)
    sizes = {int(row.group(1)): int(row.group(5)) for row in _TABLE.finditer(text)}
    comms: list[_Comm] = []
    hosts: dict[int, str] = {}
    remarks: list[Remark] = []
    losing = False
    for line in text.split("\n"):
        comm = _COMM.match(line)
        if comm:
            comms.append(_Comm(comm.group(3), sizes.get(int(comm.group(1)), max(sizes.values(), default=0))))
            losing = comm.group(4) in ("INCOMPLETE", "DEAD", "TIMEOUT")
        elif _LOST.search(line):
            losing = True
        _take(line, comms, hosts, losing)
    standings: list[Standing] = []
    for comm_ in comms:
        standings += _standings(file, comm_, snapshot)
        if comm_.lost:
            remarks.append(
                Remark(what=What.NOT_JOINED, text=f"NCCL RAS has no data of ranks of {comm_.name}",
                       ranks=tuple(comm_.lost), place=file, host=hosts.get(comm_.lost[0], ""))
            )  # fmt: skip
    groups = tuple(Group(name=comm_.name, ranks=tuple(range(comm_.size))) for comm_ in comms if comm_.size)
    world = max((comm_.size for comm_ in comms), default=max(sizes.values(), default=0)) or None
    if world is None:
        raise Unusable(file, "a report of RAS without its table of communicators", "give the whole output of ncclras")
    return Evidence(
        standings=tuple(standings),
        groups=groups,
        remarks=tuple(remarks),
        hosts=tuple(hosts.items()),
        world=world,
        notes=() if comms else (f"{file}: RAS reports no difference between ranks",),
    )


def _take(line: str, comms: list[_Comm], hosts: dict[int, str], losing: bool) -> None:
    op, count, rank = _OP.search(line), _COUNT.search(line), _RANK.search(line)
    if rank:
        hosts[int(rank.group(1))] = rank.group(3)
    if not comms:
        return
    if op:
        comms[-1].op = op.group(1)
    if count:
        comms[-1].counts.append((int(count.group(1)), int(count.group(2)), []))
    elif rank and comms[-1].counts:
        comms[-1].counts[-1][2].append(int(rank.group(1)))
    elif rank and losing:
        comms[-1].lost.append(int(rank.group(1)))


def _standings(file: str, comm: _Comm, snapshot: int) -> list[Standing]:
    listed = {rank for _, _, ranks in comm.counts for rank in ranks}
    size = comm.size or sum(count for count, _, _ in comm.counts)
    rest = [rank for rank in range(size) if rank not in listed]
    op = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", comm.op).lower()
    found = []
    unlisted = [count for count, _, ranks in comm.counts if not ranks]
    for count, operation, ranks in comm.counts:
        members = ranks
        if not ranks and (len(unlisted) == 1 or count == max(unlisted)):
            members = rest if len(unlisted) == 1 else rest[:0]
        for rank in members:
            found.append(
                Standing(rank=rank, group=comm.name, enqueued=operation, completed=None, source="ras", place=file,
                         calls=(Call(seq=operation, op=op, done=None),), snapshot=snapshot)
            )  # fmt: skip
    return found
