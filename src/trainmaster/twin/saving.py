"""A job under failures and saves, and the interval that turns out best when many are tried.

One job on hosts that fail without memory, at a rate that it doesn't know. It works, stands still for each save, loses
what it did since the last one at a failure, and restarts; a failure during a restart begins it anew. The failures come
at the same instants whatever the job does, so two ways of saving are compared under the same luck.

    lived        the job saves every so many steps, always
    learnt       the job saves as the engine has it do: the very `Pacing`, `Exposure` and `chosen` of a running job,
                 asked after every save and restart; it begins with a trial save and no history
    searched     every interval of a ladder is lived through, and the best one is found by what came out

What is simulated is the arithmetic of time, not hosts and gangs (`world` does that, under the whole engine), so a
thousand failures take milliseconds and a search is affordable. The closed form is not used for what comes out.
"""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Final

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import DAY, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.choice import TRIAL_STEPS, Choice
from trainmaster.core.checkpoint.interval import exact_s, series_mttf_s
from trainmaster.core.checkpoint.measured import Exposure, Pacing, added
from trainmaster.core.recovery.pacing import chosen
from trainmaster.core.scheduling.request import CheckpointPolicy, JobSpec

LADDER: Final = 1.04
"""Ratio of neighbours among the intervals that are tried."""
REACH: Final = 24
"""Of them, on each side of the closed form."""


class Trial(Value):
    """A job and its surroundings."""

    name: str
    hosts: int
    per_thousand_host_days: float
    stall_s: float
    restart_s: float = 300.0
    step_s: float = 5.0

    @property
    def mttf_s(self) -> float:
        return series_mttf_s(self.hosts, self.per_thousand_host_days)


PUBLISHED: Final = (
    Trial(name="llama3-16k", hosts=2_048, per_thousand_host_days=3.789, stall_s=30.0),
    Trial(name="rsc1-16k", hosts=2_048, per_thousand_host_days=6.50, stall_s=30.0),
    Trial(name="rsc2-8k", hosts=1_024, per_thousand_host_days=2.34, stall_s=30.0),
)
"""Llama 3 on 16,384 GPUs, and both clusters of the reliability paper at their sizes."""


class Outcome(Value):
    """What came of a life."""

    worked_s: float
    wall_s: float
    failures: int

    @property
    def efficiency(self) -> float:
        return self.worked_s / self.wall_s


class Learnt(Value):
    """What a job had learnt after so many failures."""

    choice: Choice
    while_learning: Outcome


def _failures(trial: Trial, seed: int, purpose: str) -> Callable[[], float]:
    """The instants of the failures, one after the other."""
    stream, at = Stream.of(seed, purpose, trial.name), 0.0

    def following() -> float:
        nonlocal at
        at += stream.exponential(trial.mttf_s)
        return at

    return following


def lived(trial: Trial, every_steps: int, seed: int, failures: int) -> Outcome:
    """A life with one interval, up to the end of the restart after so many failures."""
    assert every_steps >= 1, every_steps
    assert failures >= 1, failures
    work_s = every_steps * trial.step_s
    period_s = work_s + trial.stall_s
    following = _failures(trial, seed, "lived")
    clock, worked, strikes = 0.0, 0.0, following()
    for _ in range(failures):
        if strikes > clock:
            worked += (strikes - clock) // period_s * work_s
        clock, strikes, _ = _restarted(trial, strikes, following)
    return Outcome(worked_s=worked, wall_s=clock, failures=failures)


def _restarted(trial: Trial, failed_at: float, following: Callable[[], float]) -> tuple[float, float, int]:
    """When the job steps again, when it fails next, and how many failures the restart had."""
    up, count = failed_at + trial.restart_s, 0
    while (strikes := following()) < up:
        up, count = strikes + trial.restart_s, count + 1
    return up, strikes, count


def learnt(trial: Trial, seed: int, failures: int) -> Learnt:
    """A life that begins without any knowledge and goes by what the engine would tell it."""
    spec = JobSpec(name=trial.name, command=("train",), hosts=trial.hosts, checkpoint=CheckpointPolicy(auto=True))
    pacing, exposure = Pacing(every_steps=TRIAL_STEPS), Exposure()
    following = _failures(trial, seed, "learnt")
    clock, worked, strikes = 0.0, 0.0, following()
    while exposure.failures < failures:
        work_s = pacing.every_steps * trial.step_s
        saved_at = clock + work_s + trial.stall_s
        if saved_at <= strikes:
            exposure.host_time += round(seconds(saved_at - clock) * trial.hosts)
            pacing.stalls_s = added(pacing.stalls_s, trial.stall_s)
            pacing.steps_s = added(pacing.steps_s, trial.step_s)
            clock, worked = saved_at, worked + work_s
        else:
            exposure.host_time += round(seconds(strikes - clock) * trial.hosts)
            exposure.failures += 1
            up, later, _ = _restarted(trial, strikes, following)
            pacing.restarts_s = added(pacing.restarts_s, up - strikes)
            clock, strikes = up, later
        _ask(spec, pacing, exposure)
    assert pacing.choice is not None
    return Learnt(choice=pacing.choice, while_learning=Outcome(worked_s=worked, wall_s=clock, failures=failures))


def _ask(spec: JobSpec, pacing: Pacing, exposure: Exposure) -> None:
    found = chosen(spec, pacing, exposure)
    if isinstance(found, Choice):
        pacing.choice, pacing.every_steps = found, found.every_steps


class Searched(Value):
    """The best of all intervals that were tried, each through the same failures."""

    every_steps: int
    efficiency: float
    tried: int


def ladder(trial: Trial) -> tuple[int, ...]:
    """Numbers of steps around the closed form, in even ratios."""
    middle = exact_s(trial.stall_s, trial.mttf_s) / trial.step_s
    return tuple(sorted({max(round(middle * LADDER**power), 1) for power in range(-REACH, REACH + 1)}))


def mean_efficiency(trial: Trial, every_steps: int, seeds: Sequence[int], failures: int) -> float:
    """Over several lives."""
    return mean(lived(trial, every_steps, seed, failures).efficiency for seed in seeds)


def searched(trial: Trial, seeds: Sequence[int], failures: int) -> Searched:
    """Lives through the whole ladder and takes the best."""
    rows = [(mean_efficiency(trial, steps, seeds, failures), -steps) for steps in ladder(trial)]
    top, steps = max(rows)
    return Searched(every_steps=-steps, efficiency=top, tried=len(rows))


class Gap(Value):
    """By how much what was learnt stays behind the best that a search found, in points of efficiency."""

    trial: Trial
    best: Searched
    points: tuple[float, ...]
    """For each seed of learning, largest last."""
    learning_points: float
    """The same for the time of learning, trial save and wrong rates included, on average."""

    @property
    def mean_points(self) -> float:
        return mean(self.points)

    def at_least(self, share: float) -> float:
        """What this share of the seeds does not exceed."""
        assert 0 < share <= 1, share
        return self.points[max(round(share * len(self.points)) - 1, 0)]


def gap(trial: Trial, learners: int, failures: int, judged_over: int) -> Gap:
    """`learners` jobs learn from `failures` each; what each has chosen then lives through `judged_over` failures that
    all share, as do the intervals of the search."""
    judges = range(1, 9)
    best = searched(trial, judges, judged_over // len(judges))
    known: dict[int, float] = {}
    points: list[float] = []
    learning: list[float] = []
    for seed in range(1, learners + 1):
        found = learnt(trial, seed, failures)
        steps = found.choice.every_steps
        if steps not in known:
            known[steps] = mean_efficiency(trial, steps, judges, judged_over // len(judges))
        points.append(100 * (best.efficiency - known[steps]))
        learning.append(found.while_learning.efficiency)
    return Gap(
        trial=trial, best=best, points=tuple(sorted(points)), learning_points=100 * (best.efficiency - mean(learning))
    )


def known_rate(trial: Trial) -> Exposure:
    """A history that leaves no doubt about the rate."""
    failures = 1_000_000
    host_days = failures * 1_000 / trial.per_thousand_host_days
    return Exposure(failures=failures, host_time=round(host_days * DAY))
