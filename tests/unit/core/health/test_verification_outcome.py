"""Outcomes, deadlines, wrong bits, and hosts on which distinct programs fail."""

import csv
from pathlib import Path

import pytest

from trainmaster.core.health.verification import campaign
from trainmaster.core.health.verification.bits import Wrong, bits_text, describe, recurrence
from trainmaster.core.health.verification.campaign import Tally
from trainmaster.core.health.verification.deadline import deadline_s
from trainmaster.core.health.verification.outcome import (
    Outcome,
    Result,
    answer_of,
    of_agents_sentence,
    of_error,
    report,
    sentence_for_agents,
    worst,
)
from trainmaster.core.health.words import EXIT_CODES, contradicts_itself

CASES = Path(__file__).parents[3] / "cases"


def result(outcome: Outcome, sentence: str = "words", unit: str = "cpu 0") -> Result:
    return Result(task="deep", part="memory", unit=unit, outcome=outcome, sentence=sentence)


@pytest.mark.parametrize(
    ("outcomes", "wins"),
    [
        ([], Outcome.NOT_RUN),
        ([Outcome.PASS, Outcome.PASS], Outcome.PASS),
        ([Outcome.PASS, Outcome.NOT_RUN], Outcome.NOT_RUN),
        ([Outcome.INVALID, Outcome.NOT_RUN, Outcome.PASS], Outcome.INVALID),
        ([Outcome.INVALID, Outcome.FAIL, Outcome.PASS], Outcome.FAIL),
    ],
)
def test_the_worst_outcome_wins(outcomes: list[Outcome], wins: Outcome) -> None:
    assert worst(outcomes) is wins
    assert report("deep", [result(each) for each in outcomes], 1.0).outcome is wins


@pytest.mark.parametrize(
    ("outcome", "code", "lead"),
    [
        (Outcome.PASS, 0, ""),
        (Outcome.FAIL, 2, "cpu 0: words"),
        (Outcome.NOT_RUN, 3, "could not be run: cpu 0: words"),
        (Outcome.INVALID, 3, "could not be judged: cpu 0: words"),
    ],
)
def test_what_an_outcome_is_elsewhere(outcome: Outcome, code: int, lead: str) -> None:
    """1. As exit code. 2. As an agent's sentence: empty only for a pass. 3. Only a failure is an offence."""
    assert EXIT_CODES[answer_of(outcome).verdict] == code
    assert not contradicts_itself(answer_of(outcome))
    whole = report("deep", [result(outcome)], 1.0)
    assert sentence_for_agents(whole) == lead
    assert of_agents_sentence(f"deep: {lead}" if lead else "") is outcome
    assert whole.is_offence == (outcome is Outcome.FAIL)


def test_the_sentence_is_that_of_the_first_part_that_decides() -> None:
    parts = [result(Outcome.PASS), result(Outcome.FAIL, "bit 3", "gpu 1"), result(Outcome.FAIL, "bit 4", "gpu 2")]
    assert report("deep", parts, 1.0).sentence == "gpu 1: bit 3; 1 more"
    assert report("deep", parts[:1], 1.0).sentence == "words"
    assert report("deep", [], 0.0).sentence == "it has no parts here"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", Outcome.NOT_RUN),
        ("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", Outcome.NOT_RUN),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", Outcome.NOT_RUN),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", Outcome.NOT_RUN),
        ("CUDA error: no kernel image is available for execution on the device", Outcome.NOT_RUN),
        ("No module named 'torch'", Outcome.NOT_RUN),
        ("CUDA error: uncorrectable ECC error encountered", Outcome.FAIL),
        ("CUDA error: unspecified launch failure", Outcome.FAIL),
        ("CUDA error: an illegal memory access was encountered", Outcome.FAIL),
        ("Unable to determine the device handle: GPU is lost", Outcome.FAIL),
        ("[Errno 5] Input/output error", Outcome.FAIL),
        ("out of memory after uncorrectable ECC error", Outcome.FAIL),
        ("index 7 is out of bounds for dimension 0", Outcome.INVALID),
        ("", Outcome.INVALID),
    ],
)
def test_errors(text: str, outcome: Outcome) -> None:
    """1. What a library raised. 2. Only what the device alone can have caused counts against it."""
    assert of_error(text) is outcome


@pytest.mark.parametrize("task", ["quick", "deep", "group"])
def test_deadlines_grow_with_the_devices(task: str) -> None:
    """1. Eight GPUs get more time than one, by the same step each. 2. So does a larger budget, where there is one."""
    assert deadline_s(task, 8) - deadline_s(task, 4) == 4 * (deadline_s(task, 2) - deadline_s(task, 1)) > 0
    assert deadline_s(task, 0) == deadline_s(task, 1)
    assert deadline_s(task, 1, 60.0) - deadline_s(task, 1) == (0.0 if task == "quick" else 180.0)


def test_wrong_bits() -> None:
    """1. Positions of what differs, the lowest is 0. 2. How often it shows is a word."""
    assert Wrong(repeat=0, place=5, expected=0b1000, got=0b0001).bits == (0, 3)
    assert [bits_text(bits) for bits in [(4,), (1, 2), tuple(range(9))]] == ["bit 4", "bits 1, 2", "9 bits"]
    assert [recurrence(3, showing) for showing in (1, 2, 3)] == ["transient", "comes and goes", "stuck"]
    assert recurrence(1, 1) == "transient"
    wrong = [Wrong(repeat=0, place=5, expected=8, got=0), Wrong(repeat=1, place=5, expected=8, got=0)]
    assert describe("matmul float32", wrong, 2, 1) == (
        "matmul float32: bit 3 of element 5 wrong, in 2 of 2 repeats (stuck)"
    )


def tallies(*counts: tuple[int, int]) -> list[Tally]:
    return [Tally(host=f"h{place}", programs=ran, failing=bad) for place, (ran, bad) in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ([(10, 0), (10, 0)], Outcome.PASS),
        ([(10, 3), (10, 0)], Outcome.FAIL),
        ([(3, 3), (10, 0)], Outcome.FAIL),
        ([(10, 2), (10, 0)], Outcome.INVALID),
        ([(10, 5), (10, 1)], Outcome.INVALID),
        ([(10, 5), (2, 0)], Outcome.INVALID),
        ([(10, 5)], Outcome.INVALID),
        ([(0, 0), (10, 0)], Outcome.NOT_RUN),
    ],
)
def test_distinct_programs(counts: list[tuple[int, int]], outcome: Outcome) -> None:
    """1. Programs that ran and failed on the first host and on its peers. 2. What is said of the first."""
    assert campaign.judge(tallies(*counts))[0].outcome is outcome


def test_case_79_one_node_with_183_faults() -> None:
    """1. 43 tests failed on one node, none on five others. 2. That node, and no other. 3. At its third failing test
    already: the answer does not wait for 183 faults."""
    rows = csv.DictReader((CASES / "79-one-node-183-faults" / "runs.csv").read_text().splitlines())
    ran = [
        Tally(host=node, programs=int(ran), failing=int(failing), faults=int(faults))
        for node, ran, failing, faults in (row.values() for row in rows)
    ]
    failed = [each.unit for each in campaign.judge(ran) if each.outcome is Outcome.FAIL]
    assert failed == ["f10202"]
    early = [ran[0].but(programs=5, failing=3, faults=3), *ran[1:]]
    assert campaign.judge(early)[0].outcome is Outcome.FAIL
    assert campaign.judge([ran[0].but(programs=5, failing=2, faults=90), *ran[1:]])[0].outcome is Outcome.INVALID
