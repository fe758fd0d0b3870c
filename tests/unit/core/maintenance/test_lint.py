"""The lint: a sound catalogue has no problem, and each way to spoil it is told with place, reason and fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import ComponentName, KindName
from trainmaster.core.base.time import MINUTE, Duration
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Kind, Pin, Rule, Spread, StepSpec
from trainmaster.core.maintenance.lint import lint

SPREAD = Spread(median=MINUTE, p90=Duration(2 * MINUTE), limit=Duration(10 * MINUTE))
STEP = StepSpec(name="install", command=("install", "{component}", "{version}"), deadline=MINUTE)
CHECK = StepSpec(name="loaded", command=("loaded", "{version}"), deadline=MINUTE)


def component(name: str, *after: str, **fields: object) -> Component:
    made = Component(
        name=ComponentName(name),
        duration=SPREAD,
        after=tuple(ComponentName(other) for other in after),
        disturbs="drain",
        steps=(STEP,),
        observe=("show", "{component}"),
    )
    return made.but(**fields)


def rule(when: str, needs: str, **fields: object) -> Rule:
    pins = [Pin(component=ComponentName(text.split()[0]), versions=text.split()[1]) for text in (when, needs)]
    return Rule(when=pins[0], needs=pins[1]).but(**fields)


KERNEL = component("kernel", disturbs="reboot", after_reboot=(CHECK,))
DRIVER = component("driver", "kernel", disturbs="reboot", after_reboot=(CHECK,))
MANAGER = component("manager", "driver")
CUDA = component("cuda", "driver", job_consistent=True, disturbs="restart")
AGENT = component("agent", disturbs="nothing")
SWITCH_OS = component("switch-os", units=("switch",))
REBOOT = Kind(name=KindName("reboot"), duration=SPREAD, disturbs="reboot", after_reboot=(CHECK,))
SAME = rule("manager *", "driver *", same=True)
SOUND = Catalogue(
    components=(KERNEL, DRIVER, MANAGER, CUDA, AGENT, SWITCH_OS),
    kinds=(REBOOT,),
    rules=(SAME, rule("cuda >=12.4", "driver >=550.54")),
)


def told(catalogue: Catalogue) -> list[str]:
    return [f"{problem.severity}: {problem.place}: {problem.reason}" for problem in lint(catalogue)]


def with_component(changed: Component) -> Catalogue:
    """The sound one with one component replaced or added."""
    others = [changed if item.name == changed.name else item for item in SOUND.components]
    return SOUND.but(components=tuple(others if changed in others else [*others, changed]))


def with_rules(*rules: Rule) -> Catalogue:
    return SOUND.but(rules=rules)


def test_a_sound_catalogue_has_no_problem() -> None:
    assert told(SOUND) == []


def spread(median: int, p90: int, limit: int) -> Spread:
    return Spread(median=Duration(median * MINUTE), p90=Duration(p90 * MINUTE), limit=Duration(limit * MINUTE))


@pytest.mark.parametrize(
    ("catalogue", "expected"),
    [
        (Catalogue(), "error: the catalogue: it has neither components nor kinds"),
        (with_component(component("Bad_Name")), "error: component 7: 'Bad_Name' is not a name"),
        (SOUND.but(components=(*SOUND.components, AGENT)), "error: component agent: it is declared 2 times"),
        (SOUND.but(kinds=(REBOOT, REBOOT)), "error: kind reboot: it is declared 2 times"),
        (
            SOUND.but(kinds=(REBOOT.but(name="upgrade"),)),
            "error: kind upgrade: it is built in: an upgrade takes its work from its component",
        ),
        (with_component(component("agent", "kernal")), "error: component agent: after: there is no component 'kernal'"),
        (
            with_component(component("agent", "kernel", "kernel")),
            "warning: component agent: after: kernel is named 2 times",
        ),
        (
            with_component(component("agent", "switch-os")),
            "warning: component agent: after: no unit has both: switch-os is for switch",
        ),
        (
            SOUND.but(kinds=(REBOOT.but(changes=("bios",)),)),
            "error: kind reboot: changes: there is no component 'bios'",
        ),
        (
            with_component(component("agent", observe=())),
            "error: component agent: its version cannot be observed: success would be the word of the installer",
        ),
        (
            with_component(component("agent", observe_deadline=0)),
            "error: component agent: observe: the deadline is not above 0",
        ),
        (
            with_component(component("agent", disturbs="reboot")),
            "warning: component agent: nothing is checked after its reboot",
        ),
        (
            with_component(component("agent", after_reboot=(CHECK,))),
            "error: component agent: it has steps after a reboot, and disturbs 'drain': they may never run",
        ),
        (
            with_component(component("agent", duration=spread(0, 2, 9))),
            "error: component agent: its median duration is not above 0",
        ),
        (
            with_component(component("agent", duration=spread(3, 2, 9))),
            "error: component agent: p90 120 s is below the median 180 s",
        ),
        (
            with_component(component("agent", duration=spread(1, 9, 8))),
            "error: component agent: the limit 480 s is below p90 540 s: one in ten would fail",
        ),
        (
            with_component(component("agent", steps=(STEP.but(deadline=9 * MINUTE), CHECK))),
            "warning: component agent: the deadlines of its steps add up to 660 s, above its limit 600 s",
        ),
        (
            with_component(component("agent", steps=(STEP.but(deadline=0),))),
            "error: component agent: steps install: the step has no deadline: "
            "a command that hangs would hold the unit for ever",
        ),
        (
            with_component(component("agent", undo=(STEP.but(command=()),))),
            "error: component agent: undo install: the command is empty",
        ),
        (
            with_component(component("agent", steps=(STEP.but(name=""),))),
            "error: component agent: steps 1: the step has no name",
        ),
        (
            with_component(component("agent", steps=(STEP, STEP))),
            "error: component agent: steps install: several steps have this name",
        ),
        (
            with_component(component("agent", steps=(STEP.but(command=("a", "{verison}", "{x}", "${versio}")),))),
            "warning: component agent: steps install: {verison} is not replaced",
        ),
        (with_component(component("agent", units=())), "error: component agent: it is for no kind of unit"),
        (
            with_component(component("agent", scope="plane", units=("compute", "storage"))),
            "error: component agent: a plane has no compute or storage units",
        ),
        (
            with_component(component("agent", disturbs="power", units=("controller",))),
            "error: component agent: a controller would cut its own power, and run no further step",
        ),
        (
            with_component(CUDA.but(disturbs="nothing")),
            "error: component cuda: jobs must agree in it, and it disturbs nothing: "
            "it would change under a job that runs",
        ),
        (
            with_component(component("agent", job_consistent=True, units=("storage",))),
            "error: component agent: jobs must agree in it, and they run on compute units, not on storage",
        ),
        (
            with_component(CUDA.but(scope="rack")),
            "error: component cuda: jobs must agree in it, and it changes a whole rack with hosts of other jobs",
        ),
        (with_rules(rule("manger *", "driver *")), "error: rule manger * -> driver *: there is no component 'manger'"),
        (
            with_rules(rule("manager *", "driver 550*")),
            "error: rule manager * -> driver 550*: '550*' is not a pattern of versions",
        ),
        (
            with_rules(SAME.but(only_with="nvswitch")),
            "error: rule manager * -> driver *: there is no component 'nvswitch'",
        ),
        (
            with_rules(rule("driver *", "driver 550.*")),
            "error: rule driver * -> driver 550.*: the component needs itself",
        ),
        (
            with_rules(rule("manager 535.*", "driver >=550", same=True)),
            "error: rule manager 535.* -> driver >=550: "
            "no version can meet it: both must be the same, and the patterns have none in common",
        ),
        (
            with_rules(rule("switch-os *", "driver *")),
            "error: rule switch-os * -> driver *: no unit has both: switch-os is for switch, driver for compute",
        ),
        (
            with_rules(rule("agent *", "driver *", same=True)),
            "error: rule agent * -> driver *: "
            "not upgraded in one visit: agent disturbs nothing, so it is upgraded beside the jobs",
        ),
        (
            with_rules(rule("cuda *", "driver *", same=True)),
            "error: rule cuda * -> driver *: "
            "not upgraded in one visit: a job's hosts must agree in cuda, and driver slides",
        ),
        (
            with_component(MANAGER.but(scope="rack")),
            "error: rule manager * -> driver *: not upgraded in one visit: manager takes a rack, driver a host",
        ),
        (
            with_rules(rule("kernel >=6", "driver >=550")),
            "warning: rule kernel >=6 -> driver >=550: driver comes after kernel, which needs it: "
            "where it fails, the rule is broken",
        ),
        (
            with_rules(rule("cuda >=12", "driver 535.*"), rule("cuda 12.*,13.*", "driver >=550")),
            "error: rule cuda 12.*,13.* -> driver >=550: contradicts rule 1 (cuda >=12 -> driver 535.*): "
            "one cuda needs two driver at once",
        ),
        (
            with_rules(rule("manager 2.*", "agent >=5"), rule("agent >=4", "manager 1.*")),
            "error: rule agent >=4 -> manager 1.*: contradicts rule 1 (manager 2.* -> agent >=5): "
            "manager 2.* needs what needs another version of it",
        ),
    ],
)
def test_a_spoiled_catalogue(catalogue: Catalogue, expected: str) -> None:
    """Exactly the one problem that was put in; it has a fix, and a path into the declaration."""
    assert told(catalogue) == [expected]
    [problem] = lint(catalogue)
    assert problem.fix
    assert not problem.path or problem.path[0] in ("component", "kind", "rule")


def test_rules_that_exclude_each_other_are_no_contradiction() -> None:
    """1. Two needs for two ranges. 2. A pair that sends forth and back to the same. 3. Rules for different units."""
    assert told(with_rules(rule("cuda 12.*", "driver 535.*"), rule("cuda 13.*", "driver >=550"))) == []
    assert told(with_rules(rule("manager 2.*", "agent >=5"), rule("agent >=4", "manager >=1"))) == []
    one = rule("cuda *", "driver 535.*", only_with="manager")
    assert told(with_rules(one, rule("cuda *", "driver 550.*", only_with="kernel"))) == []


def test_each_cycle_is_printed() -> None:
    """1. Two cycles and one that comes after itself: three problems, each with its way."""
    names = {"a": "b", "b": "c", "c": "a", "d": "e", "e": "d", "f": "f"}
    catalogue = Catalogue(components=tuple(component(name, other) for name, other in names.items()))
    assert [problem.reason for problem in lint(catalogue)] == [
        "it comes after itself: a after b after c after a",
        "it comes after itself: d after e after d",
        "it comes after itself: f after f",
    ]
    assert sorted(catalogue.sequence()) == sorted(names)


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a"), ("a", "a")])
def test_two_of_one_name_in_a_cycle(first: str, second: str) -> None:
    """1. A name is there twice, and one of the two comes after itself. 2. The lint ends, and names the double."""
    catalogue = Catalogue(components=(component("a", first), component("a", second), component("b")))
    reasons = [problem.reason for problem in lint(catalogue)]
    assert ("it comes after itself: a after a" in reasons) is (first == "a")
    assert "it is declared 2 times" in reasons


def test_the_order_is_that_of_the_file_where_it_may_be() -> None:
    catalogue = Catalogue(components=(component("z", "k"), component("b"), component("k", "a"), component("a")))
    assert catalogue.sequence() == ("b", "a", "k", "z")
    assert SOUND.sequence() == tuple(item.name for item in SOUND.components)


@given(st.permutations(range(8)), st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_every_order_keeps_what_comes_before(shuffled: list[int], edges: set[tuple[int, int]]) -> None:
    """1. Edges from higher to lower ranks make no cycle. 2. In the order each stands behind those it comes after."""
    after = {f"c{place}": {f"c{low}" for high, low in edges if high == place and low < place} for place in range(8)}
    components = tuple(component(f"c{place}", *sorted(after[f"c{place}"])) for place in shuffled)
    found = Catalogue(components=components).sequence()
    assert sorted(found) == sorted(after)
    assert all(
        found.index(ComponentName(other)) < found.index(ComponentName(name)) for name in after for other in after[name]
    )
