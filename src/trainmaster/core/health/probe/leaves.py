"""Leaves: what a probe saw, as paths and values, one a line: `class/net/eth0/carrier_changes: 4`.

The form is that of `grep . FILES`, so that a finding proves itself with a line that anybody can look up. A leaf that is
missing was not there or not readable; nobody takes it for zero.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trainmaster.core.health.finding import Confidence, Finding
from trainmaster.core.health.unit import function, gpu
from trainmaster.core.health.words import Answer, Remedy, Verdict

Leaves = Mapping[str, str]
_SCOPE: Final = {Remedy.RESET_GPU: "gpu", Remedy.REBOOT: "host", Remedy.TRIAGE: "host", Remedy.RMA: "host"}
_DISPLAY: Final = ("0x0300", "0x0302", "0x1200")


def leaves(text: str) -> dict[str, str]:
    found = {}
    for line in text.split("\n"):
        path, colon, value = line.partition(": ")
        if colon:
            found[path.strip()] = value.strip()
    return found


def line(path: str, value: str) -> str:
    return f"{path}: {' '.join(value.split())}"


def below(tree: Leaves, pattern: str) -> Iterator[tuple[re.Match[str], str]]:
    """Leaves whose whole path fits."""
    for path, value in tree.items():
        found = re.fullmatch(pattern, path)
        if found is not None:
            yield found, value


def number(text: str | None) -> int | None:
    """A whole number that begins a value; None: there is none."""
    found = re.match(r"\s*(-?\d{1,19})\b", text or "")
    return int(found.group(1)) if found else None


def claim(
    unit: str,
    answer: Answer,
    rule: str,
    summary: str,
    evidence: Iterable[str] = (),
    next: Sequence[str] = (),
    confidence: Confidence = "high",
    count: int = 1,
    offence: bool = True,
) -> Finding:
    needs = answer.verdict is Verdict.BAD
    return Finding(
        unit=unit,
        verdict=answer.verdict,
        remedy=answer.remedy,
        rule=rule,
        summary=summary,
        evidence=tuple(evidence),
        count=count,
        confidence=confidence,
        next_evidence=tuple(next),
        offence=offence and needs,
        scope=_SCOPE.get(answer.remedy, "") if needs else "",
    )


def of_device(tree: Leaves, address: str) -> str:
    """The unit of a PCI device, by its class."""
    kind = tree.get(f"bus/pci/devices/{address}/class", "")[:6]
    if kind in _DISPLAY:
        return gpu(address)
    if kind.startswith("0x02"):
        return f"nic {function(address)}"
    return f"pcie {function(address)}"
