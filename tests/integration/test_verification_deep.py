"""The deep check: a bit that is damaged in one result is found and named; a clean run finds nothing.

What is damaged is what the operation gave, or what was read from memory, by the functions that the check takes for
that; the operations, comparisons and threads are the real ones.
"""

import os
import threading
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from trainmaster.core.health.verification.outcome import Outcome, TaskReport  # noqa: E402
from trainmaster.live.verification import deep, exact, memory  # noqa: E402
from trainmaster.live.verification.burn import LEAST_ROUNDS, burn, really  # noqa: E402
from trainmaster.live.verification.devices import Device, devices  # noqa: E402
from trainmaster.live.verification.exact import OPERATIONS, Operation, words  # noqa: E402

pytestmark = pytest.mark.torch
COUNT = int(os.environ.get("TRAINMASTER_DEEP_CHECKS", "2"))
"""Of each kind; `make prove NAME=deep_check` runs twenty."""
BUDGET_S = 0.05
SHARE = 0.001


class Damage:
    """Flips one bit of one element in the results of one operation on one device, in some of the rounds."""

    def __init__(self, seed: int, rounds: frozenset[int], device: str, operation: Operation) -> None:
        self.random, self.rounds, self.device, self.operation = Random(seed), rounds, device, operation
        self.place, self.bit = self.random.randrange(256), self.random.randrange(16)

    def __call__(self, device: Device, operation: Operation, inputs: Any, repeat: int) -> Any:
        got = operation.compute(*inputs)
        if (device.name, operation.name) == (self.device, self.operation.name) and repeat in self.rounds:
            words(torch, got).reshape(-1)[self.place] ^= 1 << self.bit
        return got


def check(compute: Any) -> TaskReport:
    return deep.run(BUDGET_S, share=SHARE, compute=compute)


def test_a_clean_host_passes() -> None:
    for _ in range(COUNT):
        found = deep.run(BUDGET_S, share=SHARE)
        assert found.outcome is Outcome.PASS, found.sentence
        assert {result.part for result in found.results} == {"memory", "compute"}
        cores = [result for result in found.results if result.unit.startswith("cpu")]
        assert len(cores) == len(os.sched_getaffinity(0))
        assert all(result.numbers["rounds"] >= LEAST_ROUNDS for result in cores)


def test_one_wrong_bit_is_found_and_named() -> None:
    """1. In one round one bit of one element is wrong, on one core, in one operation. 2. The check fails and names
    core, operation, element and bit, and that it was seen once; nobody else fails."""
    cores = [device.name for device in devices(torch)]
    for seed in range(COUNT):
        operation = OPERATIONS[seed % len(OPERATIONS)]
        # The operation without a reference has a majority from three rounds on.
        damage = Damage(seed, frozenset({1}), cores[seed % len(cores)], operation)
        found = check(damage) if operation.is_exact else deep.run(0.5, share=SHARE, compute=damage)
        failed = [result for result in found.results if result.outcome is not Outcome.PASS]
        assert [result.unit for result in failed] == [damage.device], found
        assert failed[0].sentence.startswith(
            f"{operation.name}: bit {damage.bit} of element {damage.place} wrong, in 1 of"
        )
        assert failed[0].sentence.endswith("(transient)")
        assert (failed[0].numbers["first_element"], failed[0].numbers["first_bit"]) == (damage.place, damage.bit)
        assert failed[0].evidence


def test_a_bit_that_is_wrong_in_every_round_is_stuck() -> None:
    """1. The result of an exact operation is wrong the same way always: no comparison of runs could see it. 2. The
    reference does."""
    damage = Damage(7, frozenset(range(100_000)), devices(torch)[0].name, OPERATIONS[0])
    found = check(damage)
    assert found.outcome is Outcome.FAIL
    assert found.sentence.endswith("(stuck)")


def test_a_device_that_differs_from_its_model_is_named() -> None:
    """1. Three devices of one model, each true to itself; one gives other bits in the operation without a reference.
    2. It is named. 3. Of two it can't be told which: invalid, for both may be right."""
    three = [Plain(kind="unit", number=number, model="m") for number in range(3)]
    damage = Damage(3, frozenset(range(100_000)), "unit 1", OPERATIONS[-1])
    for number, outcome in ((3, Outcome.FAIL), (2, Outcome.INVALID)):
        results = burn(torch, three[:number], 0.0, damage)
        odd = [result for result in results if result.outcome is not Outcome.PASS]
        assert [(result.unit, result.outcome) for result in odd] == [("unit 1", outcome)]


class Plain(Device):
    """A device that computes on the processor, wherever it runs."""

    @property
    def tiles(self) -> int:
        return 1

    @property
    def torch_name(self) -> str:
        return "cpu"


def test_a_reference_that_the_host_gets_wrong_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The host's integers give another reference than the digest that is known. 2. That is found as well."""
    monkeypatch.setattr(OPERATIONS[0], "digest", "0" * 16)
    found = deep.run(BUDGET_S, share=SHARE)
    assert found.outcome is Outcome.FAIL
    assert "the host's integers gave" in found.sentence


@pytest.mark.parametrize(
    ("words_", "outcome"),
    [
        ("CUDA error: all CUDA-capable devices are busy or unavailable", Outcome.NOT_RUN),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", Outcome.NOT_RUN),
        ("CUDA error: uncorrectable ECC error encountered", Outcome.FAIL),
        ("nobody has seen this before", Outcome.INVALID),
    ],
)
def test_what_pytorch_raises_is_sorted(words_: str, outcome: Outcome) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError(words_)

    (found,) = burn(torch, devices(torch)[:1], 0.0, refuse)
    assert (found.outcome, found.sentence) == (outcome, words_)


def test_libraries_are_set_up_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Two devices. 2. Each does every operation once before its rounds begin, and waits in it for the other one to
    do the same at that time, in vain. 3. Only then the rounds begin."""
    meet, told = threading.Barrier(2), []

    def first(device: Device, operation: Operation, inputs: Any, repeat: int) -> Any:
        try:
            meet.wait(0.02)
            told.append("together")
        except threading.BrokenBarrierError:
            meet.reset()
        told.append((device.name, operation.name))
        return really(device, operation, inputs, repeat)

    monkeypatch.setattr("trainmaster.live.verification.burn.really", first)
    two = [Plain(kind="unit", number=number, model="m") for number in range(2)]
    results = burn(torch, two, 0.0, really)
    assert {result.outcome for result in results} == {Outcome.PASS}
    assert sorted(told) == sorted((device.name, operation.name) for device in two for operation in OPERATIONS)


@pytest.mark.parametrize(("readings", "words_"), [({0}, "transient"), ({0, 1, 2}, "stuck"), ({0, 1}, "kept when")])
def test_a_wrong_bit_in_memory(readings: set[int], words_: str) -> None:
    """1. A word of the second chunk is read with a wrong bit, in some of the readings; a stuck one also after it was
    written anew. 2. It is found, with its place, and what comes again is told from what does not."""
    chunks: list[int] = []
    written = {"anew": False}

    def read(chunk: Any, again: int) -> Any:
        if chunk.data_ptr() not in chunks:
            chunks.append(chunk.data_ptr())
        if chunks.index(chunk.data_ptr()) != 1:
            return chunk
        stuck = readings == {0, 1, 2}
        if again in readings and (stuck or not written["anew"]):
            written["anew"] = written["anew"] or again == 2 or readings == {0}
            damaged = chunk.clone()
            damaged[4711] ^= 1 << 40
            return damaged
        written["anew"] = written["anew"] or again == memory.REREADS
        return chunk

    device = devices(torch)[0]
    found = memory.check_memory(torch, device, 3 * memory.CHUNK_BYTES, float("inf"), read)
    assert (found.outcome, found.unit) == (Outcome.FAIL, "memory")
    assert words_ in found.sentence
    assert found.numbers["chunk"] == 1
    if readings != {0}:
        assert (found.numbers["first_word"], found.numbers["first_bit"]) == (4711, 40)


def test_a_budget_that_ends_first_says_how_far_it_came() -> None:
    """1. A hundred chunks are asked for, and the time is over. 2. The share that was tested is said. 3. With time
    enough nothing is said of it."""
    device = devices(torch)[0]
    found = memory.check_memory(torch, device, 100 * memory.CHUNK_BYTES, 0.0)
    assert found.sentence.endswith("; the budget ended first: 1 % of the 800 MiB asked for")
    assert found.numbers["asked_mib"] == 800
    whole = memory.check_memory(torch, device, 2 * memory.CHUNK_BYTES, float("inf"))
    assert whole.outcome is Outcome.PASS
    assert "budget" not in whole.sentence


def test_the_inputs_are_as_the_comments_promise() -> None:
    """1. No zero, so no sign of zero. 2. Sums of products are whole numbers that their format holds exactly."""
    limits = {"float32": 1 << 24, "float64": 1 << 53, "bfloat16": 1 << 8}
    for operation in OPERATIONS:
        inputs = operation.inputs(torch)
        assert all(bool((each % 2 != 0).all()) for each in inputs)
        if operation.name.startswith("matmul"):
            a, b = inputs
            assert int((a.abs() @ b.abs()).max()) <= limits[operation.dtype]
    (summed,) = OPERATIONS[-2].inputs(torch)
    assert int(summed.abs().sum(dim=1).max()) <= limits["float32"]


def test_references_are_those_of_pythons_own_integers() -> None:
    """1. Rows of every exact reference, computed without PyTorch. 2. Equal; and the digest is the one written down."""
    for operation in OPERATIONS:
        if not operation.is_exact:
            continue
        right = exact.reference(torch, operation)
        rows = [each.tolist() for each in operation.inputs(torch)]
        if operation.name.startswith("matmul"):
            columns = list(zip(*rows[1], strict=True))
            by_hand = [sum(x * y for x, y in zip(rows[0][5], column, strict=True)) for column in columns]
        elif operation.name.startswith("square"):
            by_hand = [x + abs(x * y) + z for x, y, z in zip(*(each[5] for each in rows), strict=True)]
        elif operation.name.startswith("sum"):
            by_hand = [sum(row) for row in rows[0]]
        else:
            by_hand = [mixed(x, y) for x, y in zip(rows[0][5], rows[1][5], strict=True)]
        assert (right.tolist() if right.dim() == 1 else right[5].tolist()) == by_hand, operation.name


def mixed(x: int, y: int) -> int:
    """The integer operation with Python's unbounded integers, cut to 64 bits with a sign."""

    def cut(value: int) -> int:
        value &= (1 << 64) - 1
        return value - (1 << 64) if value >> 63 else value

    for _ in range(4):
        x = cut(cut(x ^ cut(x << 13)) * 6_364_136_223_846_793_005 + y)
        x = x ^ (x >> 7) ^ cut(y << 17)
    return x


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_checked_as_well() -> None:
    """1. Every GPU has its results, from its own memory and its own arithmetic. 2. A wrong bit there is found."""
    found = deep.run(2.0, share=0.01)
    assert found.outcome is Outcome.PASS, found.sentence
    gpus = [result for result in found.results if result.unit.startswith("gpu")]
    assert len(gpus) == 2 * torch.cuda.device_count()
    damage = Damage(1, frozenset({1}), "gpu 0", OPERATIONS[0])
    assert [result.unit for result in check(damage).results if result.outcome is Outcome.FAIL] == ["gpu 0"]
