"""The report of the demo: what both runs learnt, what the disturbances cost, where every second went."""

from collections.abc import Mapping
from pathlib import Path

from trainmaster.core.accounting.report import Incident
from trainmaster.core.base.time import in_seconds
from trainmaster.core.base.value import Value
from trainmaster.demo.story import Disturbances
from trainmaster.live.server.resources import JobDetail
from trainmaster.training.metrics import Loss, losses


class LossRow(Value):
    step: int
    undisturbed: float | None
    disturbed: float | None
    equal: bool
    """To the bit."""
    runs: int
    """How often the disturbed run did this step."""


class Report(Value):
    schema: str = "trainmaster.demo/v1"
    losses_equal: bool
    steps: int
    final_loss: float
    unplanned_recoveries: int
    planned_handovers: int
    steps_lost_unplanned: int
    steps_lost_planned: int
    goodput: float
    goodput_undisturbed: float
    wall_s: float
    wall_undisturbed_s: float
    seconds_by_phase: dict[str, float]
    seconds_by_phase_undisturbed: dict[str, float]
    kill_to_detected_s: float
    kill_to_next_step_s: float
    drain_to_next_step_s: float
    disturbances: Disturbances
    incidents: tuple[Incident, ...]
    losses: tuple[LossRow, ...]
    where: dict[str, str]


def build(undisturbed: JobDetail, disturbed: JobDetail, told: Disturbances, where: dict[str, str]) -> Report:
    """Compares the two runs; reads the losses from the directories of the jobs."""
    rows = compare(losses(Path(undisturbed.directory)), losses(Path(disturbed.directory)))
    account = disturbed.account
    unplanned = next(incident for incident in account.incidents if not incident.planned)
    planned = next((incident for incident in account.incidents if incident.planned), None)
    return Report(
        losses_equal=bool(rows) and all(row.equal for row in rows),
        steps=len(rows),
        final_loss=rows[-1].disturbed if rows and rows[-1].disturbed is not None else float("nan"),
        unplanned_recoveries=account.unplanned_recoveries,
        planned_handovers=account.planned_handovers,
        steps_lost_unplanned=account.steps_lost_unplanned,
        steps_lost_planned=account.steps_lost_planned,
        goodput=account.goodput,
        goodput_undisturbed=undisturbed.account.goodput,
        wall_s=account.wall_s,
        wall_undisturbed_s=undisturbed.account.wall_s,
        seconds_by_phase=account.seconds_by_phase,
        seconds_by_phase_undisturbed=undisturbed.account.seconds_by_phase,
        kill_to_detected_s=in_seconds(unplanned.detected_at - told.killed_at),
        kill_to_next_step_s=_resumed_after(unplanned, told.killed_at),
        drain_to_next_step_s=_resumed_after(planned, told.drained_at) if planned is not None else float("nan"),
        disturbances=told,
        incidents=account.incidents,
        losses=rows,
        where=where,
    )


def _resumed_after(incident: Incident, start: int) -> float:
    return in_seconds(incident.resumed_at - start) if incident.resumed_at is not None else float("nan")


def compare(undisturbed: Mapping[int, Loss], disturbed: Mapping[int, Loss]) -> tuple[LossRow, ...]:
    """Step by step. Equal means the same bits, in every run of that step."""
    rows = []
    for step in sorted({*undisturbed, *disturbed}):
        one, other = undisturbed.get(step), disturbed.get(step)
        equal = one is not None and other is not None and one.hex == other.hex
        equal = equal and one is not None and not one.mismatches and other is not None and not other.mismatches
        rows.append(
            LossRow(
                step=step,
                undisturbed=one.loss if one is not None else None,
                disturbed=other.loss if other is not None else None,
                equal=equal,
                runs=other.runs if other is not None else 0,
            )
        )
    return tuple(rows)


def failures(report: Report) -> list[str]:
    """What the demo promises and this run did not keep; empty if all is well."""
    promises = {
        "the losses of both runs are equal to the bit": report.losses_equal,
        "one unplanned recovery": report.unplanned_recoveries == 1,
        "one planned hand-over": report.planned_handovers == 1,
        "the hand-over lost no step": report.steps_lost_planned == 0,
    }
    return [promise for promise, kept in promises.items() if not kept]


def text(report: Report) -> str:
    """The report in a dozen lines."""
    equal = "equal to the bit" if report.losses_equal else "DIFFERENT"
    last = report.losses[-1] if report.losses else None
    rows = [
        "",
        f"  losses         {equal} over {report.steps} steps, every run of every step",
        f"  last loss      {last.disturbed if last else '?'}, undisturbed {last.undisturbed if last else '?'}",
        f"  killed host    {report.disturbances.killed} (rank 0): noticed after {report.kill_to_detected_s:.3f} s, "
        f"next step after {report.kill_to_next_step_s:.2f} s, {report.steps_lost_unplanned} steps done again",
        f"  drained host   {report.disturbances.drained}: next step after {report.drain_to_next_step_s:.2f} s, "
        f"{report.steps_lost_planned} steps lost",
        f"  goodput        {report.goodput:.1%} disturbed, {report.goodput_undisturbed:.1%} undisturbed "
        f"({report.wall_s:.1f} s and {report.wall_undisturbed_s:.1f} s)",
        f"  lost seconds   {_lost(report)}",
        *(f"  {name:<14} {place}" for name, place in report.where.items()),
        "",
    ]
    return "\n".join(rows)


def _lost(report: Report) -> str:
    phases = {phase: length for phase, length in report.seconds_by_phase.items() if phase != "productive"}
    ranked = sorted(phases.items(), key=lambda item: -item[1])
    return ", ".join(f"{phase} {length:.2f}" for phase, length in ranked)
