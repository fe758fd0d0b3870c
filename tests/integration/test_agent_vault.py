"""The vault of a real agent's attempt: there before the workers, there again after its death, gone with the attempt."""

import os
import signal
from pathlib import Path

import pytest
from tests.integration.agent_host import ATTEMPT, AgentHost, eventually, is_gone

from trainmaster.core.agent.vault_talk import PLACE_NAME, Place
from trainmaster.core.base.value import decode
from trainmaster.live.agent.processes import ProcessName

pytestmark = pytest.mark.real


def keeper_of(host: AgentHost) -> int:
    return decode(host.paths.keeper(ATTEMPT).read_bytes(), ProcessName).pid


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def place_of(host: AgentHost) -> Place:
    path = host.paths.memory(ATTEMPT) / PLACE_NAME
    eventually(path.exists)
    return decode(path.read_bytes(), Place)


def test_a_vault_is_there_before_workers_and_again_after_its_death(host: AgentHost) -> None:
    """1. A host is prepared: a vault runs, at the host's address. 2. It gets SIGKILL: there is another one at the same
    address, with the same token; the worker has noticed nothing. 3. The agent dies: the vault stays. 4. The attempt is
    released: nothing of it is left."""
    host.script("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    assert host.server.do(host.prepare(preload=("json",))).outcome == "done"
    place = place_of(host)
    assert (place.host, place.address) == ("h1", "127.0.0.1")
    (vault,) = children(keeper_of(host))
    assert host.server.do(host.launch()).outcome == "done"
    host.said("up")
    before = (host.paths.memory(ATTEMPT) / PLACE_NAME).stat().st_ino
    os.kill(vault, signal.SIGKILL)
    eventually(lambda: (host.paths.memory(ATTEMPT) / PLACE_NAME).stat().st_ino != before)
    assert place_of(host) == place
    assert len(children(keeper_of(host))) == 2
    assert len(host.server.registers) == 1
    host.kill_agent()
    host.start_agent()
    assert len(children(keeper_of(host))) == 2
    left = children(keeper_of(host))
    assert host.server.do(host.release()).outcome == "done"
    assert all(map(is_gone, left))
    assert not host.paths.attempt(ATTEMPT).exists()


def test_a_vault_does_not_outlive_its_keeper(host: AgentHost) -> None:
    """1. The keeper gets SIGKILL. 2. Its vault is gone; the next keeper has one, at another address."""
    assert host.server.do(host.prepare()).outcome == "done"
    place = place_of(host)
    keeper = keeper_of(host)
    (vault,) = children(keeper)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: is_gone(vault))
    eventually(lambda: is_gone(keeper))
    assert host.server.do(host.prepare()).outcome == "done"
    eventually(lambda: place_of(host) != place)
    assert keeper_of(host) != keeper
