"""Silent corruption in real jobs: a bit flips in one rank, and no error is raised anywhere but by the comparison."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.house import SCRIPTS, House, job, running

from trainmaster.core.base.reasons import Token
from trainmaster.core.health.corruption import RULE
from trainmaster.core.scheduling.request import ChecksPolicy
from trainmaster.live.server.health_resources import HostHealth
from trainmaster.live.server.resources import JobDetail
from trainmaster.training import losses

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]
EVERY = 10
STEPS = 60
FLIPPED_AFTER = 23
SAVED = 20
"""The newest save before the flip, and the last step at which the replicas agreed."""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with running(hosts=2) as fleet:
        yield fleet


def submitted(
    house: House, name: str, kind: str, rank: int, ranks_per_host: int = 2, steps: int = STEPS, hosts: int = 2
) -> str:
    marker: Path = house.state / f"flipped-{name}"
    words = (kind, str(steps), str(rank), str(FLIPPED_AFTER), str(SAVED), str(marker))
    checks = ChecksPolicy(agreement_every_steps=EVERY)
    command = ("python", str(SCRIPTS / "replicas.py"), *words)
    return house.submit(job(name, command, every=EVERY, ranks_per_host=ranks_per_host, checks=checks, hosts=hosts))


def trained(
    house: House, name: str, rank: int, ranks_per_host: int = 2, hosts: int = 2, kind: str = "plain"
) -> tuple[JobDetail, dict[int, str]]:
    """The finished job, and the losses of the last run of each step."""
    known = submitted(house, name, kind, rank, ranks_per_host, hosts=hosts)
    told = house.finish(known)
    return told, {step: loss.hex for step, loss in losses(house.directory(known)).items()}


@pytest.mark.parametrize("kind", ["plain", "stays"])
def test_a_flipped_bit_is_named_and_undone(house: House, kind: str) -> None:
    """1. Four ranks on two hosts, compared each ten steps. After step 23 one bit of a weight of rank 3 flips. 2. Within
    ten steps the job stops by itself, names rank 3 on h2 and the tensor, and goes on from the newest save that agreed.
    3. All losses are those of a job in which nothing flipped. 4. It stands against h2, and against nobody else.
    All this also where survivors stay alive, and see the odd rank leave before its process has ended."""
    _, clean = trained(house, f"clean-{kind}", rank=-1, hosts=1, ranks_per_host=4)
    told, disturbed = trained(house, f"flipped-{kind}", rank=3, kind=kind)
    (incident,) = told.account.incidents
    assert incident.cause.token is Token.REPLICAS_DISAGREE
    assert (incident.hosts, incident.ranks) == (("h2",), (3,))
    assert "rank 3 on h2 differs from ranks 0-2 in 0.weight (1 of 12 tensors) after step 30" in incident.cause.sentence
    assert incident.steps_lost == 30 - SAVED
    assert disturbed == clean
    against = {host: house.get(f"/v1/hosts/{host}/health", HostHealth) for host in ("h1", "h2")}
    rules = {host: [each.finding.rule for each in found.verdict.standings] for host, found in against.items()}
    assert RULE in rules["h2"]
    assert RULE not in rules["h1"]


def test_two_replicas_blame_nobody(house: House) -> None:
    """1. Two ranks; a bit of rank 1 flips. 2. The job goes back to the newest save that agreed, and says that nobody
    can tell who is right: no host is named."""
    told, _ = trained(house, "two", rank=1, ranks_per_host=1)
    (incident,) = told.account.incidents
    assert incident.cause.token is Token.REPLICAS_DISAGREE
    assert "no majority says who is right: ranks 0-1 differ in 0.weight" in incident.cause.sentence
    assert (incident.hosts, incident.ranks) == ((), ())
    assert incident.steps_lost == 30 - SAVED


def test_shards_can_not_be_compared(house: House) -> None:
    """1. Each rank holds a shard. A bit flips. 2. Nobody can notice; the job has said so at its start."""
    name = submitted(house, "sharded", "sharded", rank=1, steps=1_000_000)

    def notes(detail: JobDetail) -> list[str]:
        return [rank.note for rank in detail.progress.ranks] if detail.progress is not None else []

    said = "agreement can't be checked: no two ranks hold the same parameters"
    house.until(name, "it says so", lambda detail: any(said in note for note in notes(detail)))
    house.until(name, "it goes on", lambda detail: detail.job.step > FLIPPED_AFTER + EVERY)
    assert house.detail(name).account.incidents == ()
