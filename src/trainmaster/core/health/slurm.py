"""What Slurm and its health check say about hosts: `scontrol show node`, `sinfo`, `sinfo -R`, the log of NHC.

Slurm spells one state in three ways, by generation and command: `DOWN*+CLOUD`, `DOWN+CLOUD+NOT_RESPONDING`, `down*`.
All become one set of words. Planned absence (maintenance, a reboot that was asked for) is `skipped`: it is not a fault,
and it must not be counted with faults. A reboot that was issued and did not bring the host back is one.

A hold has an owner. A check that marks a host offline over a person's reason, and online again later, has lifted a hold
that was not its own, so the host stays held.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import APP, OK, REBOOT, SKIPPED, TRIAGE, UNKNOWN, WATCH, Answer, Remedy, Verdict

_FLAGS: Final = {
    "*": "NOT_RESPONDING", "#": "POWERING_UP", "~": "POWERED_DOWN", "%": "POWERING_DOWN", "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED", "!": "POWER_DOWN", "$": "MAINTENANCE", "-": "PLANNED",
}  # fmt: skip
_WORDS: Final = {
    "MIX": "MIXED", "ALLOC": "ALLOCATED", "COMP": "COMPLETING", "DRNG": "DRAINING", "DRAIN": "DRAINED",
    "UNK": "UNKNOWN", "FAILG": "FAILING", "RESV": "RESERVED", "MAINT": "MAINTENANCE", "POWER": "POWERED_DOWN",
    "NO_RESPOND": "NOT_RESPONDING", "POW_UP": "POWERING_UP", "POW_DN": "POWERING_DOWN", "PLND": "PLANNED",
    "FUTR": "FUTURE", "BOOT": "REBOOT_ISSUED", "REBOOT": "REBOOT_REQUESTED",
}  # fmt: skip
_BUSY: Final = frozenset({"MIXED", "ALLOCATED", "COMPLETING"})
"""With one of these, a host that is drained is still draining."""
_HIDES_IDLE: Final = frozenset({"DRAINED", "MAINTENANCE", "RESERVED", "PLANNED"})
"""sinfo shows these words alone of a host that does nothing."""
_SMALL: Final = 100_000
"""Bare states are what somebody typed, or a list for people."""
_GRES: Final = re.compile(r"^(?:NodeName=\S+ +)?(?:AutoDetect=\w+|Name=gpu\b)", re.MULTILINE | re.IGNORECASE)
_MISCONFIGURED: Final = Answer(verdict=Verdict.BAD, remedy=Remedy.CONFIG)
_STATE: Final = re.compile(r"[A-Za-z_]{2,20}[*#~%@^!$-]?(?:\+[A-Za-z_]{3,20}[*#~%@^!$-]?)*")
_KNOWN: Final = frozenset({
    "IDLE", "ALLOCATED", "MIXED", "DOWN", "DRAINED", "DRAINING", "FAIL", "FAILING", "UNKNOWN", "COMPLETING", "ERROR",
    "MAINTENANCE", "RESERVED", "FUTURE", "PLANNED", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "REBOOT_ISSUED",
    "REBOOT_REQUESTED", "BLOCKED", "INVAL",
})  # fmt: skip
_SINFO: Final = re.compile(
    r"(?:PARTITION\s+AVAIL|\S+\s+(?P<avail>up|down|inact|drain)\s+(?P<limit>\S+)\s+(?P<count>\d+)\s+(?P<state>\S+)\s+(?P<hosts>\S+)$)"
)
_BY_NODE: Final = re.compile(r"(?P<hosts>[\w.\[\],-]+)\s+\d+\s+\S+\s+(?P<state>[a-z]{2,12}[*#~%@^!$-]?)(?:\s|$)")
"""`sinfo -N -l`."""
_REASON: Final = re.compile(r"(?P<reason>.+?)\s+(?P<who>[\w.-]+)\s+(?P<at>\d{4}-\d\d-\d\dT[\d:]{8})\s+(?P<hosts>\S+)")
_REASONS: Final[tuple[tuple[str, Answer, str], ...]] = (
    (
        r"gres/gpu count reported lower than configured \((\d+) < (\d+)\)",
        REBOOT,
        "Slurm sees fewer GPUs than configured",
    ),
    (r"Kill task failed", TRIAGE, "a process could not be killed: it is stuck"),
    (r"(?i)not responding|unexpectedly rebooted", TRIAGE, "the host did not respond, or booted by itself"),
    (r"(?i)low (?:RealMemory|socket\*core|TmpDisk)", TRIAGE, "the host has less than configured"),
    (r"(?:^|=)NHC: ", TRIAGE, "the health check fails"),
    (r"(?i)prolog|epilog", TRIAGE, "a prolog or epilog failed"),
)


def normal(state: str) -> frozenset[str]:
    """The words of a node state, whatever spelling it came in: `down*` gives DOWN and NOT_RESPONDING.

    `#` means that the host is powering up and does not respond yet; base words of sinfo become those of scontrol.
    """
    words = set()
    for part in state.strip().upper().split("+"):
        base = part.rstrip("*#~%@^!$-")
        for mark in part[len(base) :]:
            words.add(_FLAGS[mark])
            if mark == "#":
                words.add("NOT_RESPONDING")
        if base:
            words.add(_WORDS.get(base, base))
    words.discard("CLOUD")
    if "DRAINED" in words and words & _BUSY:
        words = words - _BUSY - {"DRAINED"} | {"DRAINING"}
    if words & _HIDES_IDLE:
        words.discard("IDLE")
    return frozenset(words)


def state_answer(words: frozenset[str]) -> tuple[Answer, str]:
    """What a state means for the host."""
    if "REBOOT_ISSUED" in words and words & {"DOWN", "NOT_RESPONDING"}:
        return TRIAGE, "a reboot was issued and the host did not come back"
    if words & {"FAIL", "FAILING", "ERROR", "INVAL"}:
        return TRIAGE, "Slurm calls it failed"
    if words & {"REBOOT_REQUESTED", "MAINTENANCE", "REBOOT_ISSUED"}:
        return SKIPPED, "planned: maintenance, or a reboot that was asked for"
    if words & {"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "FUTURE", "PLANNED"}:
        return SKIPPED, "powered down, coming up, or not there yet"
    if "DOWN" in words:
        return TRIAGE, "the host is down"
    if "NOT_RESPONDING" in words or "UNKNOWN" in words:
        return UNKNOWN, "the host does not respond"
    if words & {"DRAINED", "DRAINING"}:
        return WATCH, "somebody holds it out of work"
    return OK, "it takes work"


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a block of Slurm's or NHC's output; None: it is none."""
    text = block.text
    if _GRES.search(text):
        return _gres(block)
    if "NodeName=" in text:
        return list(_scontrol(block))
    if re.search(r"^(?:PARTITION\s+AVAIL|NODELIST\s+NODES)\b", text, re.MULTILINE):
        return list(_sinfo(block))
    if "node-mark-offline" in text or "node-mark-online" in text:
        return list(_nhc(block))
    if "Health check failed:" in text and (failed := _check_failed(block)):
        return failed
    found = [*_reasons(block), *_bare(block), *_held_jobs(block)]
    return found or None


def _gres(block: Block) -> list[Finding]:
    """`gres.conf`: GPUs that are found automatically must not be declared by hand too."""
    rows = [row for row in block.rows() if not row.text.lstrip().startswith("#")]
    auto = [row for row in rows if re.search(r"\bAutoDetect=(?!off\b)\w+", row.text, re.IGNORECASE)]
    by_hand = [row for row in rows if re.search(r"\bName=gpu\b", row.text, re.IGNORECASE)]
    bare = [row for row in by_hand if not re.search(r"\bFile=", row.text, re.IGNORECASE)]
    if auto and by_hand and (bare or len(by_hand) > 1):
        words = "GPUs are declared by hand and found automatically too, so slurmd does not start"
        next_ = (f"keep {auto[0].text.strip()} and drop the Name=gpu lines; the hardware is not the fault",)
        return [block.found("host", _MISCONFIGURED, "gres-conf", words, rows=[*auto, *by_hand], next=next_)]
    return [block.found("host", OK, "gres-conf", "GPUs are declared in one way", rows=[*auto, *by_hand][:8])]


def _held_jobs(block: Block) -> list[Finding]:
    """Jobs that do not start by themselves any more, in the output of squeue."""
    if "launch failed requeued held" not in block.text:
        return []
    rows = [row for row in block.rows() if "launch failed requeued held" in row.text]
    if not rows:
        return []
    words = f"{len(rows)} jobs are held since their launch failed: release them once the host they ran on is repaired"
    next_ = ("sacct: the host on which they all failed",)
    return [block.found("job", APP, "jobs-held", words, rows=rows, next=next_)]


def _scontrol(block: Block) -> Iterator[Finding]:
    name, state, reason = "", Row(0, ""), Row(0, "")
    rows = [*block.rows(), Row(0, "NodeName=")]
    for row in rows:
        if found := re.match(r"\s*NodeName=(\S*)", row.text):
            if name:
                yield _node(block, name, state, reason)
            name, state, reason = found.group(1), Row(0, ""), Row(0, "")
        if re.search(r"\bState=\S", row.text):
            state = row
        if "Reason=" in row.text:
            reason = row


def _node(block: Block, name: str, state: Row, reason: Row) -> Finding:
    spelled = re.search(r"\bState=(\S+)", state.text)
    words = normal(spelled.group(1)) if spelled else frozenset()
    answer, why = state_answer(words) if words else (UNKNOWN, "its state is missing")
    rows = [row for row in (state, reason) if row.text]
    said = _reason(reason.text)
    if said is not None:
        answer, why = said
    return block.found(f"host {name}", answer, "slurm-state", why, rows=rows, next=_next(answer), host=name)


def _reason(text: str) -> tuple[Answer, str] | None:
    for pattern, answer, why in _REASONS:
        if re.search(pattern, text):
            return answer, why
    return None


def _next(answer: Answer) -> tuple[str, ...]:
    return ("nvidia-smi -L and the kernel log of the host",) if answer == REBOOT else ()


def _hosts(folded: str) -> list[str]:
    try:
        return [str(host) for host in parse(folded)]
    except HostListError:
        return [folded]


def _sinfo(block: Block) -> Iterator[Finding]:
    """A finding a host that is at fault; planned ones by line, and hosts at work in one."""
    fine: list[Row] = []
    for row in block.rows():
        found = _SINFO.match(row.text.strip()) or _BY_NODE.match(row.text.strip())
        if found is None or not found["state"]:
            continue
        answer, why = state_answer(normal(found["state"]))
        if answer == OK:
            fine.append(row)
            continue
        summary = f"{found['state']}: {why}"
        if answer == SKIPPED:
            yield block.found(f"host {found['hosts']}", answer, "slurm-state", summary, rows=[row])
            continue
        for host in _hosts(found["hosts"]):
            yield block.found(f"host {host}", answer, "slurm-state", summary, rows=[row], host=host)
    if fine:
        yield block.found("host", OK, "slurm-state", f"{len(fine)} lines of hosts that take work", rows=fine[:8])


def _reasons(block: Block) -> Iterator[Finding]:
    """Lines of `sinfo -R`."""
    if not re.search(r"\s\d{4}-\d\d-\d\dT[\d:]{8}\s", block.text):
        return
    for row in block.rows():
        found = _REASON.fullmatch(row.text.strip())
        if found is None or found["reason"] == "REASON":
            continue
        answer, why = _reason(found["reason"]) or (WATCH, f"held by {found['who']}: {found['reason']}")
        for host in _hosts(found["hosts"]):
            yield block.found(f"host {host}", answer, "slurm-reason", why, rows=[row], host=host)


def _bare(block: Block) -> Iterator[Finding]:
    """States without a host, a spelling or several a line. Spellings that do not agree are two states, not one."""
    if len(block.text) > _SMALL:
        return
    for row in block.rows():
        spellings = [part.strip() for part in row.text.split("|")]
        if not all(_STATE.fullmatch(each) for each in spellings) or not row.text.strip():
            continue
        states = [normal(each) for each in spellings]
        if not all(state & _KNOWN for state in states) or not (
            "+" in row.text or any(c in row.text for c in "*#~@%^!$")
        ):
            continue
        if len(states) > 1:
            same = same_states(spellings)
            answer = OK if same else UNKNOWN
            why = f"{len(states)} spellings of one state" if same else "these are different states"
        else:
            answer, why = state_answer(states[0])
        words = ", ".join(sorted(states[0]))
        yield block.found("host", answer, "slurm-state", f"{why}: {words}", rows=[row], section=_of_row(block, row))


def _of_row(block: Block, row: Row) -> str:
    return f"{block.section} line {row.number}".strip()


def _nhc(block: Block) -> Iterator[Finding]:
    """Who held a host, who lifted it, and checks that hang."""
    held: dict[str, list[Row]] = {}
    replaced: dict[str, list[Row]] = {}
    failed: dict[str, list[Row]] = {}
    lifted: dict[str, list[Row]] = {}
    for row in block.rows():
        if found := re.search(r"Not onlining\s+(\S+?):\s+(?:Down|Drained)? ?for non-NHC reason", row.text):
            held.setdefault(found.group(1), []).append(row)
        elif found := re.search(r"Marking\s+(\S+)\s+offline:", row.text):
            failed.setdefault(found.group(1), []).append(row)
            if found.group(1) in held:
                replaced.setdefault(found.group(1), []).append(row)
        elif found := re.search(r"Marking\s+(\S+)\s+online and clearing note", row.text):
            lifted.setdefault(found.group(1), []).append(row)
    hung = [row for row in block.rows() if "unable to terminate hung" in row.text and "Marking" not in row.text]
    for host, its in lifted.items():
        if host not in held and host not in failed:
            yield block.found(f"host {host}", OK, "nhc", "the check passes again", rows=its, host=host)
    for host in dict.fromkeys([*held, *failed]):
        rows = [*held.get(host, []), *failed.get(host, []), *lifted.get(host, []), *hung[:1]]
        rows.sort(key=lambda row: row.number)
        answer, why = _hold(host in held, host in replaced and host in lifted, host in failed, host in lifted)
        next_ = ("who drained the host, and whether that person has released it",) if host in held else ()
        yield block.found(f"host {host}", answer, "nhc", why, rows=rows, next=next_, host=host)


def _check_failed(block: Block) -> list[Finding]:
    """NHC's own words without what it did to a host. A check that cannot be ended is a fault itself."""
    rows = [row for row in block.rows() if re.search(r"\bnhc: +Health check failed:", row.text)]
    if not rows:
        return []
    hung = any("unable to terminate hung" in row.text for row in rows)
    words = "the check hangs and cannot be ended: something below it is stuck" if hung else "the check fails"
    next_ = ("what the process waits for: its stack, the kernel log",) if hung else ()
    return [block.found("host", TRIAGE, "nhc", words, rows=rows[:8], next=next_)]


def _hold(held: bool, overwritten: bool, failed: bool, lifted: bool) -> tuple[Answer, str]:
    if overwritten:
        return TRIAGE, "a person's hold was replaced by the check's reason and then lifted by the check: it still holds"
    if held:
        return TRIAGE, "held by somebody who is not the check"
    if failed and not lifted:
        return TRIAGE, "the check fails"
    return WATCH, "the check failed and passed again"


def same_states(spellings: Sequence[str]) -> bool:
    """Whether these are spellings of one state; that a host does not respond is left out by some of them."""
    return len({normal(each) - {"NOT_RESPONDING"} for each in spellings}) <= 1
