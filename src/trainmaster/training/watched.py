"""What the recorder sees beyond the entry points of `torch.distributed`: DDP's reducer, and whether a model evaluates.

DDP issues its collectives in C++, where no function of ours stands before them. But it lets one hook compute what it
would: ours scales and reduces as it does, to the bit, through the recorded entry point. It is set before the first
forward pass, and only where there is no other hook. The reducer waits in C++ too; with the last bucket there is nothing
left to do but to wait, so then the open ones count as waited for. A script that wants a hook of its own registers it
before the first forward pass, as PyTorch asks anyway (it takes one hook only).

A model that is set to evaluation and back (`model.eval()`, `model.train()`) marks the phase that takes long by nature,
so that an evaluation on one rank while the others wait is not taken for a hang. If a step is completed in evaluation
mode, the script trains like that, and the mode says nothing any more.

Not seen: collectives of compiled functions, and evaluations that leave the mode alone (`session.phase` is for them).
"""

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainmaster.core.agent.ring import Slow

if TYPE_CHECKING:
    from trainmaster.training.recorder import Recorder


class Reducer:
    """The state of our hook in one DDP module."""

    def __init__(self, recorder: "Recorder", group: Any) -> None:
        self._recorder, self._group = recorder, group
        self._scale = 1.0 / dist.get_world_size(group)
        self._open: list[int] = []

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Reduces a bucket of gradients as DDP would."""
        tensor = bucket.buffer()
        tensor.mul_(self._scale)
        work = dist.all_reduce(tensor, group=self._group, async_op=True)
        recorder, number = self._recorder, self._recorder.claim(work)
        self._open.append(number)
        if bucket.is_last():
            recorder.wait_for(self._open)
            self._open.clear()

        def done(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            recorder.leave(number)
            return future.value()[0]

        future: torch.futures.Future[torch.Tensor] = work.get_future().then(done)
        return future


def hooked(recorder: "Recorder", original: Callable[..., Any]) -> Callable[..., Any]:
    """DDP's `_pre_forward`, which sets our hook before the first pass."""
    known: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()

    def pre_forward(module: DistributedDataParallel, *arguments: Any, **named: Any) -> Any:
        if module not in known:
            known.add(module)
            if not module._comm_hooks and module.mixed_precision is None:
                _hook(recorder, module)
        return original(module, *arguments, **named)

    return pre_forward


def _hook(recorder: "Recorder", module: DistributedDataParallel) -> None:
    try:
        module.register_comm_hook(Reducer(recorder, module.process_group), Reducer.reduce)
    except RuntimeError as error:  # a hook that PyTorch has in C++
        print(f"trainmaster: the reducer of rank {recorder.rank} is not recorded: {error}", file=sys.stderr, flush=True)


class Mode:
    """Whether a model is set to evaluation."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._marked = False

    def watch(self, model: torch.nn.Module) -> None:
        """This model, and the one that it wraps."""
        self._models.add(model)
        inner = getattr(model, "module", None)
        if isinstance(inner, torch.nn.Module):
            self._models.add(inner)

    def completed(self) -> None:
        """A step is done: whatever the mode, this is training."""
        self._set(evaluates=False)

    def wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.nn.Module.train`, which `eval` calls too."""

        def train(module: torch.nn.Module, mode: bool = True) -> Any:
            was, result = module.training, original(module, mode)
            if module in self._models and was != mode:
                self._set(evaluates=not mode)
            return result

        return train

    def _set(self, evaluates: bool) -> None:
        if evaluates and self._recorder.slow is Slow.NONE:
            self._recorder.mark(Slow.EVALUATION)
            self._marked = True
        elif not evaluates and self._marked:
            self._marked = False
            if self._recorder.slow is Slow.EVALUATION:
                self._recorder.mark(Slow.NONE)
