"""The report as one HTML page that needs nothing else: the picture, the incidents, the seconds, the places."""

from collections.abc import Iterable, Sequence
from html import escape

from trainmaster.demo.report import Report

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #263238; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .25rem .8rem; border-bottom: 1px solid #eceff1; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #00695c; font-weight: 700 } .bad { color: #b00020; font-weight: 700 }
svg { max-width: 100%; height: auto } code { background: #f5f7f8; padding: 0 .25rem }
"""


def html(report: Report, picture: str, broken: Sequence[str]) -> str:
    """The page. `broken`: promises that this run did not keep."""
    parts = [
        "<h1>Trainmaster: a training job that survives a dead host and a planned drain</h1>",
        verdict(broken),
        picture,
        "<h2>Interruptions</h2>",
        table(("", "cause", "left", "joined", "steps lost", "seconds by phase"), _incidents(report)),
        "<h2>Where the seconds went</h2>",
        table(("phase", "disturbed", "undisturbed"), _seconds(report)),
        "<h2>Where things lie</h2>",
        table(("what", "where"), ((name, f"<code>{escape(place)}</code>") for name, place in report.where.items())),
    ]
    return document(parts)


def document(parts: Sequence[str], title: str = "Trainmaster demo") -> str:
    """The parts are HTML already."""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def verdict(broken: Sequence[str]) -> str:
    """Whether all promises were kept."""
    return f'<p class="bad">Not kept: {escape("; ".join(broken))}</p>' if broken else '<p class="good">All kept.</p>'


def _incidents(report: Report) -> Iterable[tuple[str, ...]]:
    for incident in report.incidents:
        phases = ", ".join(f"{phase} {length:.3f}" for phase, length in incident.seconds_by_phase.items())
        yield (
            "planned" if incident.planned else "unplanned",
            escape(incident.cause.sentence),
            escape(" ".join(incident.left)),
            escape(" ".join(incident.joined)),
            str(incident.steps_lost),
            phases,
        )


def _seconds(report: Report) -> Iterable[tuple[str, ...]]:
    phases = sorted({*report.seconds_by_phase, *report.seconds_by_phase_undisturbed})
    for phase in phases:
        one = report.seconds_by_phase.get(phase, 0.0)
        other = report.seconds_by_phase_undisturbed.get(phase, 0.0)
        yield (phase.replace("_", " "), f"{one:.3f}", f"{other:.3f}")
    yield ("<b>wall</b>", f"<b>{report.wall_s:.3f}</b>", f"<b>{report.wall_undisturbed_s:.3f}</b>")


def table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
