"""From the text of a file to findings: cut into outputs, each read by whoever knows its form, logs by all.

Every reader says whether a text is its own. Text that no reader knows is also scanned as a log, since a log is whatever
holds lines that a rule knows. If nothing was recognised, the answer depends on what it looks like: lines with the heads
of a log and nothing in them are `ok`, as far as this log goes; anything else is `unknown`, because a file that nobody
can read has not shown that a host is healthy. Beside outputs that were read, one that was not is `skipped` and says so.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainmaster.core.health import (
    boots,
    dcgm,
    disks,
    gids,
    kubernetes,
    links,
    lustre,
    pci_list,
    ports,
    slurm,
    smi,
    smi_tables,
    tables,
)
from trainmaster.core.health.capture import Block, Row, blocks, is_table
from trainmaster.core.health.draft import comparable
from trainmaster.core.health.finding import Finding, explained
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.kernel_log import Scan, headed, scan
from trainmaster.core.health.kmsg import KERNEL, USER
from trainmaster.core.health.policy import Index
from trainmaster.core.health.stamp import written
from trainmaster.core.health.words import OK, SKIPPED, UNKNOWN, Remedy, Verdict

_LOG_SHARE: Final = 0.5
"""So many lines must begin as log lines do for a text without signals to be a healthy log."""
_LARGE: Final = 1_000_000
_HUGE: Final = 32_000_000
"""No tool prints more than this for people, so that a larger text is a log, or nothing."""
_SMALL: Final = 20_000
"""So much of a file is looked at for what it tells about others."""
_HOST: Final = re.compile(r"(([A-Za-z][A-Za-z0-9-]*?)-?\d{1,5})(?:\.[a-z.]+)?")
_NO_HOSTS: Final = frozenset({
    "dmesg", "messages", "syslog", "kern", "kmsg", "journal", "log", "nvidia-smi", "dcgmi", "ibstat", "case", "part",
    "boot", "port", "file", "capture", "smi", "test", "run", "job", "rank",
})  # fmt: skip
"""Words that are numbered in names of files without being hosts."""
_ORDERED: Final = re.compile(r'"reboot_ordered"\s*:\s*"(\d{4}-\d\d-\d\d[T ][\d:]{5,8})')


class Shared(NamedTuple):
    """What one file of a call tells about the others."""

    pins: tuple[int, ...] = ()
    """Indices of GIDs that jobs are pinned to."""
    ordered: str = ""
    """When a reboot of all hosts was ordered."""
    hosts: Mapping[str, str] = {}
    """Hosts by file, where files are named by the hosts that they are of."""


class Log(NamedTuple):
    """A log that was read and not judged yet."""

    block: Block
    scan: Scan
    beside: bool = False
    """Whether the same text also held something else that was read."""


def read(file: str, text: str, index: Index) -> list[Finding]:
    """The findings of a file's text; at least one."""
    return read_all([(file, text)], index)


def read_all(files: Sequence[tuple[str, str]], index: Index) -> list[Finding]:
    """The findings of several files of one call, by name and text; at least one for each.

    Files of a call are taken to be about one thing. Logs are related across files where hosts and clocks agree, and
    what cannot be compared is said. A file with no form that is known is `skipped` beside one that was read.
    """
    shared = _shared(files)
    findings: list[Finding] = []
    logs: list[Log] = []
    for file, text in files:
        if not text.strip():
            nothing = "the file is empty, which proves nothing"
            findings.append(Block(file, "", "", 1, "").found("host", UNKNOWN, "empty", nothing, confidence="low"))
            continue
        unread: list[Block] = []
        known = len(findings) + len(logs)
        for block in blocks(file, _plain(text)):
            found, log = _block(block, index, shared, len(files) > 1)
            findings += [_of_host(each, shared.hosts.get(file, "")) for each in found]
            logs += [log] if log else []
            if not found and not log:
                unread.append(block)
        alone = len(findings) + len(logs) == known
        findings += [_no_form(block, alone) for block in unread]
    findings = explained(_lost_by_name([*findings, *_judged(logs, index)]))
    if any(finding.rule not in ("no-form", "empty") for finding in findings):
        findings = [_beside(finding) for finding in findings]
    assert findings or not files
    return findings


def _lost_by_name(findings: list[Finding]) -> list[Finding]:
    """A line that says of no GPU that it is lost echoes what the same output says of one."""
    named = {
        (each.file, each.section): each.unit
        for each in reversed(findings)
        if each.rule == "smi" and each.remedy is Remedy.REBOOT
    }
    return [
        each.but(echo_of=unit, verdict=Verdict.WATCH, remedy=Remedy.NONE, offence=False)
        if each.rule == "gpu-lost-unnamed" and not each.echo_of and (unit := named.get((each.file, each.section)))
        else each
        for each in findings
    ]


def _no_form(block: Block, alone: bool) -> Finding:
    skipped = len(block.text) - len(block.text.lstrip())
    number = block.first + block.text.count("\n", 0, skipped)
    line = block.text[skipped : skipped + 200].split("\n", 1)[0].rstrip()
    shown = [Row(number, line)] if line else []
    summary = "this has no form that is known" if alone else "not read: this has no form that is known"
    return block.found("host", UNKNOWN if alone else SKIPPED, "no-form", summary, rows=shown, confidence="low")


def _beside(finding: Finding) -> Finding:
    """What could not be read is said and no more, where something else could."""
    if finding.rule != "no-form":
        return finding
    return finding.but(
        verdict=SKIPPED.verdict, remedy=SKIPPED.remedy, summary="not read: this has no form that is known"
    )


def _shared(files: Sequence[tuple[str, str]]) -> Shared:
    pins = [int(pin) for _, text in files for pin in gids.PIN.findall(text[:_SMALL])]
    ordered = [found.group(1) for _, text in files if (found := _ORDERED.search(text[:_SMALL]))]
    return Shared(tuple(dict.fromkeys(pins)), ordered[-1] if ordered else "", _hosts([file for file, _ in files]))


def _hosts(files: Sequence[str]) -> dict[str, str]:
    """Files whose names differ in nothing but the number of a host: `gpu-001.log` and `gpu-002.log`."""
    named = {file: found for file in files if (found := _HOST.fullmatch(file.rpartition("/")[2]))}
    letters = {found.group(2) for found in named.values()}
    if len(letters) != 1 or letters & _NO_HOSTS or len({found.group(1) for found in named.values()}) < 2:
        return {}
    return {file: found.group(1) for file, found in named.items()}


def _of_host(finding: Finding, host: str) -> Finding:
    if not host or finding.host:
        return finding
    return finding.but(host=host, unit=f"host {host}" if finding.unit == "host" else finding.unit)


def _block(block: Block, index: Index, shared: Shared, several: bool) -> tuple[list[Finding], Log | None]:
    """The findings of one output and the log that it is; neither: nobody knows its form.

    A form of its own is read by its reader alone. In other text outputs may stand beside lines of a log, so all readers
    look at it; only of a large log it is taken for granted that it is nothing else.
    """
    head = block.text.lstrip()[:200]
    if _is_journal(block.text):
        return [], _log(block, index, shared, several)
    if head.startswith(("<", "{", "[{")) or is_table(head):
        own = (smi.read, smi_tables.read, tables.read, kubernetes.read, dcgm.read, ports.read, disks.read)
        found = next((its for reader in own if (its := reader(block, index))), None)
        found = found or boots.read(block, shared.ordered)
        return (found, None) if found else ([], _log(block, index, shared, several))
    if len(block.text) > _HUGE or (len(block.text) > _LARGE and headed(block.text) >= _LOG_SHARE):
        return [], _log(block, index, shared, several)
    readers = (
        smi.read, smi_tables.read, dcgm.read, ports.read, pci_list.read, slurm.read, lustre.read, disks.read, links.read
    )  # fmt: skip
    findings = [finding for reader in readers for finding in reader(block, index) or ()]
    findings += gids.read(block, shared.pins) or ()
    log = _log(block, index, shared, several)
    return findings, log._replace(beside=bool(findings)) if log else None


def _log(block: Block, index: Index, shared: Shared, several: bool) -> Log | None:
    """None: it has neither signals nor the look of a log."""
    text = _journal(block.text) if _is_journal(block.text) else block.text
    seen = scan(text, block.first, index, block.file if several else "", shared.hosts.get(block.file, ""))
    return Log(block, seen) if seen.folds or headed(text) >= _LOG_SHARE else None


def _judged(logs: Sequence[Log], index: Index) -> list[Finding]:
    """Logs that are whole files together, others each by itself."""
    findings: list[Finding] = []
    of_file = Counter(log.block.file for log in logs)
    together = [log for log in logs if not log.block.section and of_file[log.block.file] == 1]
    if together:
        found = judge([fold for log in together for fold in log.scan.folds], index, together[0].block.file)
        findings += _without_a_clock(found, [log for log in together if log.scan.folds])
        told = {finding.file for finding in findings}
        findings += [_quiet(log) for log in together if log.block.file not in told and not log.beside]
    for log in logs:
        if log not in together:
            found = judge(log.scan.folds, index, log.block.file, log.block.section)
            findings += found or ([] if log.beside else [_quiet(log)])
    return findings


def _quiet(log: Log) -> Finding:
    summary = f"no line of {log.scan.lines} tells of a fault"
    next_ = ("what this log does not hold: state of the GPUs, links and counters",)
    return log.block.found("host", OK, "log", summary, next=next_, confidence="medium")


def _without_a_clock(findings: list[Finding], logs: Sequence[Log]) -> list[Finding]:
    """Says of files whose times cannot be compared that causes in one were not looked for in the other."""
    samples = {log.block.file: log.scan.folds[0] for log in logs}
    notes: dict[str, str] = {}
    for file, fold in samples.items():
        timeless = fold.first.stamp.at_us is None
        apart = [name for name, other in samples.items() if name != file and (timeless or not comparable(fold, other))]
        if apart:
            notes[file] = f"causes in {', '.join(apart)}: its times cannot be compared with those here"
    return [
        finding.but(next_evidence=(*finding.next_evidence, notes[finding.file]))
        if finding.file in notes and not finding.echo_of and finding.verdict not in (Verdict.OK, Verdict.SKIPPED)
        else finding
        for finding in findings
    ]


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
        message = entry.get("MESSAGE") if isinstance(entry, dict) else None
        if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
            message = bytes(message).decode("utf-8", "replace")  # so the journal writes what is no plain text
        if not isinstance(entry, dict) or not isinstance(message, str):
            lines.append("")
            continue
        stamp = _journal_stamp(entry)
        tag = f"{entry.get('_HOSTNAME', '')} {entry.get('SYSLOG_IDENTIFIER') or 'kernel'}: ".lstrip()
        facility = "" if _of_kernel(entry) else f"<{USER << 3}>"
        lines.append(f"{facility}{stamp}{tag}{message}".replace("\n", " "))
    return "\n".join(lines)


def _of_kernel(entry: dict[str, object]) -> bool:
    """Whether the kernel wrote it, as far as the entry says who did. What programs write into its log comes over its
    transport too, and with another facility."""
    return (
        entry.get("_TRANSPORT") in (None, "kernel")
        and entry.get("SYSLOG_IDENTIFIER") in (None, "", "kernel")
        and str(entry.get("SYSLOG_FACILITY", KERNEL)) == str(KERNEL)
    )


def _journal_stamp(entry: dict[str, object]) -> str:
    """The time since the boot, where it was exported; else that of the day."""
    at, since = str(entry.get("__MONOTONIC_TIMESTAMP", "")), str(entry.get("__REALTIME_TIMESTAMP", ""))
    if at.isdigit() and len(at) < 17:
        return f"[{int(at) // 1_000_000}.{int(at) % 1_000_000:06}] "
    if since.isdigit() and len(since) < 17:
        return f"{written(int(since))} "
    return ""


def _plain(text: str) -> str:
    """Without colours, which `dmesg` writes when it is told to, and without a mark at the beginning."""
    text = text.removeprefix("\ufeff")
    if "\x1b" not in text:
        return text
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
