"""Outputs of tools that people attach: each with its answer, of hosts that are well and of hosts that are not."""

from pathlib import Path

import pytest

from tests.health.judging import judged

HERE = Path(__file__).parent / "tools"
TOOLS = {
    "diag-alloc-pass.json": "unknown, none",
    "diag-skip.json": "skipped, none",
    "diag-v4-fail.json": "bad, triage",
    "diag-v4-pass.json": "ok, none",
    "dmesg--xt-cr.txt": "bad, reboot",
    "dmesg--xt.txt": "bad, reboot",
    "ethtool-state.txt": "watch, none",
    "ethtool-stats-crc.txt": "watch, none",
    "ethtool-stats-ok.txt": "ok, none",
    "ethtool-up.txt": "ok, none",
    "ibdiagnet.txt": "watch, diagnose",
    "iblinkinfo.txt": "watch, none",
    "ibqueryerrors.txt": "watch, none",
    "journal-iso-precise.txt": "bad, reboot",
    "journal-json-bytes.json": "bad, reboot",
    "journal-json.json": "bad, reboot",
    "journal-mono.txt": "bad, reboot",
    "k8s-cpu-node.json": "watch, none",
    "k8s-list.json": "bad, triage",
    "k8s-ok.json": "ok, none",
    "k8s-unknown.json": "unknown, none",
    "k8s.json": "bad, triage",
    "lspci-gone.txt": "watch, diagnose",
    "nvme-bad.txt": "bad, triage",
    "nvme-ok.txt": "ok, none",
    "nvme-worn.txt": "watch, none",
    "ras-count.txt": "bad, triage",
    "ras-summary-bad.txt": "watch, none",
    "ras-summary.txt": "ok, none",
    "scontrol-drain.txt": "watch, none",
    "scontrol-ok.txt": "ok, none",
    "smartctl-fail.txt": "bad, triage",
    "smartctl-ok.txt": "ok, none",
    "smi-l.txt": "ok, none",
    "smi-nvlink-e.txt": "watch, none",
    "smi-nvlink-s.txt": "ok, none",
    "smi-table-ecc.txt": "bad, reset-gpu",
    "smi-table-err.txt": "bad, reboot",
    "smi-table.txt": "ok, none",
    "syslog-rfc5424.txt": "bad, reboot",
    "syslog-year.txt": "bad, reboot",
    "topo-bad.txt": "watch, diagnose",
    "topo-ok.txt": "ok, none",
}


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_tool(name: str) -> None:
    found = judged((HERE / name).read_bytes().decode("utf-8"))
    assert f"{found.verdict}, {found.remedy}" == TOOLS[name], found.findings


def test_all_outputs_are_in_the_table() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(TOOLS)


def test_units_of_tools() -> None:
    """1. A capture of several tools, as a session prints them. 2. Each finding names its unit, as far as it is told."""
    smart = "$ smartctl -H /dev/sdb\nsmartctl 7.3\nSMART overall-health self-assessment test result: FAILED!\n"
    counters = "$ ethtool -S ens1f0\nNIC statistics:\n     rx_crc_errors_phy: 4012\n"
    links = (HERE / "iblinkinfo.txt").read_text("utf-8")
    units = {each.unit: str(each.answer) for each in judged(f"{smart}{counters}$ iblinkinfo\n{links}").findings}
    assert units == {
        "disk sdb": "bad, triage",
        "link ens1f0": "watch, none",
        "port gpu-1 mlx5_1/1": "watch, none",
        "fabric": "ok, none",
    }
