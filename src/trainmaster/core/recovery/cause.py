"""The first cause of an interruption.

When one rank of a synchronous job dies, all others fail within milliseconds: their connections break. They are loud,
and they are *echoes*. The rule: a lost host explains everything; else the earliest failure that does not talk about a
peer; else nothing is known yet, and the engine waits a moment (`SETTLE`) before it goes on without a name. A port that
was taken looks like trouble with the network and is none: it is told from echoes first. An earliest
*loud* failure is never taken for the cause as long as something else can explain it. Rejected: a vote of the ranks
about whom they miss (gloo names an address at best, and the address of the store's host is in every message).

A signature is the error without its changing parts (numbers, addresses, paths' temp parts), so that "the same failure
again" can be told from "another one".
"""

import re
from collections.abc import Iterable
from typing import Final

from trainmaster.core.agent.failure import signal_name
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.space import UNSAVED
from trainmaster.core.diagnosis.replicas import TIED, WORDS
from trainmaster.core.recovery.events import WorkerExited, WorkersExited
from trainmaster.core.recovery.exits import Exit
from trainmaster.core.recovery.port_conflict import port_conflict

ECHO: Final = re.compile(
    r"connection (closed by peer|reset by peer|refused|was (closed|reset))|broken pipe|peer closed|"
    r"connection reset|remote process (exited|exiting)|ncclRemoteError|communicator was aborted|"
    r"collective operation timeout|failed to pass monitoredBarrier|timeout caused pair closure|"
    r"\bsocket.*(closed|timeout)|recvbytes failed|sendbytes failed|\bstore.*(closed|timeout|lost)|"
    r"timed out waiting \d+ ?ms for|lost its peers?|DistNetworkError|DistStoreError|Rendezvous\w*Error",
    re.IGNORECASE,
)
"""What gloo, NCCL, the stores and the rendezvous print when the other side is gone."""
APART: Final = re.compile(
    r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size|"
    r"Detected mismatch between collectives",
    re.IGNORECASE,
)
"""What gloo and PyTorch print where ranks met in different collectives. Who prints it is mostly one that did as it
should (gloo even ends its process), so this accuses nobody: the recorders tell who left the way."""
_CHANGING: Final = re.compile(r"/tmp/[^\s'\"]+|0x[0-9a-f]+|\b\d+(\.\d+)*\b|\[[^\]]*\]:?\d*", re.IGNORECASE)


class FirstCause(Value):
    reason: Reason
    at: Instant
    host: HostId | None
    rank: int | None
    signature: str
    job_fault: bool
    """True: the job answers for it with its restart budget. False: a host did."""
    hopeless: bool = False
    """Trying again can't help: the job ends, whatever is left of its budget."""
    kill: tuple[int, ...] = ()
    """Ranks whose processes do not live on, whatever they can."""
    in_place: bool = True
    """False: no process lives on."""


def is_echo(exit: WorkerExited) -> bool:
    """The failure only says that a peer went away, or another way."""
    text = _text(exit)
    return is_apart(exit) or (bool(ECHO.search(text)) and port_conflict(text) is None)


def is_apart(exit: WorkerExited) -> bool:
    """The failure says that ranks met in different collectives, and not which of them should not have."""
    return bool(APART.search(_text(exit)))


def _text(exit: WorkerExited) -> str:
    return f"{exit.failure.exception} {exit.failure.message}" if exit.failure is not None else ""


def describe(exit: WorkerExited | WorkersExited) -> str:
    """What a failed exit says of itself."""
    failure = exit.failure
    if failure is not None and (failure.exception or failure.message):
        text = f"{failure.exception}: {failure.message}" if failure.exception else failure.message
        return f"{text} ({failure.location})" if failure.location else text
    if exit.signal is not None:
        return f"killed by signal {exit.signal}"
    return f"exit code {exit.exit_code}"


def signature(exit: WorkerExited) -> str:
    failure = exit.failure
    if failure is not None and (failure.exception or failure.message):
        said = (part for part in (failure.exception, failure.message) if part)
        return _CHANGING.sub("#", ": ".join(said))
    return f"signal {exit.signal}" if exit.signal is not None else f"exit code {exit.exit_code}"


def first_cause(lost: Iterable[tuple[HostId, Instant, str]], exits: Iterable[Exit]) -> FirstCause | None:
    """Judges the evidence of one interruption; None if only echoes are known.

    `lost` holds (host, since, how) of members that are gone, `exits` the exits so far.
    """
    gone = sorted(lost, key=lambda item: (item[1], item[0]))
    if gone:
        return _host_lost(gone)
    failed, ranks = _failed(exits)
    own = next((exit for exit in failed if not is_echo(exit)), None)
    if own is None:
        return None
    if UNSAVED in _text(own):
        return _result_unsaved(own, ranks)
    return _replicas_disagree(own, ranks) if WORDS in _text(own) else _worker_failed(own, ranks)


def _failed(exits: Iterable[Exit]) -> tuple[list[WorkerExited], int]:
    """The failures told, earliest first, and how many ranks that are."""
    failed = [exit for exit in exits if exit.first.how == "failed"]
    told = sorted((exit.first for exit in failed), key=lambda exit: (exit.at, exit.rank))
    return told, sum(exit.ranks for exit in failed)


def undetermined(exits: Iterable[Exit], now: Instant) -> FirstCause:
    """What is said when nothing but echoes came within the settling time."""
    failed, ranks = _failed(exits)
    first = failed[0] if failed else None
    apart = next((exit for exit in failed if is_apart(exit)), None)
    first = apart or first
    sentence = "ranks lost their peers, and no rank or host says why; the first to notice was "
    if apart is not None:
        sentence = (
            "ranks met in different collectives, and no recorder says which went astray; the first to notice was "
        )
    sentence += f"rank {first.rank} on {first.host}: {describe(first)}" if first else "nobody"
    return FirstCause(
        reason=Reason(token=Token.PEER_LOST, sentence=sentence, numbers={"ranks": ranks}),
        at=first.at if first else now,
        host=None,
        rank=None,
        signature="peer-lost",
        job_fault=True,
    )


def _host_lost(gone: list[tuple[HostId, Instant, str]]) -> FirstCause:
    host, since, how = gone[0]
    more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
    reason = Reason(token=Token.HOST_LOST, sentence=f"host {host} was lost: {how}{more}", numbers={"hosts": len(gone)})
    return FirstCause(reason=reason, at=since, host=host, rank=None, signature="host-lost", job_fault=False)


def _replicas_disagree(exit: WorkerExited, failed: int) -> FirstCause:
    """The rank that says so is the odd one; where there is no majority both sides say so, and no host is named."""
    text = _text(exit)
    told = text[text.index(WORDS) :]
    blamed = TIED not in told
    numbers: dict[str, int | float | str] = {"ranks_failed": failed}
    if blamed:
        numbers |= {"rank": exit.rank, "host": exit.host}
    return FirstCause(
        reason=Reason(token=Token.REPLICAS_DISAGREE, sentence=told, numbers=numbers),
        at=exit.at,
        host=exit.host if blamed else None,
        rank=exit.rank if blamed else None,
        signature=WORDS,
        job_fault=True,
    )


def _result_unsaved(exit: WorkerExited, failed: int) -> FirstCause:
    """The ranks have waited for room as long as they were to; a restart would find none either."""
    text = _text(exit)
    sentence = f"rank {exit.rank} on {exit.host}: {text[text.index(UNSAVED) :]}"
    return FirstCause(
        reason=Reason(token=Token.RESULT_UNSAVED, sentence=sentence, numbers={"ranks_failed": failed}),
        at=exit.at,
        host=None,
        rank=None,
        signature=UNSAVED,
        job_fault=True,
        hopeless=True,
    )


def _worker_failed(exit: WorkerExited, failed: int) -> FirstCause:
    killed = exit.signal is not None and (
        exit.failure is None or exit.failure.exception in ("", signal_name(exit.signal))
    )
    conflict = port_conflict(_text(exit))
    token = Token.WORKER_KILLED if killed else Token.PORT_TAKEN if conflict is not None else Token.WORKER_EXITED
    told = exit.failure.message if killed and exit.failure is not None and exit.failure.exception else describe(exit)
    sentence = f"rank {exit.rank} on {exit.host} {'was' if told.startswith('killed') else 'failed:'} {told}"
    if conflict is not None:
        sentence = f"rank {exit.rank} on {exit.host} failed: {conflict.sentence()}; the next launch takes another port"
    return FirstCause(
        reason=Reason(
            token=token, sentence=sentence, numbers={"rank": exit.rank, "host": exit.host, "ranks_failed": failed}
        ),
        at=exit.at,
        host=exit.host,
        rank=exit.rank,
        signature=signature(exit),
        job_fault=True,
    )
