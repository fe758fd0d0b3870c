"""`lspci`: a device whose configuration space reads all ones shows revision ff. It is still listed, so that a check of
the count passes; the revision is the signal."""

import re
from typing import Final

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.unit import function, gpu, slot
from trainmaster.core.health.words import OK, REBOOT, SUSPECT

_DEVICE: Final = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) ([^:]{3,60}): (.*)", re.IGNORECASE)


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a list of devices; None: it is none."""
    if not re.search(r"\(rev [0-9a-f]{2}\)|LnkSta:", block.text):
        return None
    devices = [(row, found) for row in block.rows() if (found := _DEVICE.match(row.text.strip()))]
    if not devices:
        return None
    dead: dict[str, list[Row]] = {}
    for row, found in devices:
        if "(rev ff)" in row.text:
            dead.setdefault(slot(found.group(1)), []).append(row)
    kinds = {slot(found.group(1)): _unit(found) for row, found in reversed(devices)}
    findings = []
    for address, rows in dead.items():
        unit = kinds[address]
        answer = SUSPECT if unit.startswith("pcie ") else REBOOT
        summary = "the configuration space reads all ones (rev ff): the device does not answer"
        findings.append(
            block.found(unit, answer, "pci-rev-ff", summary, rows=rows, next=("the kernel log for Xid 79",))
        )
    findings += _narrow(block)
    if not findings:
        count = sum(unit.startswith("gpu") for unit in kinds.values())
        next_ = ("how many GPUs this host should have: a list cannot miss what it does not know",)
        findings.append(block.found("host", OK, "pci-rev-ff", f"all {count} GPUs answer on the bus", next=next_))
    return findings


def _narrow(block: Block) -> list[Finding]:
    """Links that run with fewer lanes than they have (`lspci -vv`). A lower speed is normal on an idle device."""
    findings = []
    device: re.Match[str] | None = None
    for row in block.rows():
        device = _DEVICE.match(row.text) or device
        if device and re.search(r"LnkSta:.*Width x\d+ \(downgraded\)", row.text):
            unit = _unit(device)
            if not unit.startswith("pcie "):
                next_ = ("seating and riser of the card; the same slot with another card",)
                summary = "the PCIe link has lost lanes"
                findings.append(block.found(unit, SUSPECT, "pci-width", summary, rows=[row], next=next_))
    return findings


def _unit(found: re.Match[str]) -> str:
    address, kind, name = found.groups()
    if kind.startswith(("VGA", "3D", "Display", "Processing accel")) and re.search("NVIDIA|AMD|Advanced Micro", name):
        return gpu(address)
    if re.search("Ethernet|Infiniband|Network", kind):
        return f"nic {function(address)}"
    return f"pcie {function(address)}"
