"""Files that can't be read keep nothing back: the others are judged, and the reason is said."""

import gzip
import os
import socket
from pathlib import Path

import msgspec
import pytest

from trainmaster.cli.main import main
from trainmaster.live.health import files
from trainmaster.live.health.files import contents

LOG = "[    1.000000] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
QUIET = "[    1.000000] usb 1-1: new high-speed USB device number 4\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "bad.log"
    path.write_text(LOG)
    return path


def read(capsys: pytest.CaptureFixture[str], *names: object) -> tuple[int, list[dict[str, object]]]:
    code = main(["health", "read", *map(str, names), "-o", "json"])
    return code, msgspec.json.decode(capsys.readouterr().out)["items"]


def made(kind: str, at: Path) -> Path:
    """A file of some kind that can't be read."""
    if kind == "directory":
        at.mkdir()
    elif kind == "pipe without a writer":
        os.mkfifo(at)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(at))
    elif kind == "packed, only its head":
        at.write_bytes(gzip.compress(LOG.encode())[:10])
    elif kind == "packed with zstd":
        at.write_bytes(b"(\xb5/\xfd" + b"x" * 30)
    elif kind == "binary":
        at.write_bytes(bytes(range(32)) * 30)
    elif kind == "loop":
        at.symlink_to(at)
    else:
        assert kind == "missing"
    return at


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "does not exist"),
        ("directory", "it is a directory"),
        ("pipe without a writer", "nobody writes to"),
        ("socket", "it is a socket"),
        ("packed, only its head", "cannot unpack"),
        ("packed with zstd", "zstd"),
        ("binary", "binary"),
        ("loop", "symbolic links"),
    ],
)
def test_the_others_are_judged(
    kind: str, reason: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. One of two files can't be read. 2. The other is bad, so is the exit code; the reason is a finding, unknown,
    with the file and what to do. 3. Beside a quiet log, and alone, it is unknown."""
    odd = made(kind, tmp_path / "odd")
    code, items = read(capsys, log, odd)
    assert code == 2
    [unread] = [item for item in items if item["rule"] == "not-read"]
    assert (unread["verdict"], unread["file"]) == ("unknown", str(odd))
    assert reason in str(unread["summary"])
    assert unread["next_evidence"]
    assert [item["verdict"] for item in items if item["file"] == str(log)] == ["bad"]
    log.write_text(QUIET)
    assert read(capsys, odd, log)[0] == 3
    assert read(capsys, odd)[0] == 3


def test_nothing_is_empty(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. /dev/null is an empty file: unknown. 2. A device without an end is refused."""
    code, items = read(capsys, os.devnull)
    assert (code, [item["rule"] for item in items]) == (3, ["empty"])
    assert read(capsys, os.devnull, log)[0] == 2
    code, items = read(capsys, "/dev/zero", log)
    assert (code, "device" in str(items[-1]["summary"])) == (2, True)


def test_a_packed_file_without_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The end of a packed log is missing. 2. What is there is judged, and what is not is said."""
    noise = "".join(f"[{at:5}.000000] usb {at * at}: {at * 7919 % 10007}\n" for at in range(2, 4000))
    whole = gzip.compress((LOG + noise).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    code, items = read(capsys, tmp_path / "cut.gz")
    assert code == 2
    assert [item["rule"] for item in items] == ["xid-79", "not-read"]
    assert "cut off" in str(items[1]["summary"])


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_with_data(packed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A process has written to a pipe, packed or not, as a shell gives it by name. 2. It is read to its end."""
    here, there = os.pipe()
    os.write(there, gzip.compress(LOG.encode()) if packed else LOG.encode())
    os.close(there)
    try:
        code, items = read(capsys, f"/dev/fd/{here}")
        assert (code, [item["rule"] for item in items]) == (2, ["xid-79"])
    finally:
        os.close(here)


def test_a_writer_that_says_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. Somebody has a pipe open and writes nothing. 2. It is left after a while."""
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keep = os.open(pipe, os.O_RDWR)
    try:
        code, items = read(capsys, pipe, log)
        assert (code, "nothing came" in str(items[-1]["summary"])) == (2, True)
        os.write(keep, LOG.encode())
        code, items = read(capsys, pipe)
        assert (code, "did not come" in str(items[-1]["summary"])) == (2, True)
    finally:
        os.close(keep)


def test_the_same_file_twice(log: Path, tmp_path: Path) -> None:
    """1. A file is given twice, and by another path. 2. It is read once, under the first name."""
    link = tmp_path / "link.log"
    link.symlink_to(log)
    texts, notes = contents([str(log), str(link), str(log), str(log.parent / "." / log.name)])
    assert (texts, notes) == ([(str(log), LOG)], [])
