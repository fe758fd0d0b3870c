"""Every event has a sentence, and the sentence says what the event knows."""

from typing import Any, get_args

import pytest

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import (
    AttemptId,
    BootId,
    ClusterId,
    ComponentName,
    EffectId,
    HostId,
    JobId,
    OperationId,
    Owner,
    PodId,
    PoolName,
    RackId,
    RmaId,
    RolloutId,
    SessionId,
    TrainName,
)
from trainmaster.core.base.time import Duration, Instant
from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.events import AnyEvent, LeaseTaken, TimePassed
from trainmaster.core.fleet.events import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    DrainRequested,
    FleetDeclared,
    ResumeRequested,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.health.conduct import HealthConduct, PoolConduct
from trainmaster.core.health.events import (
    BreakerSet,
    Gone,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    HealthReported,
    PartsSeen,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.core.maintenance.events import (
    CapacityDeclared,
    CatalogueDeclared,
    GangUpgradeRequested,
    OperationCancelled,
    OperationRequested,
    OperationSpec,
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
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.core.recovery.events import (
    CheckpointFailed,
    CheckpointPublished,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    Failure,
    HangFound,
    WorkerExited,
    WorkersExited,
)
from trainmaster.core.scheduling.events import JobCancelled, JobRequeued, JobSubmitted
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.core.words import count_text, seconds_text, sentence, who

TRAIN = TrainName("main")
ROLLOUT = RolloutId("driver-3")
AT = Instant(1_800_000_000_000_000)
KIM = Owner("person:kim")
ATTEMPT = AttemptId("job-7.a1")
H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def host(name: HostId) -> HostSpec:
    return HostSpec(id=name, cluster=ClusterId("c"), pod=PodId("p"), rack=RackId("r"), platform="laptop", gpus=8)


def exited(**more: Any) -> WorkerExited:
    event = WorkerExited(
        at=AT,
        host=H2,
        attempt=ATTEMPT,
        epoch=2,
        rank=1,
        how="failed",
        exit_code=1,
        signal=None,
        attached=True,
        phase=Phase.TRAINING,
        step=1200,
        step_at=Instant(AT - 2_500_000),
        save_s=0.0,
    )
    return event.but(**more)


def all_exited(**more: Any) -> WorkersExited:
    event = WorkersExited(
        at=AT,
        attempt=ATTEMPT,
        epoch=2,
        hosts=(H1, H2, H3),
        how="failed",
        exit_code=1,
        signal=None,
        attached=True,
        phase=Phase.TRAINING,
        step=1200,
        step_at=Instant(AT - 2_500_000),
        save_s=0.0,
    )
    return event.but(**more)


def phase(which: Phase, step: int = -1, note: str = "") -> EpochPhase:
    return EpochPhase(at=AT, host=H1, attempt=ATTEMPT, epoch=2, phase=which, step=step, note=note)


CASES: list[tuple[AnyEvent, str]] = [
    (LeaseTaken(at=AT, lease=3, by=Owner("policy:server")), "server started and took lease 3; agents register anew"),
    (TimePassed(at=AT), "time passed that somebody had waited for"),
    (
        FleetDeclared(at=AT, hosts=(host(H1), host(H2), host(H3)), by=KIM),
        "kim declared a fleet of 3 hosts, 24 GPUs: h[1-3]",
    ),
    (
        AgentRegistered(at=AT, host=H1, session=SessionId("s"), boot=BootId("b7"), address="10.0.0.1", attempts=()),
        "h1: its agent registered (boot b7, reached at 10.0.0.1)",
    ),
    (
        AgentRegistered(
            at=AT, host=H1, session=SessionId("s"), boot=BootId("b7"), address="10.0.0.1", attempts=((ATTEMPT, 2),)
        ),
        "h1: its agent registered (boot b7, reached at 10.0.0.1); still runs job-7.a1 epoch 2",
    ),
    (AgentDisconnected(at=AT, host=H1, session=SessionId("s")), "h1: the connection of its agent closed"),
    (
        AgentSilent(at=AT, host=H1, session=SessionId("s"), silent_s=3.04),
        "h1: its agent is connected but sent no heartbeat for 3 s",
    ),
    (DrainRequested(at=AT, hosts=(H1, H2, H3), reason="new firmware", by=KIM), "kim drains h[1-3]: new firmware"),
    (
        DrainRequested(at=AT, hosts=(H1,), reason="fan", by=KIM, deadline=Instant(AT + 600_000_000), evict=True),
        "kim drains h1: fan (in 10 min what still runs is stopped)",
    ),
    (
        DrainRequested(at=AT, hosts=(H1,), reason="fan", by=Owner("policy:health"), deadline=Instant(AT + 90_000_000)),
        "policy health drains h1: fan (in 1 min 30 s it counts as late)",
    ),
    (ResumeRequested(at=AT, hosts=(H2, H1), reason="repaired", by=KIM), "kim resumes h[1-2]: repaired"),
    (
        JobSubmitted(at=AT, spec=JobSpec(name="llama", command=("x",), hosts=4, ranks_per_host=8, spares=1), by=KIM),
        "kim submitted job llama: 32 ranks on 4 hosts and 1 spare",
    ),
    (
        JobSubmitted(at=AT, spec=JobSpec(name="eval", command=("x",), hosts=1), by=KIM),
        "kim submitted job eval: 1 rank on 1 host",
    ),
    (JobCancelled(at=AT, job=JobId("job-7"), by=KIM, reason="typo\nin lr"), "job-7: cancelled by kim: typo in lr"),
    (
        JobRequeued(at=AT, job=JobId("job-7"), by=KIM, reason="new data"),
        "job-7: sent back to the queue by kim: new data",
    ),
    (
        CatalogueDeclared(at=AT, catalogue=Catalogue(name="local"), by=KIM),
        "catalogue local: declared by kim: 0 components, 0 kinds of operation",
    ),
    (CapacityDeclared(at=AT, capacity=CapacityPolicy(books=()), by=KIM), "capacity: limits declared by kim for none"),
    (
        OperationRequested(
            at=AT,
            spec=OperationSpec(scope=("host/h1",), component=ComponentName("driver"), version="2", reason="leak"),
            by=KIM,
        ),
        "host/h1: upgrade driver 2 requested by kim (planned): leak",
    ),
    (
        OperationCancelled(at=AT, operation=OperationId("op-3"), by=KIM, reason="wrong version"),
        "op-3: cancelled by kim: wrong version",
    ),
    (
        TrainDeclared(at=AT, spec=TrainSpec(name=TRAIN, domains=((H1,), (HostId("h2"),)), cycle=Duration(9)), by=KIM),
        "train main: declared by kim: 2 domains with 2 units, act",
    ),
    (TrainPaused(at=AT, train=TRAIN, by=KIM, reason="freeze"), "train main: paused by kim: freeze"),
    (TrainResumed(at=AT, train=TRAIN, by=KIM, reason="over"), "train main: resumed by kim: over"),
    (TrainAborted(at=AT, train=TRAIN, by=KIM, reason="wrong"), "train main: aborted by kim: wrong"),
    (
        VersionTargeted(at=AT, component=ComponentName("driver"), version="2", by=KIM),
        "driver: 2 is the proven version, says kim",
    ),
    (
        RolloutDeclared(
            at=AT,
            rollout=ROLLOUT,
            spec=RolloutSpec(component=ComponentName("driver"), version="3", pool=(H1,)),
            seed=1,
            by=KIM,
        ),
        "rollout driver-3: driver 3 to 1 host by stages, asked for by kim",
    ),
    (RolloutPaused(at=AT, rollout=ROLLOUT, by=KIM, reason="wait"), "rollout driver-3: paused by kim: wait"),
    (
        RolloutPassed(at=AT, rollout=ROLLOUT, by=KIM, reason="a loose cable"),
        "rollout driver-3: passed on from a held stage by kim: a loose cable",
    ),
    (RolloutResumed(at=AT, rollout=ROLLOUT, by=KIM, reason="on"), "rollout driver-3: resumed by kim: on"),
    (RolloutStopped(at=AT, rollout=ROLLOUT, by=KIM, reason="old"), "rollout driver-3: stopped by kim: old"),
    (
        GangUpgradeRequested(
            at=AT, job=JobId("job-7"), component=ComponentName("image"), version="4", by=KIM, reason="new CUDA"
        ),
        "job-7: image 4 for all its hosts at once, asked for by kim: new CUDA",
    ),
    (EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="done"), "h1: what was asked as e9.1 is done"),
    (
        EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="done", numbers={"port": 29500}),
        "h1: what was asked as e9.1 is done (port 29500)",
    ),
    (
        EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="failed", detail="disk full"),
        "h1: what was asked as e9.1 failed: disk full",
    ),
    (
        EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="not-run", detail="stale lease"),
        "h1: what was asked as e9.1 was not carried out: stale lease",
    ),
    (
        EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="unknown"),
        "h1: what was asked as e9.1 has an unknown outcome",
    ),
    (exited(how="finished", exit_code=0), "job-7.a1 epoch 2: rank 1 on h2 finished at step 1,200"),
    (exited(how="yielded", exit_code=0), "job-7.a1 epoch 2: rank 1 on h2 saved and left as asked at step 1,200"),
    (exited(how="stopped", signal=15, step=-1), "job-7.a1 epoch 2: rank 1 on h2 was stopped"),
    (
        exited(exit_code=None, signal=9),
        "job-7.a1 epoch 2: rank 1 on h2 failed at step 1,200, 2.5 s after its last step: killed by signal 9",
    ),
    (
        exited(exit_code=1, failure=Failure(at=AT, exception="ConnectionError", message="lost its peers: closed")),
        "job-7.a1 epoch 2: rank 1 on h2 lost its peers at step 1,200, 2.5 s after its last step: "
        "ConnectionError: lost its peers: closed",
    ),
    (
        EffectEnded(at=AT, host=H1, effect=EffectId("e9.1"), outcome="done", numbers={"stayed": 1}),
        "h1: what was asked as e9.1 is done (ranks whose processes live on: 1)",
    ),
    (
        exited(step=-1, failure=Failure(at=AT, exception="ValueError", message="bad lr", location="train.py:7")),
        "job-7.a1 epoch 2: rank 1 on h2 failed: ValueError: bad lr (train.py:7)",
    ),
    (
        EffectsEnded(at=AT, hosts=(H1, H2, H3), effect=EffectId("e9.1"), outcome="done"),
        "h[1-3]: what was asked as e9.1 is done",
    ),
    (
        EffectsEnded(at=AT, hosts=(H1, H2), effect=EffectId("e9.1"), outcome="failed", detail="disk full"),
        "h[1-2]: what was asked as e9.1 failed: disk full",
    ),
    (
        all_exited(failure=Failure(at=AT, exception="RuntimeError", message="Connection closed by peer")),
        "job-7.a1 epoch 2: all ranks on h[1-3] (3 hosts) failed at step 1,200, 2.5 s after their last step: "
        "RuntimeError: Connection closed by peer",
    ),
    (all_exited(how="yielded", hosts=(H2,)), "job-7.a1 epoch 2: all ranks on h2 saved and left as asked at step 1,200"),
    (all_exited(how="stopped", step=-1), "job-7.a1 epoch 2: all ranks on h[1-3] (3 hosts) were stopped"),
    (
        HangFound(
            at=AT,
            attempt=ATTEMPT,
            epoch=2,
            kind=Kind.PROCESS_STOPPED,
            ranks=(3,),
            step=1200,
            still_s=4.1,
            bound_s=3.0,
            summary="rank 3 on h2 stopped (state T)",
        ),
        "job-7.a1 epoch 2: process-stopped: rank 3 on h2 stopped (state T) (no step for 4.1 s after step 1,200; a step"
        " may take 3 s)",
    ),
    (phase(Phase.ATTACHED), "job-7.a1 epoch 2: the script opened its training session"),
    (phase(Phase.RESTORED, 1200), "job-7.a1 epoch 2: state is restored, step 1,200"),
    (phase(Phase.RESTORED, 0), "job-7.a1 epoch 2: training starts from scratch"),
    (
        phase(Phase.RESTORED, 1100, "step 1200 did not verify"),
        "job-7.a1 epoch 2: state is restored, step 1,100 (step 1200 did not verify)",
    ),
    (phase(Phase.TRAINING, 1201), "job-7.a1 epoch 2: the first step is done, step 1,201"),
    (
        CheckpointPublished(at=AT, host=H1, attempt=ATTEMPT, epoch=2, step=1300),
        "job-7.a1 epoch 2: checkpoint of step 1,300 published",
    ),
    (
        CheckpointFailed(
            at=AT, host=H1, attempt=ATTEMPT, epoch=2, step=1300, detail="the save of step 1300 failed: disk full"
        ),
        "job-7.a1 epoch 2: a save failed at step 1,300, what was published before stays: disk full",
    ),
    (
        CheckpointFailed(at=AT, host=H1, attempt=ATTEMPT, epoch=2, step=1300, detail="no space left at step 1300"),
        "job-7.a1 epoch 2: a save failed at step 1,300, what was published before stays: no space left at step 1300",
    ),
    (
        HealthReported(at=AT, host=H1, boot=BootId("b1"), probe="kernel-log", findings=()),
        "h1: kernel-log finds nothing wrong",
    ),
    (
        HealthReported(
            at=AT,
            host=H1,
            boot=BootId("b1"),
            probe="kernel-log",
            findings=(
                Finding(unit="port mlx5_0", verdict=Verdict.WATCH, remedy=Remedy.NONE, rule="flap", summary="flaps"),
                Finding(unit="gpu 0000:1b:00", verdict=Verdict.BAD, remedy=Remedy.REBOOT, rule="xid", summary="lost"),
            ),
            gone=(Gone(unit="disk sda", rule="io-error"),),
        ),
        "h1: kernel-log says bad, reboot; gpu 0000:1b:00 bad, reboot: lost; port mlx5_0 watch, none: flaps and 1 more",
    ),
    (
        PartsSeen(
            at=AT,
            host=H1,
            boot=BootId("b1"),
            chassis="SN-1",
            parts=(Part(kind="gpu", slot="gpu 0000:1b:00"), Part(kind="gpu", slot="gpu 0000:1c:00")),
        ),
        "h1: its agent sees 2 gpu; chassis SN-1",
    ),
    (
        HealthConductDeclared(at=AT, conduct=HealthConduct(pools=(PoolConduct(name=PoolName("desk")),)), by=KIM),
        "kim declared how health acts: desk",
    ),
    (
        HealthModeSet(at=AT, pool=PoolName("desk"), mode="act", by=KIM, reason="its advice is right"),
        "kim set desk to act: its advice is right",
    ),
    (HealthAcknowledged(at=AT, hosts=(H1, H2), by=KIM, reason="a cable"), "kim took on h[1-2]: a cable"),
    (HealthReleased(at=AT, hosts=(H1,), by=KIM, reason="reseated"), "kim says h1 is repaired: reseated"),
    (
        BreakerSet(at=AT, pool=PoolName("desk"), tripped=False, by=KIM, reason="a switch was replaced"),
        "kim reset the breaker of desk: a switch was replaced",
    ),
    (
        RmaOpened(at=AT, host=H1, unit="gpu 0000:1b:00", by=KIM, reason="it fails in every slot"),
        "kim sends back gpu 0000:1b:00 of h1: it fails in every slot",
    ),
    (
        RmaClosed(at=AT, rma=RmaId("rma-2"), outcome="no-fault-found", by=KIM, reason="the vendor's report"),
        "kim closed rma-2 as no-fault-found: the vendor's report",
    ),
]


@pytest.mark.parametrize(("event", "expected"), CASES, ids=lambda value: type(value).__name__)
def test_sentence_of(event: AnyEvent, expected: str) -> None:
    assert sentence(event) == expected


def test_every_event_type_has_a_case_here() -> None:
    """1. All members of the union. 2. All are in the table above; a new one must be added to it."""
    assert {type(event) for event, _ in CASES} == set(get_args(AnyEvent))


def test_every_phase_has_words() -> None:
    for which in Phase:
        assert sentence(phase(which)).startswith("job-7.a1 epoch 2: ")


def test_owners_and_counts_and_seconds() -> None:
    assert (who(KIM), who(Owner("policy:health")), who(Owner("odd"))) == ("kim", "policy health", "odd")
    assert (count_text(1, "host"), count_text(1200, "host")) == ("1 host", "1,200 hosts")
    cases = {0.04: "0 s", 0.44: "0.4 s", 9.96: "10 s", 12.4: "12 s", 185: "3 min 5 s", 7200: "2 h", 90_000: "1 d 1 h"}
    assert {value: seconds_text(value) for value in cases} == cases
