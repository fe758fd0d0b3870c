"""The `[health]` table of a fleet file: what it means, and what is said of mistakes."""

from pathlib import Path

import pytest

from trainmaster.core.base.time import DAY, HOUR, Instant, seconds
from trainmaster.core.engine import Engine
from trainmaster.core.events import HealthConductDeclared
from trainmaster.core.health.conduct import DEFAULT_LADDER, HealthConduct
from trainmaster.core.health.words import Remedy
from trainmaster.live.declaration import events, load
from trainmaster.live.tomlfile import FileError
from trainmaster.ports.errors import UserError

FLEET = """
schema = "trainmaster.fleet/v1"
name = "small"
catalogue = "catalogue.toml"
[[cluster]]
name = "c"
fabric = "loopback"
[[cluster.hosts]]
list = "h[0-3]"
platform = "laptop"
"""
CATALOGUE = """
schema = "trainmaster.catalogue/v1"
name = "small"
[[kind]]
name = "look"
median_s = 1
p90_s = 2
limit_s = 60
[[kind.steps]]
name = "look"
command = ["true"]
deadline_s = 10
"""
POOL = '[health]\n[[health.pool]]\nname = "all"\n'


def declare(directory: Path, health: str) -> HealthConduct | None:
    (directory / "catalogue.toml").write_text(CATALOGUE)
    (directory / "fleet.toml").write_text(FLEET + health)
    _, declaration = load(directory / "fleet.toml")
    return declaration.health


def test_a_file_says_how_health_acts(tmp_path: Path) -> None:
    """1. A file with all there is. 2. It is read as it was meant, and told to the server once."""
    text = """
[health]
verify = ["quick", "deep"]
expire_h = 2
[[health.pool]]
name = "first"
hosts = "h0"
mode = "act"
rate_hosts = 3
rate_window_s = 60
level_hosts = 2
level_percent = 5
[[health.pool]]
name = "rest"
cluster = "c"
[[health.rung]]
remedy = "reboot"
kind = "reboot"
tries = 2
[health.limits]
window_days = 7
same_slot_cases = 2
"""
    conduct = declare(tmp_path, text)
    assert conduct is not None
    first, rest = conduct.pools
    assert (first.hosts, first.act, first.rate_hosts, first.rate_window) == ("h0", True, 3, seconds(60))
    assert (first.level_hosts, first.level_percent) == (2, 5.0)
    assert (rest.cluster, rest.act) == ("c", False)
    assert [(rung.remedy, rung.kind, rung.tries) for rung in conduct.ladder] == [(Remedy.REBOOT, "reboot", 2)]
    assert (conduct.limits.window, conduct.limits.same_slot_cases) == (7 * DAY, 2)
    assert (conduct.verify, conduct.expire) == (("quick", "deep"), 2 * HOUR)
    engine = Engine()
    _, declaration = load(tmp_path / "fleet.toml")
    for event in events(engine, declaration, Instant(1)):
        engine.handle(event)
    assert engine.state.health.conduct == conduct
    assert not [event for event in events(engine, declaration, Instant(2)) if isinstance(event, HealthConductDeclared)]


def test_a_file_that_says_nothing_observes(tmp_path: Path) -> None:
    """1. No table: nothing is declared. 2. A pool and no more: it is observed, with the usual ladder."""
    assert declare(tmp_path, "") is None
    conduct = declare(tmp_path, POOL)
    assert conduct is not None
    assert not conduct.pools[0].act
    assert conduct.ladder == DEFAULT_LADDER


@pytest.mark.parametrize(
    ("text", "where", "reason", "fix"),
    [
        (POOL + 'cluster = "d"\n', "health.pool[1].cluster", "there is no cluster 'd'", "name one of c"),
        (POOL + 'hosts = "h9"\n', "health.pool[1].hosts", "the fleet has no host h9", "name hosts of the fleet"),
        (POOL + 'hosts = "h[0-"\n', "health.pool[1].hosts", "at character", ""),
        (POOL + 'kind = "switch"\n', "health.pool[1].name", "no host belongs to it", "remove it"),
        (POOL + 'cluster = "c"\nhosts = "h0"\n', "health.pool[1].hosts", "say which hosts", "keep one"),
        (POOL + "rate_hosts = 0\n", "health.pool[1].rate_hosts", "", "1"),
        (POOL + 'mode = "acts"\n', "health.pool[1].mode", "'acts' is not known", "act"),
        (POOL + '[[health.pool]]\nname = "all"\n', "health.pool[2].name", "a pool all stands above", "rename"),
        (POOL + '[[health.pool]]\nname = "b"\n', "health.pool[2].name", "belong to pools above", "put it above"),
        (POOL + "level = 2\n", "health.pool[1].level", "", "level_hosts"),
        (POOL + '[[health.rung]]\nremedy = "rma"\nkind = "x"\n', "health.rung[1].remedy", "'rma' is not known", ""),
        (POOL + '[[health.rung]]\nremedy = "reboot"\n', "health.rung[1].kind", "missing", "add"),
        (
            POOL + 2 * '[[health.rung]]\nremedy = "reboot"\nkind = "reboot"\n',
            "health.rung[2].remedy",
            "reboot stands twice",
            "tries = 2",
        ),
        (
            POOL
            + '[[health.rung]]\nremedy = "reboot"\nkind = "reboot"\n'
            + '[[health.rung]]\nremedy = "reset-gpu"\nkind = "gpu-reset"\n',
            "health.rung[2].remedy",
            "it takes less than reboot before it",
            "exchange them",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, where: str, reason: str, fix: str) -> None:
    """A file with one mistake: the problem says where, what, and what to write."""
    with pytest.raises(FileError) as caught:
        declare(tmp_path, text)
    (problem,) = caught.value.problems
    assert problem.key == where
    assert reason in problem.reason
    assert fix in problem.fix
    assert problem.line


def test_a_rung_that_leaves_the_host_in_service_is_refused(tmp_path: Path) -> None:
    """1. A rung names a kind of the catalogue that disturbs nothing. 2. It could only run beside jobs: refused."""
    with pytest.raises(UserError, match="look leaves the host in service") as caught:
        declare(tmp_path, POOL + '[[health.rung]]\nremedy = "reboot"\nkind = "look"\n')
    assert "how health acts is not declared" in str(caught.value)
