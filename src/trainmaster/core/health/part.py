"""Parts: what sits in a host and can be taken out of it. A part has an identity of its own (serial number or UUID) and
stands in a slot; a swap changes the one and keeps the other, and history is kept for both.
"""

from typing import Literal

from trainmaster.core.base.value import Value

PartKind = Literal["gpu", "nic", "disk", "dimm", "cpu", "board", "psu"]


class Part(Value):
    """One part as an agent sees it."""

    kind: PartKind
    slot: str
    """Where it is, in the spelling of units: `gpu 0000:1b:00`, `nic 0000:3b:00.0`, `disk nvme0n1`."""
    serial: str = ""
    """UUID or serial number; empty: it tells none, so a swap can't be seen."""
    model: str = ""
