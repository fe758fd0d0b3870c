"""Catalogue files: what they mean, and that a bad one names everything that is wrong with it."""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.ids import ComponentName, KindName
from trainmaster.core.base.time import MINUTE, SECOND, Duration, seconds
from trainmaster.core.fleet.inventory import UnitKind
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
from trainmaster.live.cataloguefile import examine, load
from trainmaster.live.tomlfile import FileError

FULL = """
schema = "trainmaster.catalogue/v1"
name = "fleet"

[[component]]
name = "kernel"
median_s = 60
p90_s = 90.5
limit_s = 600
observe = ["uname", "-r"]

[[component]]
name = "cuda"
layer = "container"
scope = "host"
units = ["compute", "storage"]
disturbs = "reboot"
median_s = 60
p90_s = 120
limit_s = 600
after = ["kernel"]
job_consistent = true
observe = ["show", "{component}"]
observe_deadline_s = 30
verify = ["disk"]
steps = [
  { name = "get", command = ["get", "{version}"], deadline_s = 100 },
  { name = "install", command = ["install"], deadline_s = 200 },
]

[[component.after_reboot]]
name = "loaded"
command = ["loaded"]
deadline_s = 60

[[component.undo]]
name = "back"
command = ["install", "{previous}"]
deadline_s = 200

[[kind]]
name = "reimage"
scope = "rack"
repairs = true
changes = ["kernel", "cuda"]
disturbs = "drain"
median_s = 1
p90_s = 1
limit_s = 1

[[rule]]
when = { component = "cuda", versions = ">=12.4" }
needs = { component = "kernel" }
same = true
only_with = "kernel"
why = "a reason"
"""
SMALL = '[[component]]\nname = "a"\nmedian_s = 1\np90_s = 2\nlimit_s = 9\nobserve = ["v"]\n'


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "catalogue.toml"
    file.write_text(text)
    return file


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        load(write(tmp_path, text))
    return [str(problem) for problem in caught.value.problems]


def test_reads_every_key(tmp_path: Path) -> None:
    """1. A file with all keys is read. 2. What is left out has the defaults of the values. (Its one error is
    undone: what disturbs nothing is not upgraded in one visit with what does.)"""
    text = FULL.replace("same = true", "same = false")
    step = StepSpec(name="get", command=("get", "{version}"), deadline=Duration(100 * SECOND))
    kernel = Component(
        name=ComponentName("kernel"),
        duration=Spread(median=MINUTE, p90=seconds(90.5), limit=Duration(10 * MINUTE)),
        observe=("uname", "-r"),
    )
    cuda = Component(
        name=ComponentName("cuda"),
        layer="container",
        units=("compute", "storage"),
        disturbs="reboot",
        duration=Spread(median=MINUTE, p90=Duration(2 * MINUTE), limit=Duration(10 * MINUTE)),
        after=(ComponentName("kernel"),),
        job_consistent=True,
        observe=("show", "{component}"),
        observe_deadline=Duration(30 * SECOND),
        verify=("disk",),
        steps=(step, StepSpec(name="install", command=("install",), deadline=Duration(200 * SECOND))),
        after_reboot=(StepSpec(name="loaded", command=("loaded",), deadline=MINUTE),),
        undo=(StepSpec(name="back", command=("install", "{previous}"), deadline=Duration(200 * SECOND)),),
    )
    reimage = Kind(
        name=KindName("reimage"),
        scope="rack",
        repairs=True,
        changes=(ComponentName("kernel"), ComponentName("cuda")),
        disturbs="drain",
        duration=Spread(median=SECOND, p90=SECOND, limit=SECOND),
    )
    rule = Rule(
        when=Pin(component=ComponentName("cuda"), versions=">=12.4"),
        needs=Pin(component=ComponentName("kernel"), versions="*"),
        only_with=ComponentName("kernel"),
        why="a reason",
    )
    expected = Catalogue(name="fleet", components=(kernel, cuda), kinds=(reimage,), rules=(rule,))
    assert load(write(tmp_path, text)) == expected


def test_errors_of_the_lint_refuse_the_file(tmp_path: Path) -> None:
    """1. The file is well written, and cannot be: it is refused, with the line of the rule."""
    [problem] = problems(tmp_path, FULL)
    assert problem.startswith("line 51: rule[1]: not upgraded in one visit: kernel disturbs nothing")


def test_all_problems_at_once(tmp_path: Path) -> None:
    """1. Each table has something wrong with it. 2. All is told, by line; the lint is silent on what was not read."""
    text = (
        'schema = "trainmaster.catalogue/v2"\n[[component]]\nname = "a"\nmedian = 1\np90_s = "2"\nlimit_s = -1\n'
        'scope = "hots"\nunits = ["gpu"]\n'
        + SMALL.replace('"a"', '"b"').replace("p90_s = 2", "p90_s = 0.5")
        + 'steps = [{ name = "x", command = "y" }]\n[[component.undo]]\ndeadline_s = 1\n'
        + SMALL.replace('"a"', '"c"').replace("p90_s = 2", "p90_s = 0.5")
        + '[[rule]]\nwhen = { component = "c", version = "1" }\n'
    )
    assert problems(tmp_path, text) == [
        "line 1: schema: this is 'trainmaster.catalogue/v2'; a catalogue has schema = \"trainmaster.catalogue/v1\"",
        "line 2: component[1].median_s: this key is missing; add median_s, a number",
        "line 4: component[1].median: this key is not known; did you mean median_s?",
        "line 5: component[1].p90_s: this is a string; write a number",
        "line 6: component[1].limit_s: -1 is out of range; use 0.0 to 2592000.0",
        "line 7: component[1].scope: 'hots' is not known; did you mean \"host\"?",
        "line 8: component[1].units: 'gpu' is no kind of unit; use compute, storage, switch, controller",
        'line 15: component[2].steps[1].command: this is a string; write a list of strings, such as ["a", "b"]',
        "line 16: component[2].undo[1].command: this key is missing; "
        'add command, a list of strings, such as ["a", "b"]',
        "line 16: component[2].undo[1].name: this key is missing; add name, a string in quotes",
        "line 21: component[3].p90_s: p90 0.5 s is below the median 1 s; "
        "nine of ten must end within p90, five within the median",
        "line 24: rule[1].needs.component: this key is missing; add component, a string in quotes",
        "line 25: rule[1].when.version: this key is not known; did you mean versions?",
    ]


def test_a_step_without_deadline_is_an_error(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, SMALL + 'steps = [{ name = "x", command = ["y"] }]\n')
    assert problem.startswith("line 7: component[1].steps[1].deadline_s: the step has no deadline")


def test_warnings_are_found_and_do_not_refuse(tmp_path: Path) -> None:
    """1. A reboot without a check is a warning: the file loads. 2. The examination tells it, with line and words."""
    file = write(tmp_path, SMALL + 'disturbs = "reboot"\n')
    assert load(file).components[0].disturbs == "reboot"
    [finding] = examine(file)
    assert (finding.severity, finding.line, finding.place) == ("warning", 1, "component a")


def test_examination_tells_errors_of_both_kinds(tmp_path: Path) -> None:
    found = examine(write(tmp_path, SMALL + "color = 1\n" + SMALL.replace('"a"', '"b"').replace("= 9", "= 1")))
    assert [(item.severity, item.line, item.place) for item in found] == [
        ("error", 7, "component[1].color"),
        ("error", 12, "component b"),
    ]


SCENARIOS = Path(__file__).parents[3] / "scenarios"


@pytest.mark.parametrize("name", ["catalogue.toml", "local-catalogue.toml"])
def test_shipped_catalogues_have_no_problem(name: str) -> None:
    assert examine(SCENARIOS / name) == ()


def test_the_large_catalogue_is_as_wide_as_promised() -> None:
    """1. Over 50 components and over 30 kinds. 2. All scopes, disturbances and kinds of unit occur. 3. It stands in the
    order in which it is carried out."""
    catalogue = load(SCENARIOS / "catalogue.toml")
    assert len(catalogue.components) > 50
    assert len(catalogue.kinds) > 30
    works = [*catalogue.components, *catalogue.kinds]
    assert {work.scope for work in works} == set(get_args(ScopeKind))
    assert {work.disturbs for work in works} == set(get_args(Disturbs))
    assert {unit for work in works for unit in work.units} == set(get_args(UnitKind))
    assert catalogue.sequence() == tuple(component.name for component in catalogue.components)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='[]{}"=,.#\n abcdeknopmrstu_1', max_size=80))
def test_any_text_ends_in_a_catalogue_or_in_problems(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any-catalogue.toml"
    file.write_text(SMALL + text)
    try:
        load(file)
    except FileError as error:
        found = error.problems
    else:
        found = ()
    assert all(problem.reason and problem.fix for problem in found)
