"""Forty captures of real faults, and twenty others of the kind of each: the right verdict for the right unit."""

from pathlib import Path

import pytest

from tests.health.expected import CASES
from tests.health.judging import answered, judged
from tests.health.mutate import mutated

HERE = Path(__file__).parent / "cases"
COPIES = 20


def text_of(name: str) -> str:
    return (HERE / name).read_text("utf-8")


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_case_itself(name: str) -> None:
    """1. The capture is read. 2. It gets its verdict, and exactly the units that are at fault ask for something."""
    assert answered(judged(text_of(name))) == CASES[name]


@pytest.mark.parametrize("name", sorted(CASES))
def test_others_of_its_kind(name: str) -> None:
    """1. Ids, counts, order and the lines between change. 2. The answer moves with the ids and stays what it is."""
    for seed in range(COPIES):
        text, case = mutated(name, text_of(name), CASES[name], seed)
        assert answered(judged(text)) == case, f"seed {seed}\n{text}"


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_claim_has_its_proof(name: str) -> None:
    """1. Evidence stands in the file, at the lines that are given. 2. Echoes point to a unit that others are about."""
    lines = text_of(name).split("\n")
    found = judged(text_of(name))
    for each in found.findings:
        assert len(each.evidence) == len(each.lines)
        for number, text in zip(each.lines, each.evidence, strict=True):
            assert text.strip() in lines[number - 1], (each.rule, number)
        if each.echo_of:
            assert any(each.echo_of in (other.unit, other.at) for other in found.findings if other is not each), each


def test_all_captures_are_in_the_table() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(CASES)


def test_mutations_change_the_text() -> None:
    """A mutation that changes nothing would prove nothing: most captures hold something that can be another."""
    same = [name for name in CASES if mutated(name, text_of(name), CASES[name], 1)[0] == text_of(name)]
    assert len(same) <= 4, same
