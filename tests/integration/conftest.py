"""A real agent of one host, under a server that does what the test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.agent_server import FakeServer
from tests.integration.agent_host import AgentHost


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
