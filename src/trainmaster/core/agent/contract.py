"""The environment of each worker, from what the attempt and the epoch say. See `environment.py` for the names."""

from typing import Final

from trainmaster.core.agent import environment as names
from trainmaster.core.agent.vault_talk import ARENA_PREFIX, SOCKET_NAME
from trainmaster.core.base.ids import owner_id
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt

PRIVATE_PREFIX: Final = "TRAINMASTER_"
"""Variables of the agent itself (tokens among them) never reach a worker."""


def base_environment(own: dict[str, str], prepare: PrepareAttempt, directory: str) -> dict[str, str]:
    """What the keeper runs with: the agent's environment without its own variables, then the job's. The module path of
    the agent, whose present directory is `directory`, stays behind the job's own, so that our library is found
    there."""
    kept = {name: value for name, value in own.items() if not name.startswith(PRIVATE_PREFIX)}
    made = {"OMP_NUM_THREADS": "1", **kept, **prepare.environment}
    agents = [entry if entry.startswith("/") else f"{directory}/{entry}" for entry in _entries(own)]
    paths = [*_entries(prepare.environment), *agents]
    if paths:
        made["PYTHONPATH"] = ":".join(dict.fromkeys(paths))
    return made


def _entries(environment: dict[str, str]) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(":") if entry]


def worker_environment(
    prepare: PrepareAttempt,
    launch: LaunchWorkers,
    local_rank: int,
    board: str,
    error_file: str,
    job_dir: str,
    memory: str,
) -> dict[str, str]:
    """What a worker gets on top of the base. `launch.master_address` and `.master_port` are the store's; `memory` is
    the directory of arenas."""
    assert 0 <= local_rank < launch.ranks, (local_rank, launch.ranks)
    rank, world = launch.first_rank + local_rank, launch.world
    assert rank < world, (rank, world)
    torchrun = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": launch.ranks,
        "GROUP_RANK": launch.node_rank,
        "GROUP_WORLD_SIZE": launch.nodes,
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": launch.master_address,
        "MASTER_PORT": launch.master_port,
        "TORCHELASTIC_RUN_ID": prepare.attempt,
        "TORCHELASTIC_RESTART_COUNT": launch.restart_count,
        "TORCHELASTIC_MAX_RESTARTS": prepare.max_restarts,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": error_file,
    }
    ours = {
        names.EPOCH: launch.epoch,
        names.HOST: launch.host,
        names.BOARD: board,
        names.ARENA: f"{memory}/{ARENA_PREFIX}{rank}",
        names.VAULT: f"{memory}/{SOCKET_NAME}",
        **({names.BEGAN_STEP: launch.began_step} if launch.began_step is not None else {}),
        **_of_attempt(prepare, job_dir),
    }
    return {name: str(value) for name, value in (*torchrun.items(), *ours.items())}


def standby_environment(prepare: PrepareAttempt, local_rank: int, host: str, job_dir: str) -> dict[str, str]:
    """What a worker gets that is started ahead: all but what a membership decides."""
    assert 0 <= local_rank < prepare.standby, (local_rank, prepare.standby)
    given = {
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": prepare.standby,
        "TORCHELASTIC_RUN_ID": prepare.attempt,
        names.STANDBY: 1,
        names.HOST: host,
        **_of_attempt(prepare, job_dir),
    }
    return {name: str(value) for name, value in given.items()}


def _of_attempt(prepare: PrepareAttempt, job_dir: str) -> dict[str, str | int]:
    given: dict[str, str | int] = {
        names.JOB: prepare.job,
        names.OWNER: owner_id(prepare.job, prepare.fleet),
        names.ATTEMPT: prepare.attempt,
        names.JOB_DIR: job_dir,
        names.CHECKPOINT_DIR: prepare.checkpoint_directory or f"{job_dir}/checkpoints",
        names.CHECKPOINT_EVERY_STEPS: prepare.checkpoint_every_steps,
        names.CHECKPOINT_KEEP: prepare.checkpoint_keep,
        names.SNAPSHOT_EVERY_STEPS: prepare.snapshot_every_steps,
        names.REPLICATE_EVERY_STEPS: prepare.replicate_every_steps,
        names.ROOM_WAIT_S: prepare.room_wait_s,
    }
    if prepare.agreement_every_steps is not None:
        given[names.AGREEMENT_EVERY_STEPS] = prepare.agreement_every_steps
    return given
