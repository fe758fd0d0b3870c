"""The right answers: for each input its verdict, and every unit that asks for something, with what it asks for."""

from typing import NamedTuple


class Case(NamedTuple):
    answer: str
    """Of the whole file."""
    units: frozenset[tuple[str, str]]
    """Units and answers of all findings that are no echoes and neither ok nor skipped: no more, no fewer."""


def case(answer: str, *units: tuple[str, str]) -> Case:
    return Case(answer, frozenset(units))


CASES: dict[str, Case] = {
    "01-xid79-aer-surprise-down.dmesg.log": case("bad, reboot", ("gpu 0000:02:00", "bad, reboot")),
    "02-xid79-multiline.dmesg.log": case(
        "bad, reboot", ("gpu 0000:09:00", "bad, reboot"), ("pcie 0000:00:01.1", "watch, none")
    ),
    "03-xid79-plus-nvswitch-sxid20034.dmesg.log": case("bad, reboot", ("gpu 0000:91:00", "bad, reboot")),
    "04-fell-off-bus-no-xid.dmesg.log": case("bad, reboot", ("gpu 0000:b3:00", "bad, reboot")),
    "05-gpu-lost-nvidia-smi-messages.txt": case(
        "bad, reboot",
        ("gpu", "bad, reboot"),
        ("gpu 0000:02:00", "bad, reboot"),
        ("gpu 0000:09:00", "bad, reboot"),
        ("gpu 0000:18:00", "bad, reboot"),
    ),
    "06-lspci-rev-ff.txt": case("bad, reboot", ("gpu 0000:1c:00", "bad, reboot")),
    "07-xid119-gsp-timeout.dmesg.log": case("bad, reset-gpu", ("gpu 0000:9b:00", "bad, reset-gpu")),
    "08-xid119-old-format-repeat.dmesg.log": case("bad, reset-gpu", ("gpu 0000:61:00", "bad, reset-gpu")),
    "09-xid45-burst-then-hung-task.dmesg.log": case("bad, reboot", ("host", "bad, reboot")),
    "10-hung-task-in-nvidia-rwlock.dmesg.log": case("bad, reboot", ("host", "bad, reboot")),
    "11-xid13-burst-then-43.dmesg.log": case("ok, restart-app"),
    "12-xid13-then-109.dmesg.log": case("bad, reset-gpu", ("gpu 0000:cb:00", "bad, reset-gpu")),
    "13-nccl-segfault.dmesg.log": case("ok, restart-app"),
    "14-xid45-caused-by-149-145.journal.log": case("bad, reboot", ("gpu 0000:dc:00", "bad, reboot")),
    "15-gb200-149-154-sequence.dmesg.log": case(
        "bad, reset-gpu",
        ("fabric", "watch, diagnose"),
        ("gpu 0008:01:00", "bad, reset-gpu"),
        ("gpu 0009:01:00", "bad, reset-gpu"),
        ("gpu 0018:01:00", "bad, reset-gpu"),
        ("gpu 0019:01:00", "bad, reset-gpu"),
    ),
    "16-xid144-149-decoded.tsv": case(
        "bad, reset-gpu",
        ("gpu 0000:04:00", "watch, none"),
        ("gpu 0008:01:00", "bad, reset-gpu"),
        ("gpu 0008:01:00", "watch, none"),
        ("gpu 0018:01:00", "bad, reset-gpu"),
        ("gpu 0018:01:00", "watch, none"),
        ("gpu 0019:01:00", "bad, reset-gpu"),
        ("gpu 0019:01:00", "watch, none"),
    ),
    "17-xid74-and-reset-required.dmesg.log": case(
        "bad, reset-gpu", ("gpu 0003:00:00", "bad, reset-gpu"), ("host", "bad, reset-gpu")
    ),
    "18-nvidia-smi-q-x-healthy-a100-mig.xml": case("ok, none"),
    "19-sxid-fatal-nonfatal-variants.dmesg.log": case(
        "bad, reboot",
        ("nvswitch 0000:05:00.0", "watch, none"),
        ("nvswitch 0000:06:00.0", "watch, none"),
        ("nvswitch 0000:a9:00.0", "bad, reboot"),
        ("nvswitch 0000:c1:00.0", "watch, none"),
        ("nvswitch 0000:c3:00.0", "bad, reboot"),
        ("nvswitch 0004:00:00.0", "bad, reboot"),
    ),
    "20-hbm-degrading-events.tsv": case("bad, rma", ("gpu 0000:9c:00", "bad, rma")),
    "21-nvidia-smi-q-x-drain-and-reset.xml": case("bad, reset-gpu", ("gpu 0000:52:00", "bad, reset-gpu")),
    "22-remapped-rows-pending.txt": case("bad, reset-gpu", ("gpu", "bad, reset-gpu")),
    "23-dcgm-healthy-but-reset-required.txt": case(
        "bad, reset-gpu", ("gpu 1", "bad, reset-gpu"), ("gpu 1", "watch, none")
    ),
    "24-dcgm-corrected-ecc-storm.tsv": case("bad, triage", ("gpu", "bad, triage")),
    "25-rack-xid45-baseline.tsv": case("ok, restart-app"),
    "26-aer-correctable-only.dmesg.log": case("watch, none", ("pcie 0000:00:03.1", "watch, none")),
    "27-aer-uncorrected-root-port-reset.dmesg.log": case("bad, reboot", ("gpu 0000:03:00", "bad, reboot")),
    "28-edac-ce-storm.dmesg.log": case(
        "watch, none",
        ("dimm CPU#0Channel#2_DIMM#0", "watch, none"),
        ("dimm P0_Node0_Channel5_Dimm0 DIMMF1", "watch, none"),
    ),
    "29-nvme-io-error-xfs.dmesg.log": case("bad, triage", ("disk nvme2n1", "bad, triage")),
    "30-mlx5-fatal.dmesg.log": case(
        "bad, reboot", ("nic 0000:03:00.0", "bad, reboot"), ("nic 0000:41:00.0", "bad, reboot")
    ),
    "31-mlx5-nonfatal.dmesg.log": case(
        "watch, none",
        ("nic 0000:41:00.1", "watch, none"),
        ("nic 0000:5c:00.0", "watch, none"),
        ("nic 0000:d2:00.0", "watch, none"),
    ),
    "32-nic-tx-timeout-softlockup.dmesg.log": case("bad, reboot", ("nic <BDF>", "bad, reboot")),
    "33-ib-sysfs-h100-saturated.tsv": case("watch, none", ("port mlx5_1", "watch, none")),
    "34-ibstat-down-missing-expected.txt": case(
        "bad, triage", ("port mlx5_10", "bad, triage"), ("port mlx5_8", "bad, reboot")
    ),
    "35-link-flap-syslog.log": case("watch, none", ("link eth0", "watch, none"), ("link ib1", "watch, none")),
    "36-dcgmi-diag-and-nvlink.jsonl": case(
        "bad, triage",
        ("gpu 0", "bad, triage"),
        ("gpu 0", "watch, none"),
        ("gpu 1", "bad, triage"),
        ("host", "watch, config"),
        ("host", "watch, none"),
    ),
    "37-dcgmi-diag-busy.txt": case("unknown, none", ("gpu 0", "unknown, none")),
    "38-slurm-node-states.txt": case(
        "bad, triage",
        ("host", "bad, triage"),
        ("host b005", "bad, triage"),
        ("host g020", "bad, triage"),
        ("host g021", "bad, triage"),
        ("host g022", "bad, triage"),
        ("host node-01", "bad, reboot"),
        ("host node-02", "bad, triage"),
    ),
    "39-nhc-reason-overwritten.log": case("bad, triage", ("host node-30", "bad, triage")),
    "40-offender-history.tsv": case(
        "bad, rma",
        ("host node-110", "bad, rma"),
        ("host node-125", "bad, triage"),
        ("host r1n8", "watch, diagnose"),
        ("rack position n12-n13", "bad, triage"),
    ),
}
