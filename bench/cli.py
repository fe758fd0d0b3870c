"""Start-up of the command line as a whole process: `trainmaster --help`.

Peer: the same interpreter doing nothing. `ratio` is ours over the peer's; the goal is 150 ms on an idle machine.
"""

import subprocess
import sys
from collections.abc import Iterator

from bench.figure import Figure, interleaved, timed

GOAL_MS = 150.0


def figures() -> Iterator[Figure]:
    def run(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        return 1000 * timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    run("-m", "trainmaster", "--help")
    ours, peer = interleaved(lambda: run("-m", "trainmaster", "--help"), lambda: run("-c", "pass"), rounds=15)
    yield Figure(
        bench="cli",
        figure="cli.help_ms",
        value=round(ours, 1),
        unit="ms",
        better="lower",
        peer=round(peer, 1),
        ratio=round(ours / peer, 2),
        goal=f"under {GOAL_MS:g} ms",
        holds=ours < GOAL_MS,
    )
