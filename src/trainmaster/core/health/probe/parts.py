"""Parts that are present, and those that should be.

What should be there is what was there: the first look on this disk, and what came later. A part that is missing is
`bad` for GPUs, which jobs count on, and watched for others. Somebody who takes a part out for good acknowledges it.
Counts may also be given, where nothing was seen before: `gpu=8`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part, PartKind
from trainmaster.core.health.probe.leaves import Leaves, below, claim, line
from trainmaster.core.health.unit import function, gpu
from trainmaster.core.health.words import CONFIG, REBOOT, SUSPECT

_NONE = frozenset({"", "n/a", "[n/a]", "unknown", "not specified", "none", "0"})


def parts(tree: Leaves, gpus: Mapping[str, Leaves]) -> tuple[Part, ...]:
    """Parts of sysfs, and what the GPUs say of themselves, by unit."""
    found = [*_gpus(tree, gpus), *_nics(tree), *_disks(tree), *_dimms(tree)]
    return tuple(sorted(found, key=lambda part: (part.kind, part.slot)))


def _said(text: str | None) -> str:
    return "" if text is None or text.lower() in _NONE else text


def _gpus(tree: Leaves, gpus: Mapping[str, Leaves]) -> Iterator[Part]:
    slots = {
        gpu(found.group(1))
        for found, value in below(tree, r"bus/pci/devices/([0-9a-f:.]+)/class")
        if value[:6] in ("0x0302", "0x0300", "0x1200")
        and tree.get(f"bus/pci/devices/{found.group(1)}/vendor") == "0x10de"
    }
    for slot in sorted(slots | set(gpus)):
        its = gpus.get(slot, {})
        serial = _said(its.get("GPU UUID")) or _said(its.get("Serial Number"))
        yield Part(kind="gpu", slot=slot, serial=serial, model=_said(its.get("Product Name")))


def _nics(tree: Leaves) -> Iterator[Part]:
    for found, value in below(tree, r"bus/pci/devices/([0-9a-f:.]+)/class"):
        if value.startswith("0x02"):
            base = f"bus/pci/devices/{found.group(1)}"
            model = f"{tree.get(f'{base}/vendor', '')}:{tree.get(f'{base}/device', '')}".strip(":")
            yield Part(kind="nic", slot=f"nic {function(found.group(1))}", serial=_said(tree.get(f"{base}/address")),
                       model=model)  # fmt: skip


def _disks(tree: Leaves) -> Iterator[Part]:
    for name in sorted({found.group(1) for found, _ in below(tree, r"block/([\w!-]+)/\S+")}):
        base = f"block/{name}"
        serial = _said(tree.get(f"{base}/device/serial")) or _said(tree.get(f"{base}/device/wwid"))
        yield Part(kind="disk", slot=f"disk {name}", serial=serial, model=_said(tree.get(f"{base}/device/model")))


def _dimms(tree: Leaves) -> Iterator[Part]:
    for found, value in below(tree, r"devices/system/edac/mc/(mc\d+/(?:dimm|rank)\d+)/dimm_label"):
        size = _said(tree.get(f"devices/system/edac/mc/{found.group(1)}/size"))
        yield Part(kind="dimm", slot=f"dimm {value or found.group(1)}", model=f"{size} MiB" if size else "")


def chassis(tree: Leaves) -> str:
    return _said(tree.get("class/dmi/id/product_serial")) or _said(tree.get("class/dmi/id/product_uuid"))


def missing(present: Sequence[Part], expected: Iterable[str], counts: Mapping[PartKind, int]) -> Iterator[Finding]:
    """`expected` are slots; `counts` how many of a kind there should be."""
    slots = {part.slot for part in present}
    for slot in sorted(set(expected) - slots):
        answer = REBOOT if slot.startswith("gpu ") else SUSPECT
        summary = "it was here before, and is missing"
        yield claim(slot, answer, "part-missing", summary, next=["lspci, and the part's seat; acknowledge it if it was "
                    "taken out on purpose"])  # fmt: skip
    for kind, wanted in counts.items():
        have = sum(part.kind == kind for part in present)
        if have != wanted:
            answer = CONFIG if have > wanted else REBOOT if kind == "gpu" else SUSPECT
            proof = [line(f"{kind} present", ", ".join(part.slot for part in present if part.kind == kind) or "none")]
            yield claim("host", answer, f"count-{kind}", f"{have} of {wanted} {kind}s are here", proof)
