"""Probes on a host that is a directory: what they see, and what it means. A host that is well says nothing."""

import importlib
from pathlib import Path

import pytest
from tests.fakes import host_tree as tree
from tests.fakes.nvml import device

from trainmaster.core.agent.health_news import of_state
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import OK
from trainmaster.live.agent.health.choice import chosen, counts
from trainmaster.live.agent.health.judge import Judge
from trainmaster.live.agent.health.monitor import policy_index
from trainmaster.live.agent.health.probes import PROBES
from trainmaster.live.agent.health.probes.declare import Skipped
from trainmaster.live.agent.health.round import Seen
from trainmaster.ports.errors import UserError

MINUTE = 60_000_000
HOUR = 60 * MINUTE
ALL = ("pcie", "network", "memory", "read-only", "heat", "layout", "versions", "parts", "mounts")


class Host:
    """Looks again and again, an hour of the boot's clock apart unless told otherwise."""

    def __init__(self, root: Path, memory: Path | None = None, **expected: int) -> None:
        self.root = root
        self.judge = Judge(policy_index(""), memory, expected)  # type: ignore[arg-type]
        self.now_us = 0

    def look(self, name: str, later_us: int = HOUR) -> dict[str, Finding]:
        """What a probe says beside that all is well, by rule."""
        self.now_us += later_us
        module = importlib.import_module(PROBES[name].module)
        seen = Seen()
        try:
            items = module.items(self.root) if PROBES[name].kind != "host" else [""]
            seen.texts = {item: module.look(self.root, item) for item in items}
        except Skipped as error:
            seen.skipped = str(error)
        found = self.judge.judge(name, seen, self.now_us).findings
        return {finding.rule: finding for finding in found if finding.answer != OK}

    def answers(self, name: str, later_us: int = HOUR) -> dict[str, str]:
        return {rule: f"{each.unit}: {each.answer}" for rule, each in self.look(name, later_us).items()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree.healthy(tmp_path / "root")


def test_a_host_that_is_well_says_nothing(root: Path) -> None:
    """1. Totals from years ago, full counters of ports, an idle GPU at low speed. 2. Two looks by all probes: nothing
    is bad or unknown, and a port whose counter is full is watched, since that counter tells nothing any more."""
    host = Host(root)
    for _ in range(2):
        said = {name: host.answers(name) for name in ALL}
        assert said.pop("network") == {"ib-counters": "port mlx5_1: watch, none"}
        assert said == {name: {} for name in ALL if name != "network"}
    assert "count no more" in host.look("network")["ib-counters"].summary


def test_pcie(root: Path) -> None:
    """1. Lanes are missing; another card answers with ones. 2. Errors count by growth: a fatal one, and corrected ones
    at more than one a second."""
    host = Host(root)
    host.look("pcie")
    gpu = root / "sys/bus/pci/devices/0000:1b:00.0"
    (gpu / "current_link_width").write_text("8\n")
    (gpu / "aer_dev_correctable").write_text("RxErr 902000\nTOTAL_ERR_COR 902000\n")
    (root / "sys/bus/pci/devices/0000:3d:00.0/config").write_bytes(b"\xff" * 64)
    assert host.answers("pcie", 5 * MINUTE) == {
        "pci-width": "gpu 0000:1b:00: watch, diagnose",
        "pci-corrected": "gpu 0000:1b:00: watch, diagnose",
        "pci-rev-ff": "gpu 0000:3d:00: bad, reboot",
    }
    (gpu / "aer_dev_fatal").write_text("TOTAL_ERR_FATAL 8\n")
    finding = host.look("pcie", MINUTE)["pci-fatal"]
    assert (finding.unit, str(finding.answer), finding.evidence) == (
        "gpu 0000:1b:00", "bad, reboot", ("bus/pci/devices/0000:1b:00.0/aer_dev_fatal: 7 -> 8 within 60 s",)
    )  # fmt: skip
    assert "pci-fatal" not in host.look("pcie", 2 * HOUR)


def test_a_port_that_was_never_up_is_not_bad(root: Path, tmp_path: Path) -> None:
    """1. A port polls from the first look on: nobody may have cabled it. 2. One that was up polls: bad. 3. Another
    agent on the same disk knows that as well. 4. One that somebody disabled is well."""
    memory = tmp_path / "memory"
    tree.port(root, "mlx5_2", "1: DOWN", "2: Polling")
    assert str(Host(root, memory).look("network")["ib-counters"].answer) == "watch, none"
    tree.port(root, "mlx5_1", "1: DOWN", "2: Polling")
    said = [finding for finding in _all(Host(root, memory), "network") if finding.unit == "port mlx5_1"]
    assert [str(each.answer) for each in said] == ["bad, triage"]
    tree.port(root, "mlx5_1", "1: DOWN", "3: Disabled")
    assert not [each for each in _all(Host(root, memory), "network") if each.unit == "port mlx5_1" and each.offence]


def _all(host: Host, name: str) -> list[Finding]:
    module = importlib.import_module(PROBES[name].module)
    seen = Seen()
    seen.texts = {"": module.look(host.root, "")}
    return list(host.judge.judge(name, seen, 0).findings)


def test_links_that_go_down(root: Path) -> None:
    """1. A link went down once: watched, as a switch may have restarted. 2. Three times within twelve hours: bad. 3. A
    day later that is over. 4. A driver that was loaded anew starts its counter again, which is no growth of minus
    nine."""
    host = Host(root)
    host.look("network")
    tree.port(root, "mlx5_0", link_downed=10)
    assert host.answers("network")["ib-link-downed"] == "port mlx5_0: watch, none"
    tree.port(root, "mlx5_0", link_downed=12)
    assert host.answers("network")["ib-link-flaps"] == "port mlx5_0: bad, triage"
    host.now_us += 24 * HOUR
    host.look("network")
    assert "ib-link-downed" not in host.look("network")
    tree.port(root, "mlx5_0", link_downed=0)
    assert "ib-link-downed" not in host.look("network")


def test_links_that_go_down_together(root: Path) -> None:
    """Both ports of a host went down three times: the switch, and no fault of the host."""
    tree.port(root, "mlx5_1", link_downed=9)
    host = Host(root)
    host.look("network")
    for name in ("mlx5_0", "mlx5_1"):
        tree.port(root, name, link_downed=12)
    finding = host.look("network")["ib-link-flaps"]
    assert (str(finding.answer), "2 ports of this host do" in finding.summary) == ("watch, none", True)


def test_ethernet(root: Path) -> None:
    """1. A link that was up is down: a suspect. 2. Set down by somebody: well. 3. The carrier came and went."""
    host = Host(root)
    host.look("network")
    tree.link(root, "eth0", "down", changes=3)
    assert host.answers("network")["link-state"] == "link eth0: watch, diagnose"
    tree.link(root, "eth0", "down", changes=3, flags="0x1002")
    assert "link-state" not in host.look("network")
    tree.link(root, "eth0", "up", changes=8)
    assert host.answers("network")["carrier-flaps"] == "link eth0: watch, diagnose"


def test_growth_over_a_long_pause_is_no_rate(root: Path) -> None:
    """An agent that could not look for a day does not take a day's corrected errors for an hour's."""
    host = Host(root)
    host.look("memory")
    tree.put(root, "sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count", "100000")
    assert host.look("memory", 24 * HOUR) == {}
    tree.put(root, "sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count", "100150")
    assert host.answers("memory", HOUR) == {"dimm-corrected": "dimm CPU0_dimm0: watch, diagnose"}


def test_memory_that_lost_bits(root: Path) -> None:
    """An uncorrected error since the boot is bad at the first look already, and names the module by its label."""
    tree.put(root, "sys/devices/system/edac/mc/mc0/dimm1/dimm_ue_count", "1")
    assert Host(root).answers("memory") == {"dimm-uncorrected": "dimm CPU0_dimm1: bad, triage"}


def test_file_systems(root: Path) -> None:
    """1. The root was written as writable in fstab and is read-only: bad. 2. A mount without a line there: only if it
    was writable before. 3. What is mounted read-only on purpose is well."""
    mounts = root / "proc/self/mounts"
    text = mounts.read_text()
    host = Host(root)
    mounts.write_text(text.replace("/ ext4 rw", "/ ext4 ro"))
    assert host.answers("read-only") == {"fs-read-only": "fs /: bad, triage"}
    mounts.write_text(text)
    host.look("read-only")
    mounts.write_text(text.replace("nfs4 rw", "nfs4 ro"))
    assert host.answers("read-only") == {"fs-read-only": "fs /mnt/a b: bad, triage"}
    assert Host(root).look("read-only") == {}


def test_heat_and_throttling(root: Path) -> None:
    host = Host(root)
    host.look("heat")
    tree.put(root, "sys/class/thermal/thermal_zone0/temp", "97000")
    tree.put(root, "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "40009")
    assert host.answers("heat", 5 * MINUTE) == {
        "heat-x86_pkg_temp": "host: bad, triage", "cpu-throttling": "cpu cpu0: watch, diagnose"
    }  # fmt: skip


def test_a_clock_that_is_held_down(root: Path) -> None:
    """Two processors of three may run at a third of what they can: one finding, which names a few."""
    for policy, limit in (("policy0", 1_000_000), ("policy1", 1_000_000), ("policy2", 3_000_000)):
        tree.put(root, f"sys/devices/system/cpu/cpufreq/{policy}/scaling_max_freq", str(limit))
        tree.put(root, f"sys/devices/system/cpu/cpufreq/{policy}/cpuinfo_max_freq", "3000000")
    finding = Host(root).look("heat")["cpu-capped"]
    assert (str(finding.answer), "2 processors" in finding.summary) == ("watch, config", True)


def test_layout(root: Path) -> None:
    """1. A second node without memory. 2. Then a GPU of no node is odd as well. 3. Processors that are off."""
    tree.put(root, "sys/devices/system/node/node1/cpulist", "64-127")
    tree.put(root, "sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  0 kB")
    tree.put(root, "sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1")
    tree.put(root, "sys/devices/system/cpu/present", "0-127")
    assert Host(root).answers("layout") == {
        "numa-node1": "host: watch, diagnose", "numa-unknown": "gpu 0000:1b:00: watch, config",
        "cpu-offline": "host: watch, none",
    }  # fmt: skip


def test_a_driver_that_is_not_the_installed_one(root: Path) -> None:
    """1. A module is loaded, and `modinfo` tells another version. 2. The same: well."""
    tree.put(root, "sys/module/nvidia/version", "550.90.07")
    tool = root / "usr/bin/modinfo"
    tree.put(root, "usr/bin/modinfo", "#!/bin/sh\necho 560.28.03")
    tool.chmod(0o755)
    finding = Host(root).look("versions")["version-nvidia"]
    assert str(finding.answer) == "watch, config"
    assert "nvidia 550.90.07 runs, and 560.28.03 is installed" in finding.summary
    tree.put(root, "sys/module/nvidia/version", "560.28.03")
    assert Host(root).look("versions") == {}


def test_parts(root: Path, tmp_path: Path) -> None:
    """1. The first look lists parts, with serial numbers as far as they are shown. 2. After a boot a GPU is missing:
    bad, by slot. 3. A new one in the slot is well, and more parts are remembered."""
    memory = tmp_path / "memory"
    host = Host(root, memory)
    assert host.answers("parts") == {}
    assert host.judge.chassis == "CHASSIS-1"
    assert host.judge.parts is not None
    assert [(part.slot, part.serial) for part in host.judge.parts] == [
        ("dimm CPU0_dimm0", ""), ("dimm CPU0_dimm1", ""), ("disk nvme0n1", "S6ESNC0T"), ("gpu 0000:1b:00", ""),
        ("gpu 0000:3d:00", ""), ("nic 0000:5e:00.0", ""),
    ]  # fmt: skip
    (root / "sys/bus/pci/devices/0000:3d:00.0").rename(tmp_path / "out")
    assert Host(root, memory).answers("parts") == {"part-missing": "gpu 0000:3d:00: bad, reboot"}
    device(root, "0000:3d:00.0", "0x030200")
    assert Host(root, memory).look("parts") == {}


def test_counts_that_were_given(root: Path) -> None:
    assert Host(root, gpu=2, nic=1).look("parts") == {}
    assert Host(root, gpu=8).answers("parts") == {"count-gpu": "host: bad, reboot"}
    assert Host(root, nic=2).answers("parts") == {"count-nic": "host: watch, diagnose"}
    assert counts("gpu=8, nic=9") == {"gpu": 8, "nic": 9}
    for wrong in ("gpu", "gpu=x", "wheel=4"):
        with pytest.raises(UserError, match="no count of parts"):
            counts(wrong)
    with pytest.raises(UserError, match="there is no probe"):
        chosen(("nvlm",))


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ('{"smart_status": {"passed": true}, "nvme_smart_health_information_log": {"critical_warning": 0}}', {}),
        ('{"smart_status": {"passed": false}}', {"smart": "disk nvme0n1: bad, triage"}),
        (
            '{"smart_status": {"passed": true}, "nvme_smart_health_information_log": {"critical_warning": 4, '
            '"media_errors": 3, "percentage_used": 103}}',
            {
                "smart-critical-warning": "disk nvme0n1: watch, diagnose",
                "smart-media-errors": "disk nvme0n1: watch, none",
                "smart-worn": "disk nvme0n1: watch, none",
            },
        ),
        ("Permission denied", {"smart": "disk nvme0n1: unknown, none"}),
        ("{}", {"smart": "disk nvme0n1: unknown, none"}),
    ],
)
def test_disks_that_say_how_they_are(root: Path, text: str, answers: dict[str, str]) -> None:
    tree.put(root, "usr/bin/smartctl", f"#!/bin/sh\ncat <<'END'\n{text}\nEND")
    (root / "usr/bin/smartctl").chmod(0o755)
    assert Host(root).answers("smart") == answers


def test_nothing_is_there(tmp_path: Path) -> None:
    """An empty tree: what has nothing to look at says so, and nothing is bad."""
    host = Host(tmp_path)
    for name in ("pcie", "network", "memory", "heat", "layout", "versions", "smart"):
        module = importlib.import_module(PROBES[name].module)
        with pytest.raises(Skipped):
            module.items(tmp_path) if PROBES[name].kind != "host" else module.look(tmp_path, "")
    assert host.look("parts") == {}


def test_what_was_told_goes_when_it_holds_no_more(root: Path) -> None:
    """A narrow link, as news; then it is as wide as it should be: gone."""
    host = Host(root)
    width = root / "sys/bus/pci/devices/0000:1b:00.0/current_link_width"
    width.write_text("4\n")
    news = of_state((), host.look("pcie").values())
    width.write_text("16\n")
    assert [each.rule for each in of_state(news.known, host.look("pcie").values()).gone] == ["pci-width"]
