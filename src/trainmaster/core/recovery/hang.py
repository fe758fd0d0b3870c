"""Whether a job that stands still is to be ended by us, and which of its ranks.

A diagnosis names who holds a job up; that alone is no reason to kill it. The rules, in order:

1. Only stops count. Who is slow, saves, evaluates, compiles or has not done its first step does not hang.
2. What can't end by itself is ended as soon as it is named, twice in a row: ranks that went apart, a process that is
   stopped, one that is gone. What yet may (code of its own, a collective that does not end) has the patience of
   `diagnosis/pace.py`, which grows with each restart that the same stop has led to.
3. Those named are the few. Where more than half of the ranks are late, all are slow together, or somebody holds the
   whole job: nothing is done. Ranks that nobody sees are not named either; their host's silence is another matter.
4. If nobody is named (all joined a collective, and it does not end), all ranks are started anew: who is to blame may be
   among the survivors.

Rejected: to end whatever stands for longer than the bound. A script that evaluates on one rank and does not say so
would lose its steps each time, and its restarts with them.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.recovery.cause import FirstCause
from trainmaster.core.recovery.events import HangFound
from trainmaster.core.scheduling.job import FailureNote

FOREVER: Final = (Kind.DESYNC, Kind.PROCESS_STOPPED, Kind.KILLED)
"""Stops that do not end by themselves, where the diagnosis is sure."""
MAYBE: Final = (Kind.USER_CODE_STALL, Kind.IN_FLIGHT_STALL)


class Hang(Value):
    """What is to be ended. `ranks` is empty where nobody is named."""

    kind: Kind
    ranks: tuple[int, ...]


def judge(found: Diagnosis, still_s: float, bound_s: float, patience_s: float, world: int) -> Hang | None:
    """What to end now; None: nothing, or not yet. `still_s`: since the last completed step; `bound_s`, `patience_s`:
    what it may be; `world`: ranks of the job."""
    assert world > 0
    assert 0 < bound_s <= patience_s
    if found.kind not in (*FOREVER, *MAYBE):
        return None
    sure = found.kind in FOREVER and found.confidence == "high"
    if still_s <= (bound_s if sure else patience_s):
        return None
    if found.kind is Kind.IN_FLIGHT_STALL:
        return Hang(kind=found.kind, ranks=())
    named = tuple(sorted({*found.missing_ranks, *found.differing_ranks}))
    if not named or set(named) & set(found.unseen_ranks):
        return None
    if world > 1 and 2 * len(named) > world:
        return None
    return Hang(kind=found.kind, ranks=named)


def signature(kind: Kind) -> str:
    """As failures of a job are told apart."""
    return f"hang: {kind.value}"


def restarts(failures: Sequence[FailureNote], kind: Kind, window: Duration, now: Instant) -> int:
    """How often this kind of stop was ended lately."""
    return sum(1 for note in failures if note.signature == signature(kind) and note.at > now - window)


def hung(event: HangFound, members: Sequence[HostId], ranks_per_host: int) -> FirstCause:
    """The cause of an interruption, where a job stood still. `members` in rank order."""
    hosts = tuple(dict.fromkeys(members[rank // ranks_per_host] for rank in event.ranks))
    host = hosts[0] if len(hosts) == 1 else None
    rank = event.ranks[0] if len(event.ranks) == 1 else None
    numbers: dict[str, int | float | str] = {
        "kind": event.kind.value,
        "still_s": round(event.still_s, 1),
        "bound_s": round(event.bound_s, 1),
        "step": event.step,
        "ranks": len(event.ranks),
    }
    if host is not None:
        numbers["host"] = host
    if rank is not None:
        numbers["rank"] = rank
    stood = f"no step for {event.still_s:.1f} s after step {event.step}, and a step may take {event.bound_s:.1f} s"
    if not event.bound_s:
        head = (
            f"{ranks_text(event.ranks)} on {', '.join(hosts)} went astray ({event.kind.value}) after step {event.step}"
        )
    elif event.ranks:
        head = f"{ranks_text(event.ranks)} on {', '.join(hosts)} hung ({event.kind.value}): {stood}"
    else:
        head = f"all ranks hung ({event.kind.value}), and nobody is named: {stood}"
    return FirstCause(
        reason=Reason(token=Token.RANK_HUNG, sentence=f"{head}; {event.summary}", numbers=numbers),
        at=Instant(max(0, event.at - seconds(event.still_s))),
        host=host,
        rank=rank,
        signature=signature(event.kind),
        job_fault=True,
        kill=event.ranks,
        in_place=bool(event.ranks),
    )
