"""The parts by themselves: words, heads of lines, registers, folds, states of Slurm, the policy and its lint, files."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from tests.health.judging import index, judged
from trainmaster.core.health.fold import Bursts
from trainmaster.core.health.lint import lint
from trainmaster.core.health.policy import Code, Repeat
from trainmaster.core.health.ports import state_answer
from trainmaster.core.health.slurm import normal, same_states
from trainmaster.core.health.stamp import Stamps, days_of
from trainmaster.core.health.unit import disk, function, gpu, slot
from trainmaster.core.health.words import (
    EXIT_CODES,
    OK,
    REBOOT,
    RESET,
    WATCH,
    Remedy,
    Verdict,
    contradicts_itself,
    of_another_tool,
    parse_answer,
)
from trainmaster.core.health.xid import Xids, decode
from trainmaster.live.health.files import Unreadable, content
from trainmaster.live.health.policyfile import load, shipped
from trainmaster.live.tomlfile import FileError

WEAKER = Repeat(at_least=2, within_us=1, answer=WATCH, why="x")
CASES = Path(__file__).parent / "cases"


def test_words() -> None:
    """1. Answers are read as they are written. 2. Nothing that is ok is reset. 3. Words of others map onto ours."""
    assert parse_answer(str(RESET)) == RESET
    assert parse_answer("bad") is None
    assert parse_answer("bad, repair") is None
    assert EXIT_CODES == {Verdict.OK: 0, Verdict.SKIPPED: 0, Verdict.WATCH: 1, Verdict.BAD: 2, Verdict.UNKNOWN: 3}
    assert contradicts_itself(OK.but(remedy=Remedy.REBOOT))
    assert contradicts_itself(RESET.but(remedy=Remedy.NONE))
    assert not contradicts_itself(WATCH)
    assert of_another_tool("DRAIN_REBOOT") == REBOOT
    assert of_another_tool("warn") == WATCH
    assert of_another_tool("follow") is None


@pytest.mark.parametrize(
    ("line", "at_us", "clock", "host", "rest"),
    [
        ("[74785.660366] NVRM: x", 74_785_660_366, "boot", "", "NVRM: x"),
        ("[Sun Feb 23 16:24:18 2025] NVRM: x", 1_740_327_858_000_000, "wall", "", "NVRM: x"),
        ("[  +0.000844] nvidia x", None, "", "", "nvidia x"),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: x", 1_737_434_504_283_302, "wall", "", "NVRM: x"),
        ("2025-01-21T05:41:44.5+01:00 gpu-1 kernel: NVRM: x", 1_737_434_504_500_000, "wall", "gpu-1", "NVRM: x"),
        ("May  7 06:45:12 h1 kernel: [21584690.529862] mce: x", None, "wall", "h1", "mce: x"),
        ("Dec  6 19:25:33 h1 systemd-networkd[2385]: eth0: x", None, "wall", "h1", "systemd-networkd[2385]: eth0: x"),
        ("6,1234,5678000,-;NVRM: x", 5_678_000, "boot", "", "NVRM: x"),
        ("<6>[   12.5] NVRM: x", 12_500_000, "boot", "", "NVRM: x"),
        ("[   12.5] nvme nvme0: x", 12_500_000, "boot", "", "nvme nvme0: x"),
        ("[Apr 17 2024 01:51:39] [ERROR] x", 1_713_318_699_000_000, "wall", "", "[ERROR] x"),
        ("[2024-04-17T01:51:39.5] error: x", 1_713_318_699_500_000, "wall", "", "error: x"),
        ("gpu-1: [   12.5] NVRM: x", 12_500_000, "boot", "gpu-1", "NVRM: x"),
        ("gpu-1: NVRM: x", None, "", "gpu-1", "NVRM: x"),
        ("mlx5_core: probe of x", None, "", "", "mlx5_core: probe of x"),
        ("kernel: NVRM: x", None, "", "", "NVRM: x"),
        ("NVRM: x", None, "", "", "NVRM: x"),
        ("", None, "", "", ""),
    ],
)
def test_heads_of_lines(line: str, at_us: int | None, clock: str, host: str, rest: str) -> None:
    stamp = Stamps().read(line)
    assert (stamp.clock, stamp.host, line[stamp.length :]) == (clock, host, rest)
    assert at_us is None or stamp.at_us == at_us


def test_december_and_january_stay_in_order() -> None:
    """1. A log without years goes over New Year. 2. Its lines are ten seconds apart, not minus a year."""
    stamps = Stamps()
    before, after = (stamps.read(f"{date} h1 kernel: x").at_us for date in ("Dec 31 23:59:55", "Jan  1 00:00:05"))
    assert before is not None
    assert after is not None
    assert after - before == 10_000_000
    assert days_of(1970, 1, 1) == 0
    assert days_of(2024, 2, 29) == 19_782


def test_units() -> None:
    assert gpu("00000000:1A:00.0") == gpu("1a:00") == gpu("0000:1a:00:") == "gpu 0000:1a:00"
    assert function("0000:5C:00.1") == "0000:5c:00.1"
    assert slot("no address") == "no address"
    assert disk("nvme2n1p3") == "disk nvme2n1"
    assert disk("sda1") == "disk sda"
    assert disk("md127") == "disk md127"


def test_registers_decode_as_the_vendor_says() -> None:
    """1. Each line is decoded. 2. It gives the action, sub-unit and layout that stand beside it in the table."""
    for row in (CASES / "16-xid144-149-decoded.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]:
        now, _, sub_unit, layout, line = row.split("\t")
        (signal,) = Xids(index()).signals(line)
        decoded = decode(int(signal.rule.removeprefix("xid-")), line, index())
        assert decoded.now == now
        assert now == "UNDECODABLE" or (decoded.sub_unit, decoded.layout) == (sub_unit, layout)


def test_bursts() -> None:
    """1. Seven lines, 45 s apart, and one three days later. 2. They are one incident and a second one."""
    bursts = Bursts()
    for at in [*(number * 45 for number in range(7)), 3 * 86_400]:
        bursts.add(at * 1_000_000, 60_000_000)
    week, hour = 7 * 86_400_000_000, 3_600_000_000
    assert bursts.most_within(week, hour) == 2
    assert bursts.most_within(hour, hour) == 1


def test_a_storm_is_one_finding() -> None:
    line = "[171167.620236] NVRM: Xid (PCI:0009:01:00): 95, pid=7, name=python, Uncontained: FBHUB. RST: Yes\n"
    (finding,) = judged(line * 20_000).findings
    assert (finding.unit, finding.count, len(finding.evidence) < 20) == ("gpu 0009:01:00", 20_000, True)


@pytest.mark.parametrize(
    "spellings",
    [
        ("DOWN*+CLOUD", "DOWN+CLOUD+NOT_RESPONDING", "down*"),
        ("MIXED#+CLOUD", "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "mix#"),
        ("MIXED+CLOUD+POWER", "MIXED+CLOUD+POWERED_DOWN", "mix~"),
        ("DRAIN", "drained"),
    ],
)
def test_spellings_of_one_state(spellings: tuple[str, ...]) -> None:
    assert same_states(spellings), [normal(each) for each in spellings]
    assert not same_states([*spellings, "alloc"])


@pytest.mark.parametrize(
    ("state", "physical", "verdict"),
    [
        ("Active", "LinkUp", "ok"),
        ("4: ACTIVE", "5: LinkUp", "ok"),
        ("Down", "Disabled", "ok"),
        ("1: DOWN", "3: Disabled", "ok"),
        ("Down", "Polling", "bad"),
        ("Initializing", "LinkUp", "watch"),
        ("Down", "LinkUp", "watch"),
        ("", "", "unknown"),
    ],
)
def test_states_of_ports(state: str, physical: str, verdict: str) -> None:
    assert state_answer(state, physical)[0].verdict == verdict


def test_the_shipped_policy_is_clean() -> None:
    """1. It is linted. 2. Nothing is found, warnings included. 3. Every code of the vendors' lists has an answer."""
    assert lint(shipped()) == ()
    listed = [*range(13, 15), 31, 43, 45, 48, *range(62, 65), 74, 79, 92, 94, 95, 109, 119, 120, *range(140, 173)]
    assert [code for code in listed if code not in index().xids] == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (Code(codes=(79,), means="x", answer=OK), "stands in 2 rows"),
        (Code(codes=(1,), means="x", answer=OK.but(remedy=Remedy.RMA)), "contradicts itself"),
        (Code(codes=(), means="x", answer=OK), "it names no code"),
        (Code(codes=(1,), means="x", answer=OK, sources="a: b"), "nothing says why"),
        (
            Code(codes=(1,), means="x", answer=REBOOT, repeats=(WEAKER,)),
            "asks for less",
        ),
    ],
)  # fmt: skip
def test_lint_finds(changed: Code, words: str) -> None:
    policy = shipped()
    found = lint(policy.but(xids=(*policy.xids, changed)))
    assert any(words in problem.reason for problem in found), found


def test_rows_of_a_site(tmp_path: Path) -> None:
    """1. A site answers one code of a row of several differently. 2. The others stay, and so does the rest."""
    file = tmp_path / "site.toml"
    file.write_text(
        'schema = "trainmaster.health-policy/v1"\nversion = "s"\n'
        '[[xid]]\ncodes = [68]\nmeans = "x"\nanswer = "watch, none"\n'
        "[limits]\nburst_s = 5\n"
    )
    policy = load(file)
    rows = {code: row for row in policy.xids for code in row.codes}
    assert rows[68].answer == WATCH
    assert str(rows[82].answer) == "ok, restart-app"
    assert policy.limits.burst_us == 5_000_000
    assert policy.limits.echo_us == shipped().limits.echo_us
    assert policy.version.endswith("+s")
    file.write_text('schema = "trainmaster.health-policy/v1"\n[[xid]]\ncodes = [68]\nanswer = "broken"\nansver = 1\n')
    with pytest.raises(FileError) as caught:
        load(file)
    assert {problem.key for problem in caught.value.problems} == {"xid[1].answer", "xid[1].ansver"}


def test_files_as_they_are_found(tmp_path: Path) -> None:
    """1. Plain, packed, UTF-16, not UTF-8, with NUL bytes. 2. The same text comes out. 3. What is no text is said."""
    line = "[1.0] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    forms = {
        "plain": line.encode(),
        "gz": gzip.compress(line.encode()),
        "xz": lzma.compress(line.encode()),
        "bz2": bz2.compress(line.encode()),
        "utf16": line.encode("utf-16"),
        "latin1": line.replace("name=x", "name=\u00e9").encode("latin-1"),
        "nul": line.encode() + b"\0" * 64,
        "colour": f"\x1b[32m{line}\x1b[0m".encode(),
    }
    for name, data in forms.items():
        file = tmp_path / name
        file.write_bytes(data)
        text, notes = content(str(file))
        assert notes == ()
        assert [each.unit for each in judged(text).findings] == ["gpu 0000:1b:00"], name
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "zeros").write_bytes(bytes(5000))
    for name in ("binary", "zeros"):
        text, notes = content(str(tmp_path / name))
        assert text == ""
        assert [each.verdict for each in notes] == [Verdict.UNKNOWN]


def test_files_that_cannot_be_read_whole(tmp_path: Path) -> None:
    """1. Too large: the end is read, and it is said. 2. Cut off or no archive. 3. Missing, a directory, a device."""
    large = tmp_path / "large"
    large.write_text("first\n" * 1000 + "last\n")
    text, notes = content(str(large), limit=100)
    assert text.endswith("last\n")
    assert len(text) == 100
    assert "the first 5905 bytes was not read" in notes[0].summary
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(b"[1.0] line\n" * 200_000)[:-20])
    assert [each.verdict for each in content(str(packed)).notes] == [Verdict.UNKNOWN]
    (tmp_path / "no.gz").write_bytes(b"\x1f\x8b not packed")
    for name in (tmp_path / "no.gz", tmp_path / "missing", tmp_path, Path("/dev/zero"), tmp_path / "x\0y"):
        with pytest.raises(Unreadable) as caught:
            content(str(name))
        assert caught.value.what
        assert caught.value.fix
