"""`show_gids`: where the routable GID of a RoCE port stands, and whether a job that pins an index still finds it.

When a port flaps or an address changes, the GID is registered anew and may get another index. A job that was told to
use index 3 then sends from an empty slot, and nothing but a new start of its communicators helps; the port is not at
fault. A hole below the routable GID is the trace of it.
"""

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import CONFIG, OK, SKIPPED

_GID: Final = re.compile(r"(\S+)\s+(\d{1,2})\s+(\d{1,3})\s+([0-9a-fA-F:.]{3,45})\s+(\S+)\s+(v[12])\b")
_SMALL: Final = 20_000
PIN: Final = re.compile(r"\bNCCL_IB_GID_INDEX=(\d{1,3})\b")


def read(block: Block, pins: Sequence[int]) -> list[Finding] | None:
    """A finding a port; jobs are pinned to these indices. A pin by itself tells nothing. None: this is neither."""
    if not re.search(r"^DEV\s+PORT\s+INDEX\s+GID", block.text, re.MULTILINE):
        rows = [row for row in block.rows() if PIN.search(row.text)] if len(block.text) < _SMALL else []
        if not rows:
            return None
        next_ = ("show_gids: whether a routable GID stands at this index, on all hosts and after each flap",)
        return [block.found("job", SKIPPED, "gid-pin", "jobs are pinned to an index of GIDs", rows=rows, next=next_)]
    ports: dict[str, dict[int, tuple[Row, bool]]] = {}
    for row in block.rows():
        if found := _GID.match(row.text.strip()):
            device, port, number, _, address, version = found.groups()
            routable = version == "v2" and re.fullmatch(r"[\d.]{7,15}", address) is not None
            ports.setdefault(f"port {device}/{port}".removesuffix("/1"), {})[int(number)] = (row, routable)
    return [_port(block, unit, slots, pins[0] if pins else None) for unit, slots in ports.items()]


def _port(block: Block, unit: str, slots: dict[int, tuple[Row, bool]], pin: int | None) -> Finding:
    routable = [number for number, (_, its) in slots.items() if its]
    rows = [slots[number][0] for number in routable]
    where = f"the routable GID stands at index {', '.join(map(str, routable))}" if routable else "no GID is routable"
    holes = [number for number in range(max(slots, default=0)) if number not in slots]
    if pin is not None and pin not in routable:
        summary = f"{where}; jobs are pinned to {pin}, which holds none"
    elif pin is None and routable and any(hole < min(routable) for hole in holes):
        summary = f"{where}, behind an empty slot ({', '.join(map(str, holes))}): it was registered anew"
    else:
        return block.found(unit, OK, "gid-index", where, rows=rows)
    next_ = (
        "unset NCCL_IB_GID_INDEX and start the job anew: running communicators do not recover",
        "what made the port register again: a flap, or a change of its address",
    )
    return block.found(unit, CONFIG, "gid-index", summary, rows=rows, next=next_)
