"""Histories of hosts in words: repeat offenders, parts that are due for return, places that make hosts fail.

Single events say little here; what counts is what comes again, on the same host, the same part, the same place of the
rack. A second fault of the same part is an RMA. A host that was returned and had to be drained again is held until
somebody has found the cause. If the worst hosts of several racks stand in the same place, the place is the suspect.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import OK, REBOOT, RMA, SUSPECT, TRIAGE, WATCH

_COUNT: Final = re.compile(
    r"(\d{1,6}) (?:unexpected |unplanned )?(?:recover\w+|reboots?|crash\w*|failures?)", re.IGNORECASE
)
_FAULT: Final = re.compile(r"\bfaults?\b.*\breported\b|\breported\b.*\bfaults?\b|\bGPU fault\b", re.IGNORECASE)
_BACK: Final = re.compile(r"\breturned\b|\bresumed?\b|\bback (?:in|to) production", re.IGNORECASE)
_DRAINED: Final = re.compile(r"\bdrained\b", re.IGNORECASE)
_PARTIAL: Final = re.compile(r"(\d{1,2}) of (\d{1,2}) GPUs|(\d{1,2}) of (\d{1,2})\b", re.IGNORECASE)
_REPLACED: Final = re.compile(r"\breplaced\b|\bswapped\b", re.IGNORECASE)
_PLACE: Final = re.compile(r"(r(?:ack)?[_-]?\d{1,4})[_-]?(?:n(?:ode)?|u|slot|host)[_-]?(\d{1,4})", re.IGNORECASE)

Events = list[tuple[Row, str]]


def history(block: Block, rows: Sequence[tuple[Row, dict[str, str]]]) -> list[Finding]:
    """Findings of a table with time, node and event; a column `case` parts it into sections."""
    cases: dict[str, list[tuple[Row, str, str, str]]] = {}
    for row, cells in rows:
        cases.setdefault(cells.get("case", ""), []).append((row, cells["node"], cells["event"], cells["time"]))
    findings: list[Finding] = []
    for case, events in cases.items():
        part = block._replace(section=f"{block.section} case {case}".strip()) if case else block
        findings += _counts(part, [(row, node, event) for row, node, event, _ in events])
        hosts: dict[str, list[tuple[str, int, Row, str]]] = {}
        for place, (row, node, event, time) in enumerate(events):
            if re.fullmatch(r"[\w.-]+", node):
                hosts.setdefault(node, []).append((time, place, row, event))
        for host, its in hosts.items():
            findings += _host(part, host, [(row, event) for _, _, row, event in sorted(its, key=lambda each: each[:2])])
    return findings


def _counts(block: Block, events: Sequence[tuple[Row, str, str]]) -> Iterator[Finding]:
    """Hosts by how often they failed: a place that the worst three share is worth more than each of them."""
    counted = []
    for row, node, event in events:
        found = _COUNT.match(event.strip())
        place = _PLACE.fullmatch(node)
        if found:
            counted.append((int(found.group(1)), node, int(place.group(2)) if place else -1, row))
    counted.sort(key=lambda each: (-each[0], each[1]))
    worst = counted[:3]
    slots = [slot for _, _, slot, _ in worst]
    racks = {found[1] for _, node, _, _ in worst if (found := _PLACE.fullmatch(node))}
    rows = [row for *_, row in worst]
    hosts = ", ".join(f"{node} ({count})" for count, node, _, _ in worst)
    if len(worst) == 3 and min(slots) >= 0 and max(slots) - min(slots) <= 1 and len(racks) > 1:
        unit = f"rack position n{min(slots)}" + (f"-n{max(slots)}" if max(slots) > min(slots) else "")
        next_ = ("cooling, power and cabling at this height of the racks",)
        yield block.found(
            unit, TRIAGE, "rack-position", f"the three worst hosts share it: {hosts}", rows=rows, next=next_
        )
        return
    odd = False
    for count, node, _, row in worst:
        rest = [other for other, name, _, _ in counted if name != node]
        if rest and count >= 3 * max(1, sorted(rest)[len(rest) // 2]):
            words = f"{count} failures, three times what is usual here"
            yield block.found(f"host {node}", TRIAGE, "repeat-offender", words, rows=[row], host=node)
            odd = True
    if worst and not odd:
        words = f"no host and no place of {len(counted)} stands out; most often: {hosts}"
        yield block.found("rack", WATCH, "repeat-offender", words, rows=rows)


def _host(block: Block, host: str, events: Events) -> Iterator[Finding]:
    unit = f"host {host}"
    faults = [row for row, event in events if _FAULT.search(event)]
    again = [row for row, event in events if _BACK.search(event) and _DRAINED.search(event)]
    closed = [row for row, event in events if _REPLACED.search(event)]
    if len(faults) >= 2:
        summary = f"the same fault was reported {len(faults)} times: the part was due for return at the second"
        next_ = (f"closed by: {closed[-1].text.strip()}",) if closed else ("serial number of the part",)
        yield block.found(unit, RMA, "repeat-offender", summary, rows=[*faults, *closed], next=next_, host=host)
    elif faults and closed and _after(events, closed[-1], faults[-1]):
        words = "one fault was reported, and the part was replaced since"
        yield block.found(unit, WATCH, "repeat-offender", words, rows=[*faults, *closed], host=host)
    elif faults:
        yield block.found(unit, SUSPECT, "repeat-offender", "one fault was reported", rows=faults, host=host)
    if len(again) >= 2:
        summary = (
            f"returned and drained again {len(again)} times: held until a person releases it; bulk commands skip it"
        )
        yield block.found(unit, TRIAGE, "repeat-offender", summary, rows=again, host=host)
    elif again:
        yield block.found(unit, WATCH, "repeat-offender", "returned, and drained again", rows=again, host=host)
    yield from _partial(block, host, events)


def _after(events: Events, one: Row, other: Row) -> bool:
    """Whether a row comes later; events are in the order of their times."""
    rows = [row for row, _ in events]
    return rows.index(one) > rows.index(other)


def _partial(block: Block, host: str, events: Events) -> Iterator[Finding]:
    """Boots after which GPUs were missing; the last one counts."""
    seen = []
    for row, event in events:
        found = _PARTIAL.search(event)
        if found:
            have, want = (int(part) for part in found.groups() if part is not None)
            seen.append((row, have, want))
    short = [each for each in seen if each[1] < each[2]]
    if seen and not short:
        words = f"it came back with {seen[-1][1]} of {seen[-1][2]} GPUs"
        yield block.found(f"host {host}", OK, "gpu-missing", words, rows=[row for row, _, _ in seen], host=host)
    if not short:
        return
    _, have, want = seen[-1]
    rows = [row for row, _, _ in seen]
    next_ = ("compare the inventory with what is there before the host returns",)
    if have < want:
        yield block.found(
            f"host {host}", REBOOT, "gpu-missing", f"{have} of {want} GPUs", rows=rows, next=next_, host=host
        )
    else:
        words = f"it came back with {short[0][1]} of {want} GPUs once, and with all after another boot"
        yield block.found(f"host {host}", SUSPECT, "gpu-missing", words, rows=rows, next=next_, host=host)


_NAMES: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9-]*-?(?:\[[\d,-]+\]|\d+)(?![\w\]])")
_MARKS: Final = (
    ("a fault of a task", re.compile(r"[Ss]egmentation fault|[Ss]egfault|\bcrash|\berror\b|\bfailed\b")),
    ("drained again", re.compile(r"\bdrain(?:ed)? again\b|\bre-?drained\b|\bto drain again\b")),
    ("often flaky", re.compile(r"\bflaky\b|\bunstable\b|\bkeeps? (?:failing|crashing)\b")),
)


def told(block: Block, events: Events) -> list[Finding]:
    """Findings of events in words that name their hosts: two kinds of trouble on one host are a repeat offender."""
    hosts: dict[str, dict[str, list[Row]]] = {}
    back: dict[str, list[Row]] = {}
    for row, event in events:
        for part in re.split(r";", event):
            marks = [name for name, pattern in _MARKS if pattern.search(part)]
            for folded in _NAMES.findall(part):
                for host in _expanded(folded):
                    its = hosts.setdefault(host, {})
                    for mark in marks:
                        its.setdefault(mark, []).append(row)
                    if _BACK.search(part) or "back in" in part:
                        back.setdefault(host, []).append(row)
    findings = []
    for host, marks_of in hosts.items():
        rows = list(dict.fromkeys(row for its in marks_of.values() for row in its))
        said = ", ".join(marks_of)
        if len(marks_of) >= 2:
            words = f"{said}: held until a person releases it after a test; bulk commands skip it"
            if returned := [row for row in back.get(host, ()) if row.number > rows[0].number]:
                words = f"{words}; it was returned {len(returned)} times by then"
                rows = list(dict.fromkeys([*rows, *returned]))
            findings.append(block.found(f"host {host}", TRIAGE, "repeat-offender", words, rows=rows, host=host))
        elif marks_of:
            next_ = ("whether it comes again: then it is held",)
            findings.append(
                block.found(f"host {host}", WATCH, "repeat-offender", said, rows=rows, next=next_, host=host)
            )
    if hosts and not findings:
        findings.append(block.found("host", OK, "repeat-offender", f"nothing is said against {len(hosts)} hosts"))
    return findings


def _expanded(folded: str) -> list[str]:
    try:
        return [str(host) for host in parse(folded)][:1000]
    except HostListError:
        return [folded]
