"""Ranks take snapshots of a sharded state into the memory of their hosts, or recall it from there: every bit compared.

take SEED            each rank takes snapshots of step 1 and, with another content, of step SEED
recall SEED ...      the newest of what all hosts hold must be step SEED; 0: there is nothing to be had
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from reshard_ranks import assert_is, sharded
from torch.distributed.device_mesh import init_device_mesh

import trainmaster.training as tm
from trainmaster.core.agent import environment
from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.checkpoint.position import Position
from trainmaster.training.recall import Recall
from trainmaster.training.snapshot import Snapshotter

OWNER = (JobId("job-1"), AttemptId("job-1.a1"))


def take(seed: int) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    epoch = int(os.environ[environment.EPOCH])
    for step in (1, seed):
        snapshotter = Snapshotter(Path(os.environ[environment.ARENA]), sharded(step, mesh), owner=(*OWNER, epoch))
        snapshotter.take(Position(samples=step, global_batch=1, step=step))
        dist.barrier()


def recall(seed: int) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = Recall(os.environ[environment.HOST], Path(os.environ[environment.ARENA]).parent, *OWNER)
    while (choice := found.newest()) is not None:
        state = sharded(0, mesh)
        trouble = found.load(choice, state)
        if not trouble:
            assert choice.moment.position.step == seed
            assert_is(state, seed)
            print(found.origins[dist.get_rank()].name, file=sys.stderr)
            return
        print(trouble, file=sys.stderr)
    assert seed == 0
    print(found.lost(), file=sys.stderr)


def main() -> None:
    torch.set_num_threads(1)
    with tm.session():
        {"take": take, "recall": recall}[sys.argv[1]](int(sys.argv[2]))


if __name__ == "__main__":
    main()
