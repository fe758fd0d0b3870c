"""What people met in the field: captures from tickets, with the answer that settled them."""

from pathlib import Path

import pytest

from tests.health.expected import Case, case
from tests.health.judging import answered, index, judged
from trainmaster.core.health.finding import report
from trainmaster.core.health.read import read

HERE = Path(__file__).parent / "field"
FIELD: dict[str, Case] = {
    "fabric-manager-nothing.log": case("ok, none"),
    "fabric-manager-version.log": case("bad, config", ("host", "bad, config")),
    "flapping-port.log": case(
        "watch, diagnose", ("host gpu-003", "watch, diagnose"), ("host gpu-011", "watch, diagnose")
    ),
    "four-of-twelve.json": case("ok, none"),
    "gid-moved-after.txt": case("watch, config", ("port mlx5_2", "watch, config")),
    "gid-moved-before.txt": case("ok, none"),
    "gid-moved-kmsg.txt": case("watch, none", ("link ens5", "watch, none")),
    "gres-duplicate.log": case("bad, config", ("host", "bad, config")),
    "isolated-port-a.csv": case("bad, triage", ("port", "bad, triage")),
    "isolated-port-b.csv": case("watch, none", ("port", "watch, none")),
    "node-black-hole.json": case("bad, triage", ("host gpu-021", "bad, triage")),
    "node-unhealthy-gpu.json": case("bad, triage", ("host gpu-001", "bad, triage")),
    "peermem.txt": case("watch, config", ("host", "watch, config")),
    "retest.csv": case("bad, triage", ("host v-007", "bad, triage")),
    "row-remap-kmsg.txt": case(
        "bad, rma", ("gpu 0000:40:00", "watch, reset-gpu-later"), ("gpu 0000:53:00", "bad, rma")
    ),
    "row-remap-smi.txt": case(
        "bad, rma",
        ("gpu 0000:1a:00", "watch, none"),
        ("gpu 0000:40:00", "bad, reset-gpu"),
        ("gpu 0000:53:00", "bad, rma"),
    ),
    "xid13-same-tpc.txt": case("watch, diagnose", ("gpu 0000:3b:00", "watch, diagnose")),
    "xid163-cleared.csv": case("ok, restart-app"),
    "xid45-churn.txt": case("ok, restart-app"),
    "xid45-names-its-cause.txt": case("bad, reboot", ("gpu 0000:dc:00", "bad, reboot")),
}


@pytest.mark.parametrize("name", sorted(FIELD))
def test_field(name: str) -> None:
    assert answered(judged((HERE / name).read_text("utf-8"))) == FIELD[name]


def test_all_captures_are_in_the_table() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(FIELD)


def test_two_captures_of_one_host_are_one_verdict_a_unit() -> None:
    """1. The log says "reset at the next free moment", the state says that a reset is due. 2. The worse one wins."""
    names = ("row-remap-kmsg.txt", "row-remap-smi.txt")
    found = report([each for name in names for each in read(name, (HERE / name).read_text("utf-8"), index())])
    verdicts = {each.unit: (str(each.verdict), str(each.remedy), each.findings) for each in found.units}
    assert verdicts["gpu 0000:40:00"] == ("bad", "reset-gpu", 2)
    assert verdicts["gpu 0000:53:00"] == ("bad", "rma", 2)


def test_one_fault_that_speaks_with_many_voices() -> None:
    """1. A GPU is lost; its peers report their links, a job is cleaned up. 2. One unit asks, all others are echoes."""
    text = (
        "[100.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
        "[101.0] NVRM: Xid (PCI:0000:2b:00): 74, pid=1, name=x, NVLink: fatal error detected on link 2"
        "(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)\n"
        "[101.0] NVRM: Xid (PCI:0000:2b:00): 45, pid=1, name=x, Ch 00000003\n"
        "[102.0] NVRM: Xid (PCI:0000:3b:00): 137, pid=1, name=x, NVLink: remote\n"
    )
    assert answered(judged(text)) == case("bad, reboot", ("gpu 0000:1b:00", "bad, reboot"))
    later = text.replace("[101.0] NVRM: Xid (PCI:0000:2b:00): 74", "[901.0] NVRM: Xid (PCI:0000:2b:00): 74")
    assert ("gpu 0000:2b:00", "bad, reset-gpu") in answered(judged(later)).units


def test_what_ended_is_over() -> None:
    """1. A GPU asks for a reset. 2. The driver takes it back; or the host is booted. 3. It is watched, not bad."""
    lost = "[999.1] NVRM: Xid (PCI:0000:61:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC\n"
    back = "[1020.5] NVRM: Xid (PCI:0000:61:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required)"
    back += " to 0x0 (None)\n"
    boot = "[0.000000] Linux version 6.8.0-40-generic (builder)\n"
    assert answered(judged(lost)).answer == "bad, reset-gpu"
    assert answered(judged(lost + back)).answer == "watch, none"
    assert answered(judged(lost + boot)).answer == "watch, none"
    assert answered(judged(lost + boot + lost)).answer == "bad, reboot", "a second time, in the next boot"


def test_links_that_flap() -> None:
    """1. Up and down once is a look, three times in twelve hours a diagnosis, five times in a day a fault."""

    def log(times: int) -> str:
        down, up = (
            "[{}.5] mlx5_core 0000:5e:00.0 ens1f0: Link down\n",
            "[{}.9] mlx5_core 0000:5e:00.0 ens1f0: Link up\n",
        )
        return "".join((down + up).format(at * 1000, at * 1000 + 5) for at in range(times))

    answers = {times: answered(judged(log(times))).answer for times in (1, 3, 5)}
    assert answers == {1: "watch, none", 3: "watch, diagnose", 5: "bad, triage"}


def xid(at_h: float, code: int, rest: str) -> str:
    return f"[{at_h * 3600:.1f}] NVRM: Xid (PCI:0000:9c:00): {code}, pid=1, name=python, {rest}\n"


def test_a_region_that_fails_again_is_the_part() -> None:
    """1. Uncorrected errors four times in one region, a row remapped each time. 2. RMA. 3. In two regions: triage."""
    one, other = "DRAM, FBPA 9, subpartition 1", "DRAM, FBPA 2, subpartition 0"
    dying = "".join(
        xid(at, 48, "DBE") + xid(at, 171, one) + xid(at, 63, "Row Remapper: New row") for at in (4, 6, 15, 16)
    )
    assert answered(judged(dying)).answer == "bad, rma"
    assert answered(judged(xid(4, 48, "DBE") + xid(4, 171, one))).answer == "bad, reset-gpu"
    twice = xid(4, 48, "DBE") + xid(4, 171, one) + xid(40, 48, "DBE") + xid(40, 171, other)
    assert answered(judged(twice)).answer == "bad, triage"


def test_a_detail_without_its_record_is_not_healthy() -> None:
    """1. Xid 171 without the 48 that it belongs to. 2. It counts as the 48, and says what is missing."""
    (finding,) = judged(xid(1, 171, "DRAM, FBPA 9, subpartition 1")).findings
    assert (str(finding.answer), finding.confidence) == ("bad, reset-gpu", "medium")
    assert "48" in finding.next_evidence[0]


def test_repeats_across_boots() -> None:
    """1. A GPU is lost, the host is booted, the GPU is lost again. 2. The slot is for people to look at."""
    lost = "[99.5] NVRM: Xid (PCI:0000:61:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    assert answered(judged(lost + "[0.0] Linux version 6.8.0\n" + lost)).answer == "bad, triage"
