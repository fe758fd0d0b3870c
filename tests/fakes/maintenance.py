"""A small world of maintenance for the server of canned answers: operations in all states, a train at a stop, a rollout
that holds, books, and plans."""

from typing import Any

from tests.fakes.api import AT, FakeApi
from trainmaster.core.base.ids import ComponentName, HostId, JobId, OperationId, Owner, RolloutId, TrainName
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant
from trainmaster.core.base.value import encode
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.ledger import Account, BookAccount, BufferAccount, DomainAccount, GuaranteeAccount
from trainmaster.core.maintenance.plan import (
    DomainPlan,
    DueCount,
    GangPlan,
    HeldUpdate,
    JobHit,
    Limit,
    OperationPlan,
    OperationsPlan,
    RolloutPlan,
    StagePlan,
    TrainPlan,
)
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.maintenance.train import CycleProof, MissedUnit, TrainSpec
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    CapacityView,
    CarriedView,
    DomainView,
    GangReport,
    MaintenanceReport,
    MaintenanceView,
    OperationAnswer,
    OperationDetail,
    Operations,
    OperationsReport,
    OperationView,
    PlanReport,
    RolloutDetail,
    RolloutReport,
    Rollouts,
    RolloutView,
    StageView,
    StepView,
    StopView,
    TargetView,
    TrainDetail,
    TrainReport,
    Trains,
    TrainView,
    Visits,
    VisitView,
)

DRIVER, CLIENT = ComponentName("gpu-driver"), ComponentName("storage-client")
BUSY = because(Token.RESOURCE_BUSY, "op-1 works on rack/r1", blockers=1)
SPENT = because(
    Token.MAINTENANCE_BUFFER_SPENT,
    "c1-compute: planned work has 2 of its 2 units, and this one would take one more of them",
    used=2,
    size=2,
    wanted=1,
)


def ago(duration: int) -> Instant:
    return Instant(AT - duration)


def operation(number: int, state: str = "running", **more: Any) -> OperationView:
    waits = state == "requested"
    ended = state in ("done", "failed", "off-boarded", "cancelled")
    view = OperationView(
        id=OperationId(f"op-{number}"),
        kind="upgrade",
        component=DRIVER,
        version="560.28",
        scope=(f"host/gpu-{number}",),
        priority="planned",
        state=state,
        since=ago(2 * MINUTE),
        requested_at=ago(10 * MINUTE),
        started_at=None if waits else ago(5 * MINUTE),
        ended_at=ago(MINUTE) if ended else None,
        by=None if ended else Owner("person:kim"),
        hosts="" if ended else f"gpu-{number}",
        units=1,
        reason=SPENT if waits else None,
        train=None,
        rollout=None,
        job=None,
    )
    return view.but(**more)


OPERATIONS = (
    operation(1, train=TrainName("weekly")),
    operation(2, "admitted", reason=BUSY, scope=("host/gpu-2", "rack/r2")),
    operation(3, "requested"),
    operation(4, "requested", kind="reboot", component=ComponentName(""), version=""),
)
ENDED = (
    operation(5, "failed", reason=because(Token.STEPS_FAILED, "install ended with 1: no space left", exit_code=1)),
    operation(6, "done"),
)


def detail(view: OperationView) -> OperationDetail:
    return OperationDetail(
        index=900,
        at=AT,
        operation=view,
        spec=OperationSpec(scope=view.scope, component=view.component, version=view.version, reason="security fix"),
        executor=HostId("gpu-1"),
        after=(),
        steps=(
            StepView(leg="apply", name="install", command=("install", "gpu-driver", "560.28"), deadline_s=600.0),
            StepView(leg="check", name="loaded", command=("loaded", "560.28"), deadline_s=60.0),
        ),
        observed="",
        previous="550.90",
        tries=1,
        effect=None,
        visit=visit(1) if view.state == "running" else None,
        history=(
            Chapter(at=ago(9 * MINUTE), start="requested", end="admitted", cause="admitted"),
            Chapter(at=ago(5 * MINUTE), start="admitted", end="draining", cause="its units leave production"),
        ),
    )


def visit(number: int) -> VisitView:
    return VisitView(
        unit=HostId(f"gpu-{number}"),
        phase="applying",
        since=ago(2 * MINUTE),
        opened_at=ago(6 * MINUTE),
        train=TrainName("weekly"),
        current=OperationId("op-1"),
        pending=(OperationId("op-7"),),
        applied=(),
        wide=(),
        needs_reboot=True,
        rebooting=False,
        tasks=("gpu-burn",),
        drain_by=None,
        evict_at=None,
    )


TRAIN = TrainView(
    name=TrainName("weekly"),
    state="stopping",
    since=ago(6 * MINUTE),
    mode="act",
    emergency=False,
    paused=None,
    reason=None,
    cycle=3,
    cycle_began=ago(26 * HOUR),
    cycle_s=604_800.0,
    domains=4,
    units=8,
    next_domain=2,
    next_due_at=Instant(AT + 16 * HOUR),
    visited=1,
    carried=1,
    missed_before=1,
    stop=StopView(
        domain=1, began_at=ago(6 * MINUTE), hosts="gpu-[1-2]", units=2, open=1, requested=3, failed=0, over=False
    ),
)


def train_spec(mode: str = "act") -> TrainSpec:
    return TrainSpec(
        name=TrainName("weekly"),
        domains=tuple((HostId(f"gpu-{n}"), HostId(f"gpu-{n + 1}")) for n in (1, 3, 5, 7)),
        cycle=Duration(7 * 24 * HOUR),
        mode="observe" if mode == "observe" else "act",
        size=2,
    )


CLASH = because(Token.VERSIONS_CLASH, "gpu-driver 570 needs storage-client >=3, and 2.0 is there")
LATE = because(Token.JOB_PROTECTED, "llama (job-1) may not be moved before its deadline")
PROOF = CycleProof(
    number=2,
    began_at=ago(194 * HOUR),
    ended_at=ago(26 * HOUR),
    units=8,
    visited=7,
    worked_on=5,
    missed=(MissedUnit(unit=HostId("gpu-3"), reason=LATE),),
    longest_gap=Duration(200 * HOUR),
)


def train_detail(view: TrainView = TRAIN, mode: str = "act") -> TrainDetail:
    return TrainDetail(
        index=900,
        at=AT,
        train=view,
        spec=train_spec(mode),
        domains=tuple(
            DomainView(
                number=n,
                hosts=f"gpu-[{2 * n - 1}-{2 * n}]",
                units=2,
                visited=1 if n == 1 else 0,
                due_at=Instant(AT + (42 * n - 68) * HOUR),
                due=2,
            )
            for n in (1, 2, 3, 4)
        ),
        carried=(CarriedView(host=HostId("gpu-3"), reason=LATE),),
        proof=PROOF.but(number=3),
        proofs=(PROOF,),
        advice=(),
        history=(Chapter(at=ago(6 * MINUTE), start="resting", end="stopping", cause="a stop is due"),),
        held_back=(HeldUpdate(component=DRIVER, reason=CLASH),),
    )


HOLDS = because(
    Token.STAGE_HOLDS,
    "stage 1 of 3 (2 of 8 hosts): 1 of 2 operations have ended; 3.5 of 24 loaded host-hours",
    operations=1,
    operations_wanted=2,
    exposure_host_h=3.5,
    exposure_wanted_host_h=24.0,
)
ROLLOUT = RolloutView(
    id=RolloutId("rollout-1"),
    component=DRIVER,
    version="560.28",
    state="canary",
    reason=HOLDS,
    by=Owner("person:kim"),
    began_at=ago(5 * HOUR),
    stage=1,
    stages=3,
    stage_hosts=2,
    pool=8,
    carriers=1,
    operations=1,
    operations_failed=0,
    failures_upgraded=0,
    failures_others=1,
    stage_ends_at=Instant(AT + 300 * HOUR),
    proven=False,
)
POOL = tuple(HostId(f"gpu-{n}") for n in range(1, 9))


def rollout_detail(view: RolloutView = ROLLOUT) -> RolloutDetail:
    return RolloutDetail(
        index=900,
        at=AT,
        rollout=view,
        spec=RolloutSpec(component=DRIVER, version="560.28", pool=POOL),
        seed=7,
        stages=(
            StageView(number=1, hosts=2, new="gpu-[2,7]", carriers=1),
            StageView(number=2, hosts=4, new="gpu-[1,5]", carriers=0),
            StageView(number=3, hosts=8, new="gpu-[3-4,6,8]", carriers=0),
        ),
        numbers={"operations_nats": -0.14, "load_nats": 0.0},
        history=(),
    )


ACCOUNT = Account(
    books=(
        BookAccount(
            name="c1-compute",
            total=40,
            in_service=37,
            promised=1,
            out_planned=2,
            out_failed=1,
            absent=0,
            maintenance=BufferAccount(size=2, used=3, left=0, over=1),
            failure=BufferAccount(size=1, used=1, left=0, over=0),
            guarantees=(GuaranteeAccount(name="research", least=30, headroom=6),),
        ),
    ),
    domains=(
        DomainAccount(resource="row/w1", kind="compute", total=8, cap=BufferAccount(size=2, used=2, left=0, over=0)),
        DomainAccount(resource="row/w2", kind="compute", total=8, cap=BufferAccount(size=2, used=0, left=2, over=0)),
    ),
    uncounted=2,
)
LIMIT = Limit(
    book="c1-compute", total=40, in_service=37, taken_before=1, taken_after=2, most=2, failed=1, failed_most=1
)
HIT = JobHit(
    job=JobId("job-1"),
    name="llama",
    leaving=(HostId("gpu-1"),),
    outcome="moves",
    to=(HostId("gpu-3"),),
    gpus=8,
    sentence="gpu-1 of llama (job-1): it moves to gpu-3 after a checkpoint",
)


def operations_plan(index: int = 900, **more: Any) -> OperationsPlan:
    def item(number: int, waits: Any = None) -> OperationPlan:
        return OperationPlan(
            kind="upgrade",
            component=DRIVER,
            version="560.28",
            scope=(f"host/gpu-{number}",),
            units=1,
            hosts=f"gpu-{number}",
            executor=HostId(f"gpu-{number}"),
            disturbs="reboot",
            steps=("install",),
            expected_s=720.0,
            waits=waits,
        )

    plan = OperationsPlan(
        index=index,
        fingerprint="0123456789abcdef",
        items=(item(1), item(8), item(5, SPENT)),
        units=3,
        hosts="gpu-[1,5,8]",
        at_once="gpu-[1,8]",
        gpus=24,
        jobs=(HIT,),
        capacity=(LIMIT,),
        expected_s=720.0,
        gpu_hours=4.8,
        waiting=1,
    )
    return plan.but(**more)


REFUSED = operations_plan(
    items=(
        OperationPlan(
            kind="upgrade",
            component=ComponentName("gpu-drivr"),
            version="1",
            scope=("host/gpu-1",),
            refused=because(
                Token.NO_SUCH_COMPONENT, "no component is named 'gpu-drivr'; the nearest name is 'gpu-driver'"
            ),
        ),
    ),
    units=0,
    hosts="",
    at_once="",
    gpus=0,
    jobs=(),
    capacity=(),
    waiting=0,
    refused=1,
    expected_s=0.0,
    gpu_hours=0.0,
)


def train_plan(mode: str = "observe") -> TrainPlan:
    return TrainPlan(
        index=900,
        fingerprint="00000000000000aa",
        spec=train_spec(mode),
        known=mode == "act",
        changes=True,
        domains=(
            DomainPlan(
                number=1,
                hosts="gpu-[1-2]",
                units=2,
                jobs=("llama",),
                due=(DueCount(component=CLIENT, version="2.0", units=2),),
                leaving=2,
                expected_s=240.0,
            ),
            DomainPlan(number=2, hosts="gpu-[3-4]", units=2, jobs=(), due=(), leaving=0, expected_s=0.0),
        ),
        next=1,
        jobs=(HIT,),
        waits=None,
        capacity=(LIMIT,),
        every_s=151_200.0,
        stops_per_job=1.5,
        gpu_hours=1.07,
    )


ROLLOUT_PLAN = RolloutPlan(
    index=900,
    fingerprint="00000000000000bb",
    rollout=RolloutId("rollout-2"),
    spec=RolloutSpec(component=DRIVER, version="560.28", pool=POOL),
    seed=7,
    stages=(
        StagePlan(number=1, hosts=2, new="gpu-[2,7]", least_soak_h=12.0),
        StagePlan(number=2, hosts=8, new="gpu-[1,3-6,8]", least_soak_h=12.0),
    ),
    jobs=(),
    carriers=0,
    trains=(TrainName("weekly"),),
    expected_s=720.0,
    gpu_hours=12.8,
)
GANG_PLAN = GangPlan(
    index=900,
    fingerprint="00000000000000cc",
    job=JobId("job-1"),
    name="llama",
    component=ComponentName("collectives"),
    version="2.24",
    hosts="gpu-[1-2]",
    units=2,
    gpus=16,
    expected_s=300.0,
    steps_lost=0,
    gpu_hours=1.33,
    waits=None,
    capacity=(LIMIT,),
)


def reply(sentence: str, changed: bool = True) -> MaintenanceReport:
    return MaintenanceReport(index=901, dry_run=False, changed=changed, sentence=sentence)


PLAN_OF_ALL = PlanReport(
    index=900,
    operations=operations_plan(),
    gangs=(GANG_PLAN,),
    versions=(reply("storage-client 2.0 is the proven version"),),
    rollouts=(ROLLOUT_PLAN,),
    trains=(train_plan(),),
)


def asked(*numbers: int, waits: int = 0) -> OperationsReport:
    answers = (
        OperationAnswer(
            operation=OperationId(f"op-{number}"),
            known=False,
            state="requested" if number == waits else "draining",
            reason=SPENT if number == waits else None,
        )
        for number in numbers
    )
    sentence = f"{count_text(len(numbers), 'operation')} {'is' if len(numbers) == 1 else 'are'} asked for"
    return OperationsReport(index=901, dry_run=False, items=tuple(answers), sentence=sentence)


def planned(plan: OperationsPlan) -> OperationsReport:
    return OperationsReport(index=plan.index, dry_run=True, plan=plan, sentence="a plan")


def whole(**more: Any) -> MaintenanceView:
    view = MaintenanceView(
        index=900,
        at=AT,
        catalogue="fleet",
        components=12,
        kinds=9,
        requested=6,
        live={"running": 1, "admitted": 1, "requested": 2},
        ended={"done": 1, "failed": 1},
        waits={"maintenance-buffer-spent": 2, "resource-busy": 1},
        visits={"applying": 1},
        capacity=ACCOUNT,
        targets=(TargetView(component=CLIENT, version="2.0", units=8, with_it=5),),
        trains=(TRAIN,),
        rollouts=(ROLLOUT,),
        gangs=(),
    )
    return view.but(**more)


def maintenance(api: FakeApi) -> None:
    """Answers to whatever `trainmaster maint` asks."""
    api.answer("GET", "/v1/maintenance", whole())

    def listed(question: Any) -> tuple[int, bytes]:
        state = question.query.get("state", "")
        found = {"live": OPERATIONS, "": (*OPERATIONS, *ENDED)}.get(
            state, tuple(view for view in (*OPERATIONS, *ENDED) if view.state == state)
        )
        limit = int(question.query.get("limit", 100))
        return 200, encode(Operations(index=900, at=AT, items=found[:limit], total=len(found)))

    api.answers["GET", "/v1/operations"] = listed
    for view in (*OPERATIONS, *ENDED):
        api.answer("GET", f"/v1/operations/{view.id}", detail(view))
        api.answer("POST", f"/v1/operations/{view.id}/cancel", reply(f"{view.id} is cancelled"))
    api.answer("GET", "/v1/visits", Visits(index=900, at=AT, items=(visit(1),)))
    api.answer("GET", "/v1/capacity", CapacityView(index=900, at=AT, policy=CapacityPolicy(books=()), account=ACCOUNT))
    api.answer("GET", "/v1/trains", Trains(index=900, at=AT, items=(TRAIN,)))
    api.answer("GET", "/v1/trains/weekly", train_detail())
    api.answer("GET", "/v1/rollouts", Rollouts(index=900, at=AT, items=(ROLLOUT,)))
    api.answer("GET", "/v1/rollouts/rollout-1", rollout_detail())
    for verb, done in (("pause", "is paused: no stop begins"), ("resume", "goes on"), ("abort", "ends")):
        api.answer("POST", f"/v1/trains/weekly/{verb}", reply(f"weekly {done}"))
    for verb in ("pause", "resume", "pass", "stop"):
        api.answer("POST", f"/v1/rollouts/rollout-1/{verb}", reply(f"rollout-1: {verb}"))
    api.answers["POST", "/v1/operations"] = lambda question: (
        200,
        encode(planned(operations_plan()) if b'"dry_run":true' in question.body else asked(7, 8, 9, waits=9)),
    )
    train_report = TrainReport(
        index=900, dry_run=False, changed=True, plan=train_plan(), sentence="train weekly: 4 stops"
    )
    api.answer("POST", "/v1/trains", train_report)
    rollout_report = RolloutReport(
        index=900, dry_run=False, rollout=ROLLOUT_PLAN.rollout, plan=ROLLOUT_PLAN, sentence="rollout-2: 8 hosts"
    )
    api.answer("POST", "/v1/rollouts", rollout_report)
    api.answer("POST", "/v1/versions", reply("storage-client 2.0 is the proven version"))
    gang_report = GangReport(index=900, dry_run=False, plan=GANG_PLAN, sentence="llama (job-1): 2 hosts together")
    api.answer("POST", "/v1/gang-upgrades", gang_report)
    api.answer("POST", "/v1/plans", PLAN_OF_ALL)
