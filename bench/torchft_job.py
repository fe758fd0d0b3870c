"""The reference model trained through torchft: one replica group of one rank. Run by `bench/recovery_torchft.py`.

Model, sizes, samples, learning rate and optimizer are those of the reference trainer; all else is torchft's own: its
Manager, its group on gloo, its OptimizerWrapper. Each replica holds the whole state, and one that comes back fetches it
from a live one. With fewer replicas fewer samples are in a step, as in torchft's examples. Of the reference trainer
only that is imported which is used: sharding and checkpoints would make the start longer.

The replica with the first place in the quorum writes a line for each committed step, into a file for each quorum that
it serves; so there is one line a step whoever lives.
"""

import argparse
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.manager import WorldSizeMode
from torchft.optim import OptimizerWrapper

from trainmaster.training.reference import corpus
from trainmaster.training.reference.data import Samples
from trainmaster.training.reference.model import Llama, Shape
from trainmaster.training.reference.optimizer import ShardAdamW

LEAST_REPLICAS = 2
"""As in torchft's example."""
SEED = 1
LEARNING_RATE = 1e-3
WARMUP_STEPS = 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--group", type=int, required=True, help="number of this replica group")
    parser.add_argument("--replicas", type=int, required=True, help="replicas at full strength")
    parser.add_argument("--lighthouse", required=True, help="URL")
    parser.add_argument("--folder", type=Path, required=True, help="where the lines of steps go")
    parser.add_argument("--timeout-s", type=float, help="of collectives and calls (default: torchft's)")
    parser.add_argument("--heartbeat-s", type=float, help="between two heartbeats (default: torchft's)")
    parser.add_argument("--spares", action="store_true", help="replicas beyond full strength stand by")
    for name in ("--steps", "--seq-len", "--global-batch", "--dim", "--layers", "--hidden"):
        parser.add_argument(name, type=int, required=True, help="as the reference trainer's")
    return parser.parse_args()


def model_of(options: argparse.Namespace) -> Llama:
    shape = Shape(
        vocabulary=corpus.VOCABULARY_SIZE,
        dim=options.dim,
        layers=options.layers,
        hidden=options.hidden,
        context=options.seq_len,
    )
    model = Llama(shape)
    model.draw_weights(SEED)
    return model


def group_of(options: argparse.Namespace) -> ProcessGroupGloo:
    limit_s = options.timeout_s
    return ProcessGroupGloo() if limit_s is None else ProcessGroupGloo(timeout=timedelta(seconds=limit_s))


def manager_of(
    options: argparse.Namespace, group: ProcessGroupGloo, model: Llama, optimizer: ShardAdamW, store: TCPStore
) -> Manager:
    """Connects to the lighthouse; options that are not given stay torchft's defaults."""
    settings: dict[str, Any] = {}
    if options.timeout_s is not None:
        limit = timedelta(seconds=options.timeout_s)
        settings |= {"timeout": limit, "quorum_timeout": 6 * limit, "connect_timeout": limit}
    if options.heartbeat_s is not None:
        settings["heartbeat_interval"] = timedelta(seconds=options.heartbeat_s)
    if options.spares:
        settings["world_size_mode"] = WorldSizeMode.FIXED_WITH_SPARES

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    return Manager(
        pg=group,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=options.replicas if options.spares else LEAST_REPLICAS,
        replica_id=f"group_{options.group}",
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=options.lighthouse,
        **settings,
    )


def average(manager: Manager, model: torch.nn.Module) -> None:
    """Over all replicas, in one piece. A failure is the manager's to keep: the step is then not committed."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def tell(options: argparse.Namespace, manager: Manager, group: ProcessGroupGloo) -> None:
    """Adds the line of the step that was just committed."""
    line = {
        "step": manager.current_step(),
        "time_s": time.time(),
        "replicas": manager.num_participants(),
        "members": group.size(),
    }
    with (options.folder / f"metrics-{manager._quorum_id}-{options.group}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def train(options: argparse.Namespace) -> None:
    model = model_of(options)
    samples = Samples(corpus.tokens(), options.seq_len, SEED)
    adam = ShardAdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = group_of(options)
    manager = manager_of(options, group, model, adam, store)
    optimizer = OptimizerWrapper(manager, adam)
    while manager.current_step() < options.steps:
        step, place = manager.current_step(), manager.participating_rank()
        share = options.group % options.replicas if place is None else place
        inputs, targets = samples.batch(step * options.global_batch, options.global_batch, share, options.replicas)
        for parameters in adam.param_groups:
            parameters["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        average(manager, model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if manager.current_step() > step and manager.participating_rank() == 0:
            tell(options, manager, group)


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    train(arguments())


if __name__ == "__main__":
    main()
