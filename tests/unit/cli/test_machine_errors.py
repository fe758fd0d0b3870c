"""What is wrong with the machine is told in words, as it is for everything else."""

import errno
import sys
from pathlib import Path

import pytest

from trainmaster.cli.errors import Failed, translate
from trainmaster.cli.main import main
from trainmaster.cli.output import Output


def test_a_state_directory_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The path of the state directory leads through a file. 2. `up` says so, names the path, and starts nothing."""
    file = tmp_path / "file"
    file.write_text("")
    assert main(["up", "scenarios/local.toml", "--state", str(file)]) == 1
    told = capsys.readouterr().err
    assert "Not a directory" in told
    assert str(file) in told
    assert "internal error" not in told


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_errors_of_the_machine_are_no_defects(number: int) -> None:
    error = translate(OSError(number, "said by the kernel", "/a/path"))
    assert isinstance(error, Failed)
    assert "/a/path" in error.what
    assert error.fix


def test_other_errors_stay_defects() -> None:
    assert translate(OSError(errno.EBADF, "Bad file descriptor")) is None


def test_a_full_output_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Output, *arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Output, "listing", full)
    assert main(["explain"]) == 1
    assert "cannot write the output" in capsys.readouterr().err


def test_a_closed_stream_takes_nothing_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `>&-` does. 1. No output, no error: the exit code alone speaks. 2. So for a usage error."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["hosts", "count", "h[1-3]"]) == 0
    assert main(["hosts", "nothing"]) == 2
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()
