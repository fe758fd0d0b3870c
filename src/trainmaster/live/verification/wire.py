"""Two ranks and what goes between them: blocks for bandwidth, single words for latency, every block compared.

Each pair has a process group of its own, made for the pair and closed after it. A rank that hangs then takes nobody
with it but its partner, whereas in one large group the first lost rank ends everything, and it costs a connection a
pair, however many ranks there are. It is torch's own transport (gloo, or NCCL where there is CUDA), so what is measured
is what training will use.

The first rank sends and the second sends back, so that each sample holds both directions, and a host that is slow in
one of them only is slow. Blocks differ by sender and sample and are compared after the clock has stopped.

Tests damage or delay what is sent by a subclass.
"""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from trainmaster.core.base.value import Value

SAMPLES: Final = 4
PINGS_S: Final = 0.05
BLOCKS_S: Final = 0.25
"""How long the samples of words and of blocks take together, if that many turns are allowed. A sample is the best of
its turns: a busy moment spoils some of them, and not a quarter of a second."""
LEAST_PINGS: Final = 5
MOST_PINGS: Final = 200
MOST_BLOCKS: Final = 32


class Exchanged(Value):
    """What one end of a pair saw."""

    bandwidth_costs: tuple[float, ...] = ()
    latency_costs: tuple[float, ...] = ()
    bandwidth_s: float = 0.0
    latency_s: float = 0.0
    """How long all exchanges took."""
    bandwidth_waited: tuple[float, ...] = ()
    latency_waited: tuple[float, ...] = ()
    """Of each sample the share of its time without a processor, though there was something to do."""
    corrupt: str = ""
    dead: str = ""


class Wire:
    """One end."""

    def __init__(self, torch: Any, store: Any, device: str, is_first: bool, timeout_s: float) -> None:
        """Raises `RuntimeError` if the other end does not come in time."""
        import torch.distributed as dist

        self.torch, self.device, self.is_first = torch, device, is_first
        self.own, self.other = (0, 1) if is_first else (1, 0)
        timeout = timedelta(seconds=timeout_s)
        if device == "cpu":
            self.group: Any = dist.ProcessGroupGloo(store, self.own, 2, timeout)
        else:
            self.group = dist.ProcessGroupNCCL(store, self.own, 2, timeout)

    def send(self, tensor: Any) -> None:
        self.group.send([tensor], self.other, 0).wait()

    def receive(self, tensor: Any) -> None:
        self.group.recv([tensor], self.other, 0).wait()
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def round_trip(self, out: Any, into: Any) -> None:
        if self.is_first:
            self.send(out)
            self.receive(into)
        else:
            self.receive(into)
            self.send(out)


def block(torch: Any, device: str, size_bytes: int, sender: int, sample: int) -> Any:
    """What a sender sends as its sample; no two are alike."""
    at = torch.arange(size_bytes // 8, dtype=torch.int64, device=device)
    mixed = (at + (sender << 40) + (sample << 32)) * 0x9E3779B97F4A7C1
    return mixed ^ (mixed >> 31)


def exchange(wire: Wire, size_bytes: int) -> Exchanged:
    """All samples of a pair. Raises `RuntimeError` if the other end falls silent."""
    torch, device = wire.torch, wire.device
    word = torch.zeros(1, dtype=torch.int64, device=device)
    wire.round_trip(word, word.clone())  # connections and their buffers are made at the first one
    latencies, latency_s, latency_waited = _samples(
        wire, [(word, word.clone())] * SAMPLES, PINGS_S, LEAST_PINGS, MOST_PINGS
    )
    sent = [block(torch, device, size_bytes, wire.own, sample) for sample in range(SAMPLES)]
    got = [torch.zeros_like(each) for each in sent]
    costs, bandwidth_s, bandwidth_waited = _samples(wire, list(zip(sent, got, strict=True)), BLOCKS_S, 1, MOST_BLOCKS)
    return Exchanged(
        bandwidth_costs=costs,
        latency_costs=latencies,
        bandwidth_s=bandwidth_s,
        latency_s=latency_s,
        bandwidth_waited=bandwidth_waited,
        latency_waited=latency_waited,
        corrupt=_damage(wire, got, size_bytes),
    )


def waited_s() -> float:
    """How long threads of this process have waited for a processor so far, as the kernel counts it."""
    total_ns = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            total_ns += int((task / "schedstat").read_text().split()[1])
    return total_ns / 1e9


def _samples(
    wire: Wire, sent: list[tuple[Any, Any]], window_s: float, least: int, most: int
) -> tuple[tuple[float, ...], float, tuple[float, ...]]:
    """For each of what is sent the best of some turns; how long all took; and for each the share of waiting. The first
    rank times one turn and says how many fill the time."""
    begun = perf_counter()
    wire.round_trip(*sent[0])
    turns = max(least, min(most, round(window_s / len(sent) / (perf_counter() - begun))))
    said = wire.torch.full((1,), turns, dtype=wire.torch.int64, device=wire.device)
    heard = said.clone()
    wire.round_trip(said, heard)
    turns = turns if wire.is_first else int(heard)
    start = perf_counter()
    samples, waited = [], []
    for out, into in sent:
        best, first, before_s = float("inf"), perf_counter(), waited_s()
        for _ in range(turns):
            begun = perf_counter()
            wire.round_trip(out, into)
            best = min(best, perf_counter() - begun)
        samples.append(best)
        waited.append((waited_s() - before_s) / (perf_counter() - first))
    return tuple(samples), perf_counter() - start, tuple(waited)


def _damage(wire: Wire, got: list[Any], size_bytes: int) -> str:
    """What arrived otherwise than it was sent; empty: nothing."""
    for sample, each in enumerate(got):
        right = block(wire.torch, wire.device, size_bytes, wire.other, sample)
        places = wire.torch.nonzero(each != right).reshape(-1)
        if places.numel():
            place = int(places[0])
            mask = (1 << 64) - 1
            bits = (int(each[place]) & mask) ^ (int(right[place]) & mask)
            low = (bits & -bits).bit_length() - 1
            return f"corrupt: {int(places.numel())} words of {each.numel()}, the first is {place}, bit {low}"
    return ""
