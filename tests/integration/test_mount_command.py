"""`trainmaster mount` and `umount`: how they are used, and what is in their way."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.command import CommandLine
from tests.integration.mounts import mounted, runs, until, why_not

from trainmaster.storage.fuse import mounting
from trainmaster.storage.fuse.daemon import MEMORY_BYTES_MAX
from trainmaster.storage.fuse.refused import Refused

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")]


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    yield CommandLine(tmp_path, monkeypatch)
    for name in ("m", "n"):
        while mounting.mounted_at(tmp_path / name) is not None:
            mounting.unmount(tmp_path / name, lazily=True)


def test_mount_and_umount(line: CommandLine, tmp_path: Path) -> None:
    """1. A new store. 2. The same once more is refused, with who has it. 3. It is in use: not unmounted. 4. Unmounted.
    5. Once more: nothing is there. 6. Mounted again: all is there."""
    (tmp_path / "m").mkdir()
    ran = line.run("mount", "s", "m")
    assert ran.code == 0, ran.err
    assert ran.err.startswith(f"{tmp_path}/s is mounted at {tmp_path}/m (passthrough)")
    (tmp_path / "m" / "f").write_text("x")
    again = line.run("mount", "s", "m")
    assert again.code == 1
    assert f"{tmp_path}/m is a mount already" in again.err
    (tmp_path / "n").mkdir()
    elsewhere = line.run("mount", "s", "n")
    assert elsewhere.code == 1
    assert re.search(rf"is mounted already\n  why: process \d+ has it at {tmp_path}/m\n  try: .*umount", elsewhere.err)
    with (tmp_path / "m" / "f").open():
        busy = line.run("umount", "m")
    assert (busy.code, "is in use" in busy.err, "umount --lazy" in busy.err) == (1, True, True)
    ended = line.run("umount", "m")
    assert (ended.code, ended.err) == (0, f"m is unmounted; its files are in {tmp_path}/s\n")
    nothing = line.run("umount", "m")
    assert (nothing.code, "nothing is mounted" in nothing.err) == (1, True)
    assert line.run("mount", "s", "m", "--mode", "copying").code == 0
    assert (tmp_path / "m" / "f").read_text() == "x"
    assert line.run("umount", "m").code == 0


def test_states_of_files(line: CommandLine, tmp_path: Path) -> None:
    """1. Synced and not, a directory, a link. 2. For programs. 3. No such file; a file elsewhere."""
    (tmp_path / "m").mkdir()
    assert line.run("mount", "s", "m").code == 0
    for name in ("synced", "loose"):
        with (tmp_path / "m" / name).open("wb") as stream:
            stream.write(b"x" * 2048)
            stream.flush()
            if name == "synced":
                os.fsync(stream.fileno())
    (tmp_path / "m" / "d").mkdir()
    (tmp_path / "m" / "l").symlink_to("synced")
    ran = line.run("store", "stat", "m/synced", "m/loose", "m/d", "m/l", "--columns", "path,state", "--no-header")
    assert (ran.code, [row.split() for row in ran.out.splitlines()]) == (
        0,
        [["m/synced", "accepted"], ["m/loose", "written"], ["m/d", "-"], ["m/l", "-"]],
    ), ran
    (shown,) = json.loads(line.run("store", "stat", "m/synced", "-o", "json").out)["items"]
    assert (shown["state"], shown["size_bytes"], shown["store"]) == ("accepted", 2048, f"{tmp_path}/s")
    none, elsewhere = line.run("store", "stat", "m/none"), line.run("store", "stat", "/proc/self/status")
    assert (none.code, "there is no m/none" in none.err) == (3, True)
    assert (elsewhere.code, "on no mount of trainmaster" in elsewhere.err) == (1, True)
    assert line.run("umount", "m").code == 0


def test_what_is_in_the_way(line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is refused with what, why and what next; nothing is mounted and nothing changed."""
    (tmp_path / "m").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo").touch()
    (tmp_path / "file").touch()
    newer = tmp_path / "newer"
    assert line.run("mount", "newer", "m").code == 0
    assert line.run("umount", "m").code == 0
    db = sqlite3.connect(newer / "names.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    cases = [
        (("mount", "s", "full"), 1, "is not empty"),
        (("mount", "s", "none"), 1, "there is no such directory"),
        (("mount", "s", "file"), 1, "it is a file"),
        (("mount", "s", "/proc"), 1, "something else is mounted at /proc"),
        (("mount", "other", "m"), 1, "it holds other things: photo"),
        (("mount", "m/s", "m"), 1, "lie in each other"),
        (("mount", "none/s", "m"), 1, "cannot use the store"),
        (("mount", "file", "m"), 1, "cannot use the store"),
        (("mount", "newer", "m"), 1, "has version 99, and this program reads 1"),
        (("umount", "/proc"), 1, "is no mount of trainmaster"),
        (("mount", "s", "m", "--mode", "x"), 2, "Invalid value for '--mode'"),
        (("mount", "s"), 2, "Missing argument 'DIR'"),
        (("--readonly", "mount", "s", "m"), 5, "readonly is set"),
    ]
    for words, code, text in cases:
        ran = line.run(*words)
        assert (ran.code, text in ran.err, "  try: " in ran.err) == (code, True, True), (words, ran)
        assert ran.out == ""
    assert mounting.mounted_at(tmp_path / "m") is None
    assert not (tmp_path / "s" / "names.sqlite").exists()


def test_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1. No device. 2. A user without rights and without the helper."""
    with pytest.raises(Refused, match="there is no") as caught:
        mounting.refuse_machine(str(tmp_path / "fuse"))
    assert "modprobe fuse" in caught.value.fix
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="may not mount") as caught:
        mounting.refuse_machine()
    assert caught.value.fix == "apt install fuse3"


def test_the_list_of_mounts() -> None:
    """1. A name with a space. 2. The topmost counts. 3. Another directory."""
    table = (
        "29 1 254:0 / / rw - ext4 /dev/vda rw\n"
        r"30 29 0:40 / /a\040b rw,nosuid shared:1 - tmpfs tmpfs rw" + "\n"
        r"31 30 0:41 / /a\040b rw - fuse.trainmaster /s\040t rw,user_id=0" + "\n"
    )
    assert mounting.mounted_at(Path("/a b"), table) == (Path("/a b"), "fuse.trainmaster", "/s t")
    assert mounting.mounted_at(Path("/a"), table) is None


def test_in_the_foreground(tmp_path: Path) -> None:
    """1. It stays. 2. An interrupt ends it, and the mount."""
    (tmp_path / "m").mkdir()
    command = [sys.executable, "-m", "trainmaster", "mount", str(tmp_path / "s"), str(tmp_path / "m"), "--foreground"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: mounting.mounted_at(tmp_path / "m") is not None, "the mount")
        (tmp_path / "m" / "f").write_text("x")
        process.send_signal(2)
        _, errors = process.communicate(timeout=30)
    finally:
        if mounting.mounted_at(tmp_path / "m") is not None:
            mounting.unmount(tmp_path / "m", lazily=True)
        process.kill()
        process.communicate()
    assert process.returncode == 0, errors
    assert "is mounted at" in errors
    assert mounting.mounted_at(tmp_path / "m") is None


def test_by_the_helper(tmp_path: Path) -> None:
    """What users without root do: `fusermount3` mounts and hands over the device."""
    (tmp_path / "m").mkdir()
    device = mounting.mount(tmp_path / "s", tmp_path / "m", by_helper=True)
    try:
        assert mounting.mounted_at(tmp_path / "m") == (tmp_path / "m", mounting.KIND, str(tmp_path / "s"))
    finally:
        os.close(device)
        mounting.unmount(tmp_path / "m", lazily=True)


def peak_bytes(process: int) -> int:
    words = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(words["VmHWM"].split()[0]) << 10


@pytest.mark.parametrize("mode", ["passthrough", "copying"])
def test_memory_is_bounded(mode: str, tmp_path: Path) -> None:
    """1. A gibibyte streamed in and out. 2. Thousands of files, listed. 3. As many open as may be; one more is refused.
    4. Neither process ever had more than the stated memory. 5. What is closed may be opened again."""
    with mounted(tmp_path, mode, files_max=2000) as mount:  # type: ignore[arg-type]
        block = os.urandom(4 << 20)
        with (mount.path / "stream").open("wb", buffering=0) as out:
            for _ in range(256):
                out.write(block)
        with (mount.path / "stream").open("rb", buffering=0) as stream:
            while data := stream.read(4 << 20):
                assert data == block
        (mount.path / "stream").unlink()
        held = [os.open(mount.path / f"f{number}", os.O_CREAT | os.O_RDWR) for number in range(2000)]
        try:
            assert len(os.listdir(mount.path)) == 2000
            with pytest.raises(OSError, match="Too many open files in system"):
                os.open(mount.path / "more", os.O_CREAT | os.O_RDWR)
        finally:
            for file in held:
                os.close(file)
        until(lambda: opens(mount.path / "more"), "room for another file")
        assert peak_bytes(mount.server) < MEMORY_BYTES_MAX
        assert peak_bytes(mount.holder) < MEMORY_BYTES_MAX
        server = mount.server
        mount.end()
        until(lambda: not runs(server), "the end of the server")


def opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True
