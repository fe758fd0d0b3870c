"""Ranks that write down what they consume: `DIRECTORY SAMPLES STEPS BATCH`, from shards, three batches ahead.

A sample is four tokens, the first of which is its number.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import trainmaster.training as tm
from trainmaster.core.agent import environment
from trainmaster.core.checkpoint.order import sample_at
from trainmaster.storage.contents import locate
from trainmaster.storage.host_cache import HostCache
from trainmaster.training.loader import Loader, Wanted
from trainmaster.training.shards import Tokens

LENGTH = 4


def main() -> None:
    directory, count, steps, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    with tm.session() as session:
        tokens = Tokens(*locate(directory / "shards"), HostCache(session.host_dir, session.attempt))

        def fetch(wanted: Wanted) -> list[tuple[int, int]]:
            """Places in the job's order, and the samples there."""
            places = range(wanted.first + wanted.rank, wanted.first + batch, wanted.world)
            picked = [sample_at(place, count, 7) for place in places]
            read = [tokens.read(number * LENGTH, (number + 1) * LENGTH)[0] for number in picked]
            return list(zip(places, read, strict=True))

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        session.restore(model=model, optimizer=optimizer, global_batch=batch)
        loader = Loader(fetch, ahead=3, threads=2, tell=session.waited_for_data)
        with (directory / f"consumed-{os.environ[environment.EPOCH]}-{session.rank}").open("a", buffering=1) as log:
            for step in session.steps(total=steps):
                wanted = Wanted(first=session.samples, global_batch=batch, rank=session.rank, world=session.world)
                consumed = loader.take(wanted)
                model(torch.ones(1, 2)).sum().backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                optimizer.step()
                optimizer.zero_grad()
                log.write(f"{step} {' '.join(f'{place} {sample}' for place, sample in consumed)}\n")
                time.sleep(0.01)
                session.report(step, loss=1.0, samples=session.samples + batch)


if __name__ == "__main__":
    main()
