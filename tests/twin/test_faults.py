"""Simulated faults show what real ones show: each shape is read by the readers of real hosts."""

import pytest

from trainmaster.core.base.seed import Stream
from trainmaster.core.health.finding import report
from trainmaster.core.health.policy import Index
from trainmaster.live.health.policyfile import shipped
from trainmaster.twin.faults import CAUSES, NOISE, ROOTS, SHAPES, Stagehand, Table

INDEX = Index(shipped())

VERDICTS = {
    "gpu-off-the-bus": ("bad, reboot", "gpu 0000:61:00"),
    "gpu-halted": ("bad, reset-gpu", "gpu 0000:61:00"),
    "nvlink-fatal": ("bad, reset-gpu", "gpu 0000:61:00"),
    "gsp-silent": ("bad, reset-gpu", "gpu 0000:61:00"),
    "hbm-uncorrected": ("bad, reset-gpu", "gpu 0000:61:00"),
    "hbm-contained": ("watch, reset-gpu-later", "gpu 0000:61:00"),
    "remap-failed": ("bad, rma", "gpu 0000:61:00"),
    "sram-uncorrected": ("bad, reset-gpu", "gpu 0000:61:00"),
    "link-polls": ("bad, triage", "port mlx5_3"),
    "nic-dead": ("bad, reboot", "nic 0000:5e:00.0"),
    "pcie-fatal": ("bad, reboot", "gpu 0000:61:00"),
    "disk-gone": ("bad, triage", "disk nvme3n1"),
    "dimm-uncorrected": ("bad, triage", "dimm CPU#0Channel#1_DIMM#1"),
    "cpu-machine-check": ("bad, triage", "cpu 64"),
    "soft-lockup": ("bad, reboot", "host"),
    "diagnostic-fails": ("bad, triage", "gpu 3"),
    "host-dies": ("", ""),
    "wrong-result": ("", ""),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_fault_gets_its_verdict(name: str) -> None:
    """1. A shape is played for the fourth unit of its kind. 2. The unit that is hit gets the answer of the policy."""
    answer, unit = VERDICTS[name]
    findings = Stagehand(INDEX).play(SHAPES[name], 3).findings
    units = {each.unit: f"{each.verdict}, {each.remedy}" for each in report(findings).units} if findings else {}
    assert units.get(unit, "") == answer


@pytest.mark.parametrize("name", NOISE)
def test_noise_takes_no_host(name: str) -> None:
    findings = Stagehand(INDEX).play(NOISE[name], 3).findings
    assert findings
    assert all(f"{each.answer}" in ("ok, none", "ok, restart-app", "watch, none") for each in findings)


def test_a_shape_is_read_once() -> None:
    """A thousand faults of eight GPUs are eight readings; what they say is the same."""
    stagehand = Stagehand(INDEX)
    seen = {stagehand.play(SHAPES["gpu-off-the-bus"], place % 8) for place in range(1000)}
    assert len(seen) == 8
    assert (stagehand.lines, stagehand.read) == (2000, 16)


def test_tables() -> None:
    """1. What was counted: the hardware of the published 419. 2. Drawn often enough, causes come in that ratio."""
    assert sum(cause.weight for cause in CAUSES) == 314
    assert sum(cause.weight for cause in ROOTS) == 1000
    table, stream = Table(CAUSES), Stream.of(1, "causes")
    drawn = [table.cause(stream).name for _ in range(20_000)]
    for cause in CAUSES:
        assert abs(drawn.count(cause.name) / 20_000 - cause.weight / 314) < 0.012
    assert {name for cause in (*CAUSES, *ROOTS) for name, _ in cause.shapes} == set(SHAPES)
