"""Starts the ranks of a job as plain processes with the environment that an agent gives them: boards, an inherited
listening socket for the store, directories. What an agent would do beyond that, the tests do by hand."""

import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainmaster.core.agent import environment
from trainmaster.core.agent.board import SIZE, Board, Phase

TINY = ("--dim=32", "--layers=2", "--heads=4", "--key-heads=2", "--hidden=64", "--seq-len=16", "--global-batch=8")
DEADLINE_S = 60.0


class Membership:
    """One launch of all ranks. Use as a context manager: no process survives it."""

    def __init__(
        self,
        root: Path,
        *flags: str,
        world: int = 4,
        epoch: int = 1,
        attempt: str = "job-1.a1",
        every: int | None = None,
        keep: int = 3,
        checkpoints: Path | None = None,
        script: Sequence[str] = ("-m", "trainmaster.training.reference"),
    ) -> None:
        self.root, self.world, self.epoch = root, world, epoch
        self.checkpoints = checkpoints or root / "checkpoints"
        self.boards: list[Board] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pages: list[mmap.mmap] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.set_inheritable(True)
            for rank in range(world):
                self._start(rank, listener, [*script, *flags], attempt, every, keep)

    def __enter__(self) -> "Membership":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def _start(
        self, rank: int, listener: socket.socket, arguments: list[str], attempt: str, every: int | None, keep: int
    ) -> None:
        page = self.root / f"board-{attempt}-e{self.epoch}-r{rank}"
        page.write_bytes(bytes(SIZE))
        with page.open("r+b") as stream:
            self._pages.append(mmap.mmap(stream.fileno(), SIZE))
        board = Board(memoryview(self._pages[-1]))
        board.clear()
        board.put("phase", int(Phase.SPAWNED))
        board.put("spawned_at", time.time_ns() // 1000)
        self.boards.append(board)
        added = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": self.world,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": listener.getsockname()[1],
            "OMP_NUM_THREADS": 1,
            "PYTHONWARNINGS": "error::DeprecationWarning",
            environment.JOB: "job-1",
            environment.ATTEMPT: attempt,
            environment.EPOCH: self.epoch,
            environment.HOST: "host-1",
            environment.BOARD: page,
            environment.JOB_DIR: self.root / "job",
            environment.CHECKPOINT_DIR: self.checkpoints,
            environment.CHECKPOINT_KEEP: keep,
            **({environment.CHECKPOINT_EVERY_STEPS: every} if every else {}),
            **({environment.STORE_FD: listener.fileno()} if rank == 0 else {}),
        }
        self.processes.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, **{name: str(value) for name, value in added.items()}},
                stdout=subprocess.PIPE,
                stderr=(self.root / f"stderr-{attempt}-e{self.epoch}-r{rank}").open("wb"),
                pass_fds=(listener.fileno(),) if rank == 0 else (),
            )
        )

    def errors(self) -> str:
        return "".join(path.read_text() for path in sorted(self.root.glob(f"stderr-*-e{self.epoch}-r*")))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s\n{self.errors()}"
            time.sleep(0.002)

    def wait_step(self, step: int) -> None:
        def reached() -> bool:
            assert all(process.poll() in (None, 0) for process in self.processes), self.errors()
            return all(board.integer("step") >= step for board in self.boards)

        self.wait_until(reached, f"step {step}")

    def kill(self, *ranks: int) -> None:
        """SIGKILL; without ranks, all of them."""
        for rank in ranks or range(self.world):
            self.processes[rank].send_signal(signal.SIGKILL)

    def codes(self) -> list[int]:
        """Waits for all processes; their exit codes."""
        self.wait_until(lambda: all(process.poll() is not None for process in self.processes), "exit")
        return [process.returncode for process in self.processes]

    def finish(self) -> None:
        codes = self.codes()
        assert codes == [0] * self.world, f"{codes}\n{self.errors()}"
