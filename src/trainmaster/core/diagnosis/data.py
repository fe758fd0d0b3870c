"""Who waits for data: a loader that is slow, told from one that all wait for.

A rank tells of each step how long it waited for its batch. That is its own time, on its own clock, before any
collective; the other ranks wait for it in the next one, and look as slow as it is. So it is compared step by step with
the peers. One rank that waits is named, with its host: its disk, its network, its share of a shard. Where all wait
alike nobody is named: it is the store, or the loader fetches too little ahead.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.agent.ring import Rings
from trainmaster.core.diagnosis import slow
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.evidence import Evidence, Times
from trainmaster.core.diagnosis.tables import history, median

METRIC: Final = "data_wait_ms"
WINDOW: Final = 12
MATTERS: Final = 0.2
"""Share of a step that the wait must take."""


def waits(rings: Sequence[Rings]) -> Times | None:
    """Milliseconds by step and rank, of the newest steps that all ranks told of; None: they are too few."""
    cells = [
        (step, str(rank.rank), wait_us / 1000)
        for host in rings
        for rank in host.ranks
        if rank.ring is not None
        for step, wait_us in rank.ring.data_waits
        if step > 0
    ]
    ranks = {who for _, who, _ in cells}
    told: dict[int, int] = {}
    for step, _, _ in cells:
        told[step] = told.get(step, 0) + 1
    whole = set(sorted(step for step, count in told.items() if count == len(ranks))[-WINDOW:])
    kept = [cell for cell in cells if cell[0] in whole]
    return history(METRIC, "rank", kept, "recorder") if len(whole) >= slow.STEPS_LEAST else None


def late_rank(evidence: Evidence, rings: Sequence[Rings], step_ms: float) -> Diagnosis | None:
    """A rank whose data comes later than that of its peers, by a fifth of a step or more."""
    times = waits(rings)
    if times is None:
        return None
    late = slow.of_times(times)
    if not late.who or late.values[0] - late.usual < MATTERS * step_ms:
        return None
    ranks = tuple(sorted(int(who) for who in late.who))
    hosts = ", ".join(sorted({evidence.host_of(rank) for rank in ranks} - {""}))
    told = f"{ranks_text(ranks)}{f' on {hosts}' if hosts else ''}"
    return Diagnosis(
        kind=Kind.STRAGGLER,
        summary=f"{told} waits for data: {late.values[0]:.0f} ms a step, against a median of {late.usual:.0f} ms",
        slow_ranks=ranks,
        first_cause=f"{told}: its loader is {late.values[0] - late.usual:.0f} ms behind that of its peers",
        confidence="high",
        details=(
            f"in {late.slow_steps} of the last {late.steps} steps somebody waited so; a step takes {step_ms:.0f} ms",
            *((f"it runs on {hosts}",) if hosts else ()),
        ),
        next_evidence=(
            f"the time of a read from the data's store on {hosts or 'its host'}, and on another host",
            "whether it is the host or the shard: does another rank of the host wait too?",
        ),
        advice=(
            "fetch further ahead, if it is a burst; look at disk and network of the host, if it stays",
            "drain no host for it before a read on it is slow",
        ),
    )


def late_store(rings: Sequence[Rings], step_ms: float) -> str:
    """That all ranks wait for data alike, a fifth of a step or more; empty: they don't."""
    times = waits(rings)
    usual = median([value for _, _, value in times.rows]) if times is not None else 0.0
    if usual < MATTERS * step_ms:
        return ""
    return f"all ranks wait for data, {usual:.0f} ms of a step of {step_ms:.0f} ms: the store or the loader, no rank"
