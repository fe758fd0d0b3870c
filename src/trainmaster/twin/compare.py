"""Two scenarios under the same seeds, and what differs between them.

Streams of chance belong to a seed, a purpose and an entity, so both scenarios of a pair have the same failures and the
same requests as far as they ask for the same; what differs is what was changed. `paired` judges the differences.
"""

from collections.abc import Callable, Sequence

from trainmaster.core.base.value import Value
from trainmaster.twin.figures import figures
from trainmaster.twin.paired import TEST, Compared, compare
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import Scenario


class Comparison(Value):
    simulated: bool = True
    """Never a measurement of real fleets."""
    a: str
    b: str
    seeds: tuple[int, ...]
    simulated_s: float
    test: str
    figures: tuple[Compared, ...]
    invariants_broken: int
    """In all runs."""


def compare_scenarios(
    a: Scenario,
    b: Scenario,
    seeds: Sequence[int],
    options: Options,
    names: tuple[str, str] = ("A", "B"),
    told: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Runs both under each seed. `told` is called with the runs that are done, and all."""
    assert seeds
    rows: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    broken = 0
    simulated_s = 0.0
    for place, seed in enumerate(seeds):
        for side, scenario in enumerate((a, b)):
            report = Run(scenario.but(seed=seed), options).run()
            rows[side].append(figures(report))
            broken += report.invariants_broken
            simulated_s += report.simulated_s
            if told is not None:
                told(2 * place + side + 1, 2 * len(seeds))
    return Comparison(
        a=names[0],
        b=names[1],
        seeds=tuple(seeds),
        simulated_s=simulated_s,
        test=TEST,
        figures=compare(rows[0], rows[1]),
        invariants_broken=broken,
    )
