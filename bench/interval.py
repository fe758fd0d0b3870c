"""By how much the interval that a job learns stays behind the best that a search finds, in points of efficiency.

At the published rates of Llama 3 (16,384 GPUs) and of both clusters of the reliability paper, with saves that hold the
job up for 10, 30 and 60 s and restarts of 5 minutes: 40 jobs that know nothing learn from 20 failures each, and what
each has chosen lives through 16,000 failures of the twin, as do 49 intervals around the optimum. `value` is the mean of
the worst of the nine; the note has the 95th percentile and the largest of all jobs. The peer is a checkpoint each hour,
the interval that the reliability paper takes, through the same failures at the rate at which it does best: there is no
other policy to compare with, since no open framework chooses the interval. `ratio` is ours over the limit.

The figure is arithmetic of simulated time, so it is the same on every machine.
"""

from collections.abc import Iterator

from bench.figure import Figure
from trainmaster.twin.saving import PUBLISHED, gap, mean_efficiency

LEARNERS, FAILURES, JUDGED_OVER = 40, 20, 16_000
STALLS_S = (10.0, 30.0, 60.0)
LIMIT_POINTS = 0.3
HOUR_S = 3_600.0


def figures() -> Iterator[Figure]:
    trials = [trial.but(stall_s=stall_s) for trial in PUBLISHED for stall_s in STALLS_S]
    gaps = [gap(trial, LEARNERS, FAILURES, JUDGED_OVER) for trial in trials]
    worst = max(gaps, key=lambda each: each.mean_points)
    late = max(gaps, key=lambda each: each.at_least(0.95))
    hourly = [
        100
        * (
            each.best.efficiency
            - mean_efficiency(each.trial, round(HOUR_S / each.trial.step_s), range(1, 9), JUDGED_OVER // 8)
        )
        for each in gaps
    ]
    yield Figure(
        bench="interval",
        figure="interval.efficiency_gap_percent",
        value=round(worst.mean_points, 3),
        unit="points",
        better="lower",
        peer=round(min(hourly), 3),
        ratio=round(worst.mean_points / LIMIT_POINTS, 2),
        goal=f"under {LIMIT_POINTS:g} points after {FAILURES} failures",
        holds=worst.mean_points < LIMIT_POINTS,
        note=(
            f"simulated; worst of {len(gaps)}: {worst.trial.name} with saves of {worst.trial.stall_s:g} s, best"
            f" {worst.best.efficiency:.2%}; 95 of 100 jobs within {late.at_least(0.95):.2f}, all within"
            f" {max(each.at_least(1) for each in gaps):.2f}; while learning at most"
            f" {max(each.learning_points for each in gaps):.2f}; the peer saves once an hour"
        ),
    )
