"""The timeline of the maintenance demo as one SVG: the job, what is done to each host, and the loss of both runs."""

from trainmaster.core.base.time import Instant
from trainmaster.demo import drawing
from trainmaster.demo.drawing import CHART
from trainmaster.demo.lanes import Lanes
from trainmaster.demo.maint_report import MaintReport
from trainmaster.demo.maint_scene import NIC


def svg(report: MaintReport, lanes: Lanes) -> str:
    """The whole picture."""
    hosts, bottom = drawing.host_lanes(lanes)
    height = bottom + CHART + 112
    body = [_title(report), *drawing.axis(lanes, bottom), *drawing.job_lane(lanes), *hosts]
    body += [drawing.mark(lanes, at, text, bottom) for at, text in _moments(report)]
    body += drawing.loss_chart(report.losses, bottom + 44)
    body += drawing.legend({span.phase for span in lanes.job} | {stay.what for stay in lanes.hosts}, height - 40)
    return drawing.document(body, height)


def _moments(report: MaintReport) -> list[tuple[Instant, str]]:
    told = report.told
    failed = next(done for done in report.five.done if done.component == NIC.name)
    return [
        (told.train_from, "train begins"),
        (failed.started_at, f"{NIC.name} 2 lies on {report.five.host}"),
        (told.gang_at, "gang upgrade"),
    ]


def _title(report: MaintReport) -> str:
    equal = "losses equal to the bit" if report.losses_equal else "LOSSES DIFFER"
    moves = report.planned_handovers
    second = (
        f"{equal} over {report.steps} steps · {report.steps_lost_planned} steps lost in {moves} moves of the job"
        f" · {report.hosts_visited} hosts visited, {report.updates_done} updates, one drain and one reboot each"
        f" · gang stop {report.gang_stop_s:.1f} s"
    )
    return drawing.title("A maintenance train goes round all hosts; the job trains on", second)
