"""Inputs of the kinds of the known faults, written without a look at what reads them: other hosts, cards, drivers,
tools, orders and wordings, faults in company, and those that ask for nothing.

Each file of `aside` holds inputs one after another, each below a line `#= NAME | ANSWER | UNIT: ANSWER; ...`, which was
written down before the input was read. The units name all that are bad or unknown, if they name any; those of a watch
have to be there. `@N LINE` stands for N copies of the line.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.health.judging import index, judged
from trainmaster.core.health.finding import Report, report
from trainmaster.core.health.read import read_all

HERE = Path(__file__).parent / "aside"


class Input(NamedTuple):
    name: str
    answer: str
    units: frozenset[tuple[str, str]]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


def _input(block: str) -> Input:
    head, *lines = block.split("\n")
    name, answer, units = (part.strip() for part in head.split("|"))
    pairs = [part.strip().rpartition(": ") for part in units.split(";") if part.strip()]
    whole = []
    for line in lines:
        times = re.match(r"@(\d+) ", line)
        whole += [line[times.end() :]] * int(times[1]) if times else [line]
    return Input(name, answer, frozenset((unit, its) for unit, _, its in pairs), tuple(whole))


INPUTS = [_input(block) for path in sorted(HERE.iterdir()) for block in path.read_text("utf-8").split("#= ")[1:]]


def _check(found: Report, wanted: Input) -> None:
    got = {(each.unit, str(each.answer)) for each in found.findings if not each.echo_of}
    assert f"{found.verdict}, {found.remedy}" == wanted.answer, found.findings
    assert wanted.units <= got
    demands = {unit for unit, answer in got if answer.startswith(("bad", "unknown"))}
    assert not wanted.units or demands <= {unit for unit, _ in wanted.units}


@pytest.mark.parametrize("wanted", INPUTS, ids=[each.name for each in INPUTS])
def test_input(wanted: Input) -> None:
    """1. An input that nobody has seen is read. 2. Its answer is the one that the tables give it."""
    _check(judged(wanted.text), wanted)


def test_enough_of_them_ask_for_nothing() -> None:
    """1. Inputs are counted. 2. A fair part of them is of hosts that must stay in work."""
    benign = [each for each in INPUTS if each.answer.startswith(("ok", "watch", "skipped"))]
    assert len(INPUTS) > 250
    assert len(benign) >= 100
    assert len({each.name for each in INPUTS}) == len(INPUTS)


# The same lines as other tools write them

START = datetime(2025, 3, 4, 10, tzinfo=UTC)
Form = Callable[[float, datetime, str], str]


def _entry(at: datetime, message: str, **more: str) -> str:
    since = str(round(at.timestamp() * 1_000_000))
    fields = {"MESSAGE": message, "_HOSTNAME": "gpu-1", "SYSLOG_IDENTIFIER": "kernel", "__REALTIME_TIMESTAMP": since}
    return json.dumps({**fields, **more})


FORMS: dict[str, Form] = {
    "journal short": lambda _, at, text: f"{at:%b %d %H:%M:%S} gpu-1 kernel: {text}",
    "journal short-precise": lambda _, at, text: f"{at:%b %d %H:%M:%S.%f} gpu-1 kernel: {text}",
    "journal short-iso": lambda _, at, text: f"{at:%Y-%m-%dT%H:%M:%S}+0000 gpu-1 kernel: {text}",
    "journal short-full": lambda _, at, text: f"{at:%a %Y-%m-%d %H:%M:%S} UTC gpu-1 kernel: {text}",
    "journal short-monotonic": lambda up, _, text: f"[{up:12.6f}] gpu-1 kernel: {text}",
    "journal json": lambda up, at, text: _entry(at, text, __MONOTONIC_TIMESTAMP=str(round(up * 1e6))),
    "journal json, some fields": lambda _, at, text: _entry(at, text),
    "syslog": lambda up, at, text: f"{at:%b %d %H:%M:%S} gpu-1 kernel: [{up:12.6f}] {text}",
    "syslog of RFC 5424": lambda _, at, text: f"<4>1 {at:%Y-%m-%dT%H:%M:%S.%f}Z gpu-1 kernel - - - {text}",
    "dmesg -T": lambda _, at, text: f"[{at:%a %b %e %H:%M:%S %Y}] {text}",
    "dmesg -x": lambda up, _, text: f"kern  :warn  : [{up:12.6f}] {text}",
    "dmesg --time-format iso": lambda _, at, text: f"{at:%Y-%m-%dT%H:%M:%S,%f}+00:00 {text}",
    "dmesg -r": lambda up, _, text: f"<4>[{up:12.6f}] {text}",
    "console with threads": lambda up, _, text: f"[{up:12.6f}][ T1234] {text}",
    "kmsg": lambda up, _, text: f"4,77,{round(up * 1e6)},-;{text}",
    "lines of Windows": lambda up, _, text: f"[{up:12.6f}] {text}\r",
}
_UPTIME = re.compile(r"\[\s*(\d+\.\d+)\] (.*)")
LOGS = [each for each in INPUTS if all(_UPTIME.fullmatch(line) for line in each.lines if line) and len(each.lines) < 99]


@pytest.mark.parametrize("form", FORMS)
def test_form(form: str) -> None:
    """1. Logs of the kernel as another tool writes them. 2. The answers are the same, of a host with a name."""
    assert len(LOGS) > 60
    for wanted in LOGS[len(form) % 2 :: 2]:
        lines = [(float(each[1]), each[2]) for line in wanted.lines if (each := _UPTIME.fullmatch(line))]
        text = "".join(FORMS[form](up, START + timedelta(seconds=up), message) + "\n" for up, message in lines)
        found = judged(text)
        named = {("host" if unit == "host gpu-1" else unit, answer) for unit, answer in _asked(found)}
        assert named == _plain()[wanted.name], wanted.name
        assert f"{found.verdict}, {found.remedy}" == wanted.answer, wanted.name


@cache
def _plain() -> dict[str, set[tuple[str, str]]]:
    return {each.name: _asked(judged(each.text)) for each in LOGS}


def _asked(found: Report) -> set[tuple[str, str]]:
    return {(each.unit, str(each.answer)) for each in found.findings if not each.echo_of and each.rule != "log"}


# Every code of the catalogue by itself

XIDS = {
    "ok, none": "14 37 43 106 107 108 137 141 152 153 162",
    "ok, restart-app": "8 11 13 25 31 32 39 40 41 60 68 69 70 71 72 75 76 77 80 82 83 84 85 86 88 89 94 96 97 98 99 100"
    " 101 102 103 104 105 126 127 128 129 130 131 132 133 134 135 139",
    "watch, none": "38 44 45 66 67 74 92 93 121 144 145 146 147 148 149 160 163 164 165 170 1 12 61 138 173 999",
    "watch, config": "78 159 166",
    "watch, reset-gpu-later": "63 156",
    "bad, reset-gpu": "46 48 62 95 109 110 119 120 136 140 143 150 155 158 169 171 172",
    "bad, reboot": "79 151 167",
    "bad, triage": "54 142 157 161 168",
    "bad, rma": "64",
}
BODIES = (
    "NVRM: Xid (PCI:0000:3b:00): {}, pid=771, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): {}, pid='<unknown>', name=<unknown>, some words",
    "NVRM: Xid (PCI:0000:3B:00 GPU-I:03): {}, pid=9, name=y, Ch 00000008",
    "NVRM: Xid (0000:3b:00): {}, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): {}",
)


@pytest.mark.parametrize("answer", XIDS)
def test_xid(answer: str) -> None:
    """1. Each code alone, as drivers old and new write it, a MIG instance named or not. 2. Its row decides."""
    for code in XIDS[answer].split():
        for body in BODIES:
            found = judged(f"[  100.000000] {body.format(code)}\n")
            assert f"{found.verdict}, {found.remedy}" == answer, (code, body)
            bad = {each.unit for each in found.findings if str(each.verdict) == "bad"}
            assert bad == ({"gpu 0000:3b:00"} if answer.startswith("bad") else set())


SXIDS = {
    "bad, reboot": "11001 11004 11009 11013 11018 11019 11020 12001 12002 12020 12022 12024 12025 12026 12027 12031"
    " 12032 14017 15001 15006 15009 15010 15012 15013 19047 19048 19054 19056 19058 19060 19061 19063 19064 19066 19067"
    " 19069 19070 19084 20034 22003 22011 22012 23001 23002 23003 23004 23005 23006 23007 23008 23009 23010 23011 23012"
    " 23013 23014 23015 23016 23017 24004 24005 24006 24007 26006 26007 26008",
    "watch, none": "10001 10002 10003 10004 10005 11012 11021 11022 11023 12021 12023 12030 15008 15011 19049 19055"
    " 19057 19059 19062 19065 19068 19071 20001 20009 20012 22013 24001 24002 24003 28002 28006 12033 29999",
}


@pytest.mark.parametrize("answer", SXIDS)
def test_sxid(answer: str) -> None:
    """1. Each code of a switch without a severity. 2. The table speaks. 3. A severity in the line wins over it."""
    for code in SXIDS[answer].split():
        line = f"[  100.000000] nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): {code}, {{}}Link 12 some error (First)\n"
        for word, wanted in (("", answer), ("Fatal, ", "bad, reboot"), ("Non-fatal, ", "watch, none")):
            found = judged(line.format(word))
            assert f"{found.verdict}, {found.remedy}" == wanted, (code, word)
            assert {each.unit for each in found.findings} == {"nvswitch 0000:c4:00.0"}


def test_a_cause_in_the_part_that_was_rotated_away() -> None:
    """1. The old part of a log holds the lost GPU, the new one the switches that miss it. 2. One thing is bad."""
    old = "Mar  6 21:34:31 gpu-18 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus.\n"
    new = (
        "Mar  6 21:34:40 gpu-18 kernel: nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 40 LTSSM Fault\n"
    )
    found = report(read_all([("kern.log", new), ("kern.log.1", old)], index()))
    assert [each.unit for each in found.findings if str(each.verdict) == "bad"] == ["gpu 0000:1b:00"]
    alone = judged(new)
    assert [each.unit for each in alone.findings if str(each.verdict) == "bad"] == ["nvswitch 0000:86:00.0"]
