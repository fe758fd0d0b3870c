"""Events in words: one sentence each, for people who read the log.

A sentence begins with its subject, names hosts folded, tells times relative to the event, and says why when the event
knows. It says only what the event says: what the engine made of it stands in the next events and in the state. There is
one row a type in `_SENTENCES`, and a test fails for a type without one; a fallback that prints the bare type name was
rejected, since it hides that nobody thought of the reader.
"""

from collections.abc import Callable
from typing import Any, Final

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.time import in_seconds
from trainmaster.core.events import AnyEvent, LeaseTaken, TimePassed
from trainmaster.core.fleet.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    DrainRequested,
    FleetDeclared,
    ResumeRequested,
)
from trainmaster.core.health.told import sentences as health_sentences
from trainmaster.core.maintenance.events import (
    CapacityDeclared,
    CatalogueDeclared,
    GangUpgradeRequested,
    OperationCancelled,
    OperationRequested,
    RolloutDeclared,
    RolloutPassed,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
)
from trainmaster.core.recovery.cause import describe, is_echo
from trainmaster.core.recovery.events import (
    CheckpointFailed,
    CheckpointPublished,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    HangFound,
    WorkerExited,
    WorkersExited,
)
from trainmaster.core.scheduling.events import JobCancelled, JobRequeued, JobSubmitted


def sentence(event: AnyEvent) -> str:
    """What happened, in one line without a final stop."""
    text = _SENTENCES[type(event)](event)
    assert text, type(event)
    return " ".join(text.split())


def who(owner: Owner) -> str:
    """`person:kim` is kim; a policy keeps its kind, so that nobody looks for a person of that name."""
    kind, _, name = owner.partition(":")
    return name if kind == "person" and name else owner.replace(":", " ", 1)


def seconds_text(value: float) -> str:
    """Seconds in one or two units: `0.4 s`, `12 s`, `3 min 5 s`, `2 h`."""
    if value < 10:
        return f"{round(value, 1):g} s"
    total = round(value)
    for size, unit, small, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            rest = total % size // small
            return f"{total // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{total} s"


def count_text(count: int, one: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def _hosts(hosts: tuple[HostId, ...]) -> str:
    return fold(hosts) if hosts else "no host"


def _lease_taken(event: LeaseTaken) -> str:
    return f"server started and took lease {event.lease}; agents register anew"


def _time_passed(event: TimePassed) -> str:
    return "time passed that somebody had waited for"


def _fleet_declared(event: FleetDeclared) -> str:
    size = f"{count_text(len(event.hosts), 'host')}, {count_text(sum(host.gpus for host in event.hosts), 'GPU')}"
    listed = _hosts(tuple(host.id for host in event.hosts))
    return f"{who(event.by)} declared a fleet of {size}: {listed}"


def _agent_registered(event: AgentRegistered) -> str:
    text = f"{event.host}: its agent registered (boot {event.boot}, reached at {event.address})"
    if event.attempts:
        text += "; still runs " + ", ".join(f"{attempt} epoch {epoch}" for attempt, epoch in event.attempts)
    return text


def _agent_disconnected(event: AgentDisconnected) -> str:
    return f"{event.host}: the connection of its agent closed"


def _agent_silent(event: AgentSilent) -> str:
    return f"{event.host}: its agent is connected but sent no heartbeat for {seconds_text(event.silent_s)}"


def _drain_requested(event: DrainRequested) -> str:
    text = f"{who(event.by)} drains {_hosts(event.hosts)}: {event.reason}"
    if event.deadline is not None:
        then = "what still runs is stopped" if event.evict else "it counts as late"
        text += f" (in {seconds_text(in_seconds(event.deadline - event.at))} {then})"
    return text


def _resume_requested(event: ResumeRequested) -> str:
    return f"{who(event.by)} resumes {_hosts(event.hosts)}: {event.reason}"


def _job_submitted(event: JobSubmitted) -> str:
    spec = event.spec
    spares = f" and {count_text(spec.spares, 'spare')}" if spec.spares else ""
    ranks = count_text(spec.hosts * spec.ranks_per_host, "rank")
    return f"{who(event.by)} submitted job {spec.name}: {ranks} on {count_text(spec.hosts, 'host')}{spares}"


def _job_cancelled(event: JobCancelled) -> str:
    return f"{event.job}: cancelled by {who(event.by)}: {event.reason}"


def _job_requeued(event: JobRequeued) -> str:
    return f"{event.job}: sent back to the queue by {who(event.by)}: {event.reason}"


def _catalogue_declared(event: CatalogueDeclared) -> str:
    catalogue = event.catalogue
    count = f"{len(catalogue.components)} components, {len(catalogue.kinds)} kinds of operation"
    return f"catalogue {catalogue.name}: declared by {who(event.by)}: {count}"


def _capacity_declared(event: CapacityDeclared) -> str:
    books = ", ".join(book.name for book in event.capacity.books) or "none"
    return f"capacity: limits declared by {who(event.by)} for {books}"


def _operation_requested(event: OperationRequested) -> str:
    spec = event.spec
    what = " ".join(word for word in (spec.kind, spec.component, spec.version) if word)
    why = f": {spec.reason}" if spec.reason else ""
    return f"{', '.join(spec.scope)}: {what} requested by {who(event.by)} ({spec.priority.value}){why}"


def _operation_cancelled(event: OperationCancelled) -> str:
    return f"{event.operation}: cancelled by {who(event.by)}: {event.reason}"


def _train_declared(event: TrainDeclared) -> str:
    spec = event.spec
    units = sum(len(domain) for domain in spec.domains)
    every = count_text(len(spec.domains), "domain")
    return f"train {spec.name}: declared by {who(event.by)}: {every} with {count_text(units, 'unit')}, {spec.mode}"


def _version_targeted(event: VersionTargeted) -> str:
    return f"{event.component}: {event.version} is the proven version, says {who(event.by)}"


def _rollout_declared(event: RolloutDeclared) -> str:
    spec = event.spec
    what = f"{spec.component} {spec.version} to {count_text(len(spec.pool), 'host')} by stages"
    return f"rollout {event.rollout}: {what}, asked for by {who(event.by)}"


def _on(kind: str, verb: str) -> Callable[[Any], str]:
    def text(event: Any) -> str:
        return f"{kind} {getattr(event, kind)}: {verb} by {who(event.by)}: {event.reason}"

    return text


def _gang_upgrade(event: GangUpgradeRequested) -> str:
    what = f"{event.component} {event.version} for all its hosts at once"
    return f"{event.job}: {what}, asked for by {who(event.by)}: {event.reason}"


_OUTCOMES: Final = {
    "done": "is done",
    "failed": "failed",
    "not-run": "was not carried out",
    "unknown": "has an unknown outcome",
}


_NUMBERS: Final = {"stayed": "ranks whose processes live on: {}"}


def _effects_ended(event: EffectEnded | EffectsEnded) -> str:
    text = f"{fold(event.hosts)}: what was asked as {event.effect} {_OUTCOMES[event.outcome]}"
    if event.detail:
        return f"{text}: {event.detail}"
    numbers = ", ".join(_NUMBERS.get(key, key + " {}").format(value) for key, value in sorted(event.numbers.items()))
    return f"{text} ({numbers})" if numbers else text


def _worker_exited(event: WorkerExited) -> str:
    return _exited(event, f"rank {event.rank} on {event.host}", "was", "its")


def _workers_exited(event: WorkersExited) -> str:
    several = f" ({len(event.hosts)} hosts)" if len(event.hosts) > 1 else ""
    return _exited(event, f"all ranks on {fold(event.hosts)}{several}", "were", "their")


def _exited(event: WorkerExited | WorkersExited, who_ended: str, verb: str, whose: str) -> str:
    head = f"{event.attempt} epoch {event.epoch}: {who_ended}"
    at_step = f" at step {event.step:,}" if event.step >= 0 else ""
    match event.how:
        case "finished":
            return f"{head} finished{at_step}"
        case "yielded":
            return f"{head} saved and left as asked{at_step}"
        case "stopped":
            return f"{head} {verb} stopped{at_step}"
        case "failed":
            ago = in_seconds(event.at - event.step_at) if event.step > 0 and event.step_at > 0 else -1.0
            last = f", {seconds_text(ago)} after {whose} last step" if ago >= 0 else ""
            failed = "lost its peers" if isinstance(event, WorkerExited) and is_echo(event) else "failed"
            return f"{head} {failed}{at_step}{last}: {describe(event)}"


def _hang_found(event: HangFound) -> str:
    head = f"{event.attempt} epoch {event.epoch}: {event.kind.value}: {event.summary}"
    stood = f"no step for {seconds_text(event.still_s)} after step {event.step:,}"
    return f"{head} ({stood}; a step may take {seconds_text(event.bound_s)})"


_PHASES: Final = {
    Phase.CREATED: "the ranks are about to start",
    Phase.SPAWNED: "the ranks run",
    Phase.ATTACHED: "the script opened its training session",
    Phase.GROUPED: "all ranks found each other",
    Phase.RESTORED: "state is restored",
    Phase.TRAINING: "the first step is done",
    Phase.SAVING: "a checkpoint is being saved",
    Phase.YIELDED: "the ranks saved and leave",
    Phase.FINISHED: "the script says that the job is done",
}


def _epoch_phase(event: EpochPhase) -> str:
    text = f"{event.attempt} epoch {event.epoch}: {_PHASES[event.phase]}"
    if event.phase is Phase.RESTORED:
        text = text if event.step > 0 else f"{event.attempt} epoch {event.epoch}: training starts from scratch"
    if event.step > 0:
        text += f", step {event.step:,}"
    return f"{text} ({event.note})" if event.note else text


def _checkpoint_published(event: CheckpointPublished) -> str:
    return f"{event.attempt} epoch {event.epoch}: checkpoint of step {event.step:,} published"


def _checkpoint_failed(event: CheckpointFailed) -> str:
    """Whether training goes on after it is told by the next events; of the last save it does not."""
    detail = event.detail.removeprefix(f"the save of step {event.step} failed: ")
    detail = detail.removeprefix("a save from a snapshot failed: ")
    head = f"{event.attempt} epoch {event.epoch}: a save failed at step {event.step:,}"
    return f"{head}, what was published before stays: {detail}"


_SENTENCES: Final[dict[type, Callable[[Any], str]]] = {
    LeaseTaken: _lease_taken,
    TimePassed: _time_passed,
    FleetDeclared: _fleet_declared,
    AgentRegistered: _agent_registered,
    AgentDisconnected: _agent_disconnected,
    AgentSilent: _agent_silent,
    DrainRequested: _drain_requested,
    ResumeRequested: _resume_requested,
    JobSubmitted: _job_submitted,
    JobCancelled: _job_cancelled,
    JobRequeued: _job_requeued,
    EffectEnded: _effects_ended,
    EffectsEnded: _effects_ended,
    WorkerExited: _worker_exited,
    WorkersExited: _workers_exited,
    HangFound: _hang_found,
    EpochPhase: _epoch_phase,
    CheckpointPublished: _checkpoint_published,
    CheckpointFailed: _checkpoint_failed,
    CatalogueDeclared: _catalogue_declared,
    CapacityDeclared: _capacity_declared,
    OperationRequested: _operation_requested,
    OperationCancelled: _operation_cancelled,
    TrainDeclared: _train_declared,
    TrainPaused: _on("train", "paused"),
    TrainResumed: _on("train", "resumed"),
    TrainAborted: _on("train", "aborted"),
    VersionTargeted: _version_targeted,
    RolloutDeclared: _rollout_declared,
    RolloutPaused: _on("rollout", "paused"),
    RolloutPassed: _on("rollout", "passed on from a held stage"),
    RolloutResumed: _on("rollout", "resumed"),
    RolloutStopped: _on("rollout", "stopped"),
    GangUpgradeRequested: _gang_upgrade,
    **health_sentences(who),
}
