"""The life of an attempt: one launch of a job, with a membership that may change.

A *membership* says which host holds which ranks; its number is the *epoch*. When a member is lost, or leaves for
maintenance, the attempt *re-forms*: it takes a spare, raises the epoch and launches all ranks from the newest
state, on hosts that it kept and that are warm. Ranks of an older epoch are fenced by the agents.

Re-forming ends every rank's part in the epoch, and not every process: what can leave an epoch without ending takes part
in the next one. Which ones do is the business of the hosts; here an end is an end.
"""

from typing import Final

import msgspec

from trainmaster.core.base.ids import AttemptId, ClusterId, EffectId, HostId, JobId
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.recovery.exits import Exits


class AttemptState(State):
    PLACED = "placed"
    LAUNCHING = "launching"
    RUNNING = "running"
    REFORMING = "re-forming"
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"


_LIVE: Final = (AttemptState.PLACED, AttemptState.LAUNCHING, AttemptState.RUNNING, AttemptState.REFORMING)

ATTEMPT_MACHINE: Final = Machine(
    "attempt",
    AttemptState.PLACED,
    [
        (AttemptState.PLACED, AttemptState.LAUNCHING, "store reserved"),
        (AttemptState.PLACED, AttemptState.REFORMING, "a member was lost"),
        (AttemptState.LAUNCHING, AttemptState.RUNNING, "all ranks run"),
        (AttemptState.LAUNCHING, AttemptState.REFORMING, "interrupted"),
        (AttemptState.LAUNCHING, AttemptState.FINISHED, "all ranks finished"),
        (AttemptState.RUNNING, AttemptState.REFORMING, "interrupted, or handed over"),
        (AttemptState.RUNNING, AttemptState.FINISHED, "all ranks finished"),
        (AttemptState.REFORMING, AttemptState.LAUNCHING, "membership complete, store reserved"),
        *((state, AttemptState.FAILED, "failed") for state in _LIVE),
        *((state, AttemptState.PREEMPTED, "asked to leave") for state in _LIVE),
        *((state, AttemptState.CANCELLED, "cancelled by request") for state in _LIVE),
    ],
)

SETTLE: Final = seconds(0.5)
"""When all that is known is that ranks lost their peers, how long to wait for the first cause to show itself. A broken
connection of the dead host's agent, or the exit of the culprit, comes within milliseconds of the echoes."""
APART_SETTLE: Final = seconds(3.0)
"""The same, where ranks met in different collectives: what their recorders hold has to be asked for."""

FORM_DEADLINE: Final = seconds(180)
"""From the decision on a membership until all its ranks run. Covers a cold start of a keeper that imports a large
framework from slow storage; past it the hosts that have not answered are taken for lost."""

STOP_GRACE: Final = seconds(5)
"""SIGTERM to SIGKILL when a job is cancelled. When ranks are stopped because a peer died there is none: their state is
worthless, and every second counts."""


class Change(Value):
    """A place that another host took."""

    place: int
    left: HostId
    joined: HostId


class Epoch(msgspec.Struct, kw_only=True, gc=False):
    """One membership and what became of it. Instants are None until reached."""

    number: int
    changes: tuple[Change, ...] = ()
    """Against the epoch before. Who all the hosts were: `Attempt.hosts_of`."""
    formed_at: Instant
    reserved_at: Instant | None = None
    launched_at: Instant | None = None
    attached_at: Instant | None = None
    grouped_at: Instant | None = None
    stayed: int | None = None
    """Ranks whose processes have lived on from the epoch before, as the agents told so far; None: none told."""
    restored_at: Instant | None = None
    restored_step: int = -1
    restored_from: str = ""
    """See `EpochPhase.origin`."""
    first_step_at: Instant | None = None
    published_step: int = -1
    failed_saves: int = 0
    save_failure: str = ""
    """Why the newest save failed; empty once one was published again."""
    note: str = ""
    last_step: int = -1
    """Last completed step that is known; exact once the epoch has ended."""
    last_step_at: Instant | None = None
    save_s: float = 0.0
    failed_at: Instant | None = None
    """When the first cause happened on its host, as far as known; where all ranks left in order, when the last did."""
    detected_at: Instant | None = None
    decided_at: Instant | None = None
    ended_by: str = ""
    """finished, yielded, interrupted or stopped; empty while it lasts."""
    cause: Reason | None = None


class Refusal(Value):
    """A host could not do its part of forming an epoch."""

    at: Instant
    what: str
    """The verb: prepare, reserve a store, launch."""
    detail: str
    votes: bool
    """It was tried and failed; an unknown outcome says nothing about what the hosts have in common."""


class Handover(msgspec.Struct, kw_only=True, gc=False):
    """A planned leave: the ranks were asked to save and go."""

    asked_at: Instant
    requeue: bool
    """Leave the hosts altogether, instead of going on with another membership."""
    reason: Reason


class Attempt(msgspec.Struct, kw_only=True, gc=False):
    """State of an attempt. Mutable, private to the engine."""

    id: AttemptId
    job: JobId
    cluster: ClusterId
    stack: str = ""
    """The versions that all its hosts share, as one word; see `Host.stack`."""
    state: AttemptState = AttemptState.PLACED
    since: Instant
    placed_at: Instant
    story: tuple[Chapter, ...] = ()
    members: tuple[HostId, ...]
    """Of the present epoch, in rank order."""
    spares: tuple[HostId, ...] = ()
    prepared: set[HostId] = set()
    """Hosts that were sent PrepareAttempt in their present boot."""
    epochs: list[Epoch] = []
    exits: Exits = msgspec.field(default_factory=Exits)
    """How ranks of the present epoch ended."""
    store_effect: EffectId | None = None
    preload_failure: str = ""
    """What a host complained of that imported the job's modules ahead; ranks start without them, and slower."""
    refusals: dict[HostId, Refusal] = {}
    """Members that could not do their part of forming the present epoch."""
    unfit: tuple[HostId, ...] = ()
    """Hosts that could not be prepared as spares: not asked again, or the same host would be asked for ever."""
    launch_effect: EffectId | None = None
    """The launch of the present epoch."""
    handover: Handover | None = None
    undecided: bool = False
    """Interrupted, and the first cause is not known yet."""
    waiting: Reason | None = None
    """Why it does not go on: no host to replace a member, no spare for a hand-over."""
    ended_at: Instant | None = None
    cause: Reason | None = None
    """Of its end."""

    @property
    def epoch(self) -> Epoch:
        assert self.epochs, self.id
        return self.epochs[-1]

    def hosts_of(self, number: int) -> tuple[HostId, ...]:
        """The hosts of an epoch, in rank order: those of the present one, with later changes taken back."""
        assert 0 < number <= len(self.epochs), (self.id, number)
        hosts = list(self.members)
        for epoch in reversed(self.epochs[number:]):
            for change in epoch.changes:
                hosts[change.place] = change.left
        return tuple(hosts)

    def is_live(self) -> bool:
        return self.state in _LIVE

    def is_attached(self) -> bool:
        """The script of the present epoch has opened a training session."""
        return self.epoch.attached_at is not None or self.exits.attached


def is_alike(host: Host, attempt: Attempt) -> bool:
    """Whether the host may be of the attempt, once it is free: in its cluster, with its versions."""
    return host.stack == attempt.stack and host.spec.cluster == attempt.cluster and host.spec.kind == "compute"


def lasting(start: Instant | None, end: Instant | None) -> Duration:
    """The time between two marks; zero if one is missing or they are out of order."""
    return Duration(max(0, end - start)) if start is not None and end is not None else Duration(0)
