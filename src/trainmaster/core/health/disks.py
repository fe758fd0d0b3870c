"""What disks say about themselves: `smartctl` and `nvme smart-log`, as text or JSON.

A disk that calls itself failed is; so is one whose spare blocks are used up or that only reads any more. Heat is not
the disk's fault. Errors of the medium that it has counted so far, and wear beyond what it was made for, are a reason to
look at it, and to plan.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding, worst
from trainmaster.core.health.policy import Index
from trainmaster.core.health.unit import disk
from trainmaster.core.health.words import OK, SUSPECT, TRIAGE, WATCH, Answer

_HEALTH: Final = re.compile(r"(?:self-assessment test result|SMART Health Status): *(\S+)")
_FIELD: Final = re.compile(r"\s*([A-Za-z][\w ]*?)\s*: *(\S.*)")
_ATTRIBUTE: Final = re.compile(r"\s*\d{1,3} (\w+)\s+0x[0-9a-f]{4}\s.*\s(\d{1,12})(?: \(.*\))?\s*$")
_DEVICE: Final = re.compile(r"(?:/dev/|NVME device:\s*)([\w-]+)")
_HOT: Final = 0x2
_WORN_PERCENT: Final = 100
_COUNTED: Final = {
    "reallocated_sector_ct": WATCH, "current_pending_sector": SUSPECT, "offline_uncorrectable": SUSPECT,
    "reported_uncorrect": WATCH, "media_errors": WATCH, "media_and_data_integrity_errors": WATCH,
}  # fmt: skip

Claim = tuple[Answer, str, list[Row]]


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a disk's own report; None: it is none."""
    text = block.text
    if text.lstrip().startswith("{"):
        return _json(block)
    if not re.search(r"^smartctl \d|SMART overall-health|Smart Log for NVME|^critical_warning\b", text, re.MULTILINE):
        return None
    unit, fields, verdict = "", dict[str, tuple[str, Row]](), list[Claim]()
    findings: list[Finding] = []
    for row in block.rows():
        named = _DEVICE.search(row.text)
        if named and row.text.startswith("Smart Log"):
            findings += _finding(block, unit, fields, verdict) if fields else []
            unit, fields, verdict = disk(named.group(1)), {}, []
        if health := _HEALTH.search(row.text):
            passed = health.group(1).upper().startswith(("PASSED", "OK"))
            verdict.append(
                (OK, "it passes its own test", [row]) if passed else (TRIAGE, "it calls itself failed", [row])
            )
        elif found := _ATTRIBUTE.match(row.text) or _FIELD.match(row.text):
            fields.setdefault(re.sub(r"\W+", "_", found.group(1).lower()), (found.group(2).strip(), row))
    named = _DEVICE.search(block.command)
    serial = fields.get("serial_number", ("",))[0]
    unit = unit or (disk(named.group(1)) if named else f"disk {serial}".strip())
    return [*findings, *_finding(block, unit, fields, verdict)]


def _finding(block: Block, unit: str, fields: dict[str, tuple[str, Row]], verdict: list[Claim]) -> list[Finding]:
    claims = [*verdict, *_claims(fields)]
    asking = [claim for claim in claims if claim[0] != OK] or claims or [(OK, "no field asks for anything", [])]
    words = "; ".join(dict.fromkeys(said for _, said, _ in asking))
    rows = list(dict.fromkeys(row for _, _, its in asking for row in its))
    answer = worst(each for each, _, _ in asking)
    next_ = ("serial number of the disk: it is the offender, not the host",) if answer == TRIAGE else ()
    return [block.found(unit, answer, "disk-smart", words, rows=rows, next=next_)]


def _claims(fields: dict[str, tuple[str, Row]]) -> Iterator[Claim]:
    def number(name: str) -> int:
        text = fields.get(name, ("",))[0].replace(",", "")
        found = re.match(r"0x[0-9a-fA-F]{1,8}|\d{1,15}", text)
        return int(found.group(), 0 if found.group().startswith("0x") else 10) if found else 0

    if warning := number("critical_warning"):
        hot = not warning & ~_HOT
        words = "it is too hot" if hot else f"it warns of itself (critical warning {warning:#x})"
        yield SUSPECT if hot else TRIAGE, words, [fields["critical_warning"][1]]
    spare, least = number("available_spare"), number("available_spare_threshold")
    if "available_spare" in fields and spare < least:
        yield TRIAGE, f"spare blocks are used up ({spare} %, {least} % at least)", [fields["available_spare"][1]]
    if number("percentage_used") >= _WORN_PERCENT:
        yield WATCH, "it is worn beyond what it was made for", [fields["percentage_used"][1]]
    for name, answer in _COUNTED.items():
        if count := number(name):
            yield answer, f"{name.replace('_', ' ')}: {count}", [fields[name][1]]


def _json(block: Block) -> list[Finding] | None:
    try:
        document: Any = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(document, dict) or not {"smart_status", "critical_warning"} & set(document):
        return None
    first = block.rows()[0]._replace(text=block.rows()[0].text[:200])
    log = document.get("nvme_smart_health_information_log")
    leaves = {**document, **(log if isinstance(log, dict) else {})}
    fields = {str(key).lower(): (str(value), first) for key, value in leaves.items() if isinstance(value, int)}
    status, device = document.get("smart_status"), document.get("device")
    passed = status.get("passed") if isinstance(status, dict) else None
    verdict: list[Claim] = [] if passed is None else [(OK, "it passes its own test", [first])]
    if passed is False:
        verdict = [(TRIAGE, "it calls itself failed", [first])]
    name = str(device.get("name", "")) if isinstance(device, dict) else ""
    named = _DEVICE.search(name or block.command)
    unit = disk(named.group(1)) if named else f"disk {document.get('serial_number', '')}".strip()
    return _finding(block, unit, fields, verdict)
