"""Cause and echo are one relation, seen from both ends."""

from pathlib import Path

import pytest

from tests.health.judging import index, judged
from tests.health.test_kept_aside import INPUTS
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.read import read_all
from trainmaster.core.health.stream import LogStream

HERE = Path(__file__).parent
FILES = sorted(
    path
    for folder in ("cases", "field", "forms", "tools")
    for path in (HERE / folder).iterdir()
    if path.suffix != ".gz"
)


def place(finding: Finding) -> str:
    return finding.at or finding.unit


def check(findings: tuple[Finding, ...] | list[Finding]) -> int:
    """Each name that a cause explains is an echo of it, and each echo is named by one cause. How many there are."""
    said = [(cause, name) for cause in findings for name in cause.cause_of]
    for cause, name in said:
        assert any(name == place(each) and each.echo_of in (cause.unit, cause.at) for each in findings), (cause, name)
    for echo in findings:
        if echo.echo_of and echo.echo_of != place(echo):
            by = [cause for cause, name in said if name == place(echo) and echo.echo_of in (cause.unit, cause.at)]
            assert by, echo
            assert echo not in by
    return len(said)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_files(path: Path) -> None:
    check(judged(path.read_bytes().decode("utf-8", "replace")).findings)


def test_inputs_that_were_kept_aside() -> None:
    """1. All of them. 2. Enough hold echoes for this to mean something."""
    assert sum(check(judged(each.text).findings) for each in INPUTS) >= 8


def test_a_far_end_explains_nobody_who_asks_himself() -> None:
    """1. Registers of four GPUs blame the other end. 2. It is suspected, and they ask for their own resets."""
    found = judged((HERE / "cases" / "15-gb200-149-154-sequence.dmesg.log").read_text("utf-8")).findings
    [far] = [each for each in found if each.unit == "fabric"]
    assert far.cause_of == ()
    assert len([each for each in found if str(each.answer) == "bad, reset-gpu"]) >= 4


def test_as_they_come_and_in_several_files() -> None:
    """1. A lost GPU and its switches, as a stream, and beside another log. 2. The relation is the same."""
    name = "03-xid79-plus-nvswitch-sxid20034.dmesg.log"
    text = (HERE / "cases" / name).read_text("utf-8")
    stream = LogStream(index())
    stream.feed(text)
    assert check(stream.findings()) == 3
    other = (HERE / "cases" / "02-xid79-multiline.dmesg.log").read_text("utf-8")
    assert check(read_all([("one", text), ("two", other)], index())) >= 3
