"""From the text of a file to findings: cut into outputs, each read by whoever knows its form, logs by all.

Every reader says whether a text is its own. Text that no reader knows is also scanned as a log, since a log is whatever
holds lines that a rule knows. If nothing was recognised, the answer depends on what it looks like: lines with the heads
of a log and nothing in them are `ok`, as far as this log goes; anything else is `unknown`, because a file that nobody
can read has not shown that a host is healthy. Beside outputs that were read, one that was not is `skipped` and says so.
"""

import re
from typing import Final

import msgspec

from trainmaster.core.health import dcgm, gids, kubernetes, pci_list, ports, slurm, smi, tables
from trainmaster.core.health.capture import Block, Row, blocks, is_table
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.kernel_log import headed, scan
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, SKIPPED, UNKNOWN

_LOG_SHARE: Final = 0.5
"""So many lines must begin as log lines do for a text without signals to be a healthy log."""
_LARGE: Final = 1_000_000


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
        shown = [Row(row.number, row.text[:200]) for row in block.rows() if row.text.strip()][:1]
        summary = "not read: this has no form that is known" if findings else "this has no form that is known"
        findings.append(block.found("host", answer, "no-form", summary, rows=shown, confidence="low"))
    assert findings
    return findings


def _block(block: Block, index: Index) -> list[Finding] | None:
    """The findings of one output; None: nobody knows its form.

    A form of its own is read by its reader alone. In other text outputs may stand beside lines of a log, so all readers
    look at it; only of a large log it is taken for granted that it is nothing else.
    """
    head = block.text.lstrip()[:200]
    if _is_journal(block.text):
        return _log(block, index)
    if head.startswith(("<", "{", "[{")) or is_table(head):
        own = (smi.read, tables.read, kubernetes.read, dcgm.read, ports.read)
        found = next((its for reader in own if (its := reader(block, index))), None)
        return found or _log(block, index)
    if len(block.text) > _LARGE and headed(block.text) >= _LOG_SHARE:
        return _log(block, index)
    readers = (smi.read, dcgm.read, ports.read, gids.read, pci_list.read, slurm.read)
    findings = [finding for reader in readers for finding in reader(block, index) or ()]
    logged = _log(block, index) or []
    if findings:
        logged = [finding for finding in logged if finding.rule != "log"]
    return [*findings, *logged] or None


def _log(block: Block, index: Index) -> list[Finding] | None:
    text = _journal(block.text) if _is_journal(block.text) else block.text
    seen = scan(text, block.first, index)
    found = judge(seen.folds, index, block.file, block.section, seen.boots)
    if not found and headed(text) >= _LOG_SHARE:
        summary = f"no line of {seen.lines} tells of a fault"
        next_ = ("what this log does not hold: state of the GPUs, links and counters",)
        return [block.found("host", OK, "log", summary, next=next_, confidence="medium")]
    return found or None


def _is_journal(text: str) -> bool:
    return text.lstrip()[:1] == "{" and '"MESSAGE"' in text[:10_000]


def _journal(text: str) -> str:
    """Lines of `journalctl -o json` as syslog has them, one for one."""
    lines = []
    for line in text.split("\n"):
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("MESSAGE"), str):
            lines.append("")
            continue
        at = str(entry.get("__MONOTONIC_TIMESTAMP", ""))
        stamp = f"[{int(at) // 1_000_000}.{int(at) % 1_000_000:06}] " if at.isdigit() and len(at) < 17 else ""
        tag = f"{entry.get('_HOSTNAME', '')} {entry.get('SYSLOG_IDENTIFIER') or 'kernel'}: ".lstrip()
        lines.append(f"{stamp}{tag}{entry['MESSAGE']}".replace("\n", " "))
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Without colours, which `dmesg` writes when it is told to, and without a mark at the beginning."""
    text = text.removeprefix("\ufeff")
    if "\x1b" not in text:
        return text
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
