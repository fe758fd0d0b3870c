"""The accounts of all jobs as one: what the fleet lost, to what, and how often it was interrupted.

Jobs are added up in GPU-seconds, so that a job of two thousand hosts counts as much as it is. How often they are
interrupted is told in three ways, since each is asked for: the mean time between interruptions of a job that runs, the
rate for a thousand host-days (which compares fleets of any size), and what an interruption may cost on average if a
wanted share of the time is to be productive. Time in the queue is no time in which anything could be interrupted.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trainmaster.core.accounting.report import Incident, JobAccount, Loss
from trainmaster.core.base.ids import JobId
from trainmaster.core.base.value import Value

DAY_S: Final = 86_400.0


class JobLine(Value):
    """One job of the fleet."""

    id: JobId
    name: str
    state: str
    hosts: int
    account: JobAccount


class CauseLine(Value):
    """What one cause took, over all jobs."""

    cause: str
    """See `Loss`."""
    incidents: int
    share: float
    """Of the incidents."""
    gpu_s: float
    gpu_s_by_phase: dict[str, float]


class Interruptions(Value):
    """How often jobs were interrupted."""

    planned: int
    unplanned: int
    run_s: float
    """Time in which jobs ran, summed over them."""
    host_s: float
    """The same times their hosts."""

    @property
    def mean_time_between_s(self) -> float | None:
        """Between unplanned ones; None: there was none."""
        return self.run_s / self.unplanned if self.unplanned else None

    @property
    def per_thousand_host_days(self) -> float | None:
        """Unplanned ones; None: nothing ran."""
        return 1000 * self.unplanned * DAY_S / self.host_s if self.host_s else None

    def budget_s(self, goodput: float, planned: bool = True) -> float | None:
        """What one may cost on average, all kinds of loss together, if `goodput` of the run time is to be productive;
        None: there was none. `planned`: planned ones have to share in it."""
        assert 0.0 < goodput <= 1.0, goodput
        count = self.unplanned + (self.planned if planned else 0)
        return (1 - goodput) * self.run_s / count if count else None


class FleetAccount(Value):
    unit: str
    """GPU, rank (no host has GPUs), or `GPU or rank`: some jobs ran on hosts without."""
    gpu_s: float
    productive_gpu_s: float
    goodput: float
    """productive_gpu_s / gpu_s; 0 when nothing has run."""
    causes: tuple[CauseLine, ...]
    """The greatest first; with productive_gpu_s they add up to gpu_s."""
    interruptions: Interruptions
    mean_time_between_s: float | None
    per_thousand_host_days: float | None
    lost_each_s: float | None
    """What an incident cost on average, in seconds of its job; None: there was none."""
    jobs: tuple[JobLine, ...]
    """Those that lost most first."""


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """The share of each in all of them. Counts are what was seen; shares that somebody printed are not trusted."""
    total = sum(counts.values())
    return {name: count / total if total else 0.0 for name, count in counts.items()}


def fleet_account(lines: Iterable[JobLine]) -> FleetAccount:
    """The sum over jobs."""
    jobs = sorted(lines, key=lambda line: (-lost_gpu_s(line.account), line.id))
    accounts = [line.account for line in jobs]
    incidents = [incident for told in accounts for incident in told.incidents]
    run = [max(told.wall_s - told.seconds_by_phase.get("queue", 0.0), 0.0) for told in accounts]
    interruptions = Interruptions(
        planned=sum(1 for incident in incidents if incident.planned),
        unplanned=sum(1 for incident in incidents if not incident.planned),
        run_s=sum(run),
        host_s=sum(run_s * line.hosts for run_s, line in zip(run, jobs, strict=True)),
    )
    gpu_s = sum(told.wall_s * told.gpus for told in accounts)
    productive_gpu_s = sum(told.productive_s * told.gpus for told in accounts)
    units = sorted({told.unit for told in accounts})
    return FleetAccount(
        unit=" or ".join(units) or "GPU",
        gpu_s=gpu_s,
        productive_gpu_s=productive_gpu_s,
        goodput=productive_gpu_s / gpu_s if gpu_s else 0.0,
        causes=causes((loss for told in accounts for loss in told.losses), incidents),
        interruptions=interruptions,
        mean_time_between_s=interruptions.mean_time_between_s,
        per_thousand_host_days=interruptions.per_thousand_host_days,
        lost_each_s=sum(incident.lost_s for incident in incidents) / len(incidents) if incidents else None,
        jobs=tuple(jobs),
    )


def lost_gpu_s(told: JobAccount) -> float:
    """All that was not productive."""
    return (told.wall_s - told.productive_s) * told.gpus


def causes(losses: Iterable[Loss], incidents: Iterable[Incident]) -> tuple[CauseLine, ...]:
    """Losses by cause, the greatest first."""
    phases: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    for loss in losses:
        by_phase = phases.setdefault(loss.cause, {})
        by_phase[loss.phase] = by_phase.get(loss.phase, 0.0) + loss.gpu_s
    for incident in incidents:
        cause = incident.cause.token.value
        counts[cause] = counts.get(cause, 0) + 1
    part = shares(counts)
    found = [
        CauseLine(
            cause=cause,
            incidents=counts.get(cause, 0),
            share=part.get(cause, 0.0),
            gpu_s=sum(by_phase.values()),
            gpu_s_by_phase=dict(sorted(by_phase.items())),
        )
        for cause, by_phase in phases.items()
    ]
    return tuple(sorted(found, key=lambda line: (-line.gpu_s, line.cause)))
