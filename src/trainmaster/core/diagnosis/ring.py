"""What agents tell of our own recorder, as evidence: `trainmaster.rings/v1`, one object a host.

A call that was entered, is waited for and was not left is one that the rank is in; one that was only issued is open and
holds nobody. Sequence numbers are counted by each rank from 1, so that a rank which skips a collective is one behind
from then on; operations and sizes of the same number then tell it, or the last number does.
"""

from typing import Final

import msgspec

from trainmaster.core.agent.board import Phase
from trainmaster.core.agent.ring import RankState, RingCall, Rings, Slow
from trainmaster.core.base.time import in_seconds
from trainmaster.core.diagnosis.evidence import Call, Evidence, Group, Standing, Unusable, Worker

SCHEMA: Final = "trainmaster.rings/v1"


def is_ring(tree: object) -> bool:
    return isinstance(tree, dict) and tree.get("schema") == SCHEMA


def read(file: str, tree: object) -> Evidence:
    """Raises `Unusable`."""
    try:
        rings = msgspec.convert(tree, Rings)
    except msgspec.ValidationError as error:
        raise Unusable(file, f"this is no {SCHEMA}: {error}", "give what `job diagnose -o json` wrote") from error
    return of_rings(rings, file)


def of_rings(rings: Rings, place: str = "") -> Evidence:
    """The evidence in what one agent told."""
    standings: list[Standing] = []
    groups: dict[str, Group] = {}
    for rank in rings.ranks:
        if rank.ring is None:
            continue
        for index, group in enumerate(rank.ring.groups):
            calls = [call for call in rank.ring.calls if call.group == index]
            if group.ranks:
                groups[group.name] = Group(name=group.name, ranks=tuple(sorted(group.ranks)))
            if calls:
                standings.append(_standing(rank.rank, group.name, calls, place or f"host {rings.host}"))
    return Evidence(
        standings=tuple(standings),
        groups=tuple(groups.values()),
        workers=tuple(worker(rank, rings) for rank in rings.ranks),
        hosts=tuple((rank.rank, rings.host) for rank in rings.ranks),
    )


def _standing(rank: int, group: str, calls: list[RingCall], place: str) -> Standing:
    known = tuple(
        Call(seq=call.seq, op=call.op, done=bool(call.left_us), sizes=((call.bytes,),), at_us=call.entered_us)
        for call in calls
    )
    open_ = [call.seq for call in calls if not call.left_us and call.waited_us]
    last = calls[-1].seq
    return Standing(
        rank=rank,
        group=group,
        enqueued=last,
        completed=min(open_) - 1 if open_ else last,
        calls=known,
        source="recorder",
        place=place,
    )


def worker(rank: RankState, rings: Rings) -> Worker:
    """The process behind a rank."""
    ring = rank.ring
    open_ = [call for call in ring.calls if call.waited_us and not call.left_us] if ring else []
    latest = max([rank.step_at, *(max(call.entered_us, call.left_us) for call in (ring.calls[-1:] if ring else ()))])
    return Worker(
        rank=rank.rank,
        host=rings.host,
        state=rank.state,
        wchan=rank.wchan,
        phase=phase_word(rank),
        step=rank.step,
        idle_s=max(0.0, in_seconds(rings.at - latest)) if latest else None,
        in_collective=bool(open_) if ring else None,
    )


def phase_word(rank: RankState) -> str:
    """The known slow phase that a rank is in, or `training`."""
    slow = rank.ring.slow if rank.ring else 0
    if slow in (Slow.SAVE, Slow.EVALUATION, Slow.COMPILE, Slow.OTHER):
        return Slow(slow).name.lower()
    if rank.phase == Phase.SAVING:
        return "save"
    if rank.phase < Phase.TRAINING:
        return "start"
    return "leaving" if rank.phase > Phase.SAVING else "training"
