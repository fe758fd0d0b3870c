"""A training under `tm.run` whose model outlives memberships, gradients and all: `python kept.py STEPS PACE_S`. The
optimizer is made anew for each."""

import sys
import time

import torch
import torch.distributed as dist

import trainmaster.training as tm
from trainmaster.training.runtime import Session

STEPS, PACE_S = int(sys.argv[1]), float(sys.argv[2])


def prepare() -> torch.nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def train(session: Session, model: torch.nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.restore(model=model, optimizer=optimizer, global_batch=session.world)
    for step in session.steps(total=STEPS):
        optimizer.zero_grad()
        inputs = torch.sin(torch.arange(32.0) * (step + session.rank)).view(1, 32)
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        time.sleep(PACE_S)
        session.report(step, loss=loss.item(), samples=session.samples + session.world)


tm.run(train, prepare)
