"""The timeline as one SVG: the job's phases, each host's situation, and the loss of both runs, over the same time."""

from trainmaster.demo import drawing
from trainmaster.demo.drawing import CHART
from trainmaster.demo.lanes import Lanes
from trainmaster.demo.report import Report


def svg(report: Report, lanes: Lanes) -> str:
    """The whole picture."""
    hosts, bottom = drawing.host_lanes(lanes)
    height = bottom + CHART + 112
    told = report.disturbances
    body = [_title(report), *drawing.axis(lanes, bottom), *drawing.job_lane(lanes), *hosts]
    body += [
        drawing.mark(lanes, told.killed_at, f"SIGKILL {told.killed}", bottom),
        drawing.mark(lanes, told.drained_at, f"drain {told.drained}", bottom),
    ]
    body += drawing.loss_chart(report.losses, bottom + 44)
    body += drawing.legend({span.phase for span in lanes.job} | {stay.what for stay in lanes.hosts}, height - 40)
    return drawing.document(body, height)


def _title(report: Report) -> str:
    equal = "losses equal to the bit" if report.losses_equal else "LOSSES DIFFER"
    second = (
        f"{equal} over {report.steps} steps"
        f" · goodput {report.goodput:.1%}, undisturbed {report.goodput_undisturbed:.1%}"
        f" · {report.steps_lost_unplanned} steps redone after the kill, {report.steps_lost_planned} after the drain"
    )
    return drawing.title("One host killed, one drained; the job goes on", second)
