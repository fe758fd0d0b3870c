"""Tools that print what they know: run with a bounded output, in the process group of the probe, which is killed as a
whole when the probe's deadline is over."""

import os
import shutil
import subprocess
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Skipped

MOST_BYTES = 8 * 1024 * 1024
"""More than `nvidia-smi -q -x` prints for sixteen GPUs."""


def found(root: Path, name: str) -> str:
    """The path of a tool. Raises `Skipped` if it is not there. Below another root its `bin` is looked in."""
    places = f"{root}/usr/bin:{root}/bin" if root != Path("/") else os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    path = shutil.which(name, path=places)
    if path is None:
        raise Skipped(f"{name} is not installed")
    return path


def output(*words: str) -> str:
    """What a tool prints, whatever it exits with, as long as it prints. Raises `OSError`."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
    ) as process:
        assert process.stdout is not None
        data = process.stdout.read(MOST_BYTES)
        if process.stdout.read(1):
            process.kill()
    if not data.strip():
        raise OSError(f"{words[0]} ended with {process.returncode} and printed nothing")
    return data.decode("utf-8", "replace")
