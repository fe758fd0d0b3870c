"""What `nvidia-smi` says about the state of GPUs, in any of its three forms, and what that state means.

XML (`-q -x`), indented text (`-q`) and tables (`--query-gpu=... --format=csv`) carry the same fields under other names.
All are read into leaves, a path and a value each, by scanners that take what is whole and lose nothing else when the
output ends in the middle. Values such as `N/A` mean that nothing is known: an absent counter is never zero, and a GPU
of which nothing that matters can be read is `unknown`.

State goes before events: a GPU whose row remap is pending needs a reset, whether anybody saw the error or not. Counts
since the GPU was made (aggregate) are history and decide nothing.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding, worst
from trainmaster.core.health.policy import Index
from trainmaster.core.health.unit import gpu
from trainmaster.core.health.words import CONFIG, REBOOT, RESET, RMA, SUSPECT, TRIAGE, UNKNOWN, WATCH, Answer
from trainmaster.core.health.xid import action_answer, action_of

_TAG: Final = re.compile(r"<(/?)([\w.-]+)([^<>]{0,200}?)(/?)>([^<]*)")
_GPU_LINE: Final = re.compile(r"\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_TEXT: Final = re.compile(
    r"^[ \t]*(?:Remapped Rows|GPU Recovery Action|E[Cc][Cc] Errors|Clocks (?:Event|Throttle) Reasons|Retired Pages"
    r"|GPU Link Info|=+NVSMI LOG=+)",
    re.MULTILINE,
)
_FIELD: Final = re.compile(r"\s*[A-Z][\w ./()-]*?(?:\s+: .*)?")
_NOTHING: Final = frozenset({"", "n/a", "[n/a]", "[not supported]", "not supported", "unknown", "[unknown error]",
                             "unknown error", "requested functionality has been deprecated"})  # fmt: skip


class Leaf(NamedTuple):
    path: str
    """Names from the GPU down, normalised, with slashes: `remapped_rows/pending`."""
    value: str
    row: Row


class Gpu(NamedTuple):
    unit: str
    leaves: list[Leaf]

    def known(self, *names: str) -> list[Leaf]:
        """Leaves whose path ends so, and whose value says something."""
        return [leaf for leaf in self.leaves if leaf.path.endswith(names) and leaf.value.lower() not in _NOTHING]

    def is_on(self, *names: str) -> list[Leaf]:
        return [leaf for leaf in self.known(*names) if leaf.value.lower() in ("yes", "active", "true", "1")]

    def above(self, limit: int, *names: str) -> list[Leaf]:
        return [leaf for leaf in self.known(*names) if _number(leaf.value) > limit]


_ACTION: Final = ("gpu_recovery_action",)
_RESET: Final = ("reset_required", "drain_and_reset_recommended")
_PENDING: Final = ("remapped_row_pending", "remapped_rows/pending", "remapped_rows.pending")
_FAILURE: Final = (
    "remapped_row_failure",
    "remapping_failure_occurred",
    "remapped_rows/failure",
    "remapped_rows.failure",
)
_RETIRED_COUNTS: Final = (
    "retirement/retired_count", "retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count"
)  # fmt: skip
_REMAPPED: Final = ("remapped_row_unc", "remapped_rows/uncorrectable_error", "remapped_rows.uncorrectable")
_REPAIR: Final = ("channel_repair_pending", "tpc_repair_pending")
_UNREPAIRABLE: Final = ("unrepairable_memory",)
_NO_SPARE: Final = ("bank_remap_availability_histogram/none", "row_remapper_histogram_none")
_RETIRED: Final = (
    "retired_pages/pending",
    "pending_retirement",
    "pending_blacklist",
    "pending_page_blacklist",
    "retired_pages.pending",
)
_VOLATILE: Final = (
    "volatile/dram_uncorrectable", "volatile/sram_uncorrectable", "volatile/sram_uncorrectable_parity",
    "volatile/sram_uncorrectable_secded", "volatile/sram_uncorrectable_sec-ded", "volatile/double_bit/total",
    "ecc.errors.uncorrected.volatile.total", "uncorrected.volatile.dram", "uncorrected.volatile.sram",
)  # fmt: skip
_CORRECTED: Final = ("volatile/dram_correctable", "volatile/single_bit/total", "ecc.errors.corrected.volatile.total")
_THRESHOLD: Final = ("sram_threshold_exceeded",)
_SLOW: Final = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_power_brake", "hw_thermal")
_CRITICAL: Final = {
    "the recovery action": (*_ACTION, *_RESET),
    "the row remapper": (*_PENDING, *_FAILURE, *_RETIRED),
    "uncorrected errors": _VOLATILE,
}
"""What has to be readable before a GPU is called ok."""


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a block that is an output of nvidia-smi; None: it is none."""
    text = block.text.lstrip()
    if "<nvidia_smi_log" in text[:4000]:
        gpus, attached = list(_gpus(list(_xml(block)))), _attached(block)
    elif _is_csv(block):
        gpus, attached = list(_csv(block)), None
    elif _TEXT.search(text):
        gpus, attached = list(_text(block)), _attached(block)
    else:
        return None
    findings = [_judged(block, each, index) for each in gpus]
    if not gpus:
        return [block.found("gpu", UNKNOWN, "smi", "the output lists no GPU", next=("nvidia-smi -L; lspci",))]
    if attached is not None and attached > len(gpus):
        first = findings[0]
        note = f"{attached} GPUs are attached and {len(gpus)} are listed here: nothing is said about the others"
        findings[0] = first.but(next_evidence=(*first.next_evidence, note))
    return findings


def _judged(block: Block, state: Gpu, index: Index) -> Finding:
    """One finding a GPU: the worst of what its fields say."""
    claims = list(_claims(state, index))
    answers = [answer for answer, _, _ in claims]
    unread = [name for name, paths in _CRITICAL.items() if not state.known(*paths)]
    if not claims and len(unread) == len(_CRITICAL):
        summary = "nothing about recovery, remapped rows or uncorrected errors can be read"
        return block.found(state.unit, UNKNOWN, "smi", summary, next=("the kernel log; nvidia-smi -q",))
    rows = list(dict.fromkeys(leaf.row for _, _, leaves in claims for leaf in leaves))
    summary = "; ".join(text for _, text, _ in claims) or "no field asks for anything"
    missing = tuple(f"{name}: not reported here, which is not the same as none" for name in unread)
    pids = state.known("process_info/pid")
    if claims and pids:
        missing = (f"{len(pids)} processes are on the GPU: drain first", *missing)
    if claims and state.unit == "gpu":
        missing = ("which GPU: the output names none", *missing)
    if not rows:
        rows = [leaf.row for paths in _CRITICAL.values() for leaf in state.known(*paths)][:4]
    rows.sort(key=lambda row: row.number)
    return block.found(state.unit, worst(answers), "smi", summary, rows=list(dict.fromkeys(rows)), next=missing)


def _claims(state: Gpu, index: Index) -> Iterator[tuple[Answer, str, list[Leaf]]]:
    for leaf in state.known(*_ACTION):
        action = action_of(leaf.value)
        if action != "none":
            yield action_answer(action), f"the recovery action is {leaf.value}", [leaf]
    for leaf in state.is_on(*_RESET):
        yield RESET, "a reset is required", [leaf]
    if leaves := state.is_on(*_FAILURE):
        yield RMA, "a row could not be remapped", leaves
    if leaves := state.is_on(*_THRESHOLD):
        yield RMA, "SRAM errors passed their threshold", leaves
    if leaves := state.is_on(*_PENDING, *_RETIRED):
        yield RESET, "a row waits for a reset to be remapped; the next free moment will do", leaves
    if leaves := state.above(0, *_VOLATILE):
        yield (
            RESET,
            f"{sum(_number(leaf.value) for leaf in leaves)} uncorrected errors since the driver was loaded",
            leaves,
        )
    if leaves := state.above(index.limits.corrected_storm, *_CORRECTED):
        yield SUSPECT, "corrected errors by the million: look at their rate", leaves
    retired = state.above(0, *_RETIRED_COUNTS)
    if sum(_number(leaf.value) for leaf in retired) >= index.limits.retired_pages:
        yield RMA, "so many pages are retired that the vendor takes the GPU back", retired
    if leaves := state.is_on(*_UNREPAIRABLE):
        yield RMA, "its memory cannot be repaired any more", leaves
    if leaves := state.is_on(*_REPAIR):
        yield RESET, "a repair of the GPU waits for a reset", leaves
    if leaves := state.above(0, *_NO_SPARE):
        yield WATCH, "banks of its memory have no spare rows left", leaves
    yield from _fabric(state)
    yield from _pending_modes(state)
    if leaves := state.above(0, *_REMAPPED):
        yield WATCH, "rows were remapped after uncorrected errors and hold; more of them would tell", leaves
    if leaves := state.is_on(*_SLOW):
        yield SUSPECT, "the hardware slows the GPU down: heat or power", leaves
    if leaves := [leaf for leaf in state.leaves if "gpu is lost" in leaf.value.lower()]:
        yield REBOOT, "the GPU is lost", leaves[:1]
    width, most = (
        state.known("current_link_width", "link_width/current", "pcie.link.width.current"),
        state.known("max_link_width", "link_width/max", "pcie.link.width.max"),
    )
    if width and most and 0 < _number(width[0].value) < _number(most[0].value):
        yield SUSPECT, f"the PCIe link is {width[0].value} wide instead of {most[0].value}", [width[0]]


def _fabric(state: Gpu) -> Iterator[tuple[Answer, str, list[Leaf]]]:
    """Whether the GPU has joined its NVLink domain, and how it is in it. Where there is none, the fields say so."""
    for leaf in state.known("fabric/state"):
        if leaf.value.lower() in ("in progress", "not started"):
            yield SUSPECT, f"it has not joined its NVLink domain yet ({leaf.value})", [leaf]
    for leaf in state.known("fabric/status"):
        if leaf.value.lower() != "success":
            yield TRIAGE, f"it could not join its NVLink domain: {leaf.value}", [leaf]
    for leaf in state.known("fabric/health/summary"):
        if leaf.value.lower() != "healthy":
            answer = TRIAGE if leaf.value.lower() == "unhealthy" else SUSPECT
            yield answer, f"its place in the NVLink domain is {leaf.value.lower()}", [leaf]
    for leaf in state.known("fabric/health/bandwidth"):
        if leaf.value.lower() == "degraded":
            yield SUSPECT, "its bandwidth in the NVLink domain is degraded", [leaf]


def _pending_modes(state: Gpu) -> Iterator[tuple[Answer, str, list[Leaf]]]:
    """Modes that somebody has set and that wait for a reset."""
    for mode, name in (("ecc_mode", "ECC"), ("mig_mode", "MIG")):
        now, then = (
            state.known(f"{mode}/current", f"current_{mode[:3]}"),
            state.known(f"{mode}/pending", f"pending_{mode[:3]}"),
        )
        if now and then and now[0].value.lower() != then[0].value.lower():
            words = f"the {name} mode is {now[0].value.lower()} and will be {then[0].value.lower()} after a reset"
            yield CONFIG, words, [now[0], then[0]]


def _number(text: str) -> int:
    found = re.match(r"\s*(\d{1,18})", text)
    return int(found.group(1)) if found else 0


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "_", text.strip().lower()).strip("_")


def _xml(block: Block) -> Iterator[tuple[str, Leaf]]:
    """GPU and leaf, for every element without children; the same scanner reads what was cut off."""
    stack: list[str] = []
    unit, at, number = "", 0, block.first
    for found in _TAG.finditer(block.text):
        closing, name, attributes, single, value = found.groups()
        number += block.text.count("\n", at, found.start())
        at = found.start()
        if closing:
            if name in stack:
                del stack[len(stack) - 1 - stack[::-1].index(name) :]
            continue
        if single or len(stack) > 40:
            continue
        stack.append(name)
        if name == "gpu" and (address := re.search(r'id="([^"]*)"', attributes)):
            unit = gpu(address.group(1))
            yield unit, Leaf("", "", Row(number, ""))
        if unit and value.strip():
            below = "/".join(stack[stack.index("gpu") + 1 :]) if "gpu" in stack else ""
            row = Row(number, f"<{name}>{value.strip()}</{name}>")
            yield unit, Leaf(below, value.strip(), row)


def _text(block: Block) -> Iterator[Gpu]:
    """The same from indented text; without a line that names a GPU, all of it is of one that is not named."""
    state = Gpu("gpu", [])
    stack: list[tuple[int, str]] = []
    for row in block.rows():
        if named := _GPU_LINE.fullmatch(row.text):
            if state.unit != "gpu":  # what stands before the first GPU is about the host
                yield state
            state, stack = Gpu(gpu(named.group(1)), []), []
            continue
        if not _FIELD.fullmatch(row.text):
            continue  # a line of something else
        indent = len(row.text) - len(row.text.lstrip())
        key, colon, value = row.text.partition(" : ")
        stack = [each for each in stack if each[0] < indent]
        stack.append((indent, _name(key)))
        if colon:
            state.leaves.append(Leaf("/".join(name for _, name in stack), value.strip(), row))
    if state.leaves:
        yield state


def _gpus(pairs: Sequence[tuple[str, Leaf]]) -> Iterator[Gpu]:
    """Leaves by GPU, in the order of the output."""
    by_unit: dict[str, list[Leaf]] = {}
    for unit, leaf in pairs:
        by_unit.setdefault(unit, []).append(leaf)
    for unit, leaves in by_unit.items():
        yield Gpu(unit, leaves)


def _attached(block: Block) -> int | None:
    found = re.search(r"(?:<attached_gpus>|Attached GPUs\s*:\s*)(\d{1,4})", block.text)
    return int(found.group(1)) if found else None


def _columns(block: Block) -> list[str] | None:
    asked = re.search(r"--query-gpu=(\S+)", block.command)
    if asked:
        return [name.strip().lower() for name in asked.group(1).split(",")]
    first = block.text.lstrip().split("\n", 1)[0]
    names = [name.strip().split(" [")[0].lower() for name in first.split(",")]
    return names if any(name in ("index", "pci.bus_id", "uuid", "gpu_bus_id", "gpu_uuid") for name in names) else None


def _is_csv(block: Block) -> bool:
    names = _columns(block)
    known = (
        *_ACTION,
        *_PENDING,
        *_FAILURE,
        *_VOLATILE,
        *_CORRECTED,
        "reset_required",
        "clocks_",
        "pcie.link",
        "retired_pages",
    )
    return names is not None and any(part in name for name in names for part in known)


def _csv(block: Block) -> Iterator[Gpu]:
    names = _columns(block) or []
    for row in block.rows():
        cells = [cell.strip() for cell in row.text.split(",")]
        values = dict(zip(names, cells, strict=False))
        unit = values.get("pci.bus_id") or values.get("gpu_bus_id") or values.get("index") or values.get("uuid") or ""
        if len(cells) == len(names) and re.fullmatch(r"\d{1,3}|[0-9A-Fa-f:.]{7,16}|GPU-[\w-]+", unit):
            yield Gpu(gpu(unit), [Leaf(name, value, row) for name, value in values.items()])
