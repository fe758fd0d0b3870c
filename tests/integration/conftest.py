"""A real agent of one host, under a server that does what the test says; and a warm process that forks ranks, which all
tests of a run share, as they do the losses of a run to which nothing happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.agent_server import FakeServer
from tests.integration.agent_host import AgentHost
from tests.integration.house import House, running
from tests.integration.training_cluster import STEPS, TINY, Membership, Warm, hexes


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def host(tmp_path: Path, server: FakeServer) -> Iterator[AgentHost]:
    made = AgentHost(tmp_path, server)
    made.start_agent()
    yield made
    made.close()


@pytest.fixture(scope="module")
def fleet() -> Iterator[House]:
    """Of two hosts; modules that need others make their own."""
    with running(hosts=2) as house:
        yield house


@pytest.fixture
def house(fleet: House) -> House:
    """The fleet of the module, at rest."""
    fleet.settle()
    return fleet


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    process = Warm()
    yield process
    process.close()


@pytest.fixture(scope="session")
def undisturbed(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Losses of four ranks to which nothing happens, as hexadecimal floats."""
    root = tmp_path_factory.mktemp("undisturbed")
    with Membership(warm, root, STEPS, *TINY) as job:
        job.finish()
    return hexes(root)
