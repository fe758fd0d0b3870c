"""Which remedy comes next: the ladder as a table."""

import pytest

from trainmaster.core.base.ids import KindName
from trainmaster.core.health.conduct import DEFAULT_LADDER, Rung
from trainmaster.core.health.ladder import choose
from trainmaster.core.health.words import Remedy

R = Remedy
LOOK = Rung(remedy=R.DIAGNOSE, kind=KindName("look"))


@pytest.mark.parametrize(
    ("wanted", "tried", "missing", "expected", "number", "passed"),
    [
        (R.RESET_GPU, {}, (), "gpu-reset", 1, ()),
        (R.RESET_GPU_LATER, {}, (), "gpu-reset", 1, ()),
        (R.REBOOT, {}, (), "reboot", 1, ()),
        (R.RESET_GPU, {R.RESET_GPU: 1}, (), "reboot", 1, ("reset-gpu was tried 1 of 1 times",)),
        (R.RESET_GPU, {R.RESET_GPU: 1, R.REBOOT: 1}, (), "reboot", 2, ("reset-gpu was tried 1 of 1 times",)),
        (R.RESET_GPU, {R.RESET_GPU: 1, R.REBOOT: 2}, (), R.TRIAGE, 0, ("reset-gpu was", "reboot was tried 2 of 2")),
        (R.REBOOT, {R.REBOOT: 2}, (), R.TRIAGE, 0, ("reboot was tried 2 of 2 times",)),
        (R.RESET_GPU, {}, ("gpu-reset",), "reboot", 1, ("reset-gpu is passed over: no gpu-reset",)),
        (R.RESET_GPU, {}, ("gpu-reset", "reboot"), R.TRIAGE, 0, ("reset-gpu is passed", "reboot is passed over")),
        (R.DIAGNOSE, {}, (), "deep-check", 1, ()),
        (R.DIAGNOSE, {R.DIAGNOSE: 1}, (), R.TRIAGE, 0, ("diagnose was tried 1 of 1 times",)),
        (R.DIAGNOSE, {}, ("deep-check",), R.TRIAGE, 0, ("diagnose is passed over: no deep-check",)),
        (R.TRIAGE, {}, (), R.TRIAGE, 0, ()),
        (R.RMA, {}, (), R.RMA, 0, ()),
        (R.CONFIG, {}, (), R.CONFIG, 0, ()),
        (R.NONE, {}, (), R.TRIAGE, 0, ()),
        (R.RESTART_APP, {}, (), R.TRIAGE, 0, ()),
    ],
)
def test_the_next_rung(
    wanted: Remedy,
    tried: dict[Remedy, int],
    missing: tuple[str, ...],
    expected: str,
    number: int,
    passed: tuple[str, ...],
) -> None:
    """What is asked for, what was tried, and what the catalogue lacks: the next rung, or what a person does."""
    choice = choose(DEFAULT_LADDER, wanted, tried, lambda kind: f"no {kind}" if kind in missing else "")
    found = choice.rung.kind if choice.rung is not None else choice.remedy
    assert (found, choice.number) == (expected, number)
    assert len(choice.passed_over) == len(passed)
    for text, part in zip(choice.passed_over, passed, strict=True):
        assert part in text


def test_a_ladder_may_have_its_own_way_to_find_out() -> None:
    """1. The ladder has a rung for diagnose. 2. It is used for that, and for nothing else."""
    ladder = (LOOK, *DEFAULT_LADDER)
    found = choose(ladder, R.DIAGNOSE, {}, lambda kind: "")
    reset = choose(ladder, R.RESET_GPU, {}, lambda kind: "")
    assert found.rung == LOOK
    assert reset.rung == DEFAULT_LADDER[0]


def test_without_rungs_a_person_has_to_look() -> None:
    assert choose((), R.REBOOT, {}, lambda kind: "").remedy is R.TRIAGE
