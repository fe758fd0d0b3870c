"""What a training script imports.

    import trainmaster.training as tm

    with tm.session() as session:
        model, optimizer = ...
        session.restore(model=model, optimizer=optimizer)
        for step in session.steps(total=1000):
            ...
            session.report(step, loss=loss, samples=samples)

or, so that the process outlives the loss of a peer and goes on in the next membership:

    tm.run(train, prepare)      # prepare() once a process, train(session, prepared) once a membership

The same script runs under Trainmaster, under plain torchrun, and alone. This module imports nothing heavy: PyTorch is
imported when a session is opened.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trainmaster.training.metrics import Loss, losses

if TYPE_CHECKING:
    from trainmaster.training.runtime import Session

__all__ = ["PRELOAD", "Loss", "losses", "record", "run", "session"]

PRELOAD: Final[tuple[str, ...]] = (
    "torch",
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "trainmaster.training.runtime",
    "trainmaster.training.inplace",
    "trainmaster.training.checkpoint_io",
    "trainmaster.training.distcp",
    "trainmaster.training.reference.main",
)
"""Modules that a warm process imports once, before it forks workers. Importing them starts no thread and forms no
process group."""


def record() -> None:
    """Lets Trainmaster see where this rank stands, in a script that forms its process group by itself and opens no
    session. Call it after `torch.distributed.init_process_group`; outside of Trainmaster it does nothing.

    Raises `TrainingError` if there is no process group yet.
    """
    from trainmaster.training.runtime import record_only

    record_only()


def session(
    *,
    checkpoint_dir: Path | None = None,
    checkpoint_every_steps: int | None = None,
    checkpoint_keep: int | None = None,
    agreement_every_steps: int | None = None,
) -> "Session":
    """Joins the job: opens the board, forms the process group. Use it as a context manager.

    `agreement_every_steps`: how often ranks that hold the same parameters and optimizer state compare them; 0: never.

    The arguments serve where the environment says nothing (outside of Trainmaster); without a checkpoint directory
    nothing is saved. When the block ends without an exception, the process leaves with exit code 0 and does not return.
    Raises `TrainingError` (a sentence for the user) if the environment is incomplete.
    """
    from trainmaster.training.inplace import take_rank
    from trainmaster.training.runtime import open_session

    take_rank()
    return open_session(checkpoint_dir, checkpoint_every_steps, checkpoint_keep, agreement_every_steps)


def run(
    train: "Callable[[Session, Any], None]",
    prepare: Callable[[], Any] | None = None,
    *,
    rehearse: Callable[[Any], None] | None = None,
    checkpoint_dir: Path | None = None,
    checkpoint_every_steps: int | None = None,
    checkpoint_keep: int | None = None,
    agreement_every_steps: int | None = None,
) -> NoReturn:
    """Takes part in the job until its end: `train(session, prepared)` is entered once for each membership, in the same
    process as long as that is possible. `prepared` is what `prepare()` returned, which is called once; it must hold
    nothing of a membership (process groups, sharded or wrapped models). Where a peer was lost `train` is left by the
    exception of its collective: let it pass.

    `rehearse(prepared)` is called in a process that stands by (`standby = true` in the job file), in a process group of
    its own: what it does once, a step above all, is not slow for the first time when a rank is lost.

    The other arguments are those of `session`. Ends the process: with exit code 0 when `train` returned, else by the
    exception of the script. Raises `TrainingError` as `session` does.
    """
    from trainmaster.training.inplace import run as run_in_place

    options = (checkpoint_dir, checkpoint_every_steps, checkpoint_keep, agreement_every_steps)
    run_in_place(train, prepare, rehearse, options)
