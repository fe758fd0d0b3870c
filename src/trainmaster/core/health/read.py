"""From the text of a file to findings: cut into outputs, each read by whoever knows its form, logs by all.

Every reader says whether a text is its own. Text that no reader knows is also scanned as a log, since a log is whatever
holds lines that a rule knows. If nothing was recognised, the answer depends on what it looks like: lines with the heads
of a log and nothing in them are `ok`, as far as this log goes; anything else is `unknown`, because a file that nobody
can read has not shown that a host is healthy. Beside outputs that were read, one that was not is `skipped` and says so.
"""

import re
from typing import Final

from trainmaster.core.health import dcgm, pci_list, ports, slurm, smi, tables
from trainmaster.core.health.capture import Block, Row, blocks
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.kernel_log import scan
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, SKIPPED, UNKNOWN

_LOG_SHARE: Final = 0.5
"""So many lines must begin as log lines do for a text without signals to be a healthy log."""


def read(file: str, text: str, index: Index) -> list[Finding]:
    """The findings of a file's text; at least one."""
    if not text.strip():
        return [Finding(unit="host", verdict=UNKNOWN.verdict, remedy=UNKNOWN.remedy, rule="empty", file=file,
                        summary="the file is empty, which proves nothing", confidence="low")]  # fmt: skip
    findings: list[Finding] = []
    unread: list[Block] = []
    for block in blocks(file, _plain(text)):
        found = _block(block, index)
        findings += found or []
        if found is None:
            unread.append(block)
    answer = SKIPPED if findings else UNKNOWN
    for block in unread:
        first = next((row for row in block.rows() if row.text.strip()), Row(block.first, ""))
        shown = Row(first.number, first.text[:200])
        summary = "not read: this has no form that is known" if findings else "this has no form that is known"
        findings.append(block.found("host", answer, "no-form", summary, rows=[shown], confidence="low"))
    assert findings
    return findings


def _block(block: Block, index: Index) -> list[Finding] | None:
    """The findings of one output; None: nobody knows its form."""
    for found in (
        smi.read(block, index), tables.read(block, index), dcgm.read(block, index), ports.read(block),
        pci_list.read(block),
    ):  # fmt: skip
        if found:
            return found
    seen = scan(block.text, block.first, index)
    found = judge(seen.folds, index, block.file, block.section)
    found += slurm.read(block) or []
    if not found and seen.headed >= _LOG_SHARE:
        summary = f"no line of {seen.lines} tells of a fault"
        next_ = ("what this log does not hold: state of the GPUs, links and counters",)
        return [block.found("host", OK, "log", summary, next=next_, confidence="medium")]
    return found or None


def _plain(text: str) -> str:
    """Without colours, which `dmesg` writes when it is told to, and without a mark at the beginning."""
    text = text.removeprefix("\ufeff")
    if "\x1b" not in text:
        return text
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
