"""PyTorch under the agent: scripts that know nothing of us, by exec and by fork, and the store on the reserved port."""

import pytest
from tests.integration.agent_host import AgentHost

pytestmark = [pytest.mark.real, pytest.mark.torch]

TORCHRUN_STYLE = """
import os, time
started = time.time()
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {value.item():.0f} after {time.time() - started:.3f} s")
dist.barrier()
dist.destroy_process_group()
"""

TAKES_THE_STORE = """
import os
from datetime import timedelta
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
descriptor = os.environ.get("TRAINMASTER_STORE_FD")
assert (descriptor is not None) == (rank == 0)
more = {"master_listen_fd": int(descriptor)} if descriptor else {}
store = dist.TCPStore(
    os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0, timedelta(seconds=30), **more
)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
dist.barrier()
print("met")
dist.destroy_process_group()
"""


def start(host: AgentHost, script: str, preload: tuple[str, ...]) -> None:
    host.script(script)
    assert host.server.do(host.prepare("python3", "script.py", preload=preload), timeout_s=60).detail == ""
    port = int(host.server.do(host.reserve()).numbers["port"])
    assert host.server.do(host.launch(ranks=2, port=port)).outcome == "done"


@pytest.mark.parametrize("preload", [(), ("torch", "torch.distributed")])
def test_torchrun_script_runs_as_it_is(host: AgentHost, preload: tuple[str, ...]) -> None:
    """1. A script for torchrun is launched on two ranks, by exec or by fork from a keeper that has torch. 2. The ranks
    meet over env:// on the reserved port and finish."""
    start(host, TORCHRUN_STYLE, preload)
    exits = host.exits(2)
    told = host.log_text(0)
    assert [exit.how for exit in exits] == ["finished", "finished"], told
    assert "rank 0 of 2 sum 3" in told
    print(told.strip())


@pytest.mark.parametrize("preload", [(), ("torch", "torch.distributed")])
def test_store_on_the_reserved_socket(host: AgentHost, preload: tuple[str, ...]) -> None:
    """1. Rank 0 makes the store on the socket that it was handed. 2. The ranks meet."""
    start(host, TAKES_THE_STORE, preload)
    exits = host.exits(2)
    assert [exit.how for exit in exits] == ["finished", "finished"], host.log_text(0)
    assert "met" in host.log_text(1)
