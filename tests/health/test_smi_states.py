"""`nvidia-smi -q` of a GPU that is well, and the same with one field changed: what each field means."""

from pathlib import Path

import pytest

from tests.health.judging import judged

WELL = {
    "action": "None", "width": "16x", "cap": "Not Active", "slow": "Not Active", "eccpend": "Enabled", "dram": "0",
    "thr": "No", "chan": "No", "tpc": "No", "unrep": "No", "none": "0", "fstate": "Completed", "fstatus": "Success",
    "bw": "Full", "route": "False", "summary": "Healthy",
}  # fmt: skip
TEXT = (Path(__file__).parent / "smi-q.txt").read_text("utf-8")
OLD = """==============NVSMI LOG==============
Attached GPUs                       : 1
GPU 00000000:1B:00.0
    Product Name                    : Tesla V100-SXM2-32GB
    ECC Errors
        Volatile
            Double Bit
                Total               : 0
        Aggregate
            Double Bit
                Total               : 9
    Retired Pages
        Single Bit ECC              : 1
        Double Bit ECC              : 2
        Pending                     : {}
"""


@pytest.mark.parametrize(
    ("answer", "changed"),
    [
        ("ok, none", {}),
        ("ok, none", {"cap": "Active"}),
        ("ok, none", {"fstate": "N/A", "fstatus": "N/A", "bw": "N/A", "summary": "N/A", "chan": "N/A", "tpc": "N/A"}),
        ("watch, diagnose", {"slow": "Active"}),
        ("watch, diagnose", {"width": "8x"}),
        ("watch, diagnose", {"fstate": "In Progress", "fstatus": "N/A"}),
        ("watch, diagnose", {"bw": "Degraded", "summary": "Limited Capacity"}),
        ("watch, config", {"eccpend": "Disabled"}),
        ("watch, none", {"none": "2"}),
        ("bad, reset-gpu", {"dram": "1"}),
        ("bad, reset-gpu", {"chan": "Yes"}),
        ("bad, reset-gpu", {"tpc": "Yes"}),
        ("bad, reset-gpu", {"action": "Reset"}),
        ("bad, reset-gpu", {"action": "Drain and Reset"}),
        ("bad, reset-gpu", {"action": "Drain P2P"}),
        ("bad, reboot", {"action": "Reboot"}),
        ("bad, triage", {"fstatus": "Failure"}),
        ("bad, triage", {"route": "True", "summary": "Unhealthy"}),
        ("bad, rma", {"thr": "Yes"}),
        ("bad, rma", {"unrep": "Yes"}),
    ],
)  # fmt: skip
def test_field(answer: str, changed: dict[str, str]) -> None:
    (found,) = judged(TEXT.format(**{**WELL, **changed})).findings
    assert (found.unit, str(found.answer)) == ("gpu 0000:1b:00", answer), found.summary


def test_a_generation_that_retires_pages() -> None:
    """1. An old GPU with errors in its past. 2. It is ok, unless a page waits for a reset."""
    assert str(judged(OLD.format("No")).verdict) == "ok"
    assert str(judged(OLD.format("Yes")).verdict) == "bad"
