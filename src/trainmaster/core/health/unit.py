"""Units: what a verdict is about, as one text: `gpu 0000:02:00`, `nic 0000:03:00.0`, `disk nvme2n1`, `host node-01`.

A GPU is named by its slot without the function, because all functions of a card share its fate, and in the one
spelling that the kernel uses: `nvidia-smi` pads the domain to eight digits and writes capitals, `lspci` leaves it out.
Network cards keep the function, since each is a port. Where a source knows only an index (`GPU 1`), the unit is
`gpu 1`: an index is not a slot, and guessing which one it is would blame a neighbour.
"""

import re
from functools import lru_cache
from typing import Final

_PCI: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{2})(?:\.([0-9a-f]))?", re.IGNORECASE)
_PARTITION: Final = re.compile(r"(nvme\d+n\d+|mmcblk\d+)p\d+|([hsv]d[a-z]+)\d+")


@lru_cache(maxsize=4096)
def slot(address: str) -> str:
    """`00000000:1A:00.0` and `1a:00` as `0000:1a:00`; what is no PCI address stays as it is."""
    found = _PCI.fullmatch(address.strip(" :"))
    if found is None:
        return address.strip()
    domain, bus, device, _ = found.groups()
    return f"{(domain or '0')[-4:].rjust(4, '0')}:{bus.rjust(2, '0')}:{device}".lower()


@lru_cache(maxsize=4096)
def function(address: str) -> str:
    """The same with its function, if it has one."""
    found = _PCI.fullmatch(address.strip(" :"))
    number = found.group(4) if found else None
    return slot(address) + (f".{number}".lower() if number else "")


def gpu(address: str) -> str:
    return f"gpu {slot(address)}" if address else "gpu"


def disk(device: str) -> str:
    """The disk that a partition lies on: what fails and is replaced."""
    found = _PARTITION.fullmatch(device)
    return f"disk {(found.group(1) or found.group(2)) if found else device}"


def unit_of(kind: str, name: str) -> str:
    """A unit from the kind that a rule states and the name that a line gives."""
    match kind:
        case "gpu":
            return gpu(name)
        case "disk":
            return disk(name)
        case "nic" | "pcie" | "nvswitch":
            return f"{kind} {function(name)}".strip()
        case _:
            return f"{kind} {name}".strip()


_OWNERS: Final = {"nvidia": "gpu", "nvidia-gpu": "gpu", "mlx5_core": "nic", "mlx4_core": "nic", "bnxt_en": "nic",
                  "ice": "nic", "i40e": "nic", "nvidia-nvswitch": "nvswitch"}  # fmt: skip


def of_driver(driver: str, address: str) -> str:
    """The unit behind a PCI address, told by the driver that speaks about it."""
    return unit_of(_OWNERS.get(driver, "pcie"), address)
