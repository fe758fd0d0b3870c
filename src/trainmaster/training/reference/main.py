"""`python -m trainmaster.training.reference`: trains the reference model on the shipped text.

Stopped, yielded or killed and resumed, it gives the same losses to the bit as an undisturbed run with as many ranks:
data and learning rate are functions of the step, weights and moments come back exactly, and one thread a rank with
deterministic kernels adds numbers in one order. With another number of ranks sums are added in another order, so losses
agree only to rounding.
"""

import argparse
import copy
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trainmaster.training as tm
from trainmaster.training import checkpoint_io
from trainmaster.training.errors import TrainingError
from trainmaster.training.loader import Loader, Wanted
from trainmaster.training.reference import corpus, numerics, source
from trainmaster.training.reference.data import Batch
from trainmaster.training.reference.model import Llama, Shape
from trainmaster.training.reference.optimizer import ShardAdamW
from trainmaster.training.runtime import Session


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainmaster.training.reference", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--steps", type=int, default=200, help="number of the last step (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="weights and data order (default: %(default)s)")
    parser.add_argument("--global-batch", type=int, default=8, help="samples a step, all ranks (default: %(default)s)")
    parser.add_argument("--seq-len", type=int, default=64, help="tokens a sample (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=256, help="width of the model (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="blocks (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="query heads (default: %(default)s)")
    parser.add_argument("--key-heads", type=int, default=4, help="key and value heads (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=704, help="width of the feed-forward part (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at its peak (default: %(default)s)")
    parser.add_argument("--warmup-steps", type=int, default=20, help="steps up to the peak (default: %(default)s)")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="of AdamW (default: %(default)s)")
    parser.add_argument("--clip", type=float, default=1.0, help="greatest norm of all gradients (default: %(default)s)")
    parser.add_argument("--checkpoint-dir", type=Path, help="where Trainmaster names none")
    parser.add_argument("--checkpoint-every", type=int, help="steps between saves, where Trainmaster names none")
    parser.add_argument(
        "--step-sleep", type=float, default=0.0, help="seconds to add to each step (for demonstrations)"
    )
    numerics.add_options(parser)
    source.add_options(parser)
    return parser.parse_args(argv)


def misfit(options: argparse.Namespace) -> str:
    """Why these sizes make no model or no training, whatever the precision, and what to do; empty: they fit."""
    least = {"steps": 0, "warmup_steps": 0} | dict.fromkeys(
        ("global_batch", "seq_len", "dim", "layers", "heads", "key_heads", "hidden"), 1
    )
    for name, minimum in least.items():
        if (value := getattr(options, name)) < minimum:
            return f"--{name.replace('_', '-')} {value} is too small: use {minimum} or more"
    dim, heads, key_heads = options.dim, options.heads, options.key_heads
    if heads % key_heads:
        return (
            f"--heads {heads} is no multiple of --key-heads {key_heads}, so query heads cannot share key heads evenly: "
            f"use --key-heads {math.gcd(heads, key_heads)}, or --heads {-(-heads // key_heads) * key_heads}"
        )
    if dim % (2 * heads):
        why = f"heads of {dim // heads}, an odd width" if dim % heads == 0 else "heads of unequal width"
        fix = f"use --dim {-(-dim // (2 * heads)) * 2 * heads}, or another number of heads"
        return f"--dim {dim} with --heads {heads} makes {why}, and rotary positions turn pairs of elements: {fix}"
    return ""


def rate_at(step: int, options: argparse.Namespace) -> float:
    """Learning rate of a step: linear up to the peak, then along a cosine down to a tenth of it at the last step."""
    peak = float(options.learning_rate)
    if step <= options.warmup_steps:
        return peak * step / float(options.warmup_steps)
    progress = (step - options.warmup_steps) / max(1, options.steps - options.warmup_steps)
    rate: float = peak * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress))))
    return rate


class Prepared:
    """What a process needs whatever its rank: the corpus, and the whole model with the weights of the seed. Its
    `skeleton` is the model without memory, for sharding."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        if options.data is None:
            corpus.tokens()
        self.model = Llama(
            Shape(
                vocabulary=corpus.VOCABULARY_SIZE,
                dim=options.dim,
                layers=options.layers,
                heads=options.heads,
                key_heads=options.key_heads,
                hidden=options.hidden,
                context=options.seq_len,
            )
        )
        self.model.draw_weights(options.seed)
        numerics.convert(self.model, numerics.chosen(options))
        self.skeleton = copy.deepcopy(self.model).to("meta")


def build(prepared: Prepared, world: int) -> tuple[Llama, ShardAdamW]:
    """The sharded model and its optimizer. Sharding changes a model for good, so each membership shards a skeleton and
    fills it: a copy of the whole model would be fresh memory, which costs more than all else here."""
    options, model = prepared.options, copy.deepcopy(prepared.skeleton)
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    model.to_empty(device="cpu")
    fill(model, prepared.model, mesh.get_local_rank(), world)
    optimizer = ShardAdamW(
        model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=options.weight_decay
    )
    return model, optimizer


def fill(model: Llama, whole: Llama, rank: int, world: int) -> None:
    """Copies what this rank holds of the whole model: its chunk of each parameter, and all buffers."""
    for sharded, full in zip(model.parameters(), whole.parameters(), strict=True):
        chunks = full.chunk(world)
        local = sharded.detach().to_local()
        if rank < len(chunks):
            local.copy_(chunks[rank].detach())
    for mine, full in zip(model.buffers(), whole.buffers(), strict=True):
        mine.copy_(full)


def clip(model: Llama, limit: float) -> None:
    """Scales all gradients so that their global norm is at most `limit`.

    On local shards, with one collective; through sharded tensors the first call alone costs 0.2 s of bookkeeping, which
    every restart would pay.
    """
    gradients = [parameter.grad.to_local() for parameter in model.parameters()]
    total = torch.stack(torch._foreach_norm(gradients)).square().sum()
    dist.all_reduce(total)
    torch._foreach_mul_(gradients, (limit / (total.sqrt() + 1e-6)).clamp(max=1.0))


def train(session: Session, prepared: Prepared) -> None:
    if prepared.options.global_batch < session.world:
        raise TrainingError(
            f"--global-batch {prepared.options.global_batch} gives some of {session.world} ranks no sample; "
            f"use at least {session.world}"
        )
    with source.loader(session, prepared.options) as batches:
        take_steps(session, prepared, batches)


def take_steps(session: Session, prepared: Prepared, batches: Loader[Batch]) -> None:
    options = prepared.options
    batch = options.global_batch
    model, optimizer = build(prepared, session.world)
    arithmetic = numerics.Arithmetic(model, numerics.chosen(options))
    session.restore(model=model, optimizer=optimizer, global_batch=batch, numerics=arithmetic.name)
    for step in session.steps(total=options.steps):
        mine = batches.take(Wanted(first=session.samples, global_batch=batch, rank=session.rank, world=session.world))
        loss = take_step(step, options, model, arithmetic, optimizer, mine)
        if options.step_sleep > 0:
            time.sleep(options.step_sleep)
        session.tell(arithmetic.news())
        session.report(step, loss=loss.item(), samples=session.samples + batch)
        if session.rank == 0:
            print(f"step {step} of {options.steps}: loss {loss.item():.4f}", flush=True)


def take_step(
    step: int,
    options: argparse.Namespace,
    model: Llama,
    arithmetic: numerics.Arithmetic,
    optimizer: ShardAdamW,
    batch: Batch,
) -> torch.Tensor:
    """One step on the samples of this rank; the loss over all."""
    inputs, targets = batch
    for group in optimizer.param_groups:
        group["lr"] = rate_at(step, options)
    logits = arithmetic.forward(step, inputs)
    summed = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    local = summed / (options.global_batch * options.seq_len)
    (local * dist.get_world_size()).backward()
    clip(model, options.clip)
    optimizer.step()
    optimizer.zero_grad()
    loss = local.detach().clone()
    dist.all_reduce(loss)
    return loss


def rehearse(prepared: Prepared) -> None:
    """Builds, restores and steps once with a batch of nothing, in a group of one."""
    options = prepared.options
    model, optimizer = build(prepared, world=1)
    state = checkpoint_io.state_of(model, optimizer)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    arithmetic = numerics.Arithmetic(model, numerics.chosen(options))
    nothing = torch.zeros((1, options.seq_len), dtype=torch.int64)
    take_step(1, options, model, arithmetic, optimizer, (nothing, nothing))


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if argv is None else argv)
    if reason := misfit(options):
        print(f"trainmaster: {reason}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a quarter of a step, for memory that is written next
    try:
        tm.run(
            train,
            lambda: Prepared(options),
            rehearse=rehearse,
            checkpoint_dir=options.checkpoint_dir,
            checkpoint_every_steps=options.checkpoint_every,
        )
    except TrainingError as error:
        print(f"trainmaster: {error}", file=sys.stderr)
        return 2
