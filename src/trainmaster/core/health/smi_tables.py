"""What `nvidia-smi` prints for people: its table of GPUs, the list of them, and how they are connected.

The table holds two things that matter: a GPU that cannot be read any more (`ERR!`), and uncorrected errors since the
driver was loaded. Whether a reset is due it does not say, so a table without errors is no proof of health, and says so.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.unit import gpu
from trainmaster.core.health.words import OK, REBOOT, RESET, SUSPECT

_GPU: Final = re.compile(
    r"\|\s*(\d{1,3})\s+(.{3,30}?)\s+(?:On|Off|N/A|ERR!)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0)[^|]*"
    r"\|\s*(\S+)\s*\|"
)
_LISTED: Final = re.compile(r"GPU (\d{1,3}): .+ \(UUID: (GPU-[\w-]+)\)\s*")
_NEXT: Final = ("nvidia-smi -q: recovery action and row remapper, which this output does not show",)


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a table, a list or a matrix of GPUs; None: it is none."""
    text = block.text
    if "| NVIDIA-SMI" in text and "Bus-Id" in text:
        return list(_table(block)) or None
    if re.search(r"^\s*GPU0\s+GPU1\b.*(?:Affinity|NIC\d)", text, re.MULTILINE):
        return [_matrix(block)]
    rows = [row for row in block.rows() if row.text.strip()] if "(UUID: GPU-" in text else []
    if rows and all(_LISTED.fullmatch(row.text) or row.text.lstrip().startswith("MIG ") for row in rows[:64]):
        count = sum(_LISTED.fullmatch(row.text) is not None for row in rows)
        next_ = ("how many GPUs this host should have: a list cannot miss what it does not know", *_NEXT)
        return [block.found("host", OK, "smi-list", f"{count} GPUs are listed", next=next_, confidence="low")]
    return None


def _table(block: Block) -> Iterator[Finding]:
    for row in block.rows():
        found = _GPU.match(row.text)
        if found is None:
            continue
        _, name, address, errors = found.groups()
        unit = gpu(address)
        if "ERR!" in row.text:
            words = "the tool cannot read this GPU any more"
            yield block.found(unit, REBOOT, "smi-table", words, rows=[row], next=("the kernel log for Xid 79",))
        elif errors.isdigit() and int(errors):
            words = f"{errors} uncorrected errors since the driver was loaded"
            yield block.found(unit, RESET, "smi-table", words, rows=[row], next=_NEXT)
        else:
            words = f"{name.strip()} is there" + (" and counts no uncorrected errors" if errors == "0" else "")
            yield block.found(unit, OK, "smi-table", words, rows=[row], next=_NEXT, confidence="low")


def _matrix(block: Block) -> Finding:
    """A GPU without NVLink among GPUs that have it, or with fewer links than they, is a suspect."""
    links: dict[str, list[str]] = {}
    rows: dict[str, Row] = {}
    for row in block.rows():
        cells = row.text.split("\t") if "\t" in row.text else row.text.split()
        cells = [cell.strip() for cell in cells if cell.strip()]
        if cells and re.fullmatch(r"GPU\d{1,3}", cells[0]) and "X" in cells:
            links[cells[0]], rows[cells[0]] = cells[1:], row
    names = list(links)
    kinds = {name: Counter(cell for cell in its[: len(names)] if cell != "X") for name, its in links.items()}
    usual = Counter(kind for its in kinds.values() for kind in its.elements()).most_common(1)
    if usual and usual[0][0].startswith("NV"):
        odd = [name for name, its in kinds.items() if its[usual[0][0]] < max(1, (len(names) - 1) // 2)]
        if odd:
            words = f"{', '.join(odd)}: not connected by {usual[0][0]}, as the others are"
            next_ = ("nvidia-smi nvlink -s of these GPUs; the fabric manager",)
            return block.found("host", SUSPECT, "smi-topology", words, rows=[rows[name] for name in odd], next=next_)
    return block.found("host", OK, "smi-topology", f"{len(names)} GPUs are connected alike", next=_NEXT)
