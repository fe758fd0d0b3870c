"""PCIe devices: links that run below what they can, and devices that do not answer.

A lower speed is normal on an idle GPU, which saves power so; fewer lanes are not. A slot may have fewer lanes than its
card by design, so a narrow link is a suspect and no more. A device whose configuration space reads all ones is still
listed, and gone.
"""

import re
from collections.abc import Iterator

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.probe.leaves import Leaves, below, claim, line, number, of_device
from trainmaster.core.health.words import REBOOT, SUSPECT, WATCH

_DEVICE = r"bus/pci/devices/(?P<address>[0-9a-f:.]+)"


def findings(tree: Leaves) -> Iterator[Finding]:
    for found, value in below(tree, _DEVICE + "/current_link_width"):
        yield from _link(tree, found.group("address"), value)
    for found, value in below(tree, _DEVICE + "/config"):
        if value == "ffffffff":
            address = found.group("address")
            unit = of_device(tree, address)
            answer = SUSPECT if unit.startswith("pcie ") else REBOOT
            summary = "the configuration space reads all ones: the device does not answer"
            yield claim(unit, answer, "pci-rev-ff", summary, [line(found.group(), value)], ["the kernel log: Xid 79"])


def _link(tree: Leaves, address: str, width: str) -> Iterator[Finding]:
    base = f"bus/pci/devices/{address}"
    most, unit = number(tree.get(f"{base}/max_link_width")), of_device(tree, address)
    have = number(width)
    proof = [line(f"{base}/{name}", tree[f"{base}/{name}"]) for name in _NAMES if f"{base}/{name}" in tree]
    if have and most and have < most and not unit.startswith("pcie "):
        summary = f"the PCIe link is {have} wide instead of {most}"
        yield claim(unit, SUSPECT, "pci-width", summary, proof, ["seating and riser of the card; the slot's own width"])
    if unit.startswith("nic "):
        speed, best = _speed(tree.get(f"{base}/current_link_speed")), _speed(tree.get(f"{base}/max_link_speed"))
        if speed and best and speed < best:
            summary = f"the PCIe link runs at {speed:g} GT/s instead of {best:g}"
            yield claim(unit, WATCH, "pci-speed", summary, proof, ["the slot's own speed"], confidence="medium")


_NAMES = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")


def _speed(text: str | None) -> float:
    found = re.match(r"([\d.]{1,6}) GT/s", text or "")
    return float(found.group(1)) if found else 0.0
