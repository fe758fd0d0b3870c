"""A training of several ranks that gets into trouble on command: `troubled.py DIRECTORY [ddp]`.

A rank looks for `DIRECTORY/RANK` in each step and does what stands in it: `slow 3` (takes so many times as long),
`stall` (stands until the file is gone), `skip` (leaves out one collective), `data 0.2`, `evaluate 3`, `mode 3`
(evaluates, and says it by the mode of its model alone), `save 3` (seconds). With `ddp` gradients are reduced by DDP, in
C++.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainmaster.training as tm
from trainmaster.training.checkpoint_io import Checkpoints
from trainmaster.training.loader import Loader, Wanted

PACE_S = 0.1
directory = Path(sys.argv[1])
whole_save = Checkpoints.save


def asked(rank: int) -> list[str]:
    try:
        return (directory / str(rank)).read_text().split()
    except FileNotFoundError:
        return []


def fetch(wanted: Wanted) -> Wanted:
    word, *rest = asked(wanted.rank) or [""]
    time.sleep(float(rest[0]) if word == "data" else 0.0)
    return wanted


def main() -> None:
    torch.set_num_threads(1)
    with tm.session() as session:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 4)
        by_ddp = sys.argv[2:] == ["ddp"]
        model = DistributedDataParallel(model) if by_ddp else model
        optimizer = torch.optim.AdamW(model.parameters())
        session.restore(model=model, optimizer=optimizer, global_batch=4)
        loader = Loader(fetch, ahead=0, tell=session.waited_for_data)
        for step in session.steps(total=1_000_000):
            loader.take(Wanted(first=session.samples, global_batch=4, rank=session.rank, world=session.world))
            word, *rest = asked(session.rank) or [""]
            if step == 1:
                time.sleep(3.5)
            while word == "stall" and asked(session.rank):
                time.sleep(0.01)
            if word == "evaluate":
                with session.phase("evaluation"):
                    time.sleep(float(rest[0]))
            if word == "mode":
                model.eval()
                time.sleep(float(rest[0]))
                model.train()
            time.sleep(PACE_S * (float(rest[0]) if word == "slow" else 1.0))
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            for parameter in model.parameters() if not by_ddp else ():
                dist.all_reduce(parameter.grad)
            if word != "skip":
                dist.barrier()
            optimizer.step()
            optimizer.zero_grad()
            session.report(step, loss=loss.item(), samples=session.samples + 4)


def slow_save(self: Checkpoints, *arguments: object) -> object:
    word, *rest = asked(dist.get_rank()) or [""]
    if word == "save":
        time.sleep(float(rest[0]))
    return whole_save(self, *arguments)


if __name__ == "__main__":
    Checkpoints.save = slow_save
    main()
