"""A log as it comes gives what the whole log gives, copies are silent, and memory and time are bounded."""

import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.expected import CASES
from tests.health.judging import index, judged
from tests.health.mutate import NOISE
from trainmaster.core.base.value import encode
from trainmaster.core.health.finding import Finding, report
from trainmaster.core.health.fold import OTHERS
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.kernel_log import scan
from trainmaster.core.health.stream import LogStream
from trainmaster.core.health.words import Verdict

HERE = Path(__file__).parent / "cases"
LOGS = {name: (HERE / name).read_text("utf-8") for name in sorted(CASES) if name.endswith((".log", ".txt"))}
LINES = sorted({line for text in LOGS.values() for line in text.split("\n") if line.strip()})
XID = "[{:.6f}] NVRM: Xid (PCI:0000:{}:00): {}, pid={}, name=python, {}\n"


def whole(text: str) -> list[Finding]:
    seen = scan(text, 1, index())
    return judge(seen.folds, index())


def asks(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """What findings ask for, in an order of their own."""
    return sorted((each.rule, each.at or each.unit, each.host, each.unit, str(each.answer), each.echo_of)
                  for each in findings)  # fmt: skip


def cut(text: str, chance: random.Random) -> list[str]:
    places = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(1, 12)))
    return [text[one:other] for one, other in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("name", sorted(LOGS))
def test_any_cut_gives_the_same(name: str) -> None:
    """1. A capture comes in pieces, cut anywhere. 2. Then line by line. 3. The findings are those of the whole."""
    want = whole(LOGS[name])
    for seed in range(4):
        stream = LogStream(index())
        for piece in cut(LOGS[name], random.Random(f"{name} {seed}")):
            stream.feed(piece)
        stream.end()
        assert stream.findings() == want
    stream = LogStream(index())
    for line in LOGS[name].rstrip("\n").split("\n"):
        stream.feed([line])
    assert stream.findings() == want


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.sampled_from(NOISE), st.text(max_size=30)), max_size=40),
       st.randoms(use_true_random=False))  # fmt: skip
def test_any_log_cut_anywhere_gives_the_same(lines: list[str], chance: random.Random) -> None:
    """1. Lines of all captures, mixed, in pieces. 2. The findings at the end are those of the whole text."""
    text = "\n".join(lines) + chance.choice(("", "\n"))
    stream = LogStream(index())
    for piece in cut(text, chance):
        stream.feed(piece)
    stream.end()
    assert encode(stream.findings()) == encode(whole(text))


@pytest.mark.parametrize("name", sorted(LOGS))
def test_what_is_told_is_what_holds(name: str) -> None:
    """1. Somebody keeps what each line changes. 2. At the end that is what holds, and nothing else is bad."""
    told: dict[tuple[str, str, str], list[Finding]] = {}
    stream = LogStream(index())
    for line in LOGS[name].rstrip("\n").split("\n"):
        changed = stream.feed([line])
        for key in {(each.rule, each.at or each.unit, each.host) for each in changed}:
            told[key] = [each for each in changed if (each.rule, each.at or each.unit, each.host) == key]
    held = {(each.rule, each.at or each.unit, each.host) for each in stream.findings()}
    for key, its in told.items():
        assert key in held or {each.verdict for each in its} == {Verdict.OK}
    for each in stream.findings():
        its = told[each.rule, each.at or each.unit, each.host]
        assert set(asks([each])) <= set(asks(its)), each


def test_a_storm_is_told_once() -> None:
    """1. 40,000 copies, each from another process. 2. One finding is told, once; its count is that of all."""
    stream = LogStream(index(), host="gpu-1", boot="b1")
    told = []
    for at in range(400):
        text = "".join(
            XID.format(at + number / 1000, "1b", 95, at * 100 + number, "Uncontained: FBHUB. RST: Yes")
            for number in range(100)
        )
        told += stream.feed(text)
    (finding,) = stream.findings()
    assert [(each.unit, each.verdict) for each in told] == [("gpu 0000:1b:00", Verdict.BAD)]
    assert (finding.count, finding.host, finding.boot, stream.lines) == (40_000, "gpu-1", "b1", 40_000)


def test_a_line_costs_far_less_than_a_millisecond() -> None:
    """1. Eight GPUs have shown eighteen faults each. 2. Copies of them and other lines come one by one."""
    stream = LogStream(index(), host="gpu-1")
    codes = [13, 31, 43, 45, 48, 62, 63, 64, 79, 92, 94, 95, 109, 119, 120, 140, 143, 154]
    for bus in range(8):
        for code in codes:
            stream.feed(XID.format(1.0, f"{bus:02x}", code, 7, "x"))
    lines = [XID.format(2.0 + at / 1000, f"{at % 8:02x}", codes[at % 18], 7, "x") for at in range(1000)]
    lines += [f"[3.0] {NOISE[at % len(NOISE)]}\n" for at in range(1000)]
    for line in lines[:200]:
        stream.feed(line)
    start = time.process_time()
    for line in lines:
        stream.feed(line)
    assert (time.process_time() - start) / len(lines) < 0.000_5


def test_memory_is_bounded_and_what_is_not_told_apart_is_said() -> None:
    """1. A host shows faults of 3,000 parts, the last of them bad. 2. So many are told apart; the rest is judged
    without names, and says so."""
    stream = LogStream(index(), host="gpu-1")
    line = "[{at}.0] EDAC MC0: 1 CE memory read error on DIMM{at} (channel:1 slot:0 page:0x1)\n"
    stream.feed("".join(line.format(at=at) for at in range(3000)))
    stream.feed(XID.format(4000.0, "1b", 79, 1, "GPU has fallen off the bus."))
    findings = stream.findings()
    assert len(findings) == index().limits.folds_per_host + 2
    others = {each.unit: each for each in findings if each.unit.endswith(OTHERS)}
    assert set(others) == {f"dimm {OTHERS}", f"gpu {OTHERS}"}
    assert others[f"dimm {OTHERS}"].count == 3000 - index().limits.folds_per_host
    assert "not named any more" in others[f"gpu {OTHERS}"].summary
    assert report(findings).verdict is Verdict.BAD


def test_a_report_waits_for_its_stack() -> None:
    """1. A task hangs. 2. It is told at once, as far as it is known. 3. A frame of the driver comes later, in a piece
    of its own: now the host is bad, and the first word is taken back."""
    stream = LogStream(index())
    told = stream.feed("[1.0] INFO: task python:77 blocked for more than 120 seconds.\n")
    assert [(each.rule, str(each.answer)) for each in told] == [("hung-task", "watch, diagnose")]
    assert stream.feed("[1.0]  __schedule+0x2cd/0x890\n") == []
    told = stream.feed("[1.0]  os_acquire_rwlock_write+0x35/0x50 [nvidia]\n")
    assert [(each.rule, str(each.answer)) for each in told] == [
        ("hung-task-nvidia", "bad, reboot"), ("hung-task", "ok, none")
    ]  # fmt: skip
    assert [each.rule for each in stream.findings()] == ["hung-task-nvidia"]


def test_lines_cannot_claim_another_host_or_boot() -> None:
    """1. The agent knows host and boot. 2. A line with another name, and one that looks like a boot, change neither."""
    text = "Dec  6 10:00:01 evil kernel: " + XID[9:].format("1b", 79, 1, "GPU has fallen off the bus.")
    text += "[0.000000] Linux version 6.8.0 (builder)\n"
    stream = LogStream(index(), host="gpu-1", boot="b1")
    stream.feed(text)
    (finding,) = stream.findings()
    assert (finding.host, finding.boot, finding.verdict) == ("gpu-1", "b1", Verdict.BAD)


def test_a_line_without_an_end_waits() -> None:
    """1. Half a line says nothing. 2. Its rest comes. 3. One without an end is read when nothing more will come."""
    line = XID.format(1.0, "1b", 79, 1, "GPU has fallen off the bus.")
    stream = LogStream(index())
    assert stream.feed(line[:30]) == []
    assert [each.rule for each in stream.feed(line[30:] + line[:-1])] == ["xid-79"]
    assert stream.findings()[0].count == 1
    assert stream.end() == []
    assert stream.findings()[0].count == 2
    stream.feed("x" * 100_000)
    stream.feed("x" * 100_000)
    assert stream.feed("\n") == []


def test_boots_of_a_journal() -> None:
    """1. A GPU is lost; the journal goes on with another boot. 2. The finding names its boot and is over."""
    lost = "Dec 06 10:00:01 gpu-1 kernel: " + XID[9:].format("1b", 79, 1, "GPU has fallen off the bus.")
    boots = [f"-- Boot {letter * 32} --\n" for letter in "ab"]
    found = judged(boots[0] + lost + boots[1] + "Dec 06 11:00:01 gpu-1 kernel: Linux version 6.8.0 (builder)\n")
    assert [(each.boot, each.verdict) for each in found.findings] == [("a" * 32, Verdict.WATCH)]
