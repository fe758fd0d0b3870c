"""Seeds of dense faults against health: hosts fall ill, remedies help or do not, people promote, trip, release and
hold, in the midst of all that happens in a seed of maintenance. After every event all invariants hold and a restored
engine equals the live one byte for byte; once faults stop, every case is closed and every host is back.

A failure prints the command that replays it.
"""

import os

import pytest

from tests.sim.health_run import HealthRun, QuickRun
from tests.sim.maintenance_run import check_end

SEEDS = int(os.environ.get("TRAINMASTER_HEALTH_SEEDS", "1"))
FIRST = int(os.environ.get("TRAINMASTER_FIRST_SEED", "1"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_seed_of_health(seed: int) -> None:
    """1. Hosts fall ill, by lines and by states; some of it is cause, some echo, some unknown. 2. Pools are promoted
    and set back, breakers tripped, hosts released, held and lost. 3. Every invariant holds after every event. 4. Faults
    stop. 5. Every case is closed, and every host is back."""
    run = HealthRun(seed)
    try:
        run.play()
        check_end(run)
    except BaseException as error:
        where = "tests/sim/test_health_seeds.py -k one_seed"
        error.add_note(f"replay: TRAINMASTER_SEED={seed} python -m pytest {where}")
        raise


@pytest.mark.parametrize("seed", range(100, 100 + 8 * SEEDS))
def test_a_quick_seed_of_health(seed: int) -> None:
    """The same, and only what health and the watchers have to say is checked; so there can be more of them."""
    run = QuickRun(seed)
    run.play()
    check_end(run)


def test_one_seed() -> None:
    """Replays the seed of TRAINMASTER_SEED (0 if unset)."""
    run = HealthRun(int(os.environ.get("TRAINMASTER_SEED", "0")))
    run.play()
    check_end(run)
