"""How often a running job saves, where it leaves that to us (`every = "auto"`).

    first step of an epoch   tell the ranks what was chosen so far, or to save after `TRIAL_STEPS`, to measure
    checkpoint published     note what the save and the steps before it took; choose again
    failure, then next step  note how long the restart took and what it cost; choose again

Hosts are lost in the whole fleet at one rate, which grows with the hosts of a job; what kills a rank and leaves the
host is mostly the job's own, so it is counted for the job alone, and no published rate speaks of it: for k of them in a
time T we take (k - 1)/T, which is right on average when looked at after a failure, and says nothing of the first one.

A job with snapshots in memory goes back to storage only where memory is gone too: several hosts lost at once, or the
whole attempt. That a save came from a snapshot shows that there are some. How often memory is not enough is a share of
all losses, which begins at the published share of faults that come together and follows the fleet's own history.

Every job is measured, also one with a fixed interval: it brings its share to the history. Ranks are told by a number on
their boards, on which they agree in the collective of each step, so a change reaches all of them at one step.
"""

from typing import Final

from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.checkpoint.choice import TRIAL_STEPS, Choice, ChoiceProblem, choose
from trainmaster.core.checkpoint.measured import Exposure, Pacing, added
from trainmaster.core.checkpoint.rate import Rate, estimate
from trainmaster.core.checkpoint.tiers import Tier
from trainmaster.core.effects import AskWorkers
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch, lasting
from trainmaster.core.recovery.events import CheckpointPublished
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.core.step import Step

BEYOND_SHARE: Final = 0.05
"""Of losses of hosts, those that take a snapshot and its copy: 3 and 5 % of hardware faults came together in the two
clusters of the reliability paper (2025)."""
BEYOND_WEIGHT: Final = 20.0
"""Losses after which a fleet's own history weighs as much."""
RESTART_S: Final = 60.0
"""Of a job that has not restarted yet. It moves what is expected, hardly what is chosen."""


def began(step: Step, attempt: Attempt, at: Instant, number: int) -> None:
    """The first step of the present epoch, with this number, is done."""
    pacing = step.state.jobs[attempt.job].pacing
    pacing.counted_at, pacing.marked_at, pacing.marked_step = at, at, number
    before = attempt.epochs[-2] if len(attempt.epochs) > 1 else None
    if before is not None and before.ended_by == "interrupted":
        pacing.restarts_s = added(pacing.restarts_s, in_seconds(lasting(before.failed_at, at)))
    if step.state.jobs[attempt.job].spec.checkpoint.auto:
        _choose(step, attempt)
        pacing.every_steps = pacing.every_steps or TRIAL_STEPS
        _tell(step, attempt, pacing.every_steps)


def saved(step: Step, attempt: Attempt, event: CheckpointPublished) -> None:
    """The ranks have published a checkpoint."""
    pacing = step.state.jobs[attempt.job].pacing
    _count(step, attempt, event.at)
    if attempt.handover is None:  # ranks that leave write their last save themselves, whatever the others are
        pacing.stalls_s = added(pacing.stalls_s, event.stall_s)
        pacing.lags_s = added(pacing.lags_s, event.lag_s) if event.lag_s > 0 else ()
    if pacing.marked_at is not None and event.step > pacing.marked_step:
        took_s = in_seconds(lasting(pacing.marked_at, event.at)) - event.stall_s
        pacing.steps_s = added(pacing.steps_s, took_s / (event.step - pacing.marked_step))
        pacing.marked_at, pacing.marked_step = event.at, event.step
    if step.state.jobs[attempt.job].spec.checkpoint.auto and attempt.state is AttemptState.RUNNING:
        told = pacing.every_steps
        _choose(step, attempt)
        if pacing.every_steps != told:
            _tell(step, attempt, pacing.every_steps)


def stopped(step: Step, attempt: Attempt) -> None:
    """The epoch trains no longer, for whatever reason."""
    pacing = step.state.jobs[attempt.job].pacing
    _count(step, attempt, step.now)
    pacing.counted_at = pacing.marked_at = None


def threw_back(step: Step, attempt: Attempt, epoch: Epoch, lost: int) -> None:
    """An epoch that had trained was interrupted, and what follows it is settled: an epoch without the hosts that were
    `lost`, or the end of the attempt with all of them."""
    if epoch.ended_by != "interrupted" or epoch.first_step_at is None:
        return
    exposure = step.state.exposure
    if lost or (epoch.cause is not None and epoch.cause.token is Token.HOST_LOST):
        exposure.failures += 1
        exposure.beyond_memory += lost > 1
    else:
        step.state.jobs[attempt.job].pacing.failures += 1


def _count(step: Step, attempt: Attempt, until: Instant) -> None:
    pacing = step.state.jobs[attempt.job].pacing
    if pacing.counted_at is None:
        return
    passed = max(until - pacing.counted_at, 0)
    pacing.trained += passed
    step.state.exposure.host_time += passed * len(attempt.members)
    pacing.counted_at = max(until, pacing.counted_at)


def _choose(step: Step, attempt: Attempt) -> None:
    """Chooses, if it is known what a save and a step take."""
    job = step.state.jobs[attempt.job]
    found = chosen(job.spec, job.pacing, step.state.exposure)
    if isinstance(found, Choice) and found is not job.pacing.choice:
        job.pacing.choice, job.pacing.chosen_at = found, step.now
        job.pacing.every_steps = found.every_steps


def chosen(spec: JobSpec, pacing: Pacing, exposure: Exposure) -> Choice | ChoiceProblem | None:
    """What would be chosen now; None where nothing was measured."""
    step_s, stall_s = pacing.step_s(), pacing.stall_s()
    if step_s is None or stall_s is None:
        return None
    rate = estimate(exposure.history())
    copied = spec.hosts > 1 and spec.checkpoint.replicate_every_steps > 0
    share = beyond_share(exposure) if copied else 1.0
    tier = Tier(
        name="storage",
        failures_per_s=failures_per_s(spec.hosts, pacing, rate, share),
        stall_s=stall_s,
        restart_s=pacing.restart_s() or RESTART_S,
        lag_s=pacing.lag_s(),
    )
    try:
        found = choose([tier], step_s, rate, spec.hosts, pacing.choice)
    except ChoiceProblem as problem:
        return problem
    if pacing.lags_s and share < 1 and found is not pacing.choice:
        which = f"{share:.1%} of the losses of hosts"
        found = found.but(sentence=f"{found.sentence}; only {which} count, those that snapshots do not survive")
    return found


def failures_per_s(hosts: int, pacing: Pacing, rate: Rate, share: float) -> float:
    """Of the failures after which the job goes back to storage: all, its hosts by the rate of the fleet and its ranks
    by its own history; with snapshots the `share` of losses of hosts that memory does not survive."""
    if pacing.lags_s:
        return rate.per_s(hosts) * share
    own = max(pacing.failures - 1, 0) / in_seconds(pacing.trained) if pacing.trained else 0.0
    return rate.per_s(hosts) + own


def beyond_share(exposure: Exposure) -> float:
    """Of losses of hosts, those that memory does not survive."""
    return (BEYOND_SHARE * BEYOND_WEIGHT + exposure.beyond_memory) / (BEYOND_WEIGHT + exposure.failures)


def _tell(step: Step, attempt: Attempt, every_steps: int) -> None:
    step.emit(
        AskWorkers(
            id=step.next_id(),
            hosts=attempt.members,
            attempt=attempt.id,
            epoch=attempt.epoch.number,
            request="interval",
            every_steps=every_steps,
        )
    )
