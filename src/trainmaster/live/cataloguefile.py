"""Catalogue files: TOML that declares components, kinds of operation, and which versions go together.

    schema = "trainmaster.catalogue/v1"
    name = "fleet"

    [[component]]
    name = "gpu-driver"
    layer = "kernel"                         # for people
    scope = "host"                           # host, rack, row, pod, plane, cluster, selection
    units = ["compute"]                      # compute, storage, switch, controller
    disturbs = "reboot"                      # nothing, restart, drain, reboot, power
    median_s = 240                           # how long it takes: median, 90th percentile, limit
    p90_s = 400
    limit_s = 1800
    after = ["kernel"]                       # those come first where both are pending
    job_consistent = false                   # true: all hosts of a job must agree in its version
    observe = ["show", "{component}"]        # prints the version; success is what is observed
    observe_deadline_s = 30                  # default 60
    verify = ["gpu-burn"]                    # verification tasks beside the usual ones
    steps = [                                # commands: no shell; {unit} {component} {version} {previous} are replaced
      { name = "install", command = ["install", "{component}", "{version}"], deadline_s = 600 },
    ]
    after_reboot = [{ name = "loaded", command = ["loaded", "{version}"], deadline_s = 60 }]
    undo = [{ name = "install", command = ["install", "{component}", "{previous}"], deadline_s = 600 }]

    [[kind]]                                 # the keys of a component without after and job_consistent, and
    name = "reimage"
    repairs = true                           # it is for units that have failed
    changes = ["kernel", "gpu-driver"]       # versions that it may change

    [[rule]]                                 # a unit that has `when` needs `needs`
    when = { component = "fabric-manager", versions = "*" }
    needs = { component = "gpu-driver", versions = "*" }
    same = true                              # and both in the same version
    only_with = "nvswitch-firmware"          # on units that have this; default: on all
    why = "it refuses to start with another driver"

A file that cannot be declared is refused as a whole: what the reader cannot make out and what the lint of
`core/maintenance` calls an error come as one list. Inside of a table that could not be read the lint is silent, since
it would judge stand-ins.
"""

from pathlib import Path
from typing import Any, Final, Literal, get_args

from trainmaster.core.base.ids import ComponentName, KindName
from trainmaster.core.base.time import Duration, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import UNIT_KINDS
from trainmaster.core.maintenance.catalogue import (
    Catalogue,
    Component,
    Disturbs,
    Kind,
    Pin,
    Rule,
    ScopeKind,
    Spread,
    StepSpec,
)
from trainmaster.core.maintenance.lint import lint
from trainmaster.core.maintenance.problem import Problem
from trainmaster.live.tomlfile import Document, FileProblem, Table, dotted, line_of

SCHEMA: Final = "trainmaster.catalogue/v1"
_LONGEST_S: Final = 30 * 86_400.0


class Finding(Value):
    """A problem and where it stands in the file."""

    severity: Literal["error", "warning"]
    line: int | None
    place: str
    """Key or words: `component gpu-driver: after`."""
    reason: str
    fix: str


def load(file: Path) -> Catalogue:
    """Reads a catalogue without errors. Raises `trainmaster.live.tomlfile.FileError` with all of them."""
    document, catalogue = _read(file)
    for problem in _linted(document, catalogue):
        if problem.severity == "error":
            document.note(problem.path, problem.reason, problem.fix)
    document.finish()
    return catalogue


def examine(file: Path) -> tuple[Finding, ...]:
    """All problems of a catalogue file, warnings too, by line. Raises `FileError` if it is missing or no TOML."""
    document, catalogue = _read(file)
    found = [_finding(problem) for problem in document.problems]
    found += [
        Finding(
            severity=problem.severity,
            line=line_of(document.text, problem.path),
            place=problem.place,
            reason=problem.reason,
            fix=problem.fix,
        )
        for problem in _linted(document, catalogue)
    ]
    return tuple(sorted(found, key=lambda finding: (finding.line or 0, finding.severity, finding.place)))


def _finding(problem: FileProblem) -> Finding:
    return Finding(
        severity="error", line=problem.line, place=problem.key or "the file", reason=problem.reason, fix=problem.fix
    )


def _linted(document: Document, catalogue: Catalogue) -> list[Problem]:
    """What the lint says of tables that were read without a problem."""
    unread = {problem.key.split(".")[0] for problem in document.problems}
    return [problem for problem in lint(catalogue) if dotted(problem.path[:2]) not in unread]


def _read(file: Path) -> tuple[Document, Catalogue]:
    document = Document(file, "catalogue")
    root = document.root
    document.check_schema(SCHEMA)
    catalogue = Catalogue(
        name=root.text("name", ""),
        components=tuple(_component(table) for table in root.tables("component")),
        kinds=tuple(_kind(table) for table in root.tables("kind")),
        rules=tuple(_rule(table) for table in root.tables("rule")),
    )
    root.finish()
    return document, catalogue


def _component(table: Table) -> Component:
    component = Component(
        name=ComponentName(table.text("name", may_be_empty=False)),
        layer=table.text("layer", ""),
        after=tuple(ComponentName(name) for name in table.texts("after", ())),
        job_consistent=table.flag("job_consistent"),
        **_work(table),
    )
    table.finish()
    return component


def _kind(table: Table) -> Kind:
    kind = Kind(
        name=KindName(table.text("name", may_be_empty=False)),
        repairs=table.flag("repairs"),
        changes=tuple(ComponentName(name) for name in table.texts("changes", ())),
        **_work(table),
    )
    table.finish()
    return kind


def _work(table: Table) -> dict[str, Any]:
    """The fields of `Work`."""
    units = table.texts("units", ("compute",))
    for unit in units:
        if unit not in UNIT_KINDS:
            table.note("units", f"{unit!r} is no kind of unit", f"use {', '.join(UNIT_KINDS)}")
    return {
        "scope": table.choice("scope", "host", get_args(ScopeKind)),
        "units": units,
        "disturbs": table.choice("disturbs", "nothing", get_args(Disturbs)),
        "duration": Spread(
            median=_duration(table, "median_s"), p90=_duration(table, "p90_s"), limit=_duration(table, "limit_s")
        ),
        "steps": _steps(table, "steps"),
        "after_reboot": _steps(table, "after_reboot"),
        "undo": _steps(table, "undo"),
        "observe": table.texts("observe", ()),
        "observe_deadline": _duration(table, "observe_deadline_s", 60.0),
        "verify": table.texts("verify", ()),
    }


def _duration(table: Table, key: str, default: float | None = None) -> Duration:
    return seconds(table.number(key, default, 0.0, _LONGEST_S))


def _steps(table: Table, key: str) -> tuple[StepSpec, ...]:
    """A missing deadline is left to the lint, which says why a step needs one."""
    steps = []
    for step in table.tables(key):
        steps.append(
            StepSpec(name=step.text("name"), command=step.texts("command"), deadline=_duration(step, "deadline_s", 0.0))
        )
        step.finish()
    return tuple(steps)


def _rule(table: Table) -> Rule:
    rule = Rule(
        when=_pin(table.table("when")),
        needs=_pin(table.table("needs")),
        same=table.flag("same"),
        only_with=ComponentName(table.text("only_with", "")),
        why=table.text("why", ""),
    )
    table.finish()
    return rule


def _pin(table: Table) -> Pin:
    pin = Pin(component=ComponentName(table.text("component")), versions=table.text("versions", "*"))
    table.finish()
    return pin
