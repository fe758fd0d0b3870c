"""Three ranks train with DDP, recorded and not: `ddp_ranks.py DIRECTORY`. Rank 0 writes what came of it as JSON.

Forked from one process, which has imported PyTorch once; no server, no agent.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainmaster.core.agent.ring import Ring, Slow
from trainmaster.training.recorder import Recorder

WORLD, STEPS = 3, 4


def trained(seed: int) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Tanh(), torch.nn.Linear(400, 300))
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.3)
    return wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1)


def steps(rank: int, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> bytes:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        model(torch.randn(8, 300, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())


def run(directory: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(directory / "store"), WORLD), rank=rank, world_size=WORLD)
    plain = steps(rank, *trained(1))
    recorder = Recorder(directory / f"ring-{rank}", rank, WORLD)
    recorder.install()
    recorder.mark(Slow.NONE)
    model, optimizer = trained(1)
    before = len(calls(directory, rank))
    recorded = steps(rank, model, optimizer)
    made = calls(directory, rank)[before:]
    own = DistributedDataParallel(torch.nn.Linear(4, 4))
    used: list[int] = []
    own.register_comm_hook(used, counting)
    own(torch.ones(1, 4)).sum().backward()
    recorder.close()
    if rank == 0:
        told = {
            "equal": recorded == plain,
            "ops": [op for op, *_ in made],
            "whole": all(left >= waited and left > 0 for _, waited, left in made),
            "waited": sum(waited > 0 for _, waited, _ in made),
            "own_hook_used": len(used),
        }
        (directory / "told.json").write_text(json.dumps(told))


def counting(used: list[int], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    used.append(1)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def calls(directory: Path, rank: int) -> list[tuple[str, int, int]]:
    page = bytearray((directory / f"ring-{rank}").read_bytes())
    return [(call.op, call.waited_us, call.left_us) for call in Ring(memoryview(page)).read().calls]


def main() -> int:
    directory = Path(sys.argv[1])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    children = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            run(directory, rank)
            os._exit(0)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


sys.exit(main())
