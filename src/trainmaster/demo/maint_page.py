"""The report of the maintenance demo as one HTML page that needs nothing else."""

from collections.abc import Iterable, Sequence
from html import escape

from trainmaster.core.base.time import in_seconds
from trainmaster.demo import page
from trainmaster.demo.maint_log import Visited
from trainmaster.demo.maint_report import MaintReport


def html(report: MaintReport, picture: str, broken: Sequence[str]) -> str:
    """The page. `broken`: promises that this run did not keep."""
    gang, back = report.gang, escape(" ".join(report.rolled_back))
    places = ((name, f"<code>{escape(place)}</code>") for name, place in report.where.items())
    parts = [
        "<h1>Trainmaster: a training job under maintenance</h1>",
        page.verdict(broken),
        picture,
        "<h2>Visits</h2>",
        page.table(("host", "from", "for", "drains", "reboots", "what was done, in order"), _visits(report)),
        "<h2>Taken off the train</h2>",
        *(f"<p>{escape(sentence)}. Rolled back: {back}.</p>" for sentence in report.offboarded),
        "<h2>All hosts of the job together</h2>",
        page.table(
            ("", "plan", "measured"),
            (
                ("hosts", str(report.told.gang.units), str(len(gang.hosts))),
                ("seconds out of production", f"{gang.plan_s:.1f}", f"{gang.out_s:.1f}"),
                ("seconds from step to step", "", f"{gang.stop_s:.1f}"),
                ("steps lost", str(gang.plan_steps_lost), str(gang.steps_lost)),
            ),
        ),
        "<h2>Where the seconds went</h2>",
        page.table(("phase", "maintained"), _seconds(report)),
        "<h2>Where things lie</h2>",
        page.table(("what", "where"), places),
    ]
    return page.document(parts)


def _visits(report: MaintReport) -> Iterable[tuple[str, ...]]:
    start = report.told.train_from
    for visit in report.visits:
        yield (
            escape(visit.host),
            f"{in_seconds(visit.opened_at - start):.1f} s",
            f"{in_seconds(visit.closed_at - visit.opened_at):.1f} s",
            str(visit.drains),
            str(visit.reboots),
            _done(visit),
        )


def _done(visit: Visited) -> str:
    rows = []
    for done in visit.done:
        good = "good" if done.state == "done" else "bad"
        title = escape(done.sentence or done.state, quote=True)
        rows.append(f'<span class="{good}" title="{title}">{escape(done.component)} {escape(done.version)}</span>')
    return ", ".join(rows)


def _seconds(report: MaintReport) -> Iterable[tuple[str, ...]]:
    for phase, length in sorted(report.seconds_by_phase.items()):
        yield phase.replace("_", " "), f"{length:.3f}"
    yield "<b>wall</b>", f"<b>{report.wall_s:.3f}</b>"
