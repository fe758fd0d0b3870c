"""The first collective that not all ranks completed, and where every rank stands to it.

In one group all ranks run one sequence of collectives. Think of a rope team at a fixed point: the first number that
somebody has not completed is where the team stops. Who has not entered it is *missing*, who entered and did not
complete *waits*, who completed it is *ahead* (roots of broadcasts leave early). Where a source knows no completions,
entering alone decides: the lowest count is behind.

All there and still no end: then the calls are compared. Other operations, types, sizes than the most have, where the
operation asks for equal ones, are a program that went apart; PyTorch's own matcher does not compare all-to-all, so
shards of uneven sizes pass there. Sizes of all-to-all are compared in pairs where they are known: what i sends to j is
what j expects of i.

Several groups stop at once when ranks wait for each other across them. The one to look at is that whose missing ranks
wait nowhere else.

Ranks of whom there is no dump are *unseen*. When all that are seen wait, the unseen are the missing ones, with less
confidence: a rank can be too stuck to dump, or dead, or its file was not given.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.evidence import Call, Evidence, Group, Standing

_UNEQUAL_BY_NATURE: Final = ("gather", "scatter", "all_to_all", "alltoall", "allgather", "broadcast", "send", "recv")
"""Operations whose inputs may differ in size between ranks."""
_ALL_NEEDED: Final = ("all_", "reduce_scatter", "barrier")
"""Nobody completes these before all have entered."""
_SAME: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather_base",
    "all_gather_into_tensor": "all_gather_base",
    "reduce_scatter_tensor": "reduce_scatter_base",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_base",
    "allreduce_coalesced": "all_reduce_coalesced",
    "all_gather_base_coalesced": "all_gather_into_tensor_coalesced",
}


class Stop(Value):
    """Where one group stands."""

    group: str
    title: str
    seq: int
    op: str
    missing: tuple[int, ...]
    waiting: tuple[int, ...]
    ahead: tuple[int, ...]
    differing: tuple[int, ...]
    """Members that are there with another call than the most."""
    unseen: tuple[int, ...]
    assumed: bool
    """The missing ones are those of whom nothing is seen."""
    how: str
    """How the differing ones differ."""
    source: str
    entered_us: int | None
    finished: tuple[int, ...]
    """Of the missing ones, those that completed all that they entered."""
    frames: tuple[str, ...]
    snapshots: int
    moved: bool
    """A later snapshot shows progress."""
    timeout_s: float | None
    timed_out: bool
    exact: bool
    """Completions are known."""

    def name(self) -> str:
        group = f" of group {self.group}" if self.group not in ("0", "default_pg") else ""
        return f"{self.op} {self.seq}{group}" if self.seq else f"{self.op}{group}"


def canonical(op: str) -> str:
    """One name for one operation."""
    plain = op.lower().lstrip("_")
    return _SAME.get(plain, plain)


def first_unmatched(evidence: Evidence) -> Stop | None:
    """The stop to look at; None: every group that is known is complete, or none is known."""
    stops = all_stops(evidence)
    held = {rank for stop in stops for rank in stop.waiting}
    roots = [stop for stop in stops if not stop.missing or set(stop.missing) - held]
    return min(roots or stops, key=_urgency, default=None)


def _urgency(stop: Stop) -> tuple[bool, bool, int, str]:
    """Stops that name somebody first; then the earliest."""
    named = bool(stop.missing or stop.differing)
    return (not named, stop.assumed, stop.entered_us if stop.entered_us is not None else 1 << 62, stop.group)


def all_stops(evidence: Evidence) -> list[Stop]:
    by_group: dict[str, list[Standing]] = {}
    for standing in evidence.standings:
        by_group.setdefault(standing.group, []).append(standing)
    members = _members(evidence, by_group)
    found = []
    for name, standings in by_group.items():
        stop = _stop(name, standings, members.get(name), evidence)
        if stop is not None:
            found.append(stop)
    return found


def _members(evidence: Evidence, by_group: Mapping[str, Sequence[Standing]]) -> dict[str, Group]:
    """Members of each group, from what any rank says; of the default group also from the size of the world."""
    known: dict[str, Group] = {}
    for group in evidence.groups:
        before = known.get(group.name)
        ranks = tuple(sorted({*group.ranks, *(before.ranks if before else ())}))
        known[group.name] = Group(name=group.name, ranks=ranks, title=group.title or (before.title if before else ""))
    for name in ("0", "default_pg"):
        if name in by_group and name not in known:
            world = evidence.world or 1 + max(each.rank for each in by_group[name])
            known[name] = Group(name=name, ranks=tuple(range(world)))
    return known


def _stop(name: str, standings: list[Standing], group: Group | None, evidence: Evidence) -> Stop | None:
    last = max(each.snapshot for each in standings)
    now = {each.rank: each for each in standings if each.snapshot == last or each.source != "ras"}
    counts = {
        shot: sorted((each.rank, each.enqueued) for each in standings if each.snapshot == shot)
        for shot in {each.snapshot for each in standings if each.source == "ras"}
    }
    moved = len({tuple(rows) for rows in counts.values()}) > 1
    exact = all(each.completed is not None for each in now.values())
    seq = _first_open(now.values(), exact)
    unseen = tuple(sorted(set(group.ranks) - now.keys())) if group else ()
    if seq is None:
        return None
    missing = [rank for rank, each in now.items() if each.enqueued < seq]
    ahead = [rank for rank, each in now.items() if each.completed is not None and each.completed >= seq]
    waiting = [rank for rank, each in now.items() if rank not in missing and rank not in ahead]
    calls = {rank: _call_at(now[rank], seq) for rank in (*waiting, *ahead)}
    differing, how, op = _compare(calls, tuple(group.ranks) if group else tuple(sorted(now)))
    if exact and not missing and op.startswith(_ALL_NEEDED) and (gone := _counted_apart(now, ahead, seq)):
        missing, waiting, ahead, seq = waiting, ahead, [], gone
    other_op = [rank for rank in differing if how.startswith("another operation")]
    assumed = not missing and not ahead and not differing and bool(unseen)
    complete = not missing and not ahead and not differing and not unseen
    if complete and not any(each.timed_out for each in now.values()) and not exact:
        return None
    beyond = [rank for rank in now if now[rank].enqueued > seq]
    if len(missing) > len(waiting):
        ahead = [*ahead, *waiting]
    return Stop(
        group=name,
        title=group.title if group else "",
        seq=seq,
        op=op,
        missing=tuple(sorted([*missing, *other_op] if not assumed else unseen)),
        waiting=tuple(sorted(rank for rank in waiting if rank not in other_op)),
        ahead=tuple(sorted({*ahead, *(beyond if missing and len(beyond) < len(now) - len(missing) else ())})),
        differing=tuple(sorted(differing)),
        unseen=unseen,
        assumed=assumed,
        how=how,
        source=standings[0].source,
        entered_us=min((call.at_us for call in calls.values() if call and call.at_us is not None), default=None),
        finished=tuple(sorted(rank for rank in missing if now[rank].completed == now[rank].enqueued)),
        frames=next((call.frames for call in calls.values() if call and call.frames), ()),
        snapshots=len(counts),
        moved=moved,
        timeout_s=next((each.timeout_s for each in now.values() if each.timeout_s), None),
        timed_out=any(each.timed_out for each in now.values()),
        exact=exact,
    )


def _counted_apart(now: Mapping[int, Standing], ahead: Sequence[int], seq: int) -> int:
    """The number that those ahead wait in, if they went on for longer than is possible without the others: then numbers
    no longer mean the same on all ranks, and the late side is missing from where the others are. 0: not so."""
    reached = [now[rank].completed or 0 for rank in ahead]
    return min(reached) + 1 if reached and min(reached) > seq else 0


def _first_open(standings: Iterable[Standing], exact: bool) -> int | None:
    """The first number that not all have completed; None: all have completed all that anybody entered."""
    rows = list(standings)
    if exact:
        first = min(each.completed if each.completed is not None else 0 for each in rows) + 1
        return first if first <= max(each.enqueued for each in rows) else None
    low, high = min(each.enqueued for each in rows), max(each.enqueued for each in rows)
    if low < high:
        known = [each.completed for each in rows if each.completed is not None]
        return max(low + 1, min(known) + 1) if known and min(known) + 1 <= high else low + 1
    return high


def _call_at(standing: Standing, seq: int) -> Call | None:
    return next((call for call in standing.calls if call.seq == seq), None)


def _compare(calls: Mapping[int, Call | None], members: tuple[int, ...]) -> tuple[list[int], str, str]:
    """(ranks whose call differs from that of the most, how, the operation of the most)."""
    known = {rank: call for rank, call in calls.items() if call is not None}
    if not known:
        return [], "", "collective"
    ops = Counter(canonical(call.op) for call in known.values())
    op = ops.most_common(1)[0][0]
    others = [rank for rank, call in known.items() if canonical(call.op) != op]
    if others:
        what = ", ".join(sorted({canonical(known[rank].op) for rank in others}))
        return others, f"another operation than the others ({what})", op
    pairs = _uneven(known, members) if op.startswith("all_to_all") else []
    if pairs:
        return pairs, "sizes that do not agree with what the others exchange", op
    if not op.startswith(_UNEQUAL_BY_NATURE) or _flat(op):
        for how, key in (("other types than the others", _types), ("other sizes than the others", _shape)):
            kinds = Counter(key(call) for call in known.values() if key(call))
            if len(kinds) > 1:
                most = kinds.most_common(1)[0][0]
                return [rank for rank, call in known.items() if key(call) and key(call) != most], how, op
    return [], "", op


def _flat(op: str) -> bool:
    """Gathers into one tensor want equal inputs."""
    return op in ("all_gather_base", "reduce_scatter_base")


def _types(call: Call) -> object:
    return call.dtypes


def _shape(call: Call) -> object:
    return call.sizes


def _uneven(calls: Mapping[int, Call], members: tuple[int, ...]) -> list[int]:
    """Ranks of an all-to-all whose sizes disagree with what the others expect of them: the smaller party.

    Where outputs are not known, inputs that differ from the most are taken for it.
    """
    size = len(members)
    listed = {rank: call for rank, call in calls.items() if len(call.sizes) == size and len(call.outputs) == size}
    place = {rank: index for index, rank in enumerate(members)}
    if len(listed) >= 2 and set(listed) <= set(place):
        if size <= 512:
            bad: Counter[int] = Counter()
            for left, call in listed.items():
                for right, other in listed.items():
                    if call.sizes[place[right]] != other.outputs[place[left]]:
                        bad.update((left, right))
            if not bad:
                return []
        shapes = Counter(call.sizes for call in listed.values())
        most = shapes.most_common(1)[0][0]
        differ = [rank for rank, call in listed.items() if call.sizes != most]
        return differ or ([rank for rank, _ in bad.most_common()] if size <= 512 else [])
    shapes = Counter(call.sizes for call in calls.values() if call.sizes)
    if len(shapes) < 2:
        return []
    most = shapes.most_common(1)[0][0]
    return [rank for rank, call in calls.items() if call.sizes and call.sizes != most]
