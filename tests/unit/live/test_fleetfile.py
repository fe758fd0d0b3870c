"""Fleet files, the layout of racks and pods, and what is refused."""

from collections import Counter
from pathlib import Path

import pytest

from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.time import SECOND
from trainmaster.core.fleet.inventory import groups_of
from trainmaster.core.fleet.platform import PLATFORMS
from trainmaster.live.fleetfile import FleetFile, load
from trainmaster.live.tomlfile import FileError

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def read(tmp_path: Path, text: str) -> FleetFile:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    return load(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        read(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


def test_two_clusters_of_24576_gpus() -> None:
    """1. The scenario is read. 2. Each cluster has 3,072 compute hosts in 1,536 racks of 16 GPUs and 8 pods of 3,072
    GPUs. 3. Beside them it has storage servers, switches of two planes and a controller."""
    fleet = load(SCENARIOS / "two-clusters.toml").fleet
    assert [(c.name, c.fabric) for c in fleet.clusters] == [("roce", "roce"), ("ib", "infiniband")]
    for cluster in fleet.clusters:
        units = [host for host in fleet.hosts if host.cluster == cluster.name]
        assert Counter(unit.kind for unit in units) == {"compute": 3072, "storage": 128, "switch": 128, "controller": 1}
        hosts = [unit for unit in units if unit.kind == "compute"]
        assert sum(host.gpus for host in hosts) == 24_576
        assert {sum(h.gpus for h in hosts if h.pod == pod) for pod in {h.pod for h in hosts}} == {3072}
        assert len({host.rack for host in hosts}) == 1536
    assert fleet.gpus() == 49_152
    assert (fleet.hosts[384].id, fleet.hosts[384].pod, fleet.hosts[384].rack) == ("roce0385", "roce-p02", "roce-r0193")


def test_groups_follow_the_layout() -> None:
    groups = groups_of(load(SCENARIOS / "two-clusters.toml").fleet.hosts)
    assert parse("@rack:ib-r[0001-0002]", groups) == ("ib0001", "ib0002", "ib0003", "ib0004")
    assert len(parse("@cluster:ib & @platform:grand-teton ! @pod:ib-p01", groups)) == 3072 - 384
    assert len(parse("@kind:compute", groups)) == 6144


def test_local_fleet() -> None:
    local = load(SCENARIOS / "local.toml")
    assert [host.id for host in local.fleet.hosts] == ["h0", "h1", "h2", "h3", "h4"]
    assert (local.server_host, local.server_port) == ("127.0.0.1", 0)
    assert (local.heartbeat, local.silence, local.reboot) == (SECOND, 10 * SECOND, 3 * SECOND)
    assert local.fleet.gpus() == 0


def test_blocks_number_racks_through(tmp_path: Path) -> None:
    """1. A cluster has two blocks. 2. Racks and pods of the second go on where the first ended."""
    text = """
name = "x"
[[cluster]]
name = "c"
fabric = "roce"
[[cluster.hosts]]
list = "a[1-8]"
platform = "grand-teton"
racks_per_pod = 2
[[cluster.hosts]]
list = "b[1-3]"
platform = "dgx-h100"
hosts_per_rack = 3
"""
    fleet = read(tmp_path, text).fleet
    places = [(host.id, host.rack, host.pod) for host in fleet.hosts]
    assert places[:5:4] == [("a1", "c-r1", "c-p1"), ("a5", "c-r3", "c-p2")]
    assert places[-1] == ("b3", "c-r5", "c-p3")
    assert (fleet.clusters[0].racks, fleet.clusters[0].pods) == (5, 3)


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = """
name = "Bad Name"
[server]
prt = 1
[[cluster]]
name = "c"
fabric = "ether"
[[cluster.hosts]]
list = "h[5-1]"
platform = "laptop"
[[cluster.hosts]]
list = "h[1-5]"
platform = "grand-teton"
[[cluster.hosts]]
list = "h[5-6]"
platform = "gt"
[[cluster]]
name = "c"
fabric = "roce"
"""
    assert problems(tmp_path, text) == [
        "line 2: name: 'Bad Name' is not a name; "
        "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends",
        "line 4: server.prt: this key is not known; did you mean port?",
        "line 6: cluster[1].name: the cluster c is declared 2 times; merge them, or rename one",
        "line 7: cluster[1].fabric: unknown fabric 'ether'; use one of roce, infiniband, loopback",
        "line 9: cluster[1].hosts[1].list: the range 5-1 runs backwards at character 3 of 'h[5-1]'; write 1-5",
        "line 11: cluster[1].hosts[2].hosts_per_rack: 5 hosts do not fill racks of 2; 1 are left over; "
        "change hosts_per_rack, or declare the rest in a [[cluster.hosts]] of its own",
        "line 15: cluster[1].hosts[3].list: declared twice: h5; leave them out of one of the lists",
        "line 16: cluster[1].hosts[3].platform: unknown platform 'gt'; "
        "use one of grand-teton, dgx-h100, laptop, server",
        "line 17: cluster[2].hosts: a cluster needs hosts; add a [[cluster.hosts]] table",
        "line 18: cluster[2].name: the cluster c is declared 2 times; merge them, or rename one",
    ]


def test_empty_fleets(tmp_path: Path) -> None:
    assert problems(tmp_path, 'name = "x"') == ["cluster: a fleet needs a cluster; add a [[cluster]] table"]
    text = 'name = "x"\n[[cluster]]\nname = "c"\nfabric = "roce"\n[[cluster.hosts]]\nlist = ""\nplatform = "laptop"\n'
    assert "names no host" in problems(tmp_path, text)[0]
    text = text.replace('""', '"h[1-4]"') + "racks_per_pod = 3\n"
    assert "4 racks do not fill pods of 3" in problems(tmp_path, text)[0]


def test_how_long_an_agent_may_be_silent(tmp_path: Path) -> None:
    """1. Ten seconds, whatever the heartbeat. 2. With a slow one three heartbeats. 3. Less than three are refused."""
    text = 'name = "x"\n[[cluster]]\nname = "c"\nfabric = "roce"\n'
    text += '[[cluster.hosts]]\nlist = "h1"\nplatform = "laptop"\n[agents]\n'
    assert read(tmp_path, text + "heartbeat_s = 0.2\n").silence == 10 * SECOND
    assert read(tmp_path, text + "heartbeat_s = 20\n").silence == 60 * SECOND
    assert read(tmp_path, text + "heartbeat_s = 1\nsilent_s = 3\n").silence == 3 * SECOND
    assert problems(tmp_path, text + "heartbeat_s = 2\nsilent_s = 5\n") == [
        "line 10: agents.silent_s: 5 s are less than 3 heartbeats; use 6 or more, or a shorter heartbeat_s"
    ]


def test_catalogue() -> None:
    """1. A rack of Grand Teton has 16 GPUs, each with a NIC of its own."""
    platform = PLATFORMS["grand-teton"]
    assert platform.hosts_per_rack * platform.gpus_per_host == 16
    assert platform.nics_per_host == platform.gpus_per_host
    assert all(p.slots_per_host >= max(1, p.gpus_per_host) for p in PLATFORMS.values())
