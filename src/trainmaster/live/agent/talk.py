"""What an agent and a keeper say to each other: one JSON value a line on a unix socket, file descriptors beside it."""

import array
import socket

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
    """As the job names them."""
    memory: str
    """Directory of snapshots and of the vault (`core/agent/vault_talk.py`)."""
    host: str
    domain: str
    """What is likely to fail together with this host; empty: nothing is known."""
    address: str
    """Of this host, for other hosts."""
    mark: str = ""
    """`TRAINMASTER_KEEPER` of all that comes of it."""
    preload_needed: bool = False
    """Import ahead also what the command is seen to need (`imports`)."""


class WorkerPlan(Value):
    """One worker to start. All paths are absolute; the board exists already. A worker that is started ahead has rank -1
    and a log, and no other paths."""

    rank: int
    environment: dict[str, str]
    board: str
    exit_record: str
    error_record: str
    log: str


class Standby(Value, tag_field="type", tag="standby"):
    """Start workers ahead, without a place in an epoch (their rank is -1); nothing if any were started before.
    No answer."""

    workers: tuple[WorkerPlan, ...]


class Launch(Value, tag_field="type", tag="launch"):
    """Start an epoch. Earlier epochs are left or ended first, and workers that are adrift take part in it, each at its
    place on the host. Answered by Launched or Refused."""

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
    keep: bool
    """Workers that can leave their epoch live on, adrift."""
    kill: tuple[int, ...] = ()
    """Ranks of this epoch that don't, whatever they can."""


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
    stayed: int
    """How many of its workers were of an earlier epoch, and have lived on."""


class Refused(Value, tag_field="type", tag="refused"):
    number: int
    why: str


class Exited(Value, tag_field="type", tag="exited"):
    epoch: int
    fact: WorkerExit


class Stopped(Value, tag_field="type", tag="stopped"):
    number: int


ToKeeper = Launch | Stop | Reserve | Standby
FromKeeper = Status | Launched | Refused | Exited | Stopped

to_keeper = msgspec.json.Decoder(ToKeeper)
from_keeper = msgspec.json.Decoder(FromKeeper)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """What is there now, and the descriptors beside it. Raises `OSError`, `BlockingIOError` among it."""
    size = array.array("i").itemsize
    data, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(8 * size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % size])
    return data, list(descriptors)
