"""What the environment tells a worker: who it is, whom it works with, where things lie.

Three surroundings give the same answer in the same shape: Trainmaster's agent (the variables of `environment.py`),
torchrun (its own variables, no board), and a bare process (no variables: one rank, alone).
"""

import re
from collections.abc import Mapping
from pathlib import Path

from trainmaster.core.agent import environment
from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value
from trainmaster.training.errors import TrainingError

ROOM_WAIT_S = 600
"""Where no launcher says it."""


class Surroundings(Value):
    """`store_fd` is a listening socket for the rendezvous store; `alone` means that no launcher is there."""

    rank: int
    world: int
    master_addr: str
    master_port: int
    alone: bool
    managed: bool
    job: JobId
    owner: JobId
    """Of its checkpoints: the job, told from that of another fleet with the same number."""
    attempt: AttemptId
    epoch: int
    host: str
    board: Path | None
    store_fd: int | None
    job_dir: Path | None
    checkpoint_dir: Path | None
    checkpoint_every_steps: int | None
    checkpoint_keep: int | None
    began_step: int | None
    """Step that the job went on from at its very start, 0 if it began anew; None: it has not started before."""
    agreement_every_steps: int | None
    """None: nobody says."""
    arena: Path | None
    """Of this rank; the directory holds all that this host has of the attempt."""
    vault: Path | None
    snapshot_every_steps: int
    replicate_every_steps: int
    room_wait_s: int

    def attempt_number(self) -> int:
        """Number of the attempt in its job; 0 outside of Trainmaster."""
        match = re.search(r"\.a(\d+)$", self.attempt)
        return int(match[1]) if match else 0


def read(environ: Mapping[str, str], host: str) -> Surroundings:
    """Reads the environment. Raises `TrainingError` for a variable that is missing or no number."""
    alone = "RANK" not in environ
    managed = environment.BOARD in environ
    restarts = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    result = Surroundings(
        rank=_number(environ, "RANK", 0),
        world=_number(environ, "WORLD_SIZE", 1 if alone else None),
        master_addr=environ.get("MASTER_ADDR", "127.0.0.1"),
        master_port=_number(environ, "MASTER_PORT", 0 if alone else None),
        alone=alone,
        managed=managed,
        job=JobId(environ.get(environment.JOB, "local")),
        owner=JobId(environ.get(environment.OWNER) or environ.get(environment.JOB, "local")),
        attempt=AttemptId(environ.get(environment.ATTEMPT, "local.a1")),
        epoch=_number(environ, environment.EPOCH, restarts + 1),
        host=environ.get(environment.HOST, host),
        board=_path(environ, environment.BOARD),
        store_fd=_optional_number(environ, environment.STORE_FD),
        job_dir=_path(environ, environment.JOB_DIR),
        checkpoint_dir=_path(environ, environment.CHECKPOINT_DIR),
        checkpoint_every_steps=_optional_number(environ, environment.CHECKPOINT_EVERY_STEPS),
        checkpoint_keep=_optional_number(environ, environment.CHECKPOINT_KEEP),
        began_step=_optional_number(environ, environment.BEGAN_STEP),
        agreement_every_steps=_optional_number(environ, environment.AGREEMENT_EVERY_STEPS),
        arena=_path(environ, environment.ARENA),
        vault=_path(environ, environment.VAULT),
        snapshot_every_steps=_number(environ, environment.SNAPSHOT_EVERY_STEPS, 0),
        replicate_every_steps=_number(environ, environment.REPLICATE_EVERY_STEPS, 0),
        room_wait_s=_number(environ, environment.ROOM_WAIT_S, ROOM_WAIT_S),
    )
    if not 0 <= result.rank < result.world:
        raise TrainingError(
            f"RANK={result.rank} is not below WORLD_SIZE={result.world}; check the launcher's variables"
        )
    return result


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _optional_number(environ: Mapping[str, str], name: str) -> int | None:
    return _number(environ, name, None) if environ.get(name) else None


def _number(environ: Mapping[str, str], name: str, default: int | None) -> int:
    text = environ.get(name)
    if text is None:
        if default is None:
            raise TrainingError(f"{name} is not set although RANK is; start the script with trainmaster or torchrun")
        return default
    try:
        return int(text)
    except ValueError:
        raise TrainingError(f"{name}={text!r} is not a whole number; check the launcher's variables") from None
