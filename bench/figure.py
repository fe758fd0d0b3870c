"""The line that a bench prints."""

import statistics
import time
from collections.abc import Callable
from typing import Literal

from trainmaster.core.base.value import Value

ROUNDS = 7


class Figure(Value):
    bench: str
    figure: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    peer: float | None = None
    """The same of the peer, in the same unit; None: there is none."""
    ratio: float | None = None
    """How many times better than the peer ours is, or ours over the limit: the docstring of the bench says which."""
    goal: str = ""
    holds: bool | None = None
    note: str = ""


def interleaved(ours: Callable[[], float], peer: Callable[[], float], rounds: int = ROUNDS) -> tuple[float, float]:
    """Medians of both, measured in turns."""
    mine, other = [], []
    for number in range(rounds):
        order = ((ours, mine), (peer, other)) if number % 2 == 0 else ((peer, other), (ours, mine))
        for measure, into in order:
            into.append(measure())
    return statistics.median(mine), statistics.median(other)


def timed(act: Callable[[], object]) -> float:
    """Seconds that `act` takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
