"""What a diagnosis says: the kind of stop, who is missing, what came first, how sure, what to do.

The words are few on purpose. A kind names *where to look*, not how it looked: a desync is looked for in the program, a
slow phase in its time-out, hardware in the host. "Cannot tell from this" is an answer (`undetermined`), and it comes
with what would tell, because a wrong name costs more than none: people drain the host that was named.

Ranks stand in three roles around the first collective that not all ranks completed. *Missing* ranks never joined it,
*waiting* ranks are in it, *ahead* are ranks beyond where most ranks are. The loud ones wait; the culprit is silent.
"""

from enum import StrEnum
from typing import Literal

from trainmaster.core.base.value import Value

Confidence = Literal["high", "medium", "low"]


class Kind(StrEnum):
    """Where to look."""

    DESYNC = "desync"
    """The programs of the ranks went apart: a collective skipped, another one, other sizes."""
    USER_CODE_STALL = "user-code-stall"
    """A rank stands in code of its own, before the collective that the others wait in."""
    PROCESS_STOPPED = "process-stopped"
    """A process is stopped (SIGSTOP, a debugger), or hangs in the kernel."""
    SLOW_PHASE = "slow-phase"
    """A save, an evaluation, a compilation that outlasts the time-out; nothing hangs."""
    IN_FLIGHT_STALL = "in-flight-stall"
    """All ranks joined the collective, and it does not end."""
    NETWORK = "network"
    """The transport gave up; the reporters are victims."""
    HARDWARE = "hardware"
    """A part of a host answers for it."""
    USER_EXCEPTION = "user-exception"
    """An exception of one rank came first; the rest are echoes."""
    KILLED = "killed"
    """A process was ended from outside, without a word."""
    HOST_LOST = "host-lost"
    """A host went away, and others with it."""
    LAUNCH_FAILURE = "launch-failure"
    """It never came to a step."""
    TEARDOWN = "teardown"
    """The work was done; what failed is the leaving."""
    STRAGGLER = "straggler"
    """A rank is late again and again; the job goes on at its pace."""
    ROTATING_PAUSES = "rotating-pauses"
    """Now this rank is late, now that one: a cause that all share, and no host to blame."""
    FORMING = "forming"
    """Its ranks are being started, for the first time or after an interruption; nothing can be said of them yet."""
    UNDETERMINED = "undetermined"
    NONE = "none"
    """Nothing is wrong, as far as this evidence goes."""


class Diagnosis(Value):
    """The answer. Lists of ranks are sorted; hosts in natural order."""

    kind: Kind
    summary: str
    """One sentence."""
    missing_ranks: tuple[int, ...] = ()
    ahead_ranks: tuple[int, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    differing_ranks: tuple[int, ...] = ()
    """Joined with another operation or other sizes than the most."""
    slow_ranks: tuple[int, ...] = ()
    """Late again and again, or last to end a phase."""
    unseen_ranks: tuple[int, ...] = ()
    """Ranks that must exist and of which there is no evidence."""
    collective: str = ""
    """The first that not all ranks completed."""
    first_cause: str = ""
    """What came first, over all ranks; empty: not known."""
    hosts: tuple[str, ...] = ()
    """Blamed; mostly none."""
    cleared: tuple[str, ...] = ()
    """Hosts or ranks that a check has cleared."""
    confidence: Confidence = "low"
    details: tuple[str, ...] = ()
    """What the answer rests on."""
    next_evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """What was given and could not be read: place and reason."""


def ranks_text(ranks: tuple[int, ...] | list[int]) -> str:
    """`rank 3`, `ranks 0-2, 7`; runs are folded, so that thousands of ranks stay a line."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "no rank"
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    shown = ", ".join(texts[:12]) + (f" and {len(ordered)} in all" if len(texts) > 12 else "")
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {shown}"
