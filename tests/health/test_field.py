"""What people met in the field: captures from tickets, with the answer that settled them."""

from pathlib import Path

import pytest

from tests.health.expected import Case, case
from tests.health.judging import answered, index, judged
from trainmaster.core.health.finding import report
from trainmaster.core.health.read import read, read_all

HERE = Path(__file__).parent / "field"
FIELD: dict[str, Case] = {
    "boot-times.csv": case("watch, diagnose", ("host gpu-017", "watch, diagnose")),
    "fabric-manager-nothing.log": case("ok, none"),
    "fabric-manager-version.log": case("bad, config", ("host", "bad, config")),
    "flapping-port.log": case(
        "watch, diagnose", ("host gpu-003", "watch, diagnose"), ("host gpu-011", "watch, diagnose")
    ),
    "four-of-twelve.json": case("ok, none"),
    "gid-moved-after.txt": case("watch, config", ("port mlx5_2", "watch, config")),
    "gid-moved-before.txt": case("ok, none"),
    "gid-moved-kmsg.txt": case("watch, none", ("link ens5", "watch, none")),
    "gid-pin.txt": case("skipped, none"),
    "gres-both.txt": case("bad, config", ("host", "bad, config")),
    "gres-duplicate.log": case("bad, config", ("host", "bad, config")),
    "isolated-port-a.csv": case("bad, triage", ("port", "bad, triage")),
    "isolated-port-b.csv": case("watch, none", ("port", "watch, none")),
    "jobs-held.txt": case("ok, restart-app"),
    "lustre-clients.txt": case("watch, diagnose", ("fs", "watch, diagnose")),
    "lustre-probes.csv": case("bad, triage", ("fs", "bad, triage")),
    "node-black-hole.json": case("bad, triage", ("host gpu-021", "bad, triage")),
    "node-peers.json": case("ok, none"),
    "node-unhealthy-gpu.json": case("bad, triage", ("host gpu-001", "bad, triage")),
    "peermem.txt": case("watch, config", ("host", "watch, config")),
    "reboot-order.json": case("skipped, none"),
    "rejections.csv": case("bad, triage", ("host", "bad, triage")),
    "resumed-by-range.csv": case(
        "bad, triage",
        ("host gpu-125", "bad, triage"),
        *((f"host gpu-{number}", "watch, none") for number in (110, 120, 135, 136)),
    ),
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
    "rule.json": case("unknown, none", ("host", "unknown, none")),
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


def together(*names: str) -> Case:
    """The answer to several captures of one call."""
    return answered(report(read_all([(name, (HERE / name).read_text("utf-8")) for name in names], index())))


def test_what_one_file_tells_of_another() -> None:
    """1. Jobs are pinned to an index. 2. The table of another file shows that it moved. 3. Not so before."""
    assert together("gid-pin.txt", "gid-moved-after.txt").units == {("port mlx5_2", "watch, config")}
    assert together("gid-pin.txt", "gid-moved-before.txt") == case("ok, none")
    names = ("gid-pin.txt", "gid-moved-after.txt")
    found = report(read_all([(name, (HERE / name).read_text("utf-8")) for name in names], index()))
    assert "jobs are pinned to 3, which holds none" in found.findings[0].summary


def test_a_host_that_missed_the_reboot() -> None:
    """1. A reboot was ordered. 2. One host was booted before it: reboot it. Its peers came back new."""
    assert together("boot-times.csv", "reboot-order.json", "jobs-held.txt") == case(
        "bad, reboot", ("host gpu-017", "bad, reboot")
    )


def test_a_file_that_nobody_knows_hides_nothing_of_the_others() -> None:
    """1. A rule of another tool beside a log. 2. It is said not to have been read, and the log has its answer."""
    assert together("xid45-churn.txt", "rule.json") == case("ok, restart-app")
    assert together("rule.json").answer == "unknown, none"
    assert together("rule.json", "node-peers.json") == case("ok, none")


def test_files_that_are_named_by_their_hosts() -> None:
    """1. Two hosts' logs, which name none. 2. Only the host whose log tells of a fault is at fault."""
    names = ("fabric-manager-version.log", "fabric-manager-nothing.log")
    files = [(f"gpu-00{number}.log", (HERE / name).read_text("utf-8")) for number, name in enumerate(names, 1)]
    found = report(read_all(files, index()))
    assert {(each.unit, str(each.verdict)) for each in found.units} == {("host gpu-001", "bad"), ("host gpu-002", "ok")}
    rotated = [(f"dmesg.{number}.log", text) for number, (_, text) in enumerate(files)]
    assert {each.unit for each in read_all(rotated, index())} == {"host"}


def test_the_peer_that_did_not_answer() -> None:
    """1. Two hosts have port errors, one names a peer. 2. Its error is an echo of the host with that address."""
    found = read("nccl.log", (HERE / "flapping-port.log").read_text("utf-8"), index())
    assert [each.echo_of for each in found if each.unit == "job"] == ["host gpu-003"]


SWITCH = "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
LOST = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus."


def several(*files: str) -> list[tuple[str, str]]:
    return [(f"file {chr(97 + number)}", text) for number, text in enumerate(files)]


def test_cause_and_echo_in_two_files() -> None:
    """1. A GPU is lost in the kernel's log, a switch complains in another file 12 s later. 2. One asks. 3. The
    proof names the file it stands in. 4. Much later, or on another host, it is a fault of its own."""

    def answer(at: float, host: str = "gpu-1") -> Case:
        files = several(f"2025-01-21T10:00:00+00:00 gpu-1 kernel: {LOST}\n",
                        f"2025-01-21T10:{at:02.0f}:12+00:00 {host} kernel: {SWITCH}\n")  # fmt: skip
        return answered(report(read_all(files, index())))

    lost, switch = ("gpu 0000:1b:00", "bad, reboot"), ("nvswitch 0000:05:00.0", "bad, reboot")
    assert answer(0).units == {lost}
    assert answer(9).units == {lost, switch}
    assert answer(0, "gpu-2").units == {lost, switch}
    files = several(f"[100.000000] {LOST}\n", f"[112.000000] {SWITCH}\n")
    found = read_all(files, index())
    assert [(each.file, each.echo_of, each.evidence) for each in found] == [
        ("file a", "", (files[0][1].strip(),)), ("file b", "gpu 0000:1b:00", (files[1][1].strip(),))
    ]  # fmt: skip


def test_files_without_a_common_clock() -> None:
    """1. One log counts from the boot, the other has dates. 2. Both ask, and each says what was not compared."""
    found = read_all(several(f"[100.000000] {LOST}\n", f"[Tue Jan 21 10:00:12 2025] {SWITCH}\n"), index())
    assert [each.echo_of for each in found] == ["", ""]
    assert "its times cannot be compared" in found[0].next_evidence[-1]
    assert "file a" in found[1].next_evidence[-1]


def test_one_log_in_two_files_is_one_incident() -> None:
    """1. The same line in the ring buffer and the journal. 2. It is not a second time, which would ask for more."""
    line = "NVRM: Xid (PCI:0000:61:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response"
    found = read_all(several(f"[100.000000] {line}\n", f"[100.000000] {line}\n"), index())
    assert {str(each.answer) for each in found} == {"bad, reset-gpu"}
