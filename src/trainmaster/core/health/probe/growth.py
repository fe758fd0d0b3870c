"""Counters by how much they grew between two looks.

A total says what was, maybe years ago, so only growth counts, within the time that the policy's row states. What grew
since the look before grew somewhere between the two; if that is longer than the row's time, nothing is known about the
rate and nothing is said. A counter that became smaller was set back (a driver was loaded anew) and has grown by what it
shows now. One at its maximum counts no more: its growth is not zero but unknown, which the readers of states report.

Nothing is remembered across boots or restarts of the agent: the first look is where counting begins.
"""

from typing import Final, NamedTuple

from trainmaster.core.base.time import HOUR
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Counter, Index
from trainmaster.core.health.probe.leaves import Leaves, claim, line, number, of_device
from trainmaster.core.health.unit import unit_of

_STEPS: Final = 1_024
"""Steps of growth that are kept of one counter: twelve hours by the minute."""


class Step(NamedTuple):
    """A counter grew between two looks."""

    since_us: int
    at_us: int
    by: int
    total: int


class Growth:
    """What is remembered of all counters of one probe."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._longest_us = max((row.within_us for _, row in index.counters), default=HOUR)
        self._last: dict[str, tuple[int, int]] = {}
        self._steps: dict[str, list[Step]] = {}

    def look(self, tree: Leaves, at_us: int) -> list[Finding]:
        """Findings after one more look, made at this time of the boot's clock."""
        findings = []
        for path, text in tree.items():
            total = number(text)
            rows = [(found, row) for pattern, row in self._index.counters if (found := pattern.fullmatch(path))]
            if total is None or not rows:
                continue
            self._step(path, total, at_us)
            for found, row in rows:
                if row.bits and total >= (1 << row.bits) - 1:
                    continue
                grown = self._grown(path, row, total, at_us)
                if grown is not None and grown >= row.at_least:
                    unit = _unit(tree, row, found.group("unit"), found.groupdict().get("number") or "")
                    findings.append(self._finding(unit, row, path, grown, total, at_us))
        return findings

    def _step(self, path: str, total: int, at_us: int) -> None:
        before = self._last.get(path)
        self._last[path] = total, at_us
        if before is None or at_us <= before[1]:
            return
        by = total - before[0] if total >= before[0] else total
        steps = self._steps.setdefault(path, [])
        if by:
            steps.append(Step(before[1], at_us, by, total))
        while steps and (steps[0].at_us < at_us - self._longest_us or len(steps) > _STEPS):
            del steps[0]

    def _grown(self, path: str, row: Counter, total: int, at_us: int) -> int | None:
        if not row.within_us:
            return total
        steps = self._steps.get(path)
        return sum(step.by for step in steps if step.since_us >= at_us - row.within_us) if steps else None

    def _finding(self, unit: str, row: Counter, path: str, grown: int, total: int, at_us: int) -> Finding:
        steps = [step for step in self._steps.get(path, ()) if step.since_us >= at_us - row.within_us]
        if not row.within_us or not steps:
            return claim(unit, row.answer, row.id, f"{row.means}: {total}", [line(path, str(total))], row.next,
                         count=max(1, total))  # fmt: skip
        span_s = max(1, (at_us - steps[0].since_us) // 1_000_000)
        proof = [
            line(path, f"{step.total - step.by} -> {step.total} within {(step.at_us - step.since_us) // 1_000_000} s")
            for step in (*steps[:3], *steps[3:][-1:])
        ]
        summary = f"{row.means}: {grown} within {span_s} s"
        return claim(unit, row.answer, row.id, summary, proof, row.next, count=grown)


def _unit(tree: Leaves, row: Counter, name: str, port: str) -> str:
    if row.kind == "pcie":
        return of_device(tree, name)
    if row.kind == "port":
        return f"port {name}/{port}".removesuffix("/1")
    if row.kind == "dimm":
        return f"dimm {tree.get(f'devices/system/edac/mc/{name}/dimm_label') or name}"
    return unit_of(row.kind, name)
