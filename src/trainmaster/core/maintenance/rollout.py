"""A rollout brings one version of one component to a pool, stage by stage, as far as the evidence carries it.

    canary -> stage -> complete      paused: by a person      held: out of time, a person decides
                                     stopped: by a person, hosts keep what they have
                                     off-boarded: rejected, hosts are rolled back or held

`advise` judges, and changes nothing; `decide` judges and takes the edge. A stage passes when

    1. 90 % of its hosts have had their operation (some are always in repair; the rest gets it later),
    2. its hosts have had the soak in loaded host-hours, in this stage,
    3. the ratio of failures under load is at most half of the way to a rejection (that of operations may be beyond:
       this stage has no more of them to ask for, so the next one decides, which is small as well),
    4. and, if the next stage would be more than `unproven_percent` of the pool, the version is proven (see `evidence`).

Else it holds and says what is missing and how much of it; past its limit it is held for a person. What rejects a
version acts at once, also while the rollout is paused or held, since its hosts go on running. Evidence from small
stages is small: they are there for what fails at once (operations, crashes), the proof comes from the largest stage
below `unproven_percent`, which therefore lasts longest.

With the default stages a harmless version takes 7 to 10 days in the median on 3,072 to 6,144 hosts, a bad one 3 to 6
(`docs/design/rollouts.md` has the table).

A timer ("soak a day, then go on") was rejected: a quiet day on 16 hosts looks the same for a good and a bad version.
Limit: the last stage has nobody to compare with; it passes on operations and soak alone.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from math import ceil
from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import HostId, Owner, RolloutId
from trainmaster.core.base.machine import Chapter, Machine
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, Instant, after
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance import evidence as proof
from trainmaster.core.maintenance.evidence import NAT, Evidence, doubt_bound, proof_bound, reject_bound
from trainmaster.core.maintenance.stages import DAY, OnFailure, Plan, RolloutSpec, spec_problems

COVERAGE_PERCENT: Final = 90
"""Hosts of a stage whose operation must have ended before it passes; rounded up."""


class RolloutState(Enum):
    CANARY = "canary"
    STAGE = "stage"
    PAUSED = "paused"
    HELD = "held"
    COMPLETE = "complete"
    STOPPED = "stopped"
    OFF_BOARDED = "off-boarded"


_S = RolloutState

ROLLOUT_MACHINE: Final = Machine(
    "rollout",
    _S.CANARY,
    [
        (_S.CANARY, _S.STAGE, "the canary passed"),
        (_S.CANARY, _S.COMPLETE, "the canary passed, and was the pool"),
        (_S.STAGE, _S.STAGE, "the stage passed"),
        (_S.STAGE, _S.COMPLETE, "the last stage passed"),
        (_S.CANARY, _S.PAUSED, "paused by a person"),
        (_S.STAGE, _S.PAUSED, "paused by a person"),
        (_S.PAUSED, _S.CANARY, "resumed"),
        (_S.PAUSED, _S.STAGE, "resumed"),
        (_S.CANARY, _S.HELD, "too little evidence in its time, or all of a small stage failed"),
        (_S.STAGE, _S.HELD, "too little evidence in its time"),
        (_S.HELD, _S.CANARY, "a person gives it more time"),
        (_S.HELD, _S.STAGE, "a person gives it more time, or passes it"),
        (_S.HELD, _S.COMPLETE, "a person passes it"),
        *((state, _S.STOPPED, "stopped by a person") for state in (_S.CANARY, _S.STAGE, _S.PAUSED, _S.HELD)),
        *((state, _S.OFF_BOARDED, "rejected") for state in (_S.CANARY, _S.STAGE, _S.PAUSED, _S.HELD)),
    ],
)

_ENDS: Final = ROLLOUT_MACHINE.final_states()


class Rollout(msgspec.Struct, kw_only=True):
    """State of a rollout. Mutable, private to the engine."""

    id: RolloutId
    spec: RolloutSpec
    seed: int
    by: Owner
    began_at: Instant
    state: RolloutState = RolloutState.CANARY
    stage: int = 0
    """From 0, the canary. Hosts up to this stage may carry the version."""
    stage_began: Instant
    """Put off by pauses: the stage's limit counts from here."""
    paused_at: Instant | None = None
    story: tuple[Chapter, ...] = ()
    reason: Reason | None = None
    evidence: Evidence = msgspec.field(default_factory=Evidence)

    def is_live(self) -> bool:
        """It has not ended."""
        return self.state not in _ENDS

    def is_moving(self) -> bool:
        """Hosts of its stage may get the version now."""
        return self.state in (RolloutState.CANARY, RolloutState.STAGE)


class Verdict(Value):
    decision: Literal["pass", "hold", "reject"]
    reason: Reason
    overdue: bool = False
    """The stage's time is over: the rollout is to be held for a person."""


class Aftermath(Value):
    """What becomes of the hosts of a rollout that ended early."""

    action: OnFailure | Literal["keep"]
    hosts: tuple[HostId, ...]
    """Hosts whose operation has ended, well or not, in the order of the plan. Operations on others are to be
    cancelled."""


def begin(rollout: RolloutId, spec: RolloutSpec, seed: int, by: Owner, now: Instant) -> Rollout:
    """A rollout at its canary. The spec has no problems."""
    assert not spec_problems(spec), spec_problems(spec)
    return Rollout(id=rollout, spec=spec, seed=seed, by=by, began_at=now, stage_began=now)


# What happens to hosts


def operation_ended(rollout: Rollout, plan: Plan, host: HostId, *, succeeded: bool) -> None:
    """An upgrade to this version ended: back and verified, or not. After the end of the rollout it changes nothing."""
    assert host in plan.rank, f"{host} is not in the pool of {rollout.id}"
    if rollout.is_live():
        proof.operation_ended(rollout.evidence, rollout.spec.criteria, host, succeeded)


def host_failed(
    rollout: Rollout, plan: Plan, host: HostId, *, upgraded: bool, under_load: bool, n1: int, n0: int
) -> None:
    """A host of the pool failed by itself; see `evidence.host_failed` for the counts."""
    assert host in plan.rank, f"{host} is not in the pool of {rollout.id}"
    if rollout.is_live():
        criteria = rollout.spec.criteria
        proof.host_failed(rollout.evidence, criteria, host, upgraded=upgraded, under_load=under_load, n1=n1, n0=n0)


def exposed(rollout: Rollout, *, upgraded: int, others: int) -> None:
    """Hosts of the pool were under load for so many host-microseconds since the last call, by side."""
    if rollout.is_live():
        proof.exposed(rollout.evidence, upgraded=upgraded, others=others)


# Judgement


def is_bad(rollout: Rollout) -> bool:
    bound = reject_bound(rollout.spec.criteria)
    return max(rollout.evidence.operations.peak, rollout.evidence.load.peak) >= bound


def is_proven(rollout: Rollout) -> bool:
    """The version may ride along with others: it is complete, or both tests have shown that it is harmless."""
    bound = proof_bound(rollout.spec.criteria)
    shown = max(rollout.evidence.operations.trough, rollout.evidence.load.trough) <= bound
    return rollout.state is RolloutState.COMPLETE or (shown and not is_bad(rollout))


def deadline(rollout: Rollout) -> Instant:
    """When the present stage is overdue; ask again then at the latest."""
    return after(rollout.stage_began, rollout.spec.stage_limit)


def advise(rollout: Rollout, plan: Plan, now: Instant) -> Verdict:
    """What the evidence says at this instant. Pure: `decide` acts on it."""
    assert rollout.is_live(), rollout.state
    if is_bad(rollout):
        return Verdict(decision="reject", reason=_rejection(rollout, plan))
    if not rollout.is_moving():
        assert rollout.reason is not None, rollout.id
        return Verdict(decision="hold", reason=rollout.reason)
    missing = list(_missing(rollout, plan))
    where = f"stage {rollout.stage + 1} of {len(plan.counts)} ({plan.counts[rollout.stage]} of {len(plan.order)} hosts)"
    if not missing:
        return Verdict(decision="pass", reason=because(Token.STAGE_PASSED, f"{where} passed", **_numbers(rollout)))
    numbers = _numbers(rollout)
    for _, more in missing:
        numbers |= more
    sentence = f"{where}: " + "; ".join(text for text, _ in missing)
    if now < deadline(rollout):
        return Verdict(decision="hold", reason=because(Token.STAGE_HOLDS, sentence, **numbers))
    sentence += f"; its limit of {rollout.spec.stage_limit / DAY:g} days is over"
    return Verdict(decision="hold", reason=because(Token.STAGE_OVERDUE, sentence, **numbers), overdue=True)


Numbers = dict[str, int | float | str]


def _numbers(rollout: Rollout) -> Numbers:
    found = rollout.evidence
    return {
        "operations": len(found.operated),
        "operations_failed": found.operations_failed,
        "failures_upgraded": found.failures_upgraded,
        "failures_others": found.failures_others,
        "exposure_upgraded_host_h": round(found.exposure_upgraded / HOUR, 1),
        "operations_nats": found.operations.now / NAT,
        "load_nats": found.load.now / NAT,
    }


def _rejection(rollout: Rollout, plan: Plan) -> Reason:
    found, bound = rollout.evidence, reject_bound(rollout.spec.criteria)
    tests = []
    if found.operations.peak >= bound:
        tests.append(f"{found.operations_failed} of {len(found.operated)} operations failed")
    if found.load.peak >= bound:
        share = f"{found.failures_upgraded} of {found.failures_upgraded + found.failures_others} failures under load"
        tests.append(f"{share} fell on upgraded hosts (stage of {plan.counts[rollout.stage]} of {len(plan.order)})")
    sentence = f"{rollout.spec.component} {rollout.spec.version} is rejected: {'; '.join(tests)}"
    return because(Token.VERSION_REJECTED, sentence, bound_nats=bound / NAT, **_numbers(rollout))


def _missing(rollout: Rollout, plan: Plan) -> Iterator[tuple[str, Numbers]]:
    """What keeps the stage from passing, with how much of it is missing."""
    found, spec, count = rollout.evidence, rollout.spec, plan.counts[rollout.stage]
    wanted = ceil(count * COVERAGE_PERCENT / 100)
    if len(found.operated) < wanted:
        yield f"{len(found.operated)} of {wanted} operations have ended", {"operations_wanted": wanted}
    soak = spec.soak * count
    if found.exposure_stage < soak:
        have_h, soak_h = round(found.exposure_stage / HOUR, 1), round(soak / HOUR, 1)
        yield (
            f"{have_h:g} of {soak_h:g} loaded host-hours",
            {"exposure_host_h": have_h, "exposure_wanted_host_h": soak_h},
        )
    doubt = doubt_bound(spec.criteria)
    if found.load.now > doubt:
        text = f"failures under load speak against it ({found.load.now / NAT:.2f} nats, above {doubt / NAT:.2f})"
        yield text, {"doubt_nats": doubt / NAT}
    following = plan.counts[min(rollout.stage + 1, len(plan.counts) - 1)]
    if following * 100 > spec.unproven_percent * len(plan.order):
        yield from _unproven(rollout, plan)


def _unproven(rollout: Rollout, plan: Plan) -> Iterator[tuple[str, Numbers]]:
    found, criteria = rollout.evidence, rollout.spec.criteria
    bound = proof_bound(criteria)
    if found.operations.trough > bound:
        more = ceil((found.operations.now - bound) / -proof.operation_term(criteria, True))
        yield f"{more} more good operations are needed for proof", {"operations_more": more}
    if found.load.trough <= bound:
        return
    drift = proof.harmless_drift(criteria, plan.counts[rollout.stage] / len(plan.order))
    failures = ceil((found.load.now - bound) / NAT / drift) if drift > 0 else 0
    if not failures:
        yield "all hosts carry it, so no comparison can prove it", {}
    else:
        yield _forecast(rollout, plan, failures)


def _forecast(rollout: Rollout, plan: Plan, failures: int) -> tuple[str, Numbers]:
    """How long a harmless version will take, on average, from the failures seen so far."""
    found = rollout.evidence
    text = f"proof under load needs about {failures} more failures in the pool"
    seen = found.failures_upgraded + found.failures_others
    if not seen:
        return f"{text}; none was seen yet", {"failures_more": failures}
    share = plan.counts[rollout.stage] / len(plan.order)
    more_h = round(failures * (found.exposure_upgraded + found.exposure_others) * share / seen / HOUR, 1)
    return f"{text}, so {more_h:g} loaded host-hours", {"failures_more": failures, "exposure_more_host_h": more_h}


# Edges


def decide(rollout: Rollout, plan: Plan, now: Instant) -> tuple[Verdict, Aftermath | None]:
    """Judges and takes the edge. Call it at once when `is_bad` after an event, now and then (every hour) for a stage to
    pass, and at `deadline`. After a pass the next stage may begin; after a rejection the aftermath says what becomes of
    the hosts."""
    verdict = advise(rollout, plan, now)
    if verdict.decision == "reject":
        return verdict, off_board(rollout, plan, now, verdict.reason)
    if rollout.is_moving() and _all_failed(rollout, plan):  # also where nothing else is missing, as without a soak
        found = len(rollout.evidence.operated)
        sentence = (
            f"every operation of the stage failed ({found} of {found}); that proves nothing yet, and speaks loudly"
        )
        reason = because(Token.STAGE_FAILED, sentence, **_numbers(rollout))
        _move(rollout, RolloutState.HELD, now, reason)
        return Verdict(decision="hold", reason=reason, overdue=True), None
    if verdict.decision == "pass":
        pass_stage(rollout, plan, now, verdict.reason)
    elif verdict.overdue:
        _move(rollout, RolloutState.HELD, now, verdict.reason)
    else:
        rollout.reason = verdict.reason
    return verdict, None


def _all_failed(rollout: Rollout, plan: Plan) -> bool:
    """A stage too small to reject by itself, of which nothing came back well."""
    found, count = rollout.evidence, plan.counts[rollout.stage]
    return len(found.operated) >= ceil(count * COVERAGE_PERCENT / 100) and found.operations_failed == len(
        found.operated
    )


def pass_stage(rollout: Rollout, plan: Plan, now: Instant, reason: Reason) -> None:
    """On to the next stage, or complete: by evidence, or from *held* by a person who takes the risk."""
    last = rollout.stage == len(plan.counts) - 1
    _move(rollout, RolloutState.COMPLETE if last else RolloutState.STAGE, now, reason)
    if not last:
        rollout.stage += 1
        rollout.stage_began = now
        rollout.evidence.exposure_stage = 0


def off_board(rollout: Rollout, plan: Plan, now: Instant, reason: Reason) -> Aftermath:
    """The version leaves the trains, at once, by evidence or by a person."""
    _move(rollout, RolloutState.OFF_BOARDED, now, reason)
    return Aftermath(action=rollout.spec.on_failure, hosts=_touched(rollout, plan))


def stop(rollout: Rollout, plan: Plan, now: Instant, by: Owner, why: str) -> Aftermath:
    """No further host gets the version; those that have it keep it."""
    hosts = _touched(rollout, plan)
    _move(rollout, RolloutState.STOPPED, now, because(Token.ROLLOUT_STOPPED, f"{by}: {why}", hosts=len(hosts)))
    return Aftermath(action="keep", hosts=hosts)


def pause(rollout: Rollout, now: Instant, by: Owner, why: str) -> None:
    """No operation begins until it is resumed. Evidence is still counted, and may reject."""
    _move(rollout, RolloutState.PAUSED, now, because(Token.ROLLOUT_PAUSED, f"{by}: {why}"))
    rollout.paused_at = now


def resume(rollout: Rollout, now: Instant, reason: Reason) -> None:
    """From *paused*, the stage goes on and the pause is not counted; from *held*, the stage's time begins anew."""
    if rollout.state is RolloutState.HELD:
        rollout.stage_began = now
    elif rollout.paused_at is not None:
        rollout.stage_began = after(rollout.stage_began, now - rollout.paused_at)
    rollout.paused_at = None
    _move(rollout, RolloutState.STAGE if rollout.stage else RolloutState.CANARY, now, reason)


def _move(rollout: Rollout, state: RolloutState, now: Instant, reason: Reason) -> None:
    rollout.story = ROLLOUT_MACHINE.step(rollout.id, rollout.story, rollout.state, state, now, reason.sentence)
    rollout.state, rollout.reason = state, reason


def _touched(rollout: Rollout, plan: Plan) -> tuple[HostId, ...]:
    return tuple(host for host in plan.stage_hosts(rollout.stage) if host in rollout.evidence.operated)


# Invariant


def may_begin(rollout: Rollout, plan: Plan, host: HostId) -> bool:
    """Whether the upgrade of this host may begin now: the gate of its operation."""
    complete = rollout.state is RolloutState.COMPLETE
    return host in plan.rank and (complete or (rollout.is_moving() and plan.is_on_trial(host, rollout.stage)))


def rollout_broken(rollout: Rollout, plan: Plan, carriers: Iterable[HostId]) -> Iterator[str]:
    """Sentences about what does not hold (invariant 5). `carriers`: hosts that this rollout brought its version to, as
    observed."""
    name = f"{rollout.id} ({rollout.spec.component} {rollout.spec.version})"
    for host in carriers:
        if host not in plan.rank:
            yield f"5: {host} got the version of {name} and is not in its pool"
        elif not plan.is_on_trial(host, rollout.stage):
            stage = plan.stage_of(host) + 1
            yield f"5: {host} got the version of {name} at stage {rollout.stage + 1}, and belongs to stage {stage}"
    if rollout.is_live() and is_bad(rollout) and rollout.is_moving():
        yield f"5: {name} goes on although its evidence rejects it: {_rejection(rollout, plan).sentence}"
    if rollout.state is RolloutState.CANARY and rollout.stage != 0:
        yield f"{name} is a canary at stage {rollout.stage + 1}"
    if rollout.state is RolloutState.COMPLETE and rollout.stage != len(plan.counts) - 1:
        yield f"{name} is complete at stage {rollout.stage + 1} of {len(plan.counts)}"
