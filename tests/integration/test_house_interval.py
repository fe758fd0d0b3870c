"""A job that leaves open how often it saves: measured at the first save, chosen by the server, heeded by the ranks."""

from collections.abc import Iterator

import pytest
from tests.integration.house import House, job, running, training, wait

from trainmaster.core.checkpoint.choice import TRIAL_STEPS
from trainmaster.core.checkpoint.listing import step_of
from trainmaster.core.scheduling.request import CheckpointPolicy
from trainmaster.live.server.resources import JobDetail

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS = 60


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with running(hosts=2) as made:
        yield made


def test_the_first_save_measures_and_the_rest_follows(house: House) -> None:
    """1. A job of two ranks with `every = "auto"`. 2. Its first checkpoint is of the step that all ranks agreed on, at
    least the tenth. 3. Then the interval is chosen from what the save took, both ranks have it on their
    boards, and no save comes before the end, since it is hours long. 4. The job says how often it saves, and why."""
    name = house.submit(job("open", training(STEPS, 0.05), checkpoint=CheckpointPolicy(auto=True, keep=10)))

    def chosen() -> JobDetail | None:
        detail = house.detail(name)
        return detail if detail.saves is not None and detail.saves.choice is not None else None

    detail = wait("an interval is chosen", chosen)
    assert detail.saves is not None
    assert detail.saves.choice is not None
    storage = detail.saves.choice.tiers[-1]
    assert 0.001 < storage.stall_s < 30
    assert 0.05 < detail.saves.choice.step_s < 5
    assert detail.saves.every_steps > 10 * STEPS
    assert "by the published rate" in detail.saves.sentence
    assert house.finish(name).job.state == "finished"
    found = [step_of(path.name) for path in house.checkpoints(name).iterdir()]
    steps = sorted(step for step in found if step is not None)
    assert len(steps) == 2
    assert TRIAL_STEPS <= steps[0] < STEPS
    assert steps[1] == STEPS
