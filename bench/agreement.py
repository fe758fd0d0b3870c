"""What comparing replicas costs: reading the state once, and one small collective, every so many steps.

The state is that of the reference model at its full size with AdamW (parameters and two moments), in one thread, as a
rank has it; and a gibibyte in few tensors, for the pace. Goal: 1 % of the time of steps at the default interval, if a
step takes a tenth of a second, which is a fast one.
"""

import timeit
from collections.abc import Iterator
from typing import Any

from bench.figure import Figure

ROUNDS = 15
STEP_S = 0.1
GOAL_PERCENT = 1.0


def figures() -> Iterator[Figure]:
    import torch

    from trainmaster.training.reference.model import Llama, Shape
    from trainmaster.training.replicas import EVERY_STEPS, Held, digest

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shape = Shape(vocabulary=8192, dim=256, layers=6, heads=8, key_heads=4, hidden=704, context=64)
    held: dict[str, Any] = {}
    for name, parameter in Llama(shape).named_parameters():
        for kind in ("", "/exp_avg", "/exp_avg_sq"):
            held[name + kind] = Held(name + kind, "", torch.randn_like(parameter.detach()))
    look_s = _least(lambda: digest(held, tuple(held)))
    big = {f"{place}": Held(f"{place}", "", torch.randn(32 << 20)) for place in range(8)}
    pace = 8 * (32 << 20) * 4 / _least(lambda: digest(big, tuple(big))) / 2**30
    torch.set_num_threads(threads)
    percent = 100 * look_s / (EVERY_STEPS * STEP_S)
    size = sum(each.local.nbytes for each in held.values()) / 2**20
    yield Figure(
        bench="agreement",
        figure="agreement.overhead_percent",
        value=percent,
        unit="%",
        better="lower",
        goal=f"{GOAL_PERCENT:g} % of steps of {STEP_S:g} s, every {EVERY_STEPS} steps",
        holds=percent <= GOAL_PERCENT,
        note=f"{look_s * 1e3:.1f} ms a look at {size:.0f} MiB in {len(held)} tensors",
    )
    yield Figure(
        bench="agreement",
        figure="agreement.pace_gib_per_s",
        value=pace,
        unit="GiB/s",
        better="higher",
        goal="one thread",
        holds=True,
        note="a gibibyte in eight tensors",
    )


def _least(act: Any) -> float:
    return min(timeit.repeat(act, number=1, repeat=ROUNDS))
