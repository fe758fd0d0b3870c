"""Other lines of the kinds that hosts write: other codes of the same answer, other makers, other tools, other words.

Each line has the answer that the tables give it. The messages have the form of the real ones; names, addresses and
numbers are made up.
"""

from pathlib import Path

import pytest

from tests.health.judging import judged

HERE = Path(__file__).parent
ROWS = [row.split("\t", 1) for row in (HERE / "siblings.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]]


@pytest.mark.parametrize(("answer", "text"), ROWS)
def test_line(answer: str, text: str) -> None:
    found = judged(text.replace("\\n", "\n").replace("\\t", "\t") + "\n")
    assert f"{found.verdict}, {found.remedy}" == answer, found.findings


def test_a_switch_of_the_driver_that_worked() -> None:
    """1. A queue of a GPU stands still. 2. The driver resets it, and says that it works again: a look, no more."""
    stuck = "[10.0] amdgpu 0000:43:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=14\n"
    again = "[12.0] amdgpu 0000:43:00.0: amdgpu: GPU reset succeeded, trying to resume\n"
    other = again.replace("43:00", "44:00")
    assert str(judged(stuck).verdict) == "bad"
    assert str(judged(stuck + again).verdict) == "watch"
    assert str(judged(stuck + other).verdict) == "bad"


def test_an_event_log_of_the_board_without_a_fault() -> None:
    """1. Entries of the board that came and went. 2. It is read as a log, and asks for nothing."""
    text = (
        "   1 | 03/01/2024 | 10:00:00 | Power Supply PSU2 | Presence detected | Asserted\n"
        "   2 | 03/01/2024 | 10:00:09 UTC | Temperature #0x30 | Upper Critical going high | Deasserted\n"
        "   3 | 03/01/2024 | 10:00:10 | System Event | OEM System boot event | Asserted\n"
    )
    assert [(each.rule, str(each.verdict)) for each in judged(text).findings] == [("log", "ok")]
