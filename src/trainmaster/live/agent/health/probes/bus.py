"""PCIe devices: errors that they counted (AER), width and speed of their links, whether they answer at all."""

import os
from collections.abc import Iterator
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in, text_of

PROBE = Probe(
    name="pcie",
    what="PCIe: counted errors, width and speed of links, devices that do not answer",
    unreadable="the PCIe devices can't be read: a card that lost its link would not be seen",
    module="trainmaster.live.agent.health.probes.bus",
)
LOOKED_AT = ("0x02", "0x03", "0x0108", "0x0604", "0x12")
"""Networks, displays, NVMe, bridges, accelerators."""
_AER = ("aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal")
_LINK = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")


def look(root: Path, item: str) -> str:
    devices = names_in(root / "sys/bus/pci/devices")
    if not devices:
        raise Skipped("this host shows no PCIe devices")
    return "\n".join(line for device in devices for line in _device(root, device))


def _device(root: Path, address: str) -> Iterator[str]:
    base, directory = root / "sys", f"bus/pci/devices/{address}"
    kind = text_of(base / directory / "class") or ""
    if not kind.startswith(LOOKED_AT):
        return
    yield f"{directory}/class: {kind}"
    if not kind.startswith("0x0604"):
        yield from leaves(base, directory, _LINK)
        head = _head(base / directory / "config")
        if head:
            yield f"{directory}/config: {head}"
    for name in _AER:
        total = (text_of(base / directory / name) or "").rpartition(" ")[2]  # the last line is TOTAL_ERR_... NUMBER
        if total.isdigit():
            yield f"{directory}/{name}: {total}"


def _head(path: Path) -> str:
    """Vendor and device as the card itself tells them now; all ones: it does not answer."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(handle, 4).hex()
    except OSError:
        return ""
    finally:
        os.close(handle)
