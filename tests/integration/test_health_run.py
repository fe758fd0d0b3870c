"""`trainmaster health run` on a host that is a directory: its first line, its exit codes, and things that hang."""

import time
from pathlib import Path

import msgspec
import pytest
from tests.fakes import host_tree as tree

from trainmaster.cli.main import main
from trainmaster.core.health.words import Verdict
from trainmaster.live.agent.health.check import Checked

pytestmark = pytest.mark.real


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tree.healthy(tmp_path / "root")
    for name in ("mlx5_0", "mlx5_1"):
        tree.port(made, name)
    (tmp_path / "kernel.log").write_text("[    1.000000] usb 1-1: new high-speed USB device number 4\n")
    return made


def run(root: Path, *arguments: str) -> int:
    place = ("--probe-root", str(root), "--kernel-log", str(root.parent / "kernel.log"))
    return main(["health", "run", *place, *arguments])


def test_a_host_that_is_well(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. Exit code 0, and a first line that counts. 2. What has nothing to look at is skipped, with the reason."""
    assert run(root, "pcie", "network", "memory", "read-only", "heat", "smart", "--expect", "gpu=2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok: 5 of 5 checks could be read, 1 skipped"
    assert "smartctl is not installed" in next(line for line in lines if line.startswith("smart"))


def test_a_host_that_is_not(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A GPU is missing, a link is narrow, the log tells of a lost one an hour ago and of one just now. 2. Exit code
    2; the first line names the worst. 3. As JSON, with the evidence."""
    now = time.monotonic()
    (root.parent / "kernel.log").write_text(
        f"[{now - 7200:.6f}] NVRM: Xid (PCI:0000:99:00): 79, pid=0, GPU has fallen off the bus.\n"
        f"[{now - 5:.6f}] NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus.\n"
    )
    (root / "sys/bus/pci/devices/0000:1b:00.0/current_link_width").write_text("8\n")
    assert run(root, "kernel-log", "pcie", "parts", "--expect", "gpu=3") == 2
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("bad, reboot: ")
    assert "2 of 3 gpus are here" in first
    assert first.endswith("3 of 3 checks could be read, 0 skipped")
    assert run(root, "kernel-log", "-o", "json") == 2
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["schema"], told["verdict"], told["remedy"]) == ("trainmaster.health-finding/v1", "bad", "reboot")
    assert [(finding["unit"], finding["rule"]) for finding in told["items"]] == [("gpu 0000:1b:00", "xid-79")]
    assert [(each["check"], each["verdict"]) for each in told["checks"]] == [("kernel-log", "bad")]


def test_a_look_that_nobody_narrowed_and_that_saw_nothing() -> None:
    """1. All checks are skipped. 2. Skipped if they were asked for by name; else unknown, which is not healthy."""
    checked = Checked(findings=(), skipped={"smart": "not installed"}, checks=("smart",), unread=frozenset())
    assert checked.verdict is Verdict.UNKNOWN
    assert checked.but(asked=True).verdict is Verdict.SKIPPED


def test_only_a_suspect(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "sys/bus/pci/devices/0000:1b:00.0/current_link_width").write_text("8\n")
    assert run(root, "pcie", "memory") == 1
    assert capsys.readouterr().out.startswith("watch, diagnose: gpu 0000:1b:00 watch: the PCIe link is 8 wide")


def test_a_disk_that_hangs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The tool never answers about one of two disks, and ignores SIGTERM. 2. The other and all other checks are
    read; the run ends within its time with 3, and says which disk."""
    tree.put(root, "sys/block/sda/device/model", "X")
    tree.put(root, "usr/bin/smartctl", "#!/bin/sh\ntrap '' TERM\ncase $4 in */sda) while :; do sleep 1; done;; esac\n"
             """echo '{"smart_status": {"passed": true}}'""")  # fmt: skip
    (root / "usr/bin/smartctl").chmod(0o755)
    start = time.monotonic()
    assert run(root, "smart", "pcie", "memory", "--timeout-s", "5") == 3
    assert time.monotonic() - start < 6.0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("unknown, none: disk sda unknown: a disk does not say how it is (no answer within")
    assert lines[0].endswith("2 of 3 checks could be read, 0 skipped")


def test_what_is_there_and_can_not_be_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The table of mounts is gone: unknown, not skipped. 2. Where nothing is there of what was
    asked for, that is skipped, and the first line says why; nobody has called the host healthy."""
    (root / "proc/self/mounts").unlink()
    assert run(root, "read-only", "pcie") == 3
    assert "can't be read" in capsys.readouterr().out
    capsys.readouterr()
    assert run(root, "smart") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("skipped: smart: smartctl is not installed")
    assert first.endswith("0 of 0 checks could be read, 1 skipped")


@pytest.mark.parametrize("arguments", [("nvlm",), ("--expect", "wheels=4"), ("--timeout-s", "x"), ("--what",)])
def test_wrong_usage_is_unknown(root: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt option must not look like a broken host, nor like a well one."""
    assert run(root, *arguments) == 3
    assert "try:" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "run", "--list"]) == 0
    assert "nvml" in capsys.readouterr().out
