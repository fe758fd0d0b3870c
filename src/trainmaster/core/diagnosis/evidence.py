"""What readers extract, in one shape, whatever the form it came in.

A *standing* says how far a rank has come in a group's sequence of collectives; flight recorders, watchdog lines, RAS
reports and our own recorder all speak of that and differ only in how much of it they know. A *remark* is a line that
tells something (an exception, a lost connection, a fault), with its time, so that what came first can be found over all
ranks. Tables (times, pairs, tests, checks, attempts) are what people measure by hand. Nothing here judges.

Times are microseconds from the start of a year: log lines of PyTorch have no year, and only order within one incident
matters. Across a New Year the order is wrong; that is the price.
"""

from collections.abc import Iterable
from enum import StrEnum

from trainmaster.core.base.value import Value
from trainmaster.core.recovery.port_conflict import PortConflict


class Unusable(Exception):
    """Input that cannot be read: place, why, what to give instead."""

    def __init__(self, place: str, reason: str, fix: str) -> None:
        self.place, self.reason, self.fix = place, reason, fix
        super().__init__(f"{place}: {reason}; {fix}")


class Call(Value):
    """A collective as one rank knows it."""

    seq: int
    op: str
    """Without its backend: `all_reduce`."""
    done: bool | None
    """None: the recorder does not say."""
    sizes: tuple[tuple[int, ...], ...] = ()
    """Of the inputs."""
    outputs: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    at_us: int | None = None
    """When it was entered."""
    frames: tuple[str, ...] = ()
    """Where it was called, innermost first."""
    root: int | None = None


class Standing(Value):
    """How far a rank has come in one group."""

    rank: int
    group: str
    enqueued: int
    """Sequence number of the last collective that it entered."""
    completed: int | None
    """Of the last that it completed; None: the source does not tell."""
    calls: tuple[Call, ...] = ()
    source: str
    """`flight`, `watchdog`, `ras`, `recorder`."""
    place: str
    timed_out: bool = False
    timeout_s: float | None = None
    snapshot: int = 0
    """Number of the report, where a source was asked several times."""


class Group(Value):
    """Who takes part in a group's collectives."""

    name: str
    ranks: tuple[int, ...]
    title: str = ""


class What(StrEnum):
    EXCEPTION = "exception"
    """Raised by code of the user or a library, not the echo of a lost peer."""
    ECHO = "echo"
    """Says only that a peer is gone or late."""
    KILLED = "killed"
    HARDWARE = "hardware"
    TRANSPORT = "transport"
    """NCCL's transport gave up on a peer."""
    STORE_LOST = "store-lost"
    PORT_TAKEN = "port-taken"
    FINISHED = "finished"
    TEARDOWN = "teardown"
    """Noise of leaving: aborts, late watchdogs, warnings about groups that were not destroyed."""
    WATCHDOG_STUCK = "watchdog-stuck"
    MISMATCH = "mismatch"
    """A check of the collectives themselves found that two ranks do different things."""
    STALE_PEER = "stale-peer"
    """A process that is being started looks for one of an earlier attempt."""
    NOT_JOINED = "not-joined"
    """A check (monitored barrier, a stall report) names ranks that did not join."""
    STOPPED = "stopped"
    OUT_OF_MEMORY = "out-of-memory"
    PHASE = "phase"
    """Names a phase that takes long by nature: save, evaluation, compilation."""


class Remark(Value):
    """A line or a record that tells something."""

    what: What
    text: str
    rank: int | None = None
    host: str = ""
    at_us: int | None = None
    order: int = 0
    """Position in its file, for lines without times."""
    place: str = ""
    ranks: tuple[int, ...] = ()
    """Whom it names."""
    peer: str = ""
    """The address that it names."""
    location: str = ""


class Times(Value):
    """A measure of each rank or host: `backward_ms` of ranks 0 to 3. Raw values in the unit of the table."""

    metric: str
    unit: str
    """`rank`, `host`."""
    values: tuple[tuple[str, float], ...]
    place: str
    rows: tuple[tuple[int, str, float], ...] = ()
    """(step, rank or host, value) where it was measured step by step; `values` then holds medians."""


class Round(Value):
    """A round of tests in pairs."""

    pairs: tuple[tuple[str, str, float], ...]
    place: str


class Trial(Value):
    """What a campaign of tests saw on a host."""

    host: str
    programs: int
    failing: int
    """Different programs that failed."""
    faults: int
    place: str


class Checked(Value):
    """A worker of a check before the start."""

    id: int
    rank: int
    host: str
    status: str
    place: str


class Ended(Value):
    """How an attempt of the whole job ended."""

    number: int
    host: str
    exit_code: int | None
    uptime_s: float | None
    error: str
    place: str
    steps: int | None = None


class Partition(Value):
    name: str
    up: bool
    count: int
    state: str
    hosts: str


class Worker(Value):
    """A rank's process as its agent sees it right now."""

    rank: int
    host: str
    state: str
    """Of /proc: R, S, D, T, t, Z; empty: gone."""
    wchan: str = ""
    phase: str = ""
    step: int = -1
    idle_s: float | None = None
    """Since its last collective began or ended, or its last step."""
    in_collective: bool | None = None
    cpu_s: float | None = None
    """Processor time used during the look."""
    place: str = ""


class Evidence(Value):
    """All that is known."""

    standings: tuple[Standing, ...] = ()
    groups: tuple[Group, ...] = ()
    remarks: tuple[Remark, ...] = ()
    times: tuple[Times, ...] = ()
    rounds: tuple[Round, ...] = ()
    trials: tuple[Trial, ...] = ()
    checks: tuple[Checked, ...] = ()
    endings: tuple[Ended, ...] = ()
    partitions: tuple[Partition, ...] = ()
    workers: tuple[Worker, ...] = ()
    world: int | None = None
    initial_workers: int | None = None
    wanted_hosts: int | None = None
    hosts: tuple[tuple[int, str], ...] = ()
    """(rank, host)."""
    endpoint: str = ""
    """Host of the rendezvous store."""
    nodes_min_max: tuple[int, int] | None = None
    conflict: PortConflict | None = None
    listing: str = ""
    """A listing of processes, as it is."""
    dumps: tuple[int, ...] = ()
    """Ranks of which there is a flight recorder's dump."""
    timeout_s: float | None = None
    notes: tuple[str, ...] = ()
    """What was given and told nothing."""
    skipped: tuple[str, ...] = ()
    """What was given and cannot be read: place and reason."""

    def host_of(self, rank: int | None) -> str:
        return dict(self.hosts).get(rank, "") if rank is not None else ""


def joined(parts: Iterable[Evidence]) -> Evidence:
    """All parts as one. Of single values the first that is set counts."""
    whole: dict[str, object] = {}
    for part in parts:
        for name in Evidence.__struct_fields__:
            value = getattr(part, name)
            if isinstance(value, tuple) and name != "nodes_min_max":
                whole.setdefault(name, [])
                whole[name].extend(value)  # type: ignore[attr-defined]
            elif value is not None and value != "" and name not in whole:
                whole[name] = value
    named = {name: tuple(value) if isinstance(value, list) else value for name, value in whole.items()}
    return Evidence(**named)  # type: ignore[arg-type]
