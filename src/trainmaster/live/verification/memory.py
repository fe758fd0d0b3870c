"""Patterns written to a share of memory, read back and compared.

Memory is taken in chunks, and a pattern is written to all of them before any is read, so that what is read comes from
memory and not from a cache. The patterns: all bits off, all on, every other one (both ways), a bit that walks through
the word, a hash of the address, and its inverse; the last two find address lines that are stuck, where a word is kept
well but in the wrong place. A pattern that is not right is read twice more, and then written anew: what is wrong again
is *stuck*, what was wrong in one reading only is *transient*, in the path and not in the cell.

A host has more memory than a check has time: chunks are taken during the first tenth of it, so that all patterns have
their turn, and the result says how much was tested. Error correction hides single bits,
which the counters of the memory controller show, not this.

`read` is a parameter so that tests can damage what is read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

from trainmaster.core.health.verification.bits import Wrong, describe
from trainmaster.core.health.verification.outcome import Outcome, Result, of_error
from trainmaster.live.verification.burn import Progress, differences
from trainmaster.live.verification.devices import Device, pinned

TASK: Final = "deep"
CHUNK_BYTES: Final = 8 << 20
DEFAULT_SHARE: Final = 0.05
MOST_CPU_BYTES: Final = 8 << 30
REREADS: Final = 2

Read = Callable[[Any, int], Any]
"""A chunk and how often it was read before since it was written; what was read."""


def as_it_is(chunk: Any, _: int) -> Any:
    return chunk


def available_bytes(torch: Any, device: Device) -> int:
    """Free memory of a device. Raises `OSError`, or what the driver raises."""
    if device.kind == "gpu":
        free, _ = torch.cuda.mem_get_info(device.number)
        return int(free)
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) * 1024, MOST_CPU_BYTES)
    raise OSError("/proc/meminfo does not tell MemAvailable")


def patterns(torch: Any, size_words: int, device: str) -> Iterator[tuple[str, Any]]:
    """Names and chunks. The caller adds the number of the chunk to the last two, so that no two chunks are alike."""
    for name, word in (("zeros", 0), ("ones", -1), ("0x55", 0x5555555555555555), ("0xaa", -0x5555555555555556)):
        yield name, torch.full((size_words,), word, dtype=torch.int64, device=device)
    at = torch.arange(size_words, dtype=torch.int64, device=device)
    yield "walking bit", torch.bitwise_left_shift(torch.ones_like(at), at % 64)
    mixed = at * 0x9E3779B97F4A7C1
    yield "address", mixed ^ (mixed >> 29)
    yield "inverse address", ~(mixed ^ (mixed >> 29))


def check_memory(
    torch: Any, device: Device, size_bytes: int, until: float, read: Read = as_it_is, progress: Progress | None = None
) -> Result:
    """Tests up to `size_bytes` of a device's memory until about that time on the monotonic clock; one chunk in any
    case."""
    try:
        with pinned(device), torch.no_grad():
            return _Memory(torch, device, size_bytes, until, read, progress).run()
    except Exception as error:  # noqa: BLE001  whatever PyTorch raises is sorted by its words
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Result(task=TASK, part="memory", unit=_unit(device), outcome=of_error(str(error)), sentence=first)


def _unit(device: Device) -> str:
    return "memory" if device.kind == "cpu" else device.name


class _Memory:
    def __init__(
        self, torch: Any, device: Device, size_bytes: int, until: float, read: Read, progress: Progress | None
    ) -> None:
        self.torch, self.device, self.until, self.read, self.progress = torch, device, until, read, progress
        self.start = monotonic()
        self.take_until = self.start + (until - self.start) / 10
        self.end = until + max(1.0, until - self.start)
        """No pattern is begun after it. The time is met on a host that is as fast at reading as at taking memory."""
        self.count = self.asked = max(1, size_bytes // CHUNK_BYTES)
        self.chunks: list[Any] = []
        self.compared = 0

    def run(self) -> Result:
        words = CHUNK_BYTES // 8
        done: list[str] = []
        for name, pattern in patterns(self.torch, words, self.device.torch_name):
            bad = self._pass(name, pattern)
            if bad is not None:
                return bad
            done.append(name)
            if monotonic() >= self.end:
                break
        return self._passed(done)

    def _pass(self, name: str, pattern: Any) -> Result | None:
        """A pattern over all chunks; a result if it was not there when it was read."""
        moves = name.endswith("address")
        for place in range(self.count):
            if place == len(self.chunks):
                if place and monotonic() >= self.take_until:
                    self.count = place
                    break
                self.chunks.append(self.torch.empty(CHUNK_BYTES // 8, dtype=self.torch.int64, device=pattern.device))
            self.chunks[place].copy_(pattern)
            if moves:
                self.chunks[place].add_(place)
            self._tell(name)
        for place, chunk in enumerate(self.chunks):
            right = pattern + place if moves else pattern
            if not self.torch.equal(self.read(chunk, 0), right):
                return self._wrong(name, place, chunk, right)
            self.compared += 1
        return None

    def _wrong(self, name: str, place: int, chunk: Any, right: Any) -> Result:
        """Looks at it again, then writes it anew."""
        wrong: list[Wrong] = []
        count = 0
        for again in range(1, 1 + REREADS):
            found, number = differences(self.torch, self.read(chunk, again), right, again)
            wrong, count = [*wrong, *found], count + number
        chunk.copy_(right)
        anew, _ = differences(self.torch, self.read(chunk, 0), right, 1 + REREADS)
        repeats = 2 + REREADS
        if not wrong and not anew:
            sentence = f"pattern {name}: a wrong word in one of {repeats} readings (transient: the path, not the cell)"
        else:
            both = [*wrong, *anew]
            kept = "stuck" if anew else "lost, and kept when written anew"
            sentence = f"{describe(f'pattern {name}', both, repeats, max(count, 1))}: {kept}"
        first = (*wrong, *anew)[:1]
        numbers: dict[str, int | float] = {"chunk": place, "repeats": repeats}
        if first:
            numbers |= {"first_word": first[0].place, "first_bit": first[0].bits[0]}
        lines = tuple(
            f"word {each.place} is {each.got:#018x}, not {each.expected:#018x}" for each in (*wrong, *anew)[:8]
        )
        return Result(
            task=TASK, part="memory", unit=_unit(self.device), outcome=Outcome.FAIL, sentence=sentence,
            numbers={**self._numbers(), **numbers}, evidence=lines,
        )  # fmt: skip

    def _passed(self, done: list[str]) -> Result:
        numbers = self._numbers() | {"patterns": len(done)}
        sentence = f"{numbers['tested_mib']} MiB, {len(done)} patterns, every bit as it was written"
        if len(self.chunks) < self.asked:
            reached = 100.0 * len(self.chunks) / self.asked
            sentence += f"; the budget ended first: {reached:.2g} % of the {numbers['asked_mib']} MiB asked for"
        return Result(
            task=TASK, part="memory", unit=_unit(self.device), outcome=Outcome.PASS, sentence=sentence, numbers=numbers
        )

    def _numbers(self) -> dict[str, int | float]:
        return {
            "tested_mib": len(self.chunks) * CHUNK_BYTES >> 20,
            "asked_mib": self.asked * CHUNK_BYTES >> 20,
            "compared_mib": self.compared * CHUNK_BYTES >> 20,
        }

    def _tell(self, name: str) -> None:
        if self.progress is not None:
            spent = (monotonic() - self.start) / max(self.until - self.start, 1e-3)
            self.progress(min(1.0, spent), f"memory of {_unit(self.device)}, pattern {name}")
