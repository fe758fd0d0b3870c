"""The environment that a worker finds: torchrun's variables, so that scripts written for torchrun run as they are, and
ours, which `trainmaster.training` reads. This module holds the names; the agent writes them, the library reads them.

torchrun's (same names and meaning): RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE,
ROLE_NAME, ROLE_RANK, ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT,
TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_USE_AGENT_STORE (False), TORCHELASTIC_ERROR_FILE; OMP_NUM_THREADS=1 if unset.
"""

from typing import Final

JOB: Final = "TRAINMASTER_JOB"
OWNER: Final = "TRAINMASTER_OWNER"
"""Whose checkpoints are: the job and its fleet (`ids.owner_id`); absent: the job."""
ATTEMPT: Final = "TRAINMASTER_ATTEMPT"
EPOCH: Final = "TRAINMASTER_EPOCH"
"""Number of the membership, from 1; it changes with every re-forming of the attempt."""
HOST: Final = "TRAINMASTER_HOST"
BOARD: Final = "TRAINMASTER_BOARD"
"""Path of the worker's board (see `board.py`); absent outside of Trainmaster."""
STORE_FD: Final = "TRAINMASTER_STORE_FD"
"""Rank 0 only: number of an inherited TCP socket that is bound to MASTER_PORT, for the rendezvous store of this epoch,
so that no neighbour can take the port between the choice and the bind. It listens already if `trainmaster.training`
was preloaded; else whoever takes it listens, and a script that ignores it may bind MASTER_PORT itself (SO_REUSEADDR on
both sides). Absent: bind MASTER_PORT yourself."""
CONTROL: Final = "TRAINMASTER_CONTROL"
"""Number of an inherited socket on which the keeper speaks with the worker (see `control.py`)."""
KEEPER: Final = "TRAINMASTER_KEEPER"
"""Marks all that comes of one keeper, so that it is found when the keeper is dead."""
WORKER: Final = "TRAINMASTER_WORKER"
"""Process id of the worker that a process comes of."""
STANDBY: Final = "TRAINMASTER_STANDBY"
"""Set where the worker was started ahead: there is no rank yet, it comes with a `Join`."""
JOB_DIR: Final = "TRAINMASTER_JOB_DIR"
"""Directory that all hosts of the job share; outlives attempts and hosts. Metrics lie there."""
CHECKPOINT_DIR: Final = "TRAINMASTER_CHECKPOINT_DIR"
CHECKPOINT_EVERY_STEPS: Final = "TRAINMASTER_CHECKPOINT_EVERY_STEPS"
CHECKPOINT_KEEP: Final = "TRAINMASTER_CHECKPOINT_KEEP"
BEGAN_STEP: Final = "TRAINMASTER_BEGAN_STEP"
"""Step that the job went on from at its very start, 0 if there was nothing; absent at that start."""
AGREEMENT_EVERY_STEPS: Final = "TRAINMASTER_AGREEMENT_EVERY_STEPS"
"""Steps between two comparisons of data-parallel replicas, 0: none; absent: the library's default."""
ARENA: Final = "TRAINMASTER_ARENA"
"""Path of the arena of this rank, which holds its snapshots (`storage/arena.py`), in the directory of all arenas and
replicas of the attempt on this host; absent outside of Trainmaster. The rank makes the file."""
VAULT: Final = "TRAINMASTER_VAULT"
"""Path of the socket of this host's vault, which replicates and stores snapshots (`vault_talk.py`); absent where there
is none."""
SNAPSHOT_EVERY_STEPS: Final = "TRAINMASTER_SNAPSHOT_EVERY_STEPS"
"""0: no snapshots."""
REPLICATE_EVERY_STEPS: Final = "TRAINMASTER_REPLICATE_EVERY_STEPS"
"""0: none is copied to a peer. A snapshot is replicated if so many steps have passed since the last that was."""
ROOM_WAIT_S: Final = "TRAINMASTER_ROOM_WAIT_S"
"""How long the last save waits for space on a full disk; absent: the library's default."""
