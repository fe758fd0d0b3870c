"""Maintenance files: what they ask for, in which order, and what is wrong with them."""

from pathlib import Path

import pytest

from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.stages import Exponential, Fixed, Percentages
from trainmaster.live.maintfile import Asked, keyed, load
from trainmaster.live.tomlfile import FileError

EXAMPLES = Path(__file__).parents[3] / "examples"
HEAD = 'schema = "trainmaster.maintenance/v1"\n'
REBOOT = '[[operation]]\nkind = "reboot"\nhosts = "h1"\n'


def read(tmp_path: Path, text: str) -> Asked:
    file = tmp_path / "maintenance.toml"
    file.write_text(HEAD + text)
    return load(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        read(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("maintenance-*.toml")), ids=lambda file: file.stem)
def test_examples_are_read(file: Path) -> None:
    assert load(file) != Asked()


def test_operations_stand_behind_what_they_come_after(tmp_path: Path) -> None:
    """1. The first table comes after the second, which names two hosts, and after an id. 2. It stands last, behind the
    keys of both. 3. Given a prefix, keys and what names them have it; the id stays."""
    text = '[[operation]]\ncomponent = "driver"\nversion = "2"\nscope = ["rack/r1"]\nafter = ["check", "op-7"]\n'
    text += 'priority = "repair"\nnot_before = 2027-01-15T09:00:00+01:00\ndeadline = 2027-01-15T09:00:00Z\n'
    text += '[[operation]]\nname = "check"\nkind = "deep-check"\nhosts = "h[1-2]"\nreason = "own"\n'
    found = read(tmp_path, 'reason = "spring"\n' + text).operations
    assert [ask.key for ask in found] == ["check/1", "check/2", "1"]
    assert [ask.spec.scope for ask in found] == [("host/h1",), ("host/h2",), ("rack/r1",)]
    last = found[-1].spec
    assert last.after == ("op-7", "check/1", "check/2")
    assert (last.kind, last.component, last.version, last.priority) == ("upgrade", "driver", "2", Priority.REPAIR)
    assert last.not_before == Instant(1_800_000_000_000_000)
    assert last.deadline == Instant(1_800_003_600_000_000)
    assert [ask.spec.reason for ask in found] == ["own", "own", "spring"]
    named = keyed(Asked(operations=found), "mine").operations
    assert [ask.key for ask in named] == ["mine/check/1", "mine/check/2", "mine/1"]
    assert named[-1].spec.after == ("op-7", "mine/check/1", "mine/check/2")


def test_circles_are_told(tmp_path: Path) -> None:
    """1. Two wait for each other, and a third for them. 2. The circle is named without the third. 3. One may not come
    after itself."""

    def row(name: str, after: str) -> str:
        return f'[[operation]]\nname = "{name}"\nkind = "reboot"\nhosts = "h1"\nafter = ["{after}"]\n'

    [told] = problems(tmp_path, row("c", "a") + row("a", "b") + row("b", "a"))
    assert "they wait for each other: a -> b -> a" in told
    [told] = problems(tmp_path, row("a", "a"))
    assert "they wait for each other: a -> a" in told


def test_rollouts(tmp_path: Path) -> None:
    """The ways to grow, and what is not given is as usual."""
    head = '[[rollout]]\ncomponent = "driver"\nversion = "2"\n'
    usual = read(tmp_path, head).rollouts[0]
    assert (usual.stages, usual.hosts, usual.unproven_percent, usual.on_failure) == (
        Percentages(),
        "",
        10.0,
        "roll-back",
    )
    more = read(tmp_path, head + 'hosts = "h[1-8]"\nstage_hosts = 2\ncanary_hosts = 1\nsoak_s = 60\n').rollouts[0]
    assert (more.stages, more.hosts, more.canary, more.soak_s) == (Fixed(hosts=2), "h[1-8]", 1, 60.0)
    assert read(tmp_path, head + "first_hosts = 2\nfactor = 3\n").rollouts[0].stages == Exponential(first=2, factor=3.0)
    held = read(tmp_path, head + 'on_failure = "hold"\ncriteria = { theta = 2.0 }\n').rollouts[0]
    assert (held.on_failure, held.criteria.theta, held.criteria.alpha) == ("hold", 2.0, 0.05)


def test_versions_gangs_and_trains(tmp_path: Path) -> None:
    text = (
        '[[target]]\ncomponent = "client"\nversion = "2"\n[[gang]]\njob = "llama"\ncomponent = "nccl"\nversion = "3"\n'
    )
    text += '[[train]]\nname = "weekly"\nhosts = "h[1-2]"\ndomain_size_hosts = 1\ncycle_days = 7\n'
    found = read(tmp_path, 'reason = "spring"\n' + text)
    assert [(each.component, each.version, each.reason) for each in found.versions] == [("client", "2", "spring")]
    assert [(each.job, each.component, each.version) for each in found.gangs] == [("llama", "nccl", "3")]
    assert [(each.train.name, each.reason) for each in found.trains] == [("weekly", "spring")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "operation: the file asks for nothing"),
        ('[[operation]]\nhosts = "h1"\n', "neither a kind nor a component"),
        ('[[operation]]\nkind = "upgrade"\nhosts = "h1"\n', "an upgrade needs a component"),
        ('[[operation]]\ncomponent = "driver"\nhosts = "h1"\n', "an upgrade needs a version"),
        (REBOOT + 'component = "driver"\nversion = "1"\n', "a reboot has no component"),
        ('[[operation]]\nkind = "reboot"\n', "it says not where"),
        (REBOOT + 'scope = ["rack/r1"]\n', "both hosts and scope are given"),
        ('[[operation]]\nkind = "reboot"\nscope = ["h1"]\n', "'h1' is not a resource"),
        (REBOOT + 'priority = "urgent"\n', "'urgent' is not known"),
        (REBOOT + 'after = ["check"]\n', "no operation of this file is named 'check'"),
        (REBOOT + 'name = "op-3"\n', "looks like the id of an operation"),
        (REBOOT + 'name = "7"\n', "'7' is a number"),
        (REBOOT + 'name = "A b"\n', "'A b' is not a name"),
        (f'{REBOOT}name = "a"\n{REBOOT}name = "a"\n', "'a' stands twice"),
        (REBOOT + "deadline = 2027-01-15T09:00:00\n", "a time without an offset"),
        (REBOOT + 'deadline = "soon"\n', "this is a string"),
        (
            REBOOT + "not_before = 2027-01-15T09:00:00Z\ndeadline = 2027-01-15T08:00:00Z\n",
            "it should be done before it may begin",
        ),
        ('[[operation]]\nkind = "reboot"\nhosts = "h[1-1001]"\n', "these are 1,001 operations"),
        ('[[rollout]]\ncomponent = "a"\nversion = "1"\npercents = [5, "x"]\n', "not all items are numbers"),
        ('[[rollout]]\ncomponent = "a"\nversion = "1"\npercents = [5, 2]\n', "they grow"),
        ('[[rollout]]\ncomponent = "a"\nversion = "1"\nfactor = 2\n', "it belongs to first_hosts"),
        ('[[rollout]]\ncomponent = "a"\nversion = "1"\nsoak_s = 9\nstage_limit_s = 8\n', "leave time for the soak"),
        ('[[gang]]\njob = "llama"\ncomponent = "nccl"\n', "version: this key is missing"),
        ("[[operations]]\n", "did you mean operation?"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str, tmp_path: Path) -> None:
    assert any(told in problem for problem in problems(tmp_path, text)), problems(tmp_path, text)


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Three tables, a problem each, with their lines."""
    text = '[[operation]]\nkind = "reboot"\n[[operation]]\nhosts = "h1"\n[[gang]]\njob = ""\n'
    lines = [problem.split(":")[0] for problem in problems(tmp_path, text)]
    assert lines == ["line 2", "line 4", "line 6", "line 6", "line 7"]
