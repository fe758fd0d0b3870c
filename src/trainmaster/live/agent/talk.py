"""What an agent and a keeper say to each other: one JSON value a line on a unix socket, file descriptors beside it."""

import msgspec

from trainmaster.core.agent.watch import WorkerExit
from trainmaster.core.base.value import Value
from trainmaster.live.agent.processes import ProcessName


class KeeperSpec(Value):
    """What a keeper is started with (a file)."""

    socket: str
    workdir: str
    command: tuple[str, ...]
    preload: tuple[str, ...]
    memory: str
    """Directory of snapshots and of the vault (`core/agent/vault_talk.py`)."""
    host: str
    domain: str
    """What is likely to fail together with this host; empty: nothing is known."""
    address: str
    """Of this host, for other hosts."""


class WorkerPlan(Value):
    """One worker to start. All paths are absolute; the board exists already."""

    rank: int
    environment: dict[str, str]
    board: str
    exit_record: str
    error_record: str
    log: str


class Launch(Value, tag_field="type", tag="launch"):
    """Start an epoch. Earlier epochs are ended first. Answered by Launched or Refused."""

    number: int
    epoch: int
    workers: tuple[WorkerPlan, ...]
    has_store: bool
    """The first worker is rank 0 and gets the socket that was reserved for the epoch, if there is one."""


class Stop(Value, tag_field="type", tag="stop"):
    """End epochs up to `epoch`. Answered by Stopped when none is left."""

    number: int
    epoch: int
    grace_us: int


class Reserve(Value, tag_field="type", tag="reserve"):
    """A bound socket comes with this line; keep it for the epoch. No answer."""

    epoch: int


class RunningWorker(Value):
    rank: int
    process: ProcessName


class RunningGroup(Value):
    """Workers of an epoch that the keeper started; those that ended have an exit record."""

    epoch: int
    workers: tuple[RunningWorker, ...]


class Status(Value, tag_field="type", tag="status"):
    """First thing on a connection; its arrival says that the keeper is warm."""

    preload_failure: str
    groups: tuple[RunningGroup, ...]


class Launched(Value, tag_field="type", tag="launched"):
    number: int
    group: RunningGroup


class Refused(Value, tag_field="type", tag="refused"):
    number: int
    why: str


class Exited(Value, tag_field="type", tag="exited"):
    epoch: int
    fact: WorkerExit


class Stopped(Value, tag_field="type", tag="stopped"):
    number: int


ToKeeper = Launch | Stop | Reserve
FromKeeper = Status | Launched | Refused | Exited | Stopped

to_keeper = msgspec.json.Decoder(ToKeeper)
from_keeper = msgspec.json.Decoder(FromKeeper)
