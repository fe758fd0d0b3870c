"""`trainmaster ckpt` on directories: what it says, what it deletes, and what it never does."""

import json
import os
import pickle
import random
from pathlib import Path

import pytest
from tests.fakes.checkpoints import checkpoint
from tests.fakes.command import CommandLine, Ran

from trainmaster.core.base.ids import JobId
from trainmaster.storage import directory
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.survey import PULL_LEFT

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [0.5, 0.25, 0.125]]
WEIGHTS = {"model.w": ROWS, "optimizer.m": [[1.5, 2.5]] * 4}


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three steps of one job, a leftover, a stranger's directory and a note."""
    for step in (4, 8, 12):
        checkpoint(tmp_path / "c", step, {**WEIGHTS, "step": [[float(step)]]})
    staging = tmp_path / "c" / ".staging-step-00000016-e1"
    directory.open_staging(staging, OwnerMark(job=JobId("job-1"), attempt=1, epoch=1))
    (tmp_path / "c" / "step-100.backup").mkdir()
    (tmp_path / "c" / "notes").mkdir()
    return tmp_path / "c"


def flip(path: Path, place: int = 5) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def items(ran: Ran) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(ran.out)["items"]
    return listed


def test_ls_says_what_each_directory_is(line: CommandLine, root: Path) -> None:
    """1. Newest first; a leftover is no checkpoint; what is not ours by its name is not shown. 2. A truncated shard is
    seen from sizes alone. 3. Names for other commands."""
    os.truncate(root / "step-00000008" / "__0_0.distcp", 3)
    listed = items(line.run("ckpt", "ls", str(root), "-o", "json"))
    assert [(each["name"], each["state"], each["sound"]) for each in listed] == [
        (".staging-step-00000016-e1", "unfinished", None),
        ("step-00000012", "published", None),
        ("step-00000008", "damaged", False),
        ("step-00000004", "published", None),
    ]
    assert listed[2]["problem"] == "__0_0.distcp has 3 of 84 bytes"
    assert (listed[1]["samples"], listed[1]["world"], listed[1]["job"]) == (96, 1, "job-1")
    table = line.run("ckpt", "ls", str(root)).out
    assert table.splitlines()[0].split() == ["NAME", "STATE", "SIZE", "RANKS", "WRITTEN", "SOUND", "PIN", "PROBLEM"]
    assert line.run("ckpt", "ls", str(root / "absent")).code == 3


def test_show_tells_what_is_in_it(line: CommandLine, root: Path) -> None:
    shown = json.loads(line.run("ckpt", "show", str(root / "step-00000012"), "-o", "json").out)
    assert [(each["name"], each["shape"], each["dtype"]) for each in shown["tensors"]] == [
        ("model.w", [4, 3], "float32"),
        ("optimizer.m", [4, 2], "float32"),
        ("step", [1, 1], "float32"),
    ]
    assert "elements:  21" in line.run("ckpt", "show", str(root / "step-00000012")).out
    told = line.run("ckpt", "show", str(root / "notes"))
    assert (told.code, "it is no checkpoint, or was never finished" in told.err) == (3, True)


def test_verify_reads_every_byte_and_notes_what_it_found(line: CommandLine, root: Path) -> None:
    """1. One bit of the newest flips. 2. Verify says which file and tensor, and exits with 1. 3. `ls` knows it then,
    and that the others are sound."""
    flip(root / "step-00000012" / "__0_0.distcp")
    ran = line.run("ckpt", "verify", str(root), "-o", "json")
    assert ran.code == 1
    assert [(each["name"], each["sound"]) for each in items(ran)] == [
        ("step-00000012", False), ("step-00000008", True), ("step-00000004", True),
    ]  # fmt: skip
    assert "the checksum of the mebibyte at byte 0 differs (tensors: model.w, optimizer.m, step)" in ran.out
    states = {
        each["name"]: (each["state"], each["sound"]) for each in items(line.run("ckpt", "ls", str(root), "-o", "json"))
    }
    assert states["step-00000012"] == ("damaged", False)
    assert states["step-00000008"] == ("published", True)
    assert line.run("ckpt", "verify", str(root / "step-00000008")).code == 0


def test_a_verdict_outlasts_who_looks(line: CommandLine, root: Path) -> None:
    """1. A checkpoint that a script wrote by itself, for no job and under a name of its own. 2. Verify finds a bit that
    no size tells. 3. `ls` knows it then."""
    (root / "step-00000012" / directory.OWNER_NAME).unlink()
    path = (root / "step-00000012").rename(root / "mine")
    (path / ".metadata").touch()
    flip(path / "__0_0.distcp")
    assert line.run("ckpt", "verify", str(path)).code == 1
    seen = {each["name"]: each for each in items(line.run("ckpt", "ls", str(root), "-o", "json"))}["mine"]
    assert (seen["state"], seen["sound"]) == ("damaged", False)
    assert "the checksum of the mebibyte at byte 0 differs" in str(seen["problem"])


@pytest.mark.parametrize("left", ["owner.json", "index.json"])
def test_one_of_ours_without_its_manifest_is_not_foreign(line: CommandLine, root: Path, left: str) -> None:
    """1. The manifest is gone, and one of two marks of ours is left. 2. It is torn, and says why. 3. It is neither
    exported, nor compared, nor pulled."""
    path = root / "step-00000012"
    (path / "manifest.json").unlink()
    (path / ".metadata").touch()
    (path / ({"owner.json", "index.json"} - {left}).pop()).unlink()
    seen = {each["name"]: each for each in items(line.run("ckpt", "ls", str(root), "-o", "json"))}[path.name]
    assert seen["state"] == "torn"
    said = f"step-00000012 is one of ours without its manifest.json ({left} is there)"
    assert said in str(seen["problem"])
    out = root / "out"
    for words in (("export", path, out), ("diff", path, path), ("pull", path, out), ("show", path)):
        ran = line.run("ckpt", *map(str, words))
        assert ran.code in (1, 3), words
        assert said in ran.err, words
    assert not out.exists()


def test_errors_name_the_checkpoint_and_where_to_look(line: CommandLine, root: Path) -> None:
    """1. The directory of checkpoints is given for one of them: it is listed itself. 2. Bytes are damaged: what was
    exported or compared is named, and verified next."""
    assert f"try: trainmaster ckpt ls {root}\n" in line.run("ckpt", "show", str(root)).err
    path, other = root / "step-00000012", root / "step-00000008"
    flip(path / "__0_0.distcp")
    told = line.run("ckpt", "export", str(path), str(root / "x.safetensors")).err
    assert told.startswith(f"error: cannot use {path}\n")
    assert f"try: trainmaster ckpt verify {path}\n" in told
    told = line.run("ckpt", "diff", str(other), str(path)).err
    assert told.startswith(f"error: cannot use {other} or {path}\n")


def test_verify_leaves_no_note_when_read_only(line: CommandLine, root: Path) -> None:
    assert line.run("--readonly", "ckpt", "verify", str(root / "step-00000004")).code == 0
    assert not (root / "step-00000004" / "verdict.json").exists()


def test_a_pin_keeps_it_and_says_why(line: CommandLine, root: Path) -> None:
    """1. Without a reason nothing is pinned. 2. Pinned, it stays when others go. 3. Unpinned, it goes like them."""
    path = str(root / "step-00000004")
    assert line.run("ckpt", "pin", path).code == 2
    assert line.run("ckpt", "pin", path, "--reason", "baseline").err == "step-00000004 is pinned: baseline\n"
    told = line.run("ckpt", "gc", str(root), "--keep", "1", "--dry-run", "-o", "json")
    assert {each["name"]: (each["act"], each["why"]) for each in items(told)} == {
        ".staging-step-00000016-e1": ("keep", "a save that may still be running"),
        "step-00000004": ("keep", "pinned: baseline"),
        "step-00000008": ("delete", "it is older than the newest 1 that count"),
        "step-00000012": ("keep", "it is among the newest 1 that count"),
        "step-100.backup": ("leave", "it does not say whose it is"),
        "notes": ("leave", "it does not say whose it is"),
    }
    assert "was pinned by kim: baseline" in line.run("ckpt", "unpin", path, "--reason", "done").err
    assert line.run("ckpt", "unpin", path, "--reason", "again").code == 1
    assert line.run("ckpt", "pin", str(root / "notes"), "--reason", "x").code == 3


def test_a_pin_that_cannot_be_read_still_pins(line: CommandLine, root: Path) -> None:
    (root / "step-00000004" / "pin.json").write_bytes(b"{torn")
    told = items(line.run("ckpt", "gc", str(root), "--keep", "1", "--dry-run", "-o", "json"))
    assert {each["name"]: each["act"] for each in told}["step-00000004"] == "keep"


def test_buckets_have_no_pins(line: CommandLine) -> None:
    for act in ("pin", "unpin"):
        told = line.run("ckpt", act, "s3://models/llama/step-00000004", "--reason", "x")
        assert (told.code, "buckets have no pins" in told.err, "try: trainmaster ckpt pull" in told.err) == (
            2,
            True,
            True,
        )


def test_damage_seen_now_outweighs_an_older_verdict(line: CommandLine, root: Path) -> None:
    """1. Read whole and sound. 2. Then a file is cut. 3. The list does not call it sound."""
    path = root / "step-00000008"
    assert line.run("ckpt", "verify", str(path)).code == 0
    os.truncate(path / "__0_0.distcp", 3)
    listed = {each["name"]: each for each in items(line.run("ckpt", "ls", str(root), "-o", "json"))}
    assert (listed[path.name]["state"], listed[path.name]["sound"]) == ("damaged", False)
    shown = json.loads(line.run("ckpt", "show", str(root / "step-00000012"), "-o", "json").out)
    assert shown["checkpoint"]["sound"] is None


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_cleaning_asks_and_reads_what_stays_first(line: CommandLine, root: Path) -> None:
    """1. Nobody to ask: nothing is done. 2. No: nothing is done. 3. The newest is damaged, which is found before
    anything goes; it does not count, so the one before stays. 4. Leftovers go when asked for."""
    before = names(root)
    flip(root / "step-00000012" / "__0_0.distcp")
    command = ("ckpt", "gc", str(root), "--keep", "1", "--reason", "disk is full")
    assert line.run(*command).code == 2
    assert line.run(*command, answers="n\n").code == 1
    assert names(root) == before
    ran = line.run(*command, "--yes")
    assert ran.code == 0
    assert names(root) == [".staging-step-00000016-e1", "notes", "step-00000008", "step-00000012", "step-100.backup"]
    assert line.run(*command, "--yes", "--unfinished").code == 0
    assert ".staging-step-00000016-e1" not in names(root)


def test_a_copy_that_was_cut_is_told(line: CommandLine, root: Path) -> None:
    """1. A copy into the directory was interrupted. 2. It is listed, and cleaning says what to do with it."""
    (root / ".pull-step-00000040").mkdir()
    shown = {each["name"]: each for each in items(line.run("ckpt", "ls", str(root), "-o", "json"))}
    left = shown[".pull-step-00000040"]
    assert (left["step"], left["state"], left["problem"]) == (40, "unfinished", PULL_LEFT)
    plan = items(line.run("ckpt", "gc", str(root), "--keep", "1", "--job", "job-1", "--dry-run", "-o", "json"))
    assert {each["name"]: (each["act"], each["why"]) for each in plan}[".pull-step-00000040"] == ("leave", PULL_LEFT)


def test_cleaning_wants_to_know_whose(line: CommandLine, root: Path) -> None:
    checkpoint(root, 20, WEIGHTS, job="job-2")
    told = line.run("ckpt", "gc", str(root), "--keep", "1", "--dry-run")
    assert (told.code, "there are job-1, job-2" in told.err) == (2, True)
    plan = items(line.run("ckpt", "gc", str(root), "--keep", "1", "--job", "job-1", "--dry-run", "-o", "json"))
    assert {each["name"]: each["act"] for each in plan}["step-00000020"] == "leave"
    assert line.run("ckpt", "gc", str(root), "--keep", "1", "--job", "job-9", "--dry-run").code == 3
    for entry in root.rglob("owner.json"):  # the same number in another fleet
        entry.write_text(entry.read_text().replace('"job-1"', '"job-1@f3a9c2d1"'))
    again = items(line.run("ckpt", "gc", str(root), "--keep", "1", "--job", "job-1", "--dry-run", "-o", "json"))
    assert [(each["name"], each["act"]) for each in again] == [(each["name"], each["act"]) for each in plan]


def test_diff_compares_bits_over_numbers_of_ranks(line: CommandLine, tmp_path: Path) -> None:
    """1. One state, written by one rank and by three: equal. 2. One element, one shape and one name differ."""
    one, three = checkpoint(tmp_path / "a", 4, WEIGHTS), checkpoint(tmp_path / "b", 4, WEIGHTS, world=3)
    ran = line.run("ckpt", "diff", str(one), str(three))
    assert (ran.code, ran.err) == (0, "2 tensors are equal, bit for bit\n")
    changed = {"model.w": [*ROWS[:2], [7.0, 8.5, 9.0], ROWS[3]], "optimizer.m": [[1.5, 2.5]] * 3, "new": [[1.0]]}
    ran = line.run("ckpt", "diff", str(one), str(checkpoint(tmp_path / "c", 4, changed, world=2)), "-o", "json")
    assert ran.code == 1
    assert [(each["name"], each["kind"], each["left"], each["right"]) for each in items(ran)] == [
        ("model.w", "content", "1 of 12 elements", "the first at 7"),
        ("new", "added", "", "float32[1,1]"),
        ("optimizer.m", "shape", "float32[4,2]", "float32[3,2]"),
    ]


def test_export_is_opened_by_the_library_of_the_format(line: CommandLine, tmp_path: Path) -> None:
    """1. What lies below `model`, written by three ranks. 2. The library gives the same bits under short names. 3. An
    existing file stays unless told otherwise. 4. Damage is told, and no file is left."""
    safetensors = pytest.importorskip("safetensors")
    path = checkpoint(tmp_path / "a", 4, WEIGHTS, world=3)
    file = tmp_path / "model.safetensors"
    assert line.run("ckpt", "export", str(path), str(file), "--below", "model").code == 0
    with safetensors.safe_open(file, framework="numpy") as opened:
        assert list(opened.keys()) == ["w"]
        assert opened.get_tensor("w").tolist() == ROWS
        assert opened.metadata()["step"] == "4"
    assert line.run("ckpt", "export", str(path), str(file)).code == 2
    assert line.run("ckpt", "export", str(path), str(file), "--below", "weights").code == 3
    flip(path / "__1_0.distcp")
    told = line.run("ckpt", "export", str(path), str(tmp_path / "other"))
    assert (told.code, "__1_0.distcp has its size but not its content" in told.err) == (1, True)
    assert not list(tmp_path.glob("*other*"))


class _Program:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize("command", [("show",), ("verify",), ("diff",), ("export",)])
def test_a_table_of_contents_that_is_none_is_told_in_a_sentence(
    line: CommandLine, tmp_path: Path, command: tuple[str]
) -> None:
    """1. `.metadata` is empty, cut, random, an extension that nobody registered, or a program. 2. Every command says
    so and what to do next; none calls it a defect of ours."""
    noise, foreign = random.Random(7), tmp_path / "theirs"
    foreign.mkdir()
    contents = [b"", pickle.dumps([1, 2])[:-3], b"\x80\x02\x82\x07.", pickle.dumps(_Program()), pickle.dumps("text")]
    contents += [b"\x80\x02Nr\xff\xff\xff\xf0.", b"Np99999999999\n."]  # would make gigabytes of room
    after = {"diff": [str(foreign)], "export": [str(tmp_path / "out")]}.get(command[0], [])
    for content in (*contents, *(noise.randbytes(40) for _ in range(20))):
        (foreign / ".metadata").write_bytes(content)
        ran = line.run("ckpt", *command, str(foreign), *after)
        assert (ran.code, "internal error" in ran.err) == (1, False), ran.err
        assert ".metadata" in ran.out + ran.err
        assert command == ("verify",) or "try: trainmaster ckpt ls" in ran.err


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(line: CommandLine, root: Path) -> None:
    one = str(root / "step-00000012")
    for given in (("export", one, "/proc/x.safetensors"), ("export", one, str(root / "no" / "x"))):
        ran = line.run("ckpt", *given)
        assert (ran.code, f"error: cannot write {given[2]}" in ran.err, "try: give a path" in ran.err) == (
            1,
            True,
            True,
        )
    ran = line.run("ckpt", "pull", one, "/proc/xx")
    assert (ran.code, "error: cannot write /proc/xx" in ran.err) == (1, True), ran.err
