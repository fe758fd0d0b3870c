"""Tables of events, counts and fields, told by the names of their columns.

Histories come as tables: what monitoring kept, what a ticket lists, what a script counted. They are judged by the same
rows of the policy as lines are. What a single event does not tell, a history does: the same region of a memory that
fails again although each time a row was remapped, a host that is returned and drained again, a place in the rack that
the worst hosts share, counts of a code that are alike on all hosts of a job and so say nothing about any of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from trainmaster.core.health.capture import Block, Row, columns, table
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.fold import Folder, Line, Signal
from trainmaster.core.health.history import history, told
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.policy import Index
from trainmaster.core.health.stamp import Stamp
from trainmaster.core.health.unit import gpu
from trainmaster.core.health.words import APP, OK, RESET, RMA, SUSPECT, TRIAGE, WATCH, Verdict
from trainmaster.core.health.xid import Xids, action_of

Cells = list[tuple[Row, dict[str, str]]]
_REGION: Final = re.compile(r"FBPA\s*(\d+)\D{0,20}sub-?partition\s*(\d+)|bank\s*(0x[0-9a-f]+|\d+)", re.IGNORECASE)
_REFUSED: Final = re.compile(r"UnexpectedAdmissionError|Allocat\w* failed|OutOf\w*gpu|InsufficientGPU", re.IGNORECASE)
_PAIR: Final = re.compile(r"GPUs? (?:pair )?\(?([\d, ]+)\)?")
_CODE: Final = re.compile(r"xid[ _-]?(\d{1,3})(?:\+(\d{1,3}))?", re.IGNORECASE)


_NAMES: Final = {
    "host": "node", "hostname": "node", "nodename": "node", "timestamp": "time", "date": "time", "when": "time",
    "pci": "gpu", "bus_id": "gpu", "pci_bus_id": "gpu",
}  # fmt: skip
"""Other names of columns."""


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a table; None: it is no table, or one whose columns say nothing."""
    known = [name.lower() for name in columns(block)[0]]
    called = {name: alias if (alias := _NAMES.get(name, name)) not in known else name for name in known}
    names = list(called.values())
    reader = next((reader for wanted, reader in _READERS if wanted <= set(names)), None)
    counted = next((name for name in names if re.fullmatch(r"xid_?\d+_count", name)), "") if "node" in names else ""
    found = table(block) if reader is not None or counted else None
    if found is None:
        return None
    rows = [(row, {called[name.lower()]: value for name, value in cells.items()}) for row, cells in found[1]]
    return reader(block, rows, index) if reader is not None else _counts(block, rows, counted, index)


def _lines(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """A column of raw lines: each is decoded anew, whatever other columns say about it."""
    folder, xids = Folder(index), Xids(index)
    for row, cells in rows:
        line = Line(row.number, row.text, Stamp(None, "", "", 0))
        for signal in xids.signals(cells["line"]):
            folder.add(signal, line)
    return judge(list(folder.folds.values()), index, block.file, block.section)


def _xid_events(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Time, GPU, code."""
    folder = Folder(index)
    for row, cells in rows:
        if cells["xid"].isdigit() and len(cells["xid"]) < 6:
            at = re.fullmatch(r"\d{1,12}(?:\.\d+)?", cells.get("t_s", ""))
            stamp = Stamp(round(float(at.group()) * 1e6), "boot", "", 0) if at else Stamp(None, "", "", 0)
            folder.add(Signal(f"xid-{cells['xid']}", gpu(cells["gpu"])), Line(row.number, row.text, stamp))
    return judge(list(folder.folds.values()), index, block.file, block.section)


def _gpu_events(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Events of a GPU in words: codes, regions, remapped rows. A region that fails again is the part."""
    by_unit: dict[str, Cells] = {}
    for row, cells in rows:
        if re.search(r"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}|^\d+$", cells["gpu"]):
            by_unit.setdefault(gpu(cells["gpu"]), []).append((row, cells))
    return [finding for unit, its in by_unit.items() for finding in _one_gpu(block, unit, its, index)]


def _one_gpu(block: Block, unit: str, rows: Cells, index: Index) -> Iterator[Finding]:
    regions: dict[str, list[Row]] = {}
    region = ""
    codes: dict[str, list[Row]] = {}
    actions: list[tuple[Row, str]] = []
    for row, cells in rows:
        text = f"{cells['event']} {cells.get('detail', '')}"
        code = _CODE.search(cells["event"])
        if code:
            codes.setdefault(f"xid-{code.group(1)}", []).append(row)
        if code and code.group(1) == "154":
            actions.append((row, action_of(cells.get("detail", "").rpartition(":")[2])))
        if (code and "48" in code.groups()) or "uncorrectable" in text.lower():
            named = _REGION.search(text)
            region = named.group(0).lower() if named else region if re.search(r"\bsame\b", text) else ""
            if region:
                regions.setdefault(region, []).append(row)
    again = {name: its for name, its in regions.items() if len(its) >= 2}
    if again:
        worst_region, its = max(again.items(), key=lambda each: len(each[1]))
        summary = (
            f"{len(its)} uncorrectable errors in one region ({worst_region}) although rows were remapped each time"
        )
        next_ = ("whether the row remapper has failed: it need not have, for the part to be dying",)
        yield block.found(unit, RMA, "hbm-region", summary, rows=its, next=next_).but(count=len(its))
    for rule, its in codes.items():
        row_of = index.row(rule)
        answer = row_of.answer
        if rule == "xid-154":
            answer = OK if actions and actions[-1][1] == "none" else WATCH
        for repeat in row_of.repeats:
            if not repeat.same and len(its) >= repeat.at_least and repeat.answer.rank > answer.rank and not again:
                answer = repeat.answer
        if again and answer.verdict is Verdict.BAD:
            answer = WATCH
        found = block.found(unit, answer, rule, f"Xid {rule[4:]}: {row_of.means}", rows=its)
        yield found.but(echo_of=unit if again else "")


def _dcgm_fields(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Fields of one GPU. A storm of corrected errors harms nothing but everybody who has to wait for it."""
    limits = index.limits
    values = {cells["field"].upper(): (row, cells["value"], cells.get("note", "")) for row, cells in rows}
    number = {name: int(value[:18]) for name, (_, value, _) in values.items() if value.isdigit()}
    if not any(name.endswith(("_TOTAL", "_ROWS", "FAILURE")) or name.startswith(("SBE", "DBE")) for name in values):
        return []
    rate = max((float(found.group(1)) for _, _, note in values.values() if (found := _rate(note))), default=0.0)
    stalled = [
        row
        for row, value, note in values.values()
        if re.search(r"time-?out|too long|killed|liveness|hang", f"{value} {note}")
    ]
    corrected = number.get("SBE_VOL_TOTAL", 0)
    storm = corrected > limits.corrected_storm or rate > limits.corrected_storm_per_s
    proof = [values[name][0] for name in ("SBE_VOL_TOTAL", "SBE_AGG_TOTAL") if name in values]
    if number.get("ROW_REMAP_FAILURE", 0):
        row = values["ROW_REMAP_FAILURE"][0]
        return [block.found("gpu", RMA, "dcgm-fields", "a row could not be remapped", rows=[row])]
    if number.get("ROW_REMAP_PENDING", 0):
        row = values["ROW_REMAP_PENDING"][0]
        return [block.found("gpu", RESET, "dcgm-fields", "a row waits for a reset to be remapped", rows=[row])]
    if number.get("DBE_VOL_TOTAL", 0):
        row = values["DBE_VOL_TOTAL"][0]
        return [block.found("gpu", index.row("xid-48").answer, "dcgm-fields", "uncorrected errors", rows=[row])]
    if storm and (stalled or rate > limits.corrected_storm_per_s):
        summary = f"a storm of corrected errors ({corrected:,} since the driver was loaded, {rate:,.0f} a second)"
        summary += "; what reads this GPU times out" if stalled else ""
        next_ = ("step times of jobs on this GPU: it is likely a straggler", "probe it in a process of its own")
        return [block.found("gpu", TRIAGE, "corrected-storm", summary, rows=[*proof, *stalled], next=next_)]
    if storm or stalled:
        summary = "corrected errors by the million" if storm else "what reads this GPU times out"
        return [block.found("gpu", SUSPECT, "corrected-storm", summary, rows=[*proof, *stalled], next=("the rate",))]
    return [block.found("gpu", OK, "dcgm-fields", "no field asks for anything", rows=proof)]


def _rate(note: str) -> re.Match[str] | None:
    return re.search(r"(\d{1,12}(?:\.\d+)?)\s*(?:per second|/s|a second)", note)


def _counts(block: Block, rows: Cells, column: str, index: Index) -> list[Finding]:
    """Counts of one code by host. Peers of a job are the control group."""
    code = int(re.findall(r"\d+", column)[0])
    row_of = index.row(f"xid-{code}")
    counted = [(row, cells["node"], int(cells[column])) for row, cells in rows if cells[column].isdigit()]
    if not counted:
        return []
    middle = median(count for _, _, count in counted)
    summary = f"Xid {code} on {len(counted)} hosts, {middle:,.0f} in the middle: {row_of.means}"
    if code == 45 or row_of.answer.verdict is Verdict.OK:
        next_ = ("another code: counts of this one do not tell a bad host from its peers",)
        answer = APP if code == 45 else row_of.answer
        return [
            block.found("rack", answer, f"xid-{code}", summary, rows=[row for row, _, _ in counted[:8]], next=next_)
        ]
    return [
        block.found(f"host {host}", row_of.answer, f"xid-{code}", f"Xid {code}: {row_of.means}", rows=[row], host=host)
        for row, host, count in counted
        if count
    ]


def _isolations(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Ports that a rule takes out and puts back: the third time within two hours is for good. Without a column that
    names it, the file does."""
    if not any(cells["event"] in ("isolate", "unisolate") for _, cells in rows):
        return []
    named = re.search(r"(?:^|/)(port[\w.-]*?)(?:\.\w+)?$", block.file)
    out: dict[str, list[tuple[Row, float]]] = {}
    for row, cells in rows:
        name = cells.get("port") or cells.get("link") or (named.group(1) if named else "")
        its = out.setdefault(f"port {name}".strip(), [])
        if cells["event"] == "isolate" and _is_number(cells["t_s"]):
            its.append((row, float(cells["t_s"])))
    return [_isolated(block, unit, its) for unit, its in out.items()]


def _isolated(block: Block, unit: str, out: list[tuple[Row, float]]) -> Finding:
    for place in range(2, len(out)):
        if out[place][1] - out[place - 2][1] <= 7200:
            words = (
                f"isolated a third time within two hours (at {out[place][1]:g} s): stays out until a person forces it"
            )
            return block.found(unit, TRIAGE, "port-isolated", words, rows=[row for row, _ in out[: place + 1]])
    words = f"isolated {len(out)} times, far apart"
    return block.found(unit, WATCH if out else OK, "port-isolated", words, rows=[row for row, _ in out])


def _retests(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Hosts that were tested again: what is kept out needs a reason that still holds."""
    findings = []
    for row, cells in rows:
        bad = cells["cuda_context"].lower() != "ok" or cells["ecc_uncorrected_volatile"] not in ("0",)
        answer, words = (TRIAGE, "still fails: keep it out") if bad else (OK, "passes now: take it back")
        host = cells["node"]
        findings.append(block.found(f"host {host}", answer, "retest", words, rows=[row], host=host))
    return findings


def _modules(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Errors of memory modules: corrected and uncorrected."""
    findings = []
    for row, cells in rows:
        corrected, uncorrected = (int(cells[name]) if cells[name].isdigit() else 0 for name in ("ce", "ue"))
        if corrected or uncorrected:
            rule = "edac-uncorrected" if uncorrected else "edac-corrected"
            words = f"{index.row(rule).means}: {uncorrected or corrected} in all"
            findings.append(block.found(f"dimm {cells['label']}", index.row(rule).answer, rule, words, rows=[row]))
    return findings or [block.found("host", OK, "edac", f"{len(rows)} memory modules count no errors")]


def _rejections(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Pods that a node did not admit. The same devices in all reasons are the suspects; others were never tried."""
    refused = [(row, cells["reason"]) for row, cells in rows if _REFUSED.search(cells["reason"])]
    if not refused:
        return []
    named: dict[str, list[Row]] = {}
    for row, reason in refused:
        found = _PAIR.search(reason)
        named.setdefault(" and ".join(found.group(1).split()) if found else "", []).append(row)
    pair, its = max(named.items(), key=lambda each: len(each[1]))
    answer = TRIAGE if len(refused) >= 3 else SUSPECT
    words = f"{len(refused)} pods were refused" + (f", {len(its)} of them for GPUs {pair}" if pair else "")
    next_ = ("the GPUs that the reasons name: the kernel log, nvidia-smi -q", "the same counts of its peers")
    return [block.found("host", answer, "node-rejects", words, rows=its[:8], next=next_).but(count=len(refused))]


def _probes(block: Block, rows: Cells, index: Index) -> list[Finding]:
    """Hosts that tried targets of a file system: all hosts or a whole target failing is the file system; a host that
    fails alone is itself."""
    columns = list(rows[0][1]) if rows else []
    result = next((name for name in columns if name not in ("node", "ost", "target", "mount", "time")), "")
    target = next((name for name in ("ost", "target", "mount") if name in columns), "")
    if not result or not target:
        return []
    tried: dict[str, list[tuple[Row, str, bool]]] = {}
    for row, cells in rows:
        failed = cells[result].lower() not in ("ok", "pass", "passed", "success", "0")
        tried.setdefault(cells["node"], []).append((row, cells[target], failed))
    failing = [host for host, its in tried.items() if all(failed for _, _, failed in its)]
    lost = [row for its in tried.values() for row, _, failed in its if failed]
    total = sum(len(its) for its in tried.values())
    next_ = ("start no job that needs it; check it with a deadline, from a local disk",)
    if len(failing) > 1 and 2 * len(failing) > len(tried):
        words = (
            f"{len(lost)} of {total} probes failed on {len(failing)} of {len(tried)} hosts: the file system, not they"
        )
        found = block.found("fs", TRIAGE, "fs-probes", words, rows=lost[:8], next=next_, offence=False)
        return [found.but(scope="", count=len(lost))]
    findings = []
    bad = dict.fromkeys(where for its in tried.values() for _, where, failed in its if failed)
    for where in bad:
        its_rows = [(row, failed) for its in tried.values() for row, name, failed in its if name == where]
        if len(tried) > 1 and all(failed for _, failed in its_rows):
            words = f"no host of {len(tried)} reaches it"
            found = block.found(
                f"fs {where}", TRIAGE, "fs-probes", words, rows=[row for row, _ in its_rows][:8], next=next_
            )
            findings.append(found.but(scope="", offence=False))
    for host in failing:
        words = f"it fails on all targets, which {len(tried) - len(failing)} other hosts reach"
        rows_of = [row for row, _, _ in tried[host]]
        answer = TRIAGE if len(tried) > len(failing) else SUSPECT
        findings.append(block.found(f"host {host}", answer, "fs-probes", words, rows=rows_of[:8], host=host))
    if lost and not findings:
        words = f"{len(lost)} of {total} probes failed, of no host and no target all"
        findings.append(block.found("fs", WATCH, "fs-probes", words, rows=lost[:8], next=next_))
    return findings or [block.found("fs", OK, "fs-probes", f"all {total} probes passed")]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,12}(?:\.\d+)?", text) is not None


def _days(block: Block, rows: Cells, index: Index) -> list[Finding]:
    return told(block, [(row, cells["event"]) for row, cells in rows])


def _history(block: Block, rows: Cells, index: Index) -> list[Finding]:
    return history(block, rows)


_READERS: Final[Sequence[tuple[set[str], Callable[[Block, Cells, Index], list[Finding]]]]] = (
    ({"line"}, _lines),
    ({"gpu", "xid"}, _xid_events),
    ({"gpu", "event"}, _gpu_events),
    ({"node", "event", "time"}, _history),
    ({"node", "ecc_uncorrected_volatile", "cuda_context"}, _retests),
    ({"field", "value"}, _dcgm_fields),
    ({"t_s", "event"}, _isolations),
    ({"pod", "reason"}, _rejections),
    ({"label", "ce", "ue"}, _modules),
    ({"node", "ost"}, _probes),
    ({"node", "target"}, _probes),
    ({"event", "day"}, _days),
)
