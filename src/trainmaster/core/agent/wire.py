"""What an agent and the server say to each other over HTTP (JSON bodies, bearer token of the host).

    POST /v1/agent/register    Register      -> Registered           first thing in a session, and after each reconnect
    GET  /v1/agent/stream?host=H&session=S   -> lines of Instruction (JSON, one a line, chunked; a Ping each second)
    POST /v1/agent/report      Report        -> Acknowledged         at least once; `number` makes it exactly once
    POST /v1/agent/heartbeat   Heartbeat     -> 204                  each `heartbeat_s`; not in the log
    POST /v1/agent/answer/QUERY  raw bytes   -> 204                  answers a Query of the stream (logs, ...)

The open stream is the sign of life that is noticed at once: when the agent's process ends, the kernel closes it.
Reports are numbered from 1 in each session, are kept by the agent until acknowledged and are sent in order; the server
drops numbers that it has. A session that the server does not know (it is a new server, or it found the agent silent
and closed the stream) is answered with 409: register again, in the same session, and go on with the same numbers.
An effect below the lease that the agent has seen is refused (`not-run`, "stale lease").
"""

from trainmaster.core.base.ids import AttemptId, BootId, ComponentName, HostId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AgentReport


class Register(Value):
    host: HostId
    session: SessionId
    boot: BootId
    address: str
    version: str
    pid: int
    attempts: tuple[tuple[AttemptId, int], ...]
    versions: dict[ComponentName, str] = {}


class Registered(Value):
    lease: int
    heartbeat_s: float


class Instruction(Value):
    """One line of the stream: exactly one of effect, query, ping is set."""

    lease: int = 0
    effect: AnyEffect | None = None
    query: "Query | None" = None
    ping: bool = False


class Query(Value):
    """A question that changes nothing and is not logged. kind `log`: the tail of a worker's output; `rings`:
    where all ranks of an epoch on this host stand (`core/agent/ring.py`); `stacks`: their stacks."""

    id: str
    kind: str
    attempt: AttemptId
    rank: int
    epoch: int = 0
    """0: the newest."""
    lines: int = 100


class Report(Value):
    host: HostId
    session: SessionId
    number: int
    events: tuple[AgentReport, ...]


class Acknowledged(Value):
    number: int


class RankProgress(Value):
    rank: int
    phase: int
    step: int
    step_at: Instant
    loss: float | None
    """None: not a number, or infinite, which JSON does not hold."""
    step_s: float
    published_step: int
    note: str = ""


class GroupProgress(Value):
    attempt: AttemptId
    epoch: int
    ranks: tuple[RankProgress, ...]


class Heartbeat(Value):
    host: HostId
    session: SessionId
    at: Instant
    groups: tuple[GroupProgress, ...]
