"""A training whose replicas should stay equal, and one bit that flips once.

    replicas.py KIND STEPS RANK STEP SAVED MARKER

KIND is `plain` (each rank holds all of it), `stays` (the same under `tm.run`) or `sharded`. After STEP one bit of a
weight of RANK flips, if MARKER does not exist yet. What is published by then is the state after SAVED, exactly: that
step does not end before all that was to be copied and stored until then is, and the bit waits for the name of the
checkpoint.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trainmaster.training as tm
from trainmaster.core.agent import environment
from trainmaster.core.checkpoint.listing import step_name
from trainmaster.training.runtime import Session

kind, total, victim, flip_after, saved, marker = sys.argv[1], *map(int, sys.argv[2:6]), Path(sys.argv[6])


def flip(model: torch.nn.Module) -> None:
    """The lowest bit but one of the exponent of one weight."""
    weight = model[0].weight.detach()
    weight = weight.to_local() if kind == "sharded" else weight
    weight.view(-1).view(torch.int32)[3] ^= 1 << 24


def rest(session: Session) -> None:
    """Returns when no snapshot of this rank is on its way, to a peer or to storage."""
    keeping = session._keeping
    while True:
        waiting, copying, _, stored_step, failed_stores, _ = keeping.words(hurry=False)
        is_stored = stored_step >= keeping.storing_step or failed_stores > keeping.failed_stores
        if is_stored and not waiting and not copying:
            return
        time.sleep(0.001)


def await_published(step: int) -> None:
    path = Path(os.environ[environment.CHECKPOINT_DIR], step_name(step))
    while not path.exists():
        time.sleep(0.001)


def main() -> None:
    torch.set_num_threads(1)
    if kind == "stays":
        tm.run(lambda session, _: train(session))
    with tm.session() as session:
        train(session)


def train(session: Session) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    if kind == "sharded":
        fully_shard(model, mesh=init_device_mesh("cpu", (session.world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.restore(model=model, optimizer=optimizer, global_batch=session.world)
    for step in session.steps(total=total):
        if step == saved:
            rest(session)
        inputs = torch.sin(torch.arange(64.0) * (step + session.rank)).view(1, 64)
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        if kind != "sharded":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        if session.rank == victim and step == flip_after and not marker.exists():
            await_published(saved)
            marker.touch()
            flip(model)
        session.report(step, loss=loss.item(), samples=session.samples + session.world)


main()
