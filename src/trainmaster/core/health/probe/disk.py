"""What a disk says of itself: the JSON of `smartctl -H -A -j`."""

from collections.abc import Iterator
from typing import Any

import msgspec

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.probe.leaves import claim, line
from trainmaster.core.health.words import SUSPECT, TRIAGE, UNKNOWN, WATCH

SPENT_PERCENT = 100


def findings(name: str, text: str) -> Iterator[Finding]:
    """At most one for each thing that is wrong with the disk."""
    unit = f"disk {name}"
    try:
        told: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        told = None
    if not isinstance(told, dict):
        yield claim(unit, UNKNOWN, "smart", "smartctl printed something that is not read here", [text[:200]])
        return
    status, log = _part(told, "smart_status"), _part(told, "nvme_smart_health_information_log")
    if status.get("passed") is False:
        yield claim(unit, TRIAGE, "smart", "the disk says that it fails", [line("smart_status.passed", "false")],
                    ["its error log: smartctl -x"])  # fmt: skip
    elif "passed" not in status and not log:
        yield claim(unit, UNKNOWN, "smart", "the disk does not say how it is", [text[:200]], confidence="low")
    for key, answer, words in (
        ("critical_warning", SUSPECT, "it warns: spare blocks, heat, or no longer writable"),
        ("media_errors", WATCH, "blocks could not be read back"),
    ):
        value = log.get(key)
        if isinstance(value, int) and value > 0:
            yield claim(unit, answer, f"smart-{key.replace('_', '-')}", words, [line(key, str(value))], offence=False)
    used = log.get("percentage_used")
    if isinstance(used, int) and used >= SPENT_PERCENT:
        yield claim(unit, WATCH, "smart-worn", f"{used} % of what it is made for is written",
                    [line("percentage_used", str(used))], offence=False)  # fmt: skip


def _part(told: dict[str, Any], key: str) -> dict[str, Any]:
    found = told.get(key)
    return found if isinstance(found, dict) else {}
