"""Operations of `exact` under load, every result compared bit for bit, on all devices at once.

Each device has a thread that stays there (a core its own, since PyTorch computes without the interpreter's lock) and
goes through all operations, round after round, until its time is over. One thread a core and one core a thread: a
library that splits work over cores would leave it open which of them was wrong, and may order sums differently.

What a device gave is compared with the exact reference, or, for the operation that has none, with what it gave most
often, and then with other devices of its model. A wrong word is a failure however seldom it comes. Inputs and outputs
lie at the same places in every round, since libraries choose their way by the alignment of memory.

Each thread does every operation once before it counts, one thread at a time: a library sets itself up at its first
call, and vector mathematics that two threads set up at once gives square roots of 36 right bits, once, on sound
processors.

`Compute` is a parameter so that tests can damage a result; nothing in the environment does.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any, Final

from trainmaster.core.base.value import Value
from trainmaster.core.health.verification.bits import Wrong, describe
from trainmaster.core.health.verification.outcome import Outcome, Result, of_error
from trainmaster.live.verification.devices import Device, pinned
from trainmaster.live.verification.exact import OPERATIONS, Operation, WrongReference, prepared, words

LEAST_ROUNDS: Final = 2
"""With one round there is nothing to compare the inexact operation with, and stuck can't be told from transient."""
KEPT: Final = 8
"""Wrong words of a run that are kept."""
TASK: Final = "deep"

Compute = Callable[[Device, Operation, Sequence[Any], int], Any]
"""Device, operation, inputs and the number of the round; the result, as a tensor on the device."""
Progress = Callable[[float, str], None]
"""Share that is done, and what is being done."""


def really(_: Device, operation: Operation, inputs: Sequence[Any], __: int) -> Any:
    """The operation itself."""
    return operation.compute(*inputs)


class Seen(Value):
    """What the runs of one operation on one device came to."""

    repeats: int = 0
    wrong: tuple[Wrong, ...] = ()
    words: int = 0
    """Wrong words in all, also those that were not kept."""


class _Operation:
    """One operation on one device, over its rounds."""

    def __init__(self, torch: Any, operation: Operation, device: Device) -> None:
        self.torch, self.operation, self.device = torch, operation, device
        self.inputs, self.right = prepared(torch, operation, device.torch_name, device.tiles)
        self.seen = Seen()
        self.variants: list[tuple[Any, list[int]]] = []
        """For an operation without a reference: what came, and in which repeats."""

    def run(self, compute: Compute, repeat: int) -> None:
        got = words(self.torch, compute(self.device, self.operation, self.inputs, repeat))
        if self.right is None:
            self._remember(got, repeat)
        elif not self.torch.equal(got, self.right):
            self._note(got, self.right, repeat)
        self.seen = self.seen.but(repeats=self.seen.repeats + 1)

    def settle(self) -> Any:
        """What the device gave most often, for an operation without a reference; the rest counts as wrong."""
        if self.right is not None or not self.variants:
            return self.right
        usual, _ = max(self.variants, key=lambda each: len(each[1]))
        for got, repeats in self.variants:
            if got is not usual:
                for repeat in repeats:
                    self._note(got, usual, repeat)
        return usual

    def _remember(self, got: Any, repeat: int) -> None:
        for known, repeats in self.variants:
            if self.torch.equal(known, got):
                repeats.append(repeat)
                return
        if len(self.variants) < KEPT:
            self.variants.append((got.clone(), [repeat]))

    def _note(self, got: Any, right: Any, repeat: int) -> None:
        found, count = differences(self.torch, got, right, repeat)
        kept = (*self.seen.wrong, *found)[: KEPT * KEPT]
        self.seen = self.seen.but(wrong=kept, words=self.seen.words + count)


def differences(torch: Any, got: Any, right: Any, repeat: int) -> tuple[tuple[Wrong, ...], int]:
    """The first wrong words of a result, and how many there are."""
    mask = (1 << 8 * right.element_size()) - 1
    flat_got, flat_right = got.reshape(-1), right.reshape(-1)
    places = torch.nonzero(flat_got != flat_right).reshape(-1)
    found = tuple(
        Wrong(repeat=repeat, place=place, expected=int(flat_right[place]) & mask, got=int(flat_got[place]) & mask)
        for place in places[:KEPT].tolist()
    )
    return found, int(places.numel())


class Burnt(Value):
    """What one device came to."""

    device: Device
    rounds: int
    results: tuple[Result, ...]


def burn(
    torch: Any, devices: Sequence[Device], until: float, compute: Compute = really, progress: Progress | None = None
) -> list[Result]:
    """Results of all devices. `until` is on the monotonic clock, in seconds; `LEAST_ROUNDS` are run in any case."""
    start = monotonic()
    usual: dict[str, Any] = {}
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def tell() -> None:
        if progress is not None:
            spent = monotonic() - start
            progress(min(1.0, spent / max(until - start, 1e-3)), f"computing on {len(devices)} devices")

    try:
        with ThreadPoolExecutor(max_workers=max(1, len(devices))) as pool:
            given = (until, compute, tell, usual, Lock())
            running = [pool.submit(_device, torch, device, *given) for device in devices]
            results = [result for each in running for result in each.result()]
    finally:
        torch.set_num_threads(before)
    return [*results, *_against_peers(torch, devices, usual)]


def _device(
    torch: Any,
    device: Device,
    until: float,
    compute: Compute,
    tell: Callable[[], None],
    usual: dict[str, Any],
    first: Lock,
) -> list[Result]:
    try:
        with pinned(device), torch.no_grad():
            own = [_Operation(torch, operation, device) for operation in OPERATIONS]
            with first:
                for each in own:
                    really(device, each.operation, each.inputs, -1)
            rounds = 0
            while rounds < LEAST_ROUNDS or monotonic() < until:
                for each in own:
                    each.run(compute, rounds)
                rounds += 1
                tell()
            for each in own:
                settled = each.settle()
                if each.right is None and not each.seen.wrong:
                    usual[device.name] = settled.cpu()
            return _results(device, rounds, own)
    except WrongReference as error:
        return [Result(task=TASK, part="compute", unit=device.name, outcome=Outcome.FAIL, sentence=str(error))]
    except Exception as error:  # noqa: BLE001  whatever PyTorch raises is sorted by its words
        words_ = str(error).strip().splitlines() or [type(error).__name__]
        return [Result(task=TASK, part="compute", unit=device.name, outcome=of_error(str(error)), sentence=words_[0])]


def _results(device: Device, rounds: int, own: Sequence[_Operation]) -> list[Result]:
    bad = [each for each in own if each.seen.wrong]
    numbers: dict[str, int | float] = {"rounds": rounds, "operations": len(own)}
    if not bad:
        sentence = f"{len(own)} operations, {rounds} rounds, every bit as it should be"
        return [
            Result(
                task=TASK, part="compute", unit=device.name, outcome=Outcome.PASS, sentence=sentence, numbers=numbers
            )
        ]
    return [_failure(device, each, numbers) for each in bad]


def _failure(device: Device, own: _Operation, numbers: dict[str, int | float]) -> Result:
    seen, first = own.seen, own.seen.wrong[0]
    lines = tuple(
        f"repeat {each.repeat}: element {each.place} is {each.got:#x}, not {each.expected:#x}"
        for each in seen.wrong[:KEPT]
    )
    return Result(
        task=TASK,
        part="compute",
        unit=device.name,
        outcome=Outcome.FAIL,
        sentence=describe(own.operation.name, seen.wrong, seen.repeats, seen.words),
        numbers={
            **numbers,
            "wrong_words": seen.words,
            "wrong_repeats": len({each.repeat for each in seen.wrong}),
            "first_element": first.place,
            "first_bit": first.bits[0],
        },
        evidence=lines,
    )


def _against_peers(torch: Any, devices: Sequence[Device], usual: dict[str, Any]) -> list[Result]:
    """Devices of one model whose inexact results differ, though each agrees with itself: the minority is wrong; of two
    it can't be told which."""
    results = []
    for model in dict.fromkeys(device.model for device in devices):
        camps: list[tuple[Any, list[Device]]] = []
        for device in devices:
            if device.model != model or device.name not in usual:
                continue
            camp = next((members for known, members in camps if torch.equal(known, usual[device.name])), None)
            if camp is None:
                camps.append((usual[device.name], [device]))
            else:
                camp.append(device)
        camps.sort(key=lambda each: -len(each[1]))
        known = bool(camps) and all(len(camps[0][1]) > len(members) for _, members in camps[1:])
        for right, members in [(camps[0][0], others) for _, others in camps[1:]]:
            for device in members:
                results.append(_odd_one(torch, device, usual[device.name], right, known))
    return results


def _odd_one(torch: Any, device: Device, got: Any, right: Any, is_minority: bool) -> Result:
    wrong, count = differences(torch, got, right, 0)
    how = "differs from most of its model" if is_minority else "differs from another of its model, one of them is wrong"
    return Result(
        task=TASK,
        part="compute",
        unit=device.name,
        outcome=Outcome.FAIL if is_minority else Outcome.INVALID,
        sentence=f"{OPERATIONS[-1].name}: {how}, in {count} elements, the first {wrong[0].place}",
        numbers={"wrong_words": count},
    )
