"""The report of the maintenance demo: what was brought to which host, what it cost the job, what was taken back."""

from pathlib import Path

from trainmaster.core.accounting.report import Incident
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import in_seconds
from trainmaster.core.base.value import Value
from trainmaster.demo.maint_log import Upkeep, Visited
from trainmaster.demo.maint_scene import NIC, SLIDING
from trainmaster.demo.maint_story import Told
from trainmaster.demo.report import LossRow, compare
from trainmaster.live.server.resources import JobDetail
from trainmaster.training.metrics import losses


class Gang(Value):
    """The upgrade of all hosts of the job together, as it was foretold and as it was."""

    hosts: tuple[HostId, ...]
    plan_s: float
    """From the checkpoint to the restart, by the medians of the catalogue."""
    plan_steps_lost: int
    stop_s: float
    """Measured: from the last step before to the first step after."""
    steps_lost: int
    out_s: float
    """Measured: from the first host that left to the last that was back."""


class MaintReport(Value):
    schema: str = "trainmaster.demo-maintenance/v1"
    losses_equal: bool
    steps: int
    final_loss: float
    steps_lost_planned: int
    steps_lost_unplanned: int
    planned_handovers: int
    unplanned_recoveries: int
    stops: int
    hosts_visited: int
    hosts_missed: int
    drains_by_host: dict[HostId, int]
    """In visits of the train."""
    reboots_by_host: dict[HostId, int]
    """In visits of the train."""
    updates_done: int
    """Brought by the train."""
    updates_failed: int
    five: Visited
    """The visit of five updates, the third of which failed; what was rolled back in it stands in `visits`."""
    offboarded: tuple[str, ...]
    """Versions that were rejected, with the reason."""
    rolled_back: tuple[HostId, ...]
    gang: Gang
    gang_stop_s: float
    goodput: float
    goodput_undisturbed: float
    wall_s: float
    wall_undisturbed_s: float
    seconds_by_phase: dict[str, float]
    told: Told
    visits: tuple[Visited, ...]
    incidents: tuple[Incident, ...]
    losses: tuple[LossRow, ...]
    where: dict[str, str]


def build(
    undisturbed: JobDetail, maintained: JobDetail, told: Told, upkeep: Upkeep, reason: str, where: dict[str, str]
) -> MaintReport:
    """`reason`: why the version on trial was rejected."""
    rows = compare(losses(Path(undisturbed.directory)), losses(Path(maintained.directory)))
    account = maintained.account
    of_train = [visit for visit in upkeep.visits if visit.train is not None]
    brought = [done for visit in of_train for done in visit.done if done.train is not None]
    proof = upkeep.proofs[0]
    gang = _gang(maintained, told, upkeep)
    five = next(visit for visit in of_train if visit.host == told.canary[-1])
    five = five.but(done=tuple(done for done in five.done if done.train is not None))
    return MaintReport(
        losses_equal=bool(rows) and all(row.equal for row in rows),
        steps=len(rows),
        final_loss=rows[-1].disturbed if rows and rows[-1].disturbed is not None else float("nan"),
        steps_lost_planned=account.steps_lost_planned,
        steps_lost_unplanned=account.steps_lost_unplanned,
        planned_handovers=account.planned_handovers,
        unplanned_recoveries=account.unplanned_recoveries,
        stops=upkeep.stops,
        hosts_visited=proof.visited,
        hosts_missed=len(proof.missed),
        drains_by_host=_by_host(of_train, "drains"),
        reboots_by_host=_by_host(of_train, "reboots"),
        updates_done=sum(done.state == "done" for done in brought),
        updates_failed=sum(done.state == "failed" for done in brought),
        five=five,
        offboarded=(reason,) if reason else (),
        rolled_back=tuple(visit.host for visit in upkeep.visits if _is_roll_back(visit)),
        gang=gang,
        gang_stop_s=gang.stop_s,
        goodput=account.goodput,
        goodput_undisturbed=undisturbed.account.goodput,
        wall_s=account.wall_s,
        wall_undisturbed_s=undisturbed.account.wall_s,
        seconds_by_phase=account.seconds_by_phase,
        told=told,
        visits=upkeep.visits,
        incidents=account.incidents,
        losses=rows,
        where=where,
    )


def _by_host(visits: list[Visited], field: str) -> dict[HostId, int]:
    found: dict[HostId, int] = {}
    for visit in sorted(visits, key=lambda visit: visit.host):
        found[visit.host] = found.get(visit.host, 0) + getattr(visit, field)
    return found


def _is_roll_back(visit: Visited) -> bool:
    return any(
        (done.component, done.version, done.state, done.train) == (NIC.name, "1", "done", None) for done in visit.done
    )


def _gang(maintained: JobDetail, told: Told, upkeep: Upkeep) -> Gang:
    visits = [visit for visit in upkeep.visits if any(done.job is not None for done in visit.done)]
    incident = next(one for one in maintained.account.incidents if one.cause.token is Token.GANG_UPGRADE)
    resumed_at = incident.resumed_at
    return Gang(
        hosts=tuple(sorted(visit.host for visit in visits)),
        plan_s=told.gang.expected_s,
        plan_steps_lost=told.gang.steps_lost,
        stop_s=in_seconds(resumed_at - incident.last_step_at) if resumed_at is not None else float("nan"),
        steps_lost=incident.steps_lost,
        out_s=in_seconds(max(one.closed_at for one in visits) - min(one.opened_at for one in visits)),
    )


def failures(report: MaintReport) -> list[str]:
    """What the demo promises and this run did not keep; empty if all is well."""
    five = report.five
    failed = [place for place, done in enumerate(five.done) if done.state == "failed"]
    promises = {
        "the losses of both runs are equal to the bit": report.losses_equal,
        "no step was lost": report.steps_lost_planned == report.steps_lost_unplanned == 0,
        "nothing failed but what was meant to": report.unplanned_recoveries == 0,
        "the train visited every host": report.hosts_visited == report.stops and report.hosts_missed == 0,
        "one drain a host": set(report.drains_by_host.values()) == {1},
        "one reboot a host": set(report.reboots_by_host.values()) == {1},
        "five updates in one visit, the third of which failed": (len(five.done), failed) == (5, [2]),
        "the others were carried out in order": _in_order(five),
        "no host was in production during a visit": not any(visit.in_production_between for visit in report.visits),
        "the failing version was taken off the train": len(report.offboarded) == 1,
        "the hosts that it was tried on were rolled back": set(report.rolled_back) == set(report.told.canary),
        "the job's hosts were upgraded together": len(report.gang.hosts) == report.told.gang.units,
    }
    return [promise for promise, kept in promises.items() if not kept]


def _in_order(five: Visited) -> bool:
    wanted = [part.name for part in SLIDING]
    return [done.component for done in five.done if done.state == "done"] == wanted


def text(report: MaintReport) -> str:
    """The report in a dozen lines."""
    equal = "equal to the bit" if report.losses_equal else "DIFFERENT"
    five = ", ".join(f"{done.component} {done.state}" for done in report.five.done)
    gang = report.gang
    rows = [
        "",
        f"  losses         {equal} over {report.steps} steps, every run of every step",
        f"  steps lost     {report.steps_lost_planned} in {report.planned_handovers} planned moves of the job",
        f"  train          {report.stops} stops, {report.hosts_visited} hosts visited, {report.hosts_missed} missed; "
        f"{report.updates_done} updates done, {report.updates_failed} failed",
        f"  a visit        {report.five.host}: {report.five.drains} drain, {report.five.reboots} reboot: {five}",
        *(f"  off-boarded    {sentence}" for sentence in report.offboarded),
        f"  rolled back    {' '.join(report.rolled_back)}",
        f"  gang upgrade   {len(gang.hosts)} hosts out for {gang.out_s:.1f} s (plan: {gang.plan_s:.0f} s); "
        f"from step to step {gang.stop_s:.1f} s, {gang.steps_lost} steps lost",
        f"  goodput        {report.goodput:.1%} maintained, {report.goodput_undisturbed:.1%} undisturbed "
        f"({report.wall_s:.1f} s and {report.wall_undisturbed_s:.1f} s)",
        *(f"  {name:<14} {place}" for name, place in report.where.items()),
        "",
    ]
    return "\n".join(rows)
