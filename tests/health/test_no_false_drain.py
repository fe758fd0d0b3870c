"""What is no fault of a host takes none out: faults of applications, healthy captures, decisions of people, noise."""

import gzip
import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.judging import index, judged
from tests.health.mutate import NOISE
from trainmaster.core.base.value import encode
from trainmaster.core.health.read import read
from trainmaster.core.health.words import Verdict
from trainmaster.live.health.files import content

CASES = Path(__file__).parent / "cases"
XID = "NVRM: Xid (PCI:0000:5e:00): "
SMI = (
    '<nvidia_smi_log><gpu id="00000000:07:00.0"><gpu_recovery_action>None</gpu_recovery_action>'
    "{}</gpu></nvidia_smi_log>"
)
APPLICATION = {
    "one illegal access": [
        "[10.1] "
        + XID
        + "13, pid=7, name=python, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Out Of Range Address"
    ],
    "page fault": ["[10.1] " + XID + "31, pid=7, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"],
    "channel reset": ["[10.1] " + XID + "43, pid=7, name=python, Ch 00000008"],
    "clean-up": [f"[{10 + at}.1] {XID}45, pid={at}, name=python, Ch 0000000{at}" for at in range(9)],
    "clean-up, days apart": [f"[{at * 90_000}.1] {XID}45, pid={at}, name=python, Ch 00000001" for at in range(9)],
    "contained": [
        f"[10.{at}] {XID}94, pid={at}, name=python, Contained: SM (0x1). RST: No, D-RST: No" for at in range(9)
    ],
    "segfault": ["python[77]: segfault at 7f79 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2[7f7c+d3d3000]"],
    "memory used up": ["[1.2] Out of memory: Killed process 77 (python) total-vm:1kB"],
    "all of it, on eight GPUs": [
        f"[{at}.5] NVRM: Xid (PCI:0000:{at:02x}:00): {code}, pid={at}, name=python, Ch 00000001"
        for at in range(16, 24)
        for code in (31, 43, 45)
    ],
}
HARMLESS = {
    "corrected PCIe error": "[1.0] pcieport 0000:00:03.1: AER: Corrected error received: 0000:00:00.0",
    "recovered": "[1.0] pcieport 0000:00:03.1: AER: device recovery successful",
    "floppy": "[1.0] print_req_error: I/O error, dev fd0, sector 0",
    "disc": "[1.0] blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ)",
    "corrected memory": "[1.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_DIMM#0 (channel:1 slot:0 page:0x1)",
    "link down": "[1.0] mlx5_core 0000:ab:00.0 ens5: Link down",
    "non-fatal switch": "[1.0] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
    "one clean-up": "[1.0] " + XID + "45, pid=7, name=python, Ch 00000001",
    "new code": "[1.0] " + XID + "999, pid=7, name=python, something new",
    "truncated": "[1.0] " + XID + "1",
    "after a boot": f"[1.0] {XID}79, GPU has fallen off the bus.\n[0.000000] Linux version 6.8.0 (builder)",
    "answered": f"[1.0] {XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "disabled port": "CA 'mlx5_8'\n    Port 1:\n        State: Down\n        Physical state: Disabled\n",
    "no IP on InfiniBand": "mlx5_0   port  1  ==>  ibp26s0        (Down)\n",
    "disabled NVLinks": '{"dcgmi nvlink -s": ["gpuId 0:", "U U X X"]}',
    "power cap": SMI.format(
        "<clocks_event_reasons><clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>"
        "</clocks_event_reasons>"
    ),
    "history": SMI.format(
        "<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile>"
        "<aggregate><dram_uncorrectable>71</dram_uncorrectable></aggregate></ecc_errors>"
    ),
    "planned": "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu    up 14-00:00:0      5  maint g[003,005]\n",
    "busy": '{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{'
    '"name": "GPU Memory", "results": [{"status": "Fail",'
    ' "warnings": "CUDA-capable device(s) is/are busy or unavailable"}]}]}]}}',
}  # fmt: skip


@pytest.mark.parametrize("name", APPLICATION)
def test_an_application_fault_is_no_host_fault(name: str) -> None:
    """1. A job fails by its own fault. 2. The host is ok, whatever happens to the job."""
    found = judged("\n".join(APPLICATION[name]) + "\n")
    assert found.verdict is Verdict.OK, found.findings


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    """1. Something is worth a look at most, or cannot be told. 2. Nothing is bad."""
    assert judged(HARMLESS[name]).verdict is not Verdict.BAD


def test_the_same_engine_again_is_worth_a_diagnosis() -> None:
    """1. Xid 13 on one engine in three jobs, and once on another GPU. 2. Only the first GPU is a suspect."""
    lines = [
        f"[{at}] NVRM: Xid (PCI:0000:{bus}:00): 13, pid=770, name=python3, SM Warp Exception on {engine}: Out"
        for at, bus, engine in (
            (1000, "3b", "(GPC 2, TPC 3, SM 0)"), (9000, "3b", "(GPC 2, TPC 3, SM 1)"),
            (20_000, "3b", "(GPC 2, TPC 3, SM 0)"),
            (21_000, "86", "(GPC 5, TPC 1, SM 1)"),
        )
    ]  # fmt: skip
    units = {each.unit: str(each.answer) for each in judged("\n".join(lines)).findings}
    assert units == {"gpu 0000:3b:00": "watch, diagnose", "job": "ok, restart-app"}


def test_a_file_of_comments_is_unknown() -> None:
    assert judged("# A  scontrol show node\n# B\n").verdict is Verdict.UNKNOWN


def test_a_time_that_no_clock_has() -> None:
    """1. A stamp of thirty digits. 2. It is no time, and the finding can be sent."""
    (finding,) = judged("[" + "9" * 30 + ".1] " + XID + "62, pid=7, name=python").findings
    assert finding.first_us is None
    assert encode(finding)


def test_a_thousand_lines_of_noise() -> None:
    """1. A log of lines that speak of the same things as faults do. 2. It is ok, since it has the form of a log."""
    chance = random.Random(4)
    lines = [f"[{at}.{chance.randrange(10**6):06}] {chance.choice(NOISE)}" for at in range(1000)]
    found = judged("\n".join(lines))
    assert found.verdict is Verdict.OK
    assert [each.rule for each in found.findings] == ["log"]


FRAGMENTS = st.sampled_from(
    sorted({line for path in CASES.iterdir() for line in path.read_text("utf-8").split("\n") if line.strip()})
)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_garbage_is_unknown_or_quiet(text: str) -> None:
    """1. Any text. 2. No crash, at least one finding, and nothing is bad."""
    findings = read("file", text, index())
    assert findings
    assert all(each.verdict is not Verdict.BAD for each in findings)
    assert encode(findings)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(FRAGMENTS, st.integers(0, 400), st.text(max_size=8)), max_size=12))
def test_lines_cut_and_mixed_crash_nothing(parts: list[tuple[str, int, str]]) -> None:
    """1. Lines of real captures, cut anywhere, with anything behind. 2. No crash; a claim names its unit and lines."""
    text = "\n".join(line[:length] + tail for line, length, tail in parts)
    for each in read("file", text, index()):
        assert each.unit
        assert encode(each)
        assert all(number <= text.count("\n") + 1 for number in each.lines)
        assert not each.echo_of or each.verdict in (Verdict.OK, Verdict.WATCH)


@pytest.mark.parametrize(
    "unit",
    [
        "\n",
        " ",
        "\t",
        "A",
        "A ",
        "9",
        "[",
        "<",
        "<a",
        "{",
        '{"a":',
        "|",
        "Link 0: ",
        "a: b\n",
        "# \n",
        "\u00e9",
        "x,y\n",
    ],
)
def test_no_text_takes_for_ever(unit: str) -> None:
    """1. Half a million characters of one thing. 2. There is an answer, not bad, in the time of a log."""
    start = time.process_time()
    assert judged(unit * (500_000 // len(unit))).verdict is not Verdict.BAD
    assert time.process_time() - start < 5


def test_damaged_captures_crash_nothing() -> None:
    """1. Captures with characters changed, cut off, or run together. 2. Each gets findings that can be sent."""
    chance = random.Random(7)
    texts = [path.read_text("utf-8") for path in sorted(CASES.iterdir())]
    for _ in range(1000):
        letters = list(chance.choice(texts))
        for _ in range(chance.randrange(1, 40)):
            letters[chance.randrange(len(letters))] = chance.choice("\n\t ,:|<>{}[]()0123456789abcXYZ.\"'\\=\x1b\ufeff")
        text = "".join(letters)[chance.randrange(50) :] + chance.choice(texts)[: chance.randrange(2000)]
        assert encode(judged(text).findings)


def test_registers_that_ran_together() -> None:
    """A line that lost a space: it is decoded as far as it can be, and is nothing worse than to be watched."""
    line = "[1.0] NVRM: Xid (PCI:0000:04:00): 145, RLW_CTRL Nonfatal XC0 i0 Link 00 (0x0000000310x80000000 0x00000000)"
    assert judged(line).verdict is Verdict.WATCH


WORDS = st.sampled_from([
    "node", "host", "gpu", "xid", "event", "time", "t_s", "day", "line", "field", "value", "ost", "target", "pod",
    "reason", "label", "ce", "ue", "boot_time", "path", "ecc_uncorrected_volatile", "cuda_context", "case", "index",
    "xid_45_count", "write", "port", "",
])  # fmt: skip
CELLS = st.one_of(
    st.sampled_from(["0", "1", "79", "ok", "", "N/A", "0000:1b:00", "isolate", "gpu-1", '"', "-1", "1e9"]),
    st.text(max_size=12),
)
KEYS = st.sampled_from([
    "items", "status", "conditions", "type", "metadata", "name", "capacity", "allocatable", "nvidia.com/gpu", "body",
    "header", "children", "value", "DCGM Diagnostic", "DCGM GPU Diagnostic", "test_categories", "tests", "results",
    "warnings", "test_summary", "ports", "expected", "at_least_ports", "smart_status", "passed", "critical_warning",
    "Overall Health", "Link 0", "rejected", "succeeded", "pods", "dcgmi nvlink -s", "MESSAGE", "reboot_ordered",
    "device", "nvme_smart_health_information_log", "entity_id", "gpu_ids", "category", "kind", "state", "rate",
])  # fmt: skip
WORDS_OF_TOOLS = st.sampled_from(["Fail", "Pass", "Warn", "Healthy", "gpuId 0:", "U D X", "Active", "True"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS_OF_TOOLS)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
                     max_leaves=24)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(WORDS, min_size=1, max_size=5), st.lists(st.lists(CELLS, max_size=6), max_size=6), st.sampled_from("\t,")
)
def test_tables_of_anything_crash_nothing(names: list[str], rows: list[list[str]], mark: str) -> None:
    """1. A header of words that readers look for, with rows of any width and content. 2. Findings that can be sent."""
    text = "\n".join(mark.join(cells) for cells in [names, *rows])
    assert encode(read("file", text, index()))


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=5))
def test_documents_of_anything_crash_nothing(document: dict[str, object]) -> None:
    """1. JSON with the keys that readers look for, in any place and with any value. 2. Findings that can be sent."""
    assert encode(read("file", json.dumps(document), index()))
    assert encode(read("file", json.dumps(document, indent=1), index()))


TAGS = st.sampled_from(["gpu", "ecc_errors", "volatile", "dram_uncorrectable", "remapped_rows", "pending", "fabric",
                        "state", "gpu_recovery_action", "process_info", "pid", "a"])  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TAGS, st.sampled_from(["open", "close", "whole", "single"]), CELLS), max_size=30))
def test_markup_of_anything_crashes_nothing(parts: list[tuple[str, str, str]]) -> None:
    """1. Tags that are looked for, in any order, closed or not. 2. Findings that can be sent."""
    form = {"open": "<{0}>{1}", "close": "</{0}>{1}", "whole": "<{0}>{1}</{0}>", "single": '<{0} id="{1}"/>'}
    text = "".join(form[how].format(tag, value) for tag, how, value in parts)
    assert encode(read("file", f"<nvidia_smi_log>{text}", index()))


def test_lines_of_windows_and_zeros_change_nothing() -> None:
    """1. A log with line breaks of two characters, and zeros in between. 2. The same unit, with the same answer."""
    line = "[1.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus."
    for text in (f"{line}\r\n" * 3, f"\ufeff{line}\n", f"{line}" + " " * 10_000 + "\n", f"{line}\n" + "x" * 300_000):
        first = judged(text).findings[0]
        assert (first.unit, str(first.answer)) == ("gpu 0000:1b:00", "bad, reboot")


def test_a_bomb_is_unpacked_no_further_than_allowed(tmp_path: Path) -> None:
    """1. A small file that unpacks to 40 MB. 2. So much of it is read as is allowed, and the rest is said."""
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"x" * 1_000_000)
    text, notes = content(str(bomb), limit=2_000_000)
    assert len(text) == 2_000_000
    assert "was not read" in notes[0].summary
