"""The same log in every form that logs come in: what its lines begin with changes nothing of the answer."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.health.expected import CASES, Case
from tests.health.judging import answered, judged

HERE = Path(__file__).parent / "cases"
UPTIME = re.compile(r"\[\s*(\d+)\.(\d+)\] ")
READABLE = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ (\d\d):(\d\d):(\d\d) \d{4}\] (?:host kernel: )?")
OTHER = re.compile(r"kern .*?\+00:00 |May .*?\] |\[[^]]*\] ")


def clock(at: int) -> str:
    return f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}"


FORMS: dict[str, Callable[[int, str, str], str]] = {
    "syslog": lambda at, part, body: f"Dec  6 {clock(at)} gpu-7 kernel: {body}",
    "syslog with uptime": lambda at, part, body: f"Dec  6 {clock(at)} gpu-7 kernel: [{at}.{part}] {body}",
    "syslog in ISO 8601": lambda at, part, body: f"2025-01-21T{clock(at)}.{part}+00:00 gpu-7 kernel: {body}",
    "journal, short-iso": lambda at, part, body: f"2025-01-21T{clock(at)}+0100 gpu-7 kernel: {body}",
    "dmesg -x": lambda at, part, body: f"kern  :warn  : [{at}.{part}] {body}",
    "dmesg -r": lambda at, part, body: f"<4>[{at}.{part}] {body}",
    "dmesg -T": lambda at, part, body: f"[Sun Feb 23 {clock(at)} 2025] {body}",
    "/dev/kmsg": lambda at, part, body: f"4,{at % 1000},{at}{part},-;{body}",
    "journal, cut": lambda at, part, body: f"kernel: {body}",
    "nothing": lambda at, part, body: body,
}


def rewritten(text: str, form: Callable[[int, str, str], str]) -> str:
    """Each line with another head; one that continues the line before has the time of that one."""
    lines, at, part = [], 1000, "000000"
    for line in text.rstrip("\n").split("\n"):
        body = line.strip() if line.startswith(" ") else OTHER.sub("", line, count=1)
        if found := UPTIME.match(line):
            at, part, body = int(found[1]) % 80_000, f"{found[2]:0<6}"[:6], line[found.end() :]
        elif found := READABLE.match(line):
            hours, minutes, seconds = (int(each) for each in found.groups())
            at, part, body = hours * 3600 + minutes * 60 + seconds, "000000", line[found.end() :]
        lines.append(form(at, part, body))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("form", FORMS)
def test_heads(form: str) -> None:
    """1. Every kernel log of the cases is written in this form. 2. Each gets its answer, about the named host."""
    for name in sorted(name for name in CASES if name.endswith(".dmesg.log")):
        text = rewritten((HERE / name).read_text("utf-8"), FORMS[form])
        found = answered(judged(text))
        units = frozenset((re.sub("^host gpu-7$", "host", unit), its) for unit, its in found.units)
        assert Case(found.answer, units) == CASES[name], f"{name}\n{text}"


def test_hosts_of_one_log_are_judged_apart() -> None:
    """1. Two hosts lose a GPU in one log; one is booted afterwards. 2. Only the other one is bad."""
    line = "Dec  6 10:00:0{} {} kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    boot = "Dec  6 10:09:00 gpu-2 kernel: Linux version 6.8.0 (builder)\n"
    found = judged(line.format(1, "gpu-1") + line.format(2, "gpu-2") + boot)
    units = {each.host: str(each.verdict) for each in found.units}
    assert units == {"gpu-1": "bad", "gpu-2": "watch"}


def test_a_port_is_an_echo_of_the_gpu_below_it() -> None:
    """1. One GPU is lost while another one's link fails. 2. Both ask; the port of each is its echo or its proof."""
    text = (
        "[1.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
        "[2.0] pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
        "[2.1] nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)\n"
    )
    assert answered(judged(text)).units == {("gpu 0000:1b:00", "bad, reboot"), ("gpu 0000:03:00", "bad, reboot")}
