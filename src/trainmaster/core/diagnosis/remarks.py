"""What the lines of a rank's log tell besides counters: exceptions, lost peers, faults, the end of the work.

An error is first asked whether it is an *echo*, one that only says that a peer is gone or late (`core/recovery/cause`
knows their words); a rank that lost its peers is loud and not to blame. What remains is told apart by a small list of
words: hardware speaks of ECC, Xid and lost devices, the transport of completions with an error, torchrun of exit codes
and signals. A traceback is read like everywhere else (`core/agent/failure`): its last line counts, and the innermost
frame of the user's own code.

A line without a time has that of the last line of its file that had one: a traceback follows the line that was logged
before it.
"""

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.core.agent.failure import from_output, signal_name
from trainmaster.core.base.time import Instant
from trainmaster.core.diagnosis.evidence import Remark, What
from trainmaster.core.diagnosis.stamp import head, time_of
from trainmaster.core.recovery.cause import ECHO
from trainmaster.core.recovery.port_conflict import port_conflict

_SUMMARY: Final = re.compile(r"^.{0,40}?\[\d+\]:\s*$")
"""Begins one failure in the table that torchrun prints at the end."""
_FIELD: Final = re.compile(r"^.{0,40}?\b(time|host|rank|exitcode|traceback) *: (.+)$")
_TRACEBACK: Final = "Traceback (most recent call last):"
_TRACE_LINES: Final = 400
_PREFIX: Final = re.compile(
    r"^(?:\[\d+,\d+\]<std\w+>:? ?|\d{1,7}: |\[(?:rank|default|host)[\w-]*\]:? ?|\[rank\d+\]:(?:\[rank\d+\]:)? ?)"
)
_TIMEOUT: Final = re.compile(
    r"NCCL error|NCCL timeout|DistBackendError|collective operation timeout|Timed out waiting \d+ ?ms|"
    r"TORCH_NCCL|process group watchdog thread|ChildFailedError|SignalException|ncclSystemError|ncclInternalError|"
    r"ncclUnhandledCudaError|NCCL communicator was aborted|KeyboardInterrupt|SystemExit",
    re.IGNORECASE,
)
_HARDWARE: Final = re.compile(
    r"uncorrectable ECC|uncorrectable NVLink|\bXid\b.{0,60}?: ?"
    r"(?:48|62|63|64|74|79|92|94|95|119|120|140|143|144|145)\b|"
    r"fallen off the bus|GPU is lost|GPU has been lost|device unavailable due to|hardware error|machine check|"
    r"CUDA error: (?:unknown error|hardware stack error|ECC)|Bus error.{0,20}(?:PCIe|AER)|row.?remap.{0,20}fail|"
    r"no CUDA-capable device is detected|NVML: ?GPU is lost",
    re.IGNORECASE,
)
_TRANSPORT: Final = re.compile(
    r"got completion.{0,80}?(?:error|status) ?=? ?(\d+)|wc.?status.{0,30}error|NET/(?:IB|Socket).{0,60}(?:error|fail)|"
    r"transport retry counter exceeded|port error|IB(?:V)?_WC_RETRY_EXC",
    re.IGNORECASE,
)
_PEER: Final = re.compile(
    r"(?:from|to|peer|remote)\s*(?:rank )?\[?([0-9a-f.:]*\d[0-9a-f.:]*?|[\w.-]+-\d+)\]?<\d+>", re.IGNORECASE
)
_REMOTE: Final = re.compile(r"remoteGid[s]?[ :=]*(\S+)|localGid[s]?", re.IGNORECASE)
_STORE: Final = re.compile(
    r"RendezvousConnectionError|RendezvousClosedError|connection to the C10d store has failed|"
    r"client socket has (?:failed|timed out).{0,80}connect|TCPStore.{0,80}(?:timed out|refused|failed to connect)",
    re.IGNORECASE,
)
_UNEQUAL: Final = re.compile(r"op\.preamble\.length <= op\.nbytes|Detected mismatch between collectives", re.IGNORECASE)
_STALE: Final = re.compile(
    r"connectFullMesh failed|Connection refused, remote=|SO_ERROR: Connection refused", re.IGNORECASE
)
_SHOULD_DUMP: Final = re.compile(
    r"failed to check the .should dump. flag|process group has NOT been destroyed|terminate called without an active "
    r"exception|TCPStore server has shut down too early|destructor.{0,40}ProcessGroup|Destroying process group|"
    r"ProcessGroupNCCL.{0,60}(?:destruct|shutdown|abort)|watchdog thread (?:joined|terminated normally)",
    re.IGNORECASE,
)
_FINISHED: Final = re.compile(
    r"training (?:is |has |was )?(?:complete|finished|done|ended|over)|(?:finished|completed|done) training|"
    r"max_(?:steps|epochs)=?\S* reached|all steps (?:are )?done|job (?:is )?(?:complete|finished)|"
    r"(?:final|last) (?:model|checkpoint) (?:was |is |has been )?(?:saved|written)|saved final|end of training|"
    r"train(?:ing)? loop (?:ended|finished|done)|exiting (?:cleanly|normally)|"
    r"\bFINISHED\b|reached (?:max|the last) step",
    re.IGNORECASE,
)
_EXIT: Final = re.compile(
    r"(?:exitcode|exit code)\s*[:=]?\s*(-?\d+)|died with <Signals\.(SIG\w+)|killed by signal (\d+)|"
    r"Signal (\d+) \(SIG\w+\) received",
    re.IGNORECASE,
)
_OOM_KILL: Final = re.compile(
    r"oom-kill|Out of memory: Killed process|OOMKilled|invoked oom-killer|Memory cgroup out", re.IGNORECASE
)
_OOM: Final = re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory", re.IGNORECASE)
_PHASE: Final = re.compile(
    r"dist_checkpointing|save_checkpoint|checkpoint_io|save_state_dict|async_save|torch/distributed/checkpoint|"
    r"\bsave_model\b|evaluat|validation|\beval_|torch/_dynamo|torch/_inductor|triton/compiler|compile_fx",
    re.IGNORECASE,
)
_LOUD: Final = re.compile(
    r"error|fail|mismatch|exception|fault|lost|killed|finish|complete|done|reached|saved|died|signal|exitcode|memory|destroy|"
    r"terminate|shut down|Xid|NET/|got completion|refused|closed|reset|rendezvous|in use|ended|exiting|stopped",
    re.IGNORECASE,
)


class Teller:
    """Collects the remarks of one file, in order."""

    def __init__(self, place: str, rank: int | None, host: str) -> None:
        self._place, self._rank, self._host = place, rank, host
        self._at: int | None = None
        self.found: list[Remark] = []

    def read(self, lines: Sequence[str], telling: Sequence[int]) -> None:
        """All lines, of which only those at the places `telling` can tell anything; those that a watchdog took are
        empty."""
        number = 0
        for place in telling:
            if place < number:  # in a traceback
                continue
            line, self._at = lines[place], self._time_before(lines, number, place)
            number = place + 1
            if _SUMMARY.match(line):
                self._summary(number, lines[number : number + 8])
            elif _TRACEBACK in line:
                number += self._traceback(number, line, lines[number - 1 : number + _TRACE_LINES]) - 1
            elif _LOUD.search(line):
                what = kind_of(line)
                if what is not None:
                    self._add(what, number, line)

    def _time_before(self, lines: Sequence[str], first: int, last: int) -> int | None:
        """The time of the last of these lines that has one; else of what was read before."""
        for place in range(last, first - 1, -1):
            if ":" in lines[place] and (at := time_of(lines[place][:400])) is not None:
                return at
        return self._at

    def _traceback(self, number: int, line: str, block: Sequence[str]) -> int:
        """Takes a traceback; how many lines it has."""
        start = head(line)
        mark = line[: line.index(_TRACEBACK)]
        text: list[str] = []
        for each in block:
            if text and _TRACEBACK in each:
                break
            text.append(each[len(mark) :] if mark and each.startswith(mark) else _PREFIX.sub("", each))
            plain = text[-1]
            if (
                len(text) > 1
                and plain.strip()
                and not plain[0].isspace()
                and not plain.startswith(("During", "The above"))
            ):
                break
        text[0] = _TRACEBACK
        failure = from_output("\n".join(text), Instant(0))
        if failure is None:
            return max(len(text), 1)
        said = f"{failure.exception}: {failure.message}" if failure.message else failure.exception
        what = _of_exception(said)
        self._add(what, number, said, rank=start.rank, location=failure.location)
        return len(text)

    def _summary(self, number: int, block: Sequence[str]) -> None:
        """A failure in torchrun's table. What a rank raised stands in its own traceback; a signal stands only here."""
        told = {found.group(1): found.group(2).strip() for line in block if (found := _FIELD.match(line))}
        exited = _EXIT.search(f"exitcode : {told.get('exitcode', '')}")
        what = _of_exit(exited) if exited else None
        rank = re.match(r"\d+", told.get("rank", ""))
        if what is None or rank is None:
            return
        text = f"{told.get('time', '').replace('_', ' ')} {told.get('traceback', 'killed')}"
        self._host, before = told.get("host", self._host), self._host
        self._add(what, number, text, rank=int(rank.group()))
        self._host = before

    def _add(self, what: What, number: int, text: str, rank: int | None = None, location: str = "") -> None:
        start = head(text)
        rank = rank if rank is not None else start.rank if start.rank is not None else self._rank
        peer = _PEER.search(text) if what is What.TRANSPORT else None
        self.found.append(
            Remark(
                what=what,
                text=" ".join(text.split())[:300],
                rank=rank,
                host=start.host or self._host,
                at_us=start.at_us if start.at_us is not None else self._at,
                order=number,
                place=f"{self._place}, line {number}",
                peer=peer.group(1) if peer else "",
                location=location,
            )
        )


def _of_exception(said: str) -> What:
    if port_conflict(said) is not None:
        return What.PORT_TAKEN
    if _HARDWARE.search(said):
        return What.HARDWARE
    for what, pattern in ((What.MISMATCH, _UNEQUAL), (What.STALE_PEER, _STALE), (What.STORE_LOST, _STORE)):
        if pattern.search(said):
            return what
    if _TIMEOUT.search(said) or ECHO.search(said):
        return What.ECHO
    return What.OUT_OF_MEMORY if _OOM.search(said) else What.EXCEPTION


def kind_of(line: str) -> What | None:
    """What a single line tells; None: nothing."""
    if port_conflict(line) is not None:
        return What.PORT_TAKEN
    for what, pattern in (
        (What.KILLED, _OOM_KILL),
        (What.MISMATCH, _UNEQUAL),
        (What.STALE_PEER, _STALE),
        (What.HARDWARE, _HARDWARE),
        (What.TRANSPORT, _TRANSPORT),
        (What.TEARDOWN, _SHOULD_DUMP),
        (What.STORE_LOST, _STORE),
    ):
        if pattern.search(line):
            return what
    exited = _EXIT.search(line)
    if exited is not None:
        return _of_exit(exited)
    if ECHO.search(line) or _TIMEOUT.search(line):
        return What.ECHO
    if _OOM.search(line):
        return What.OUT_OF_MEMORY
    return What.FINISHED if _FINISHED.search(line) else None


def _of_exit(exited: re.Match[str]) -> What | None:
    code, _, signal, received = exited.groups()
    if code is not None and int(code) >= 0:
        return None  # what the code means stands in the traceback
    number = -int(code) if code is not None else int(signal or received or 0)
    return None if signal_name(number) in ("SIGTERM", "SIGINT") else What.KILLED


def is_slow_phase(frames: tuple[str, ...]) -> str:
    """The frame that shows a phase which takes long by nature; empty: none does."""
    return next((frame for frame in frames if _PHASE.search(frame)), "")


def phase_of(text: str) -> str:
    """save, evaluation or compilation, by the words of a frame."""
    if re.search(r"eval|validation", text, re.IGNORECASE):
        return "evaluation"
    return "compilation" if re.search(r"dynamo|inductor|triton|compile", text, re.IGNORECASE) else "save"


def lines_of(text: str) -> list[str]:
    """Lines, cut so that no pattern runs for ever on one of them."""
    lines = text.split("\n")
    return [line[:4000].rstrip("\r") for line in lines] if "\r" in text or len(max(lines, key=len)) > 4000 else lines
