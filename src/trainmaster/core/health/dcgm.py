"""Outputs of `dcgmi`: health, diagnostics, NVLink states and counters, watched fields.

A diagnostic has four ends, not two: it passes, fails, was not run, or could not be run. A GPU that is in use, or that
waits for a reset, fails every test without being broken, so such a failure is `unknown` and never counts against the
part. A failed check of the installation (persistence mode, permissions, libraries) is configuration.

The watched Xid is a gauge that keeps its last value until the driver is loaded again: it says what was, not what is.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding, worst
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import (
    CONFIG,
    OK,
    REBOOT,
    RESET,
    RMA,
    SKIPPED,
    SUSPECT,
    TRIAGE,
    UNKNOWN,
    WATCH,
    Answer,
    Verdict,
)

_BUSY: Final = re.compile(r"busyorunavailable|unabletocreatecudacontext|deviceisinuse|isbeingusedby|couldnotbeacquired")
_NO_MEMORY: Final = re.compile(r"MEMORY_ALLOC|(?:unable to|could not|cannot) allocate", re.IGNORECASE)
"""A test that had no memory to work on has tested nothing, whatever it says."""
_INSTALLATION: Final = re.compile(
    r"persistence|environment|permissions|denylist|blacklist|library|libraries|graphics processes|fabric manager|numa",
    re.IGNORECASE,
)
_ENTITY: Final = re.compile(r"(?:GPU )?(?:ID: )?(\d{1,3})")
_ASKS: Final[tuple[tuple[re.Pattern[str], Answer], ...]] = (
    (re.compile(r"(?:row remap\w*|page retirement\w*|retired pages?)\b.*\bpending|pending.*remap", re.I), RESET),
    (re.compile(r"(?:row )?remap\w*\b.*\bfail|SRAM.*threshold", re.I), RMA),
    (re.compile(r"fall\w* off the bus|GPU is lost|lost communication", re.I), REBOOT),
)
"""What messages of the health monitor ask for, where that is more than its word says."""
_CELL: Final = re.compile(r"\|([^|]*)\|([^|]*)\|")
_RESULT: Final = re.compile(r"(Pass|Fail|Warn|Skip)(?: - |\s*-?\s*)(?:All|GPUs?: ([\d, ]+))?", re.IGNORECASE)
_DMON: Final = re.compile(r"\s*GPU[ -]?(\d{1,3})\s+(\S+)")


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a block that is an output of dcgmi; None: it is none."""
    text = block.text.lstrip()
    if text.startswith("{"):
        return _documents(block, index)
    if re.search(r"^# ?Entity[ \t]+\S", text, re.MULTILINE):
        return list(_watched(block, index))
    if "gpuId " in text and re.search(r"^[ \t]*(?:[UDX_] )+[UDX_][ \t]*$", text, re.MULTILINE):
        return list(_link_states(block, [Row(row.number, row.text) for row in block.rows()]))
    if "Health Monitor Report" in text and "|" in text:
        return list(_health_table(block))
    if re.search(r"^[ \t]*Link \d+: ", text, re.MULTILINE) and re.search(r"^GPU \d+:", text, re.MULTILINE):
        return list(_smi_links(block, index))
    if re.search(r"\|\s*(?:Pass|Fail|Warn|Skip)\b", text):
        return list(_diagnostic_table(block))
    return None


def _documents(block: Block, index: Index) -> list[Finding] | None:
    """JSON, one document in all or one a line; each line of several is a capture of its own."""
    rows = [row for row in block.rows(10_000_000) if row.text.strip()]
    whole = _json(block.text)
    if whole is None:
        rows = [row for row in rows if row.text.lstrip().startswith("{")]
    if whole is not None or len(rows) == 1:
        documents = [(whole if whole is not None else _json(rows[0].text), rows[0], block)]
    else:
        named = [
            block._replace(section=f"{block.section} document {place}".strip()) for place in range(1, len(rows) + 1)
        ]
        documents = [(_json(row.text), row, part) for row, part in zip(rows, named, strict=True)]
    findings: list[Finding] = []
    for document, row, part in documents:
        found = _document(part, document, row, index) if isinstance(document, dict) else None
        if found is None and len(documents) == 1:
            return None
        findings += found or [part.found("host", UNKNOWN, "json", "no output of a known tool", rows=[row])]
    return findings


def _document(block: Block, document: dict[str, Any], row: Row, index: Index) -> list[Finding] | None:
    if "DCGM GPU Diagnostic" in document or "DCGM Diagnostic" in document:
        return list(_diagnostic(block, document, row))
    if states := next((value for key, value in document.items() if key.startswith("dcgmi nvlink")), None):
        return list(_link_states(block, [Row(row.number, str(line)) for line in states], row))
    body, header = document.get("body"), " ".join(map(str, document.get("header") or []))
    if not isinstance(body, dict):
        return None
    if "Error Counts" in header or any(re.fullmatch(r"Link \d+", str(key)) for key in body):
        return [_link_errors(block, body, header, row, index)]
    if "Overall Health" in body or "Health" in header:
        return list(_health(block, body, row))
    return None


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _health(block: Block, body: dict[str, Any], row: Row) -> Iterator[Finding]:
    """Healthy is one opinion among others; warnings and failures are about the entities that they name."""
    messages = _messages(body, "host")
    for unit, word, said in _entities(body, "host"):
        answer = _health_answer(word, messages.get(unit, []))
        summary = f"dcgmi health says {word}" + (f": {said}" if said else "")
        next_ = ("another source: it has called GPUs healthy that need a reset",) if answer == OK else ()
        yield block.found(unit, answer, "dcgm-health", summary, rows=[row], next=next_, confidence="medium")


def _health_answer(word: str, messages: list[str]) -> Answer:
    """What its messages ask for, if it has some that are known; else what the word says."""
    answer = {"healthy": OK, "warning": WATCH, "failure": TRIAGE, "fail": TRIAGE}.get(word.lower(), UNKNOWN)
    asked = [asks for said in messages for pattern, asks in _ASKS if pattern.search(said)]
    return worst(asked) if asked and answer.verdict in (Verdict.BAD, Verdict.WATCH) else answer


def _messages(tree: dict[str, Any], unit: str, depth: int = 0) -> dict[str, list[str]]:
    """Sentences by entity."""
    found: dict[str, list[str]] = {}
    for key, value in tree.items():
        named = _ENTITY.fullmatch(str(key))
        here = f"gpu {named.group(1)}" if named else unit
        if isinstance(value, str) and " " in value:
            found.setdefault(here, []).append(value)
        elif isinstance(value, dict) and depth < 16:
            for each, its in _messages(value, here, depth + 1).items():
                found.setdefault(each, []).extend(its)
    return found


def _entities(tree: dict[str, Any], unit: str, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Unit, word and message; the overall word stands for the host unless an entity says worse."""
    found: list[tuple[str, str, str]] = []
    for key, value in tree.items():
        if not isinstance(value, dict) or depth > 8:
            continue
        named = _ENTITY.fullmatch(str(key))
        here = f"gpu {named.group(1)}" if named else unit
        word = value.get("value")
        said = word.lower() if isinstance(word, str) else ""
        if said in ("warning", "failure", "fail") or (said == "healthy" and depth == 0):
            found.append((here, str(word), str(key) if here == unit and key != "Overall Health" else ""))
        children = value.get("children")
        if isinstance(children, dict):
            found += _entities(children, here, depth + 1)
    named_ones = {unit for unit, _, _ in found if unit != "host"}
    for each in found:
        if depth or not (each[0] == "host" and each[1].lower() != "healthy" and named_ones):
            yield each


def _diagnostic(block: Block, document: dict[str, Any], row: Row) -> Iterator[Finding]:
    top = document.get("DCGM GPU Diagnostic") or document.get("DCGM Diagnostic")
    claims: dict[str, list[tuple[Answer, str]]] = {}
    passed = 0
    for category in _dicts(top, "test_categories"):
        for test in _dicts(category, "tests"):
            summary = test.get("test_summary")
            for result in _dicts(test, "results") or ([summary] if isinstance(summary, dict) else []):
                unit, answer, words = _result(str(category.get("category")), str(test.get("name")), result)
                passed += answer == OK
                if answer != OK:
                    claims.setdefault(unit, []).append((answer, words))
    for unit, its in claims.items():
        answer = worst(answer for answer, _ in its)
        summary = "; ".join(dict.fromkeys(words for _, words in its))
        yield block.found(unit, answer, "dcgm-diag", summary, rows=[row], next=_after(answer), offence=answer == TRIAGE)
    if not claims:
        yield block.found(
            "host", OK if passed else UNKNOWN, "dcgm-diag", f"{passed} checks of the diagnostic pass", rows=[row]
        )


def _result(category: str, name: str, result: dict[str, Any]) -> tuple[str, Answer, str]:
    ids = result.get("gpu_ids", result.get("gpu_id", result.get("entity_id", "")))
    unit = f"gpu {ids}" if re.fullmatch(r"\d{1,3}", str(ids)) else "host"
    said = " ".join(str(part) for part in (result.get("warnings"), result.get("info")) if part)
    return unit, _answer(str(result.get("status", "")), name, category, said), f"{name}: {result.get('status')}"


def _answer(status: str, name: str, category: str, said: str) -> Answer:
    word = status.strip().lower()
    if word in ("pass", "passed"):
        return UNKNOWN if _NO_MEMORY.search(said) else OK
    if word in ("skip", "skipped", "not run", "notrun"):
        return SKIPPED
    if _BUSY.search("".join(said.lower().split())):
        return UNKNOWN
    if word.startswith("warn"):
        return WATCH
    if word.startswith("fail"):
        if re.search(r"row remap|page retirement", name, re.IGNORECASE):
            return RESET
        installed = category.lower() == "deployment" and "inforom" not in name.lower()
        return CONFIG if installed or _INSTALLATION.search(name) else TRIAGE
    return UNKNOWN


def _after(answer: Answer) -> tuple[str, ...]:
    if answer == UNKNOWN:
        return ("processes on the GPU, and its recovery action; the same diagnostic after the drain",)
    return ("the same diagnostic once more, on an empty host",) if answer.verdict is Verdict.BAD else ()


def _diagnostic_table(block: Block) -> Iterator[Finding]:
    """The table for people. Its cells are cut inside of words, so their text is compared without spaces."""
    name, failed, said, proof = "", dict[str, list[str]](), "", list[Row]()
    passed: dict[str, int] = {}
    results: list[tuple[str, str, str]] = []
    for row in block.rows():
        cell = _CELL.search(row.text)
        if cell is None:
            continue
        head, text = cell.group(1).strip(), cell.group(2)
        found = _RESULT.match(text.strip())
        name = head if head and found else name
        if found is None:
            said += text
            if failed:
                proof.append(row)
            continue
        for unit in [f"gpu {each.strip()}" for each in (found.group(2) or "").split(",") if each.strip()] or ["host"]:
            results.append((unit, found.group(1), name))
            if found.group(1).lower() == "pass":
                passed[unit] = passed.get(unit, 0) + 1
            else:
                failed.setdefault(unit, []).append(name)
                proof.append(row)
    claims: dict[str, list[tuple[Answer, str]]] = {}
    for unit, status, test in results:
        answer = _answer(status, test, "", said)
        if answer != OK:
            claims.setdefault(unit, []).append((answer, f"{test}: {status}"))
    for unit, its in claims.items():
        answer = worst(each for each, _ in its)
        words = "; ".join(dict.fromkeys(words for _, words in its))
        if answer == UNKNOWN:
            words += "; the GPU is in use or needs a reset, which says nothing about its parts"
        yield block.found(unit, answer, "dcgm-diag", words, rows=proof, next=_after(answer), offence=answer == TRIAGE)
    for unit, count in passed.items():
        if unit not in claims and (unit != "host" or not claims):
            yield block.found(unit, OK, "dcgm-diag", f"{count} tests of the diagnostic pass")


def _health_table(block: Block) -> Iterator[Finding]:
    """The table for people: the overall word, then what each GPU reports."""
    unit = "host"
    words: dict[str, tuple[str, list[Row]]] = {}
    for row in block.rows():
        cell = _CELL.search(row.text)
        if cell is None:
            continue
        head, text = cell.group(1).strip(), cell.group(2).strip()
        named = re.fullmatch(r"(?:->\s*)?(?:GPU(?: ID)?:?\s*)?(\d{1,3})", head)
        unit = f"gpu {named.group(1)}" if named else unit
        found = re.match(r"(Healthy|Warning|Failure)\b", text)
        word, rows = words.get(unit, ("", []))
        word = _worse(word, found.group(1)) if found else word
        words[unit] = (word, [*rows, row] if found or (text and rows) else rows)
    named_ones = [unit for unit, (word, _) in words.items() if unit != "host" and word not in ("", "Healthy")]
    for unit, (word, rows) in words.items():
        if not word or (unit == "host" and named_ones):
            continue
        answer = _health_answer(word, [_said(rows)])
        next_ = ("another source: it has called GPUs healthy that need a reset",) if answer == OK else ()
        summary = f"dcgmi health says {word}"
        yield block.found(unit, answer, "dcgm-health", summary, rows=rows, next=next_, confidence="medium")


def _said(rows: list[Row]) -> str:
    """The text of cells, which go over several lines."""
    return " ".join(cell.group(2).strip() for row in rows if (cell := _CELL.search(row.text)))


def _worse(one: str, other: str) -> str:
    order = ("", "Healthy", "Warning", "Failure")
    return max(one, other, key=order.index)


def _smi_links(block: Block, index: Index) -> Iterator[Finding]:
    """`nvidia-smi nvlink -s` and `-e`: links that are inactive while others of the GPU run, and errors."""
    unit = ""
    states: dict[str, list[tuple[str, bool]]] = {}
    errors: dict[str, list[tuple[str, int]]] = {}
    proof: dict[str, list[Row]] = {}
    for row in block.rows():
        if named := re.match(r"GPU (\d{1,3}):", row.text):
            unit = f"gpu {named.group(1)}"
            states.setdefault(unit, [])
        elif not unit:
            continue
        elif found := re.match(r"\s*Link (\d+): (?:<inactive>|([\d.]+) GB/s)", row.text):
            states[unit].append((found.group(1), found.group(2) is None))
            proof.setdefault(unit, []).extend([row] if found.group(2) is None else [])
        elif found := re.match(r"\s*Link (\d+): (.*?)(?: Errors?)?: (0*[1-9]\d{0,17})\b", row.text):
            errors.setdefault(unit, []).append((f"link {found.group(1)} {found.group(2)}", int(found.group(3))))
            proof.setdefault(unit, []).append(row)
    for each, links in states.items():
        off = [link for link, inactive in links if inactive]
        counted = errors.get(each, [])
        if off and len(off) < len(links):
            answer, summary = TRIAGE, f"NVLink {', '.join(off)} is inactive while others of this GPU run"
        elif counted:
            most = max(count for _, count in counted)
            answer = SUSPECT if most > index.limits.crc_errors else WATCH
            summary = "; ".join(f"{name} {count}" for name, count in counted)
        else:
            answer = OK
            summary = f"{len(links)} NVLinks, none used" if off else "no NVLink error"
        next_ = ("whether the links are expected: inventory, or the same links of its peers",) if off else ()
        yield block.found(each, answer, "nvlink-state", summary, rows=proof.get(each, []), next=next_)


def _link_errors(block: Block, body: dict[str, Any], header: str, row: Row, index: Index) -> Finding:
    named = re.search(r"GPU (\d{1,3})", header)
    unit = f"gpu {named.group(1)}" if named else "gpu"
    errors: list[str] = []
    most = 0
    for link, content in body.items():
        for counter, value in (content.get("children") or {}).items() if isinstance(content, dict) else ():
            text = str(value.get("value", "")) if isinstance(value, dict) else ""
            if text.isdigit() and int(text[:18]):
                errors.append(f"{link} {counter} {text}")
                most = max(most, int(text[:18]) if "CRC" in counter else 0)
    answer = OK if not errors else SUSPECT if most > index.limits.crc_errors else WATCH
    next_ = ("the same counters once more: a rate tells, a total does not",) if errors else ()
    return block.found(unit, answer, "nvlink-errors", "; ".join(errors) or "no NVLink errors", rows=[row], next=next_)


def _link_states(block: Block, rows: list[Row], whole: Row | None = None) -> Iterator[Finding]:
    """U up, D down, X disabled. Disabled is somebody's decision; down is not."""
    unit = ""
    states: dict[str, list[str]] = {}
    proof: dict[str, list[Row]] = {}
    for row in rows:
        if named := re.search(r"(gpu|physical)Id (\d{1,3})", row.text):
            unit = f"{'gpu' if named.group(1) == 'gpu' else 'nvswitch'} {named.group(2)}"
        elif unit and re.fullmatch(r"\s*(?:[UDX_]\s+)*[UDX_]\s*", row.text):
            states.setdefault(unit, []).extend(row.text.split())
            proof.setdefault(unit, []).append(whole or row)
    for each, its in states.items():
        down = [str(link) for link, state in enumerate(its) if state == "D"]
        off = its.count("X")
        summary = f"NVLink {', '.join(down)} is down" if down else f"{its.count('U')} NVLinks are up"
        next_ = (f"{off} links are disabled: compare with the inventory",) if off else ()
        yield block.found(each, TRIAGE if down else OK, "nvlink-state", summary, rows=proof[each], next=next_)


def _watched(block: Block, index: Index) -> Iterator[Finding]:
    """`dcgmi dmon` of the field XIDER (230)."""
    if not re.search(r"XIDER|XID", block.text):
        return
    silent, spoken = [], False
    for row in block.rows():
        found = _DMON.match(row.text)
        if found is None or not found.group(2).isdigit() or len(found.group(2)) > 5:
            continue
        code, unit = int(found.group(2)), f"gpu {found.group(1)}"
        if code == 0:
            silent.append(row)
            continue
        once = index.row(f"xid-{code}").answer
        answer = once if once.verdict is Verdict.OK else WATCH
        summary = f"the last Xid was {code}: {index.row(f'xid-{code}').means}; the gauge keeps it after it is over"
        next_ = ("recovery action of the GPU; the kernel log for its time",)
        spoken = True
        yield block.found(unit, answer, f"xid-{code}", summary, rows=[row], next=next_, confidence="low")
    if silent and not spoken:
        words = f"{len(silent)} GPUs have shown no Xid since the driver was loaded"
        yield block.found("host", OK, "xid-gauge", words, rows=silent[:8], confidence="medium")


def _dicts(tree: Any, key: str) -> list[dict[str, Any]]:
    found = tree.get(key) if isinstance(tree, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
