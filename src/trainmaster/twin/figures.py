"""The figures of a run by which two runs are compared: one number each, larger or smaller, never a verdict.

Every figure is of the whole simulated time. Names say the unit; `NAME: PART` is a part of the figure NAME. A part that
one run has and another has not (a cause of stops, say) counts as zero there.
"""

from collections.abc import Mapping

from trainmaster.twin.report import RunReport, sums


def figures(report: RunReport) -> dict[str, float]:
    """All figures of a run, those of interest first."""
    outcomes = report.operations_by_outcome
    stops = sums(report.interruptions_by_job)
    lost = {cause: seconds / 3600 for cause, seconds in report.lost_gpu_s_by_cause.items()}
    waits = {token: wait.hours for token, wait in report.waits_by_reason.items()}
    found: dict[str, float] = {"operations done": report.operations_done}
    found |= {f"operations {name}": count for name, count in outcomes.items() if name != "done"}
    found |= {"operations under way at the end": report.unfinished, "visits": report.visits}
    found |= {"hosts visited": report.hosts_visited, "hosts without a visit": report.hosts_missed}
    found |= _parts("stops of jobs", stops)
    found |= _parts("lost GPU hours", lost)
    found |= {"trained GPU hours": report.trained_gpu_s / 3600}
    found |= {"jobs finished": report.jobs.get("finished", 0), "jobs failed": report.jobs.get("failed", 0)}
    found |= _capacity(report)
    found |= _parts("hours of waiting", waits)
    found |= report.failures
    found |= {"invariants broken": report.invariants_broken}
    return {name: float(value) for name, value in found.items()}


def _parts(name: str, rows: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(rows.values())} | {f"{name}: {part}": value for part, value in sorted(rows.items())}


def _capacity(report: RunReport) -> dict[str, float]:
    samples = report.samples
    count = max(len(samples), 1)
    found = {
        "training hosts, mean": sum(sample.training_hosts for sample in samples) / count,
        "queued jobs, mean": sum(sample.queued_jobs for sample in samples) / count,
    }
    for name in samples[0].books if samples else ():
        served = [sum(sample.books[name][:2]) for sample in samples]
        found[f"units in service, mean: {name}"] = sum(served) / count
        found[f"units in service, least: {name}"] = min(served)
    return found
