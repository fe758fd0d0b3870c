"""Links as network tools list them: `ethtool`, `ethtool -S`, `iblinkinfo`, `ibqueryerrors`, `ibdiagnet`.

Totals since the boot decide nothing, so errors that were counted are a reason to look and to count once more. A link
that runs slower than both its ends could is another one. What `ibdiagnet` calls an error is diagnosed, its warnings are
watched: it knows what it compares with.
"""

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, SUSPECT, WATCH

_COUNTER: Final = re.compile(r"\s*([\w.\[\] -]+?): (\d{1,20})\s*$")
_OF_THE_LINK: Final = re.compile(
    r"(?:crc|symbol|fcs|align)_err|_(?:crc|symbol|fcs|align)\w*error|rx_pcs_symbol|rx_corrupt|link_down_events"
)
_QUIET: Final = re.compile(r"link_down_events")
"""One such event is how a host that was booted looks."""
_IB_LINK: Final = re.compile(r"\s*0x[0-9a-f]+\s+\d+\s+(\d+)\[.*?\] ==\( *(.*?)\)==> .*?(?:\( *(.*?) *\))?\s*$")
_IB_ERROR: Final = re.compile(r"GUID (0x[0-9a-f]+) port (\S+?): +((?:\[\w+ == \d+[^\]]*\] *)+)")
_AGAIN: Final = ("the same counters once more: a rate tells, a total does not",)


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a list of links; None: it is none."""
    text = block.text
    if re.search(r"^(?:NIC|[\w.-]+) statistics:", text, re.MULTILINE):
        return [_statistics(block)]
    if re.search(r"^Settings for \S+:", text, re.MULTILINE):
        return list(_settings(block))
    if "==(" in text and ")==>" in text:
        return list(_fabric(block))
    if _IB_ERROR.search(text):
        return list(_errors(block))
    if re.search(r"^-[IWE]- ", text, re.MULTILINE):
        return list(_diagnosis(block))
    return None


def _statistics(block: Block) -> Finding:
    named = re.search(r"-S\s+(\S+)", block.command)
    unit = f"link {named.group(1)}" if named else "link"
    counted = [
        (row, found.group(1), int(found.group(2))) for row in block.rows() if (found := _COUNTER.match(row.text))
    ]
    errors = [
        each for each in counted if _OF_THE_LINK.search(each[1]) and each[2] > (1 if _QUIET.search(each[1]) else 0)
    ]
    if not errors:
        return block.found(unit, OK, "link-counters", f"no error of the link among {len(counted)} counters")
    words = ", ".join(f"{name} {count}" for _, name, count in errors[:6])
    return block.found(unit, WATCH, "link-counters", words, rows=[row for row, _, _ in errors], next=_AGAIN)


def _settings(block: Block) -> Iterator[Finding]:
    unit = ""
    for row in block.rows():
        if named := re.match(r"Settings for (\S+):", row.text):
            unit = f"link {named.group(1)}"
        elif (found := re.match(r"\s*Link detected: (\w+)", row.text)) and unit:
            up = found.group(1) == "yes"
            next_ = () if up else ("whether this port is expected up: inventory, or the same port of its peers",)
            words = "the link is up" if up else "no link"
            yield block.found(unit, OK if up else WATCH, "link-state", words, rows=[row], next=next_)


def _fabric(block: Block) -> Iterator[Finding]:
    """`iblinkinfo`: what stands behind a link says that it could do more."""
    device, fine, down = "", 0, 0
    for row in block.rows():
        if named := re.match(r"(?:CA|Switch|Router):\s*(.+?):\s*$", row.text):
            device = named.group(1).strip()
            continue
        found = _IB_LINK.match(row.text)
        if found is None:
            continue
        port, state, could = found.group(1), found.group(2), found.group(3) or ""
        unit = f"port {device}/{port}"
        if "Down" in state:
            down += 1
        elif "Could be" in could:
            words = f"active at {' '.join(state.split()[:3])}, {could}"
            next_ = ("cable and connectors at both ends",)
            yield block.found(unit, WATCH, "ib-slow", words, rows=[row], next=next_)
        elif "Active" not in state:
            yield block.found(unit, WATCH, "ib-state", f"the link is {' '.join(state.split())}", rows=[row])
        else:
            fine += 1
    note = (f"{down} ports are down: whether they are expected up",) if down else ()
    yield block.found("fabric", OK, "ib-links", f"{fine} links are active", next=note)


def _errors(block: Block) -> Iterator[Finding]:
    name = ""
    for row in block.rows():
        if named := re.match(r"Errors for (?:0x[0-9a-f]+ )?\"([^\"]+)\"", row.text):
            name = named.group(1)
        if found := _IB_ERROR.search(row.text):
            if found.group(2) == "ALL":
                continue  # the sum of those below it
            words = ", ".join(" ".join(each.split(" == ")) for each in re.findall(r"\[(\w+ == \d+)", found.group(3)))
            unit = f"port {name or found.group(1)}/{found.group(2)}"
            yield block.found(unit, WATCH, "ib-counters", words, rows=[row], next=_AGAIN)


def _diagnosis(block: Block) -> Iterator[Finding]:
    errors = [row for row in block.rows() if row.text.startswith("-E-")]
    warnings = [row for row in block.rows() if row.text.startswith("-W-")]
    if errors:
        words = f"{len(errors)} errors of the fabric: {_head(errors[0])}"
        yield block.found(
            "fabric", SUSPECT, "ib-diagnosis", words, rows=errors[:12], next=("the links that are named",)
        )
    if warnings:
        words = f"{len(warnings)} warnings: {_head(warnings[0])}"
        yield block.found("fabric", WATCH, "ib-diagnosis", words, rows=warnings[:12])
    if not errors and not warnings:
        yield block.found("fabric", OK, "ib-diagnosis", "no error and no warning of the fabric")


def _head(row: Row) -> str:
    return row.text[3:].strip()[:120]
