"""What a job goes on from: memory or storage, whichever has the newest state that verifies.

Of equal steps memory wins, since it is there at once. If what memory holds turns out damaged, the next older state of
it is tried or storage, all ranks alike. If something was damaged and nothing is left, the job is refused: a start from
zero that nobody asked for destroys more than it saves, and the tensors are no longer fresh.
"""

import torch
from torch.distributed.checkpoint.state_dict import set_state_dict

from trainmaster.core.agent.board import Origin
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.copies import Choice
from trainmaster.core.checkpoint.position import Position
from trainmaster.training import distrust
from trainmaster.training.checkpoint_io import Checkpoints, Restored, state_of
from trainmaster.training.errors import TrainingError
from trainmaster.training.recall import Recall
from trainmaster.training.surroundings import Surroundings


class Found(Value):
    """`sentence` says where it is from, or why it is not the newest; empty if there is nothing to say. `published_step`
    is the newest checkpoint in storage that is not newer, -1 if there is none."""

    step: int
    position: Position
    origin: Origin
    sentence: str
    published_step: int


def restore(
    here: Surroundings, checkpoints: Checkpoints | None, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Found | None:
    """Loads the newest state; None if there is none. A collective. Raises `TrainingError` on all ranks alike."""
    _drop_gradients(model, optimizer)
    published = checkpoints.published() if checkpoints is not None else ()
    newest = max(published, default=-1)
    recall: Recall | None = None
    if here.arena is not None:
        doubts = distrust.noted(here.job_dir)
        recall = Recall(here.host, here.arena.parent, here.job, here.attempt, doubts)
    troubles: list[str] = []
    while recall is not None and (choice := recall.newest()) is not None:
        step = choice.moment.position.step
        if checkpoints is not None and newest > step:  # else memory is as new
            stored = checkpoints.restore(model, optimizer, newer_than=step)
            if stored is not None:
                return _stored(stored, [*troubles, recall.lost()])
            newest = step
        trouble = _load(recall, choice, model, optimizer)
        if not trouble:
            return _recalled(recall, choice, max((each for each in published if each <= step), default=-1), troubles)
        troubles.append(trouble)
    if recall is not None:
        troubles.append(recall.lost())
    stored = checkpoints.restore(model, optimizer) if checkpoints is not None else None
    if stored is not None:
        return _stored(stored, troubles)
    if recall is not None and recall.damaged:
        raise TrainingError(f"{troubles[0]}, and nothing is in storage; requeue the job to start at the beginning")
    return None


def _drop_gradients(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Those that a membership before left behind. PyTorch makes the moments of a fresh optimizer only where no
    parameter has a gradient, and without a word loads none where there are none."""
    for parameter in (*model.parameters(), *(each for group in optimizer.param_groups for each in group["params"])):
        parameter.grad = None


def where(origin: Origin) -> str:
    """The place in words."""
    words = {Origin.OWN_MEMORY: "own memory", Origin.PEER_MEMORY: "peer memory", Origin.STORAGE: "storage"}
    return words.get(origin, "nowhere")


def _load(recall: Recall, choice: Choice, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    state = state_of(model, optimizer)
    trouble = recall.load(choice, state)
    if not trouble:
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return trouble


def _recalled(recall: Recall, choice: Choice, published_step: int, troubles: list[str]) -> Found:
    origins = recall.origins
    own = sum(1 for origin in origins if origin is Origin.OWN_MEMORY)
    position = choice.moment.position
    source = f"{where(Origin.OWN_MEMORY)} on {own} of {len(origins)} ranks"
    source += f", {where(Origin.PEER_MEMORY)} on {len(origins) - own}" if own < len(origins) else ""
    return Found(
        step=position.step,
        position=position,
        origin=Origin(max(origins)),
        sentence="; ".join(filter(None, (f"resumed from step {position.step} ({source})", *troubles))),
        published_step=published_step,
    )


def _stored(stored: Restored, troubles: list[str]) -> Found:
    sentence = stored.sentence
    if any(troubles) and not sentence:
        sentence = f"resumed from step {stored.step} ({where(Origin.STORAGE)})"
    return Found(
        step=stored.step,
        position=stored.position,
        origin=Origin.STORAGE,
        sentence="; ".join(filter(None, (sentence, *troubles))),
        published_step=stored.step,
    )
