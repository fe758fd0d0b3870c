"""The group task on one host: as many ranks as it has GPUs, or four without, each a process with torchrun's variables.

Between GPUs of a host it measures their links. Without GPUs all goes over the loopback, which shows that ranks start,
meet and sum right; the ranks share cores there, so that only a rank that is slow beyond all sharing is one.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from trainmaster.core.health.verification.conclude import TASK, GroupReport
from trainmaster.core.health.verification.outcome import Outcome, Result, TaskReport, of_error, report
from trainmaster.live.verification import devices

DEFAULT_BUDGET_S: Final = 30.0
WITHOUT_GPUS: Final = 4
_MESSAGE_MIB: Final = "1"
_EFFECT_SHARED: Final = 20.0

Progress = Callable[[float, str], None]


def run(budget_s: float = DEFAULT_BUDGET_S, count: int = 0, progress: Progress | None = None) -> TaskReport:
    """`count` ranks; 0: as many as there are GPUs. The budget is how long the ranks may be silent."""
    start = monotonic()
    gpus = devices.count() - 1
    count = count or (gpus if gpus > 1 else WITHOUT_GPUS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--pair-s", f"{max(budget_s, 1.0):g}", "--join-s", f"{30.0 + budget_s:g}", "--message-mib", _MESSAGE_MIB]
    words += [] if gpus > 1 else ["--effect", f"{_EFFECT_SHARED:g}"]
    processes = [_start(rank, count, port, words) for rank in range(count)]
    try:
        return _outcome(processes[0], start, progress)
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def _start(rank: int, world: int, port: int, words: list[str]) -> "subprocess.Popen[bytes]":
    variables = {
        "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo",
        "TRAINMASTER_HOST": f"rank {rank}",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "trainmaster.live.verification.group", *words],
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
    )


def _outcome(first: "subprocess.Popen[bytes]", start: float, progress: Progress | None) -> TaskReport:
    """What rank 0 prints; its talk is the progress."""
    assert first.stdout is not None
    assert first.stderr is not None
    last = "it said nothing"
    for raw in first.stderr:
        last = raw.decode(errors="replace").strip() or last
        share, percent, words = last.partition(" % ")
        if percent and progress is not None and share.isdecimal():
            progress(int(share) / 100.0, words)
    text = first.stdout.read()
    first.wait()
    if text.strip():
        return msgspec.json.decode(text, type=GroupReport).task
    outcome = of_error(last) if f"{Outcome.NOT_RUN}:" not in last else Outcome.NOT_RUN
    result = Result(task=TASK, part="ranks", unit="group", outcome=outcome, sentence=last)
    return report(TASK, [result], monotonic() - start)
