"""Clients of a shared file system as a list of hosts and states: `lfs check`, or a loop over hosts.

A client that was evicted cannot work until it is connected again, and the reason is seldom its host: several at a time
are the file system, or the network to it.
"""

import re
from typing import Final

from trainmaster.core.health.capture import Block, Row
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, SUSPECT, WATCH

_CLIENT: Final = re.compile(r"([A-Za-z][\w.-]*): (FULL|EVICTED|RECONN(?:ECTING)?|DISCONN(?:ECTED)?|CONNECTING|IDLE)")
_ANY: Final = re.compile(r": (?:FULL|EVICTED|RECONN|DISCONN|CONNECTING|IDLE)")
_FINE: Final = frozenset({"FULL", "IDLE"})


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a list of clients; None: it is none."""
    if not _ANY.search(block.text):
        return None
    rows = [(row, found) for row in block.rows() if (found := _CLIENT.fullmatch(row.text.strip()))]
    if not rows:
        return None
    lost = [(row, found.group(1)) for row, found in rows if found.group(2) not in _FINE]
    if not lost:
        return [block.found("fs", OK, "fs-clients", f"{len(rows)} clients are connected", rows=_first(rows))]
    if len(lost) > 1:
        hosts = ", ".join(host for _, host in lost[:8])
        words = f"{len(lost)} clients have lost the file system ({hosts}): one cause, and not these hosts"
        next_ = ("servers and targets of the file system, and the network to them",)
        return [block.found("fs", SUSPECT, "fs-clients", words, rows=[row for row, _ in lost][:12], next=next_)]
    row, host = lost[0]
    next_ = ("other hosts: whether they have lost it too; the mount, with a deadline",)
    words = "this client has lost the file system"
    return [block.found(f"host {host}", WATCH, "fs-clients", words, rows=[row], next=next_, host=host)]


def _first(rows: list[tuple[Row, re.Match[str]]]) -> list[Row]:
    return [row for row, _ in rows[:8]]
