"""One capture of every form and kind that the cases do not have, with its answer."""

from pathlib import Path

import pytest

from tests.health.expected import Case, case
from tests.health.judging import answered, judged

HERE = Path(__file__).parent / "forms"
FORMS: dict[str, Case] = {
    "sinfo-by-node.txt": case("bad, triage", ("host node-02", "bad, triage"), ("host node-04", "watch, none")),
    "pdsh.txt": case("bad, reboot", ("gpu 0000:1b:00", "bad, reboot")),
    "scontrol-one-line.txt": case("bad, reboot", ("host node-02", "bad, reboot")),
    "ibstatus.txt": case("bad, triage", ("port mlx5_3", "bad, triage")),
    "ibv-devinfo.txt": case("watch, none", ("port mlx5_1", "watch, none")),
    "nvlink-status-dcgmi.txt": case("bad, triage", ("gpu 1", "bad, triage"), ("nvswitch 9", "bad, triage")),
    "fabric-manager-log.txt": case(
        "bad, reboot", ("nvswitch 0000:86:00.0", "watch, none"), ("nvswitch 0000:c5:00.0", "bad, reboot")
    ),
    "smi-retired-pages.txt": case("bad, rma", ("gpu 0000:07:00", "bad, rma"), ("gpu 0000:08:00", "bad, reset-gpu")),
    "panic.txt": case("watch, none", ("host", "watch, none")),
    "action-none-again.txt": case("watch, none", ("gpu 0000:1b:00", "watch, none")),
    "action-reboot.txt": case("bad, reboot", ("gpu 0000:1b:00", "bad, reboot")),
    "aer-fatal.txt": case("bad, reboot", ("pcie 0000:00:1c.0", "bad, reboot")),
    "aer-recovered.txt": case("watch, none", ("pcie 0000:00:1c.0", "watch, none")),
    "config-space.txt": case("bad, reboot", ("gpu 0000:3b:00", "bad, reboot")),
    "dcgm-health-json.txt": case("bad, triage", ("gpu 0", "bad, triage")),
    "dcgm-health-ok.txt": case("ok, none"),
    "dcgm-health-warning.txt": case("watch, none", ("gpu 3", "watch, none")),
    "diag-busy.txt": case("unknown, none", ("gpu 0", "unknown, none")),
    "diag-fails.txt": case("bad, triage", ("gpu 0", "bad, triage")),
    "disk.txt": case("bad, triage", ("disk sdb", "bad, triage")),
    "dmesg-x.txt": case("bad, reset-gpu", ("gpu 0000:1b:00", "bad, reset-gpu")),
    "edac-uncorrected.txt": case("bad, triage", ("dimm CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "bad, triage")),
    "event-log-memory.txt": case("bad, triage", ("dimm #0x87", "bad, triage")),
    "fd0.txt": case("ok, none"),
    "flap3.txt": case("watch, diagnose", ("link ens1f0", "watch, diagnose")),
    "flap5.txt": case("bad, triage", ("link eth0", "bad, triage")),
    "ghes.txt": case("watch, none", ("host", "watch, none")),
    "gres-device-missing.txt": case("bad, reboot", ("host", "bad, reboot")),
    "ib-slower-than-peers.txt": case("watch, none", ("port mlx5_1", "watch, none")),
    "ibstat-no-subnet-manager.txt": case("watch, none", ("port mlx5_0", "watch, none")),
    "journal-json.txt": case("bad, reboot", ("gpu 0000:1b:00", "bad, reboot")),
    "kmsg.txt": case("bad, reset-gpu", ("gpu 0000:1b:00", "bad, reset-gpu")),
    "lost-before-the-boot.txt": case("watch, none", ("gpu 0000:61:00", "watch, none")),
    "lost-gpu-and-its-peers.txt": case("bad, reboot", ("gpu 0000:1b:00", "bad, reboot")),
    "lspci-narrow.txt": case("watch, diagnose", ("gpu 0000:3b:00", "watch, diagnose")),
    "mce-corrected.txt": case("watch, none", ("cpu 12", "watch, none")),
    "mce-uncorrected.txt": case("bad, triage", ("cpu 12", "bad, triage")),
    "mce.txt": case("bad, triage", ("cpu 3", "bad, triage")),
    "mismatch.txt": case("bad, config", ("host", "bad, config")),
    "netdev-watchdog.txt": case("watch, none", ("link ens1", "watch, none")),
    "nfs.txt": case("ok, none"),
    "no-devices.txt": case("bad, reboot", ("host", "bad, reboot")),
    "no-driver.txt": case("bad, triage", ("host", "bad, triage")),
    "no-handle-by-index.txt": case("bad, reboot", ("gpu 0000:5e:00", "bad, reboot")),
    "nvlink-errors.txt": case("watch, none", ("gpu 0", "watch, none")),
    "nvlink-inactive.txt": case("bad, triage", ("gpu 0", "bad, triage")),
    "nvme.txt": case("bad, triage", ("disk nvme0", "bad, triage"), ("disk nvme0", "watch, diagnose")),
    "remapped-rows-csv.txt": case("bad, reset-gpu", ("gpu 0000:c1:00", "bad, reset-gpu")),
    "sinfoR.txt": case(
        "bad, triage", ("host node-02", "bad, triage"), ("host node-03", "bad, triage"), ("host node-09", "watch, none")
    ),
    "slurm-reason-nhc.txt": case("bad, triage", ("host node-05", "bad, triage")),
    "slurmok.txt": case("bad, triage", ("host node-08", "bad, triage")),
    "smi-csv-ecc.txt": case("bad, reset-gpu", ("gpu 1", "bad, reset-gpu")),
    "smi-cut-off.txt": case("bad, reset-gpu", ("gpu 0000:07:00", "bad, reset-gpu")),
    "smi-history-only.txt": case("ok, none"),
    "smi-q-two-gpus.txt": case("bad, rma", ("gpu 0000:1a:00", "watch, diagnose"), ("gpu 0000:1b:00", "bad, rma")),
    "smi-remap-failure.txt": case("bad, rma", ("gpu 0000:07:00", "bad, rma")),
    "soft-lockup-short.txt": case("watch, diagnose", ("host", "watch, diagnose")),
    "solo45.txt": case("watch, none", ("gpu 0000:1b:00", "watch, none")),
    "symbol-errors-full.txt": case("watch, none", ("port mlx5_3", "watch, none")),
    "xid119-twice-in-a-week.txt": case("bad, reboot", ("gpu 0000:61:00", "bad, reboot")),
    "xid150.txt": case("bad, reset-gpu", ("gpu 0008:01:00", "bad, reset-gpu")),
    "xid31.txt": case("ok, restart-app"),
    "xid48.txt": case(
        "bad, reset-gpu", ("gpu 0000:1b:00", "bad, reset-gpu"), ("gpu 0000:1b:00", "watch, reset-gpu-later")
    ),
    "xid94.txt": case("ok, restart-app"),
    "xid95.txt": case("bad, reset-gpu", ("gpu 0000:1b:00", "bad, reset-gpu")),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_form(name: str) -> None:
    assert answered(judged((HERE / name).read_text("utf-8"))) == FORMS[name]


def test_all_forms_are_in_the_table() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(FORMS)
