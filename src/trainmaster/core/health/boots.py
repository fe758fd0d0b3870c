"""When hosts were booted: one that has not come back new after a reboot of all still runs what was before.

Being up proves nothing after a reboot was ordered; the time of the boot does. Without the order, a host that was booted
long before all its peers is a suspect: it may have missed what they went through.
"""

import re
from collections.abc import Sequence
from statistics import median
from typing import Final

from trainmaster.core.health.capture import Block, Row, columns, table
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.stamp import days_of
from trainmaster.core.health.words import OK, REBOOT, SKIPPED, SUSPECT

_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)")
_LONG_BEFORE_MIN: Final = 24 * 60
_COLUMNS: Final = ("boot_time", "boottime", "booted", "boot")
_HOSTS: Final = ("node", "host", "hostname", "nodename")
_NEXT: Final = ("jobs held because of it do not start by themselves: release them after its reboot",)


def read(block: Block, ordered: str) -> list[Finding] | None:
    """The findings of a table of hosts and the times of their boots; None: it is none."""
    if "reboot_ordered" in block.text and block.text.lstrip().startswith("{"):
        words = "an order to reboot tells nothing by itself"
        return [block.found("host", SKIPPED, "reboot-order", words, next=("when each host was booted: uptime -s",))]
    names = {name.lower(): name for name in columns(block)[0]}
    host = next((names[name] for name in _HOSTS if name in names), "")
    boot = next((names[name] for name in _COLUMNS if name in names), "")
    found = table(block) if host and boot else None
    if found is None:
        return None
    booted = [(row, cells[host], at) for row, cells in found[1] if (at := _minutes(cells[boot]))]
    return list(_judged(block, booted, _minutes(ordered))) or None


def _judged(block: Block, booted: Sequence[tuple[Row, str, int]], ordered: int | None) -> list[Finding]:
    usual = median(at for _, _, at in booted) if booted else 0
    late, fine = list[Finding](), list[Row]()
    for row, name, at in booted:
        answer, summary = OK, ""
        if ordered is not None and at < ordered:
            answer, summary = REBOOT, "it has not been booted since the reboot was ordered, and runs what was before"
        elif ordered is None and len(booted) > 2 and usual - at > _LONG_BEFORE_MIN:
            answer, summary = SUSPECT, "booted long before its peers: it may have missed what they went through"
        if summary:
            late.append(
                block.found(
                    f"host {name}", answer, "boot-time", summary, rows=[row], next=_NEXT, offence=False, host=name
                )
            )
        else:
            fine.append(row)
    if fine:
        words = f"{len(fine)} hosts were booted {'since the order' if ordered is not None else 'at one time'}"
        late.append(block.found("host", OK, "boot-time", words, rows=fine[:8]))
    return late


def _minutes(text: str) -> int | None:
    found = _TIME.match(text)
    if found is None:
        return None
    year, month, day, hours, minutes = map(int, found.groups())
    return (days_of(year, month, day) * 24 + hours) * 60 + minutes if 1 <= month <= 12 else None
