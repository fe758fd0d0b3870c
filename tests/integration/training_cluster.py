"""Starts the ranks of a job with the environment that an agent gives them: boards, an inherited listening socket for
the store, directories. Workers are forked from a warm process. What else an agent would do, the tests do by hand."""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainmaster.core.agent import environment
from trainmaster.core.agent.board import SIZE, Board, Phase
from trainmaster.core.agent.vault_talk import SOCKET_NAME
from trainmaster.training import losses

TINY = ("--dim=32", "--layers=2", "--heads=4", "--key-heads=2", "--hidden=64", "--seq-len=16", "--global-batch=8")
STEPS = "--steps=12"
"""Of jobs that are compared with the undisturbed one (`conftest.py`)."""
DEADLINE_S = 120.0
_ASK_S = 0.01
"""How often the warm process is asked who has ended; boards are looked at more often, at nobody else's expense."""
_WARM = Path(__file__).parent / "training_warm.py"


class Warm:
    """The warm process."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, str(_WARM), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        self._channel.settimeout(DEADLINE_S)
        self.threads: int = self._receive()["threads"]

    def start(self, request: dict[str, Any], listener: socket.socket | None) -> int:
        data = json.dumps(request).encode()
        if listener is None:
            self._channel.send(data)
        else:
            socket.send_fds(self._channel, [data], [listener.fileno()])
        pid: int = self._receive()
        return pid

    def ended(self, pids: list[int]) -> dict[int, int]:
        """Exit codes of those that have ended, by pid."""
        self._channel.send(json.dumps(pids).encode())
        return {int(pid): code for pid, code in self._receive().items()}

    def close(self) -> None:
        self._channel.close()
        self.process.wait(DEADLINE_S)

    def _receive(self) -> Any:
        return json.loads(self._channel.recv(1 << 16))


class Membership:
    """One launch of all ranks. Use as a context manager: no process survives it."""

    def __init__(
        self,
        warm: Warm,
        root: Path,
        *flags: str,
        world: int = 4,
        epoch: int = 1,
        attempt: str = "job-1.a1",
        every: int | None = None,
        keep: int = 3,
        checkpoints: Path | None = None,
        module: str = "trainmaster.training.reference",
        environ: Mapping[str, str] | None = None,
        memory: Callable[[int], Path] | None = None,
    ) -> None:
        self.root, self.world, self.epoch = root, world, epoch
        self.checkpoints = checkpoints or root / "checkpoints"
        self.boards: list[Board] = []
        self.pids: list[int] = []
        self._warm = warm
        self._pages: list[mmap.mmap] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            shared = {
                "WORLD_SIZE": world,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": listener.getsockname()[1],
                environment.JOB: "job-1",
                environment.ATTEMPT: attempt,
                environment.EPOCH: epoch,
                environment.HOST: "host-1",
                environment.JOB_DIR: root / "job",
                environment.CHECKPOINT_DIR: self.checkpoints,
                environment.CHECKPOINT_KEEP: keep,
                **({environment.CHECKPOINT_EVERY_STEPS: every} if every else {}),
                **(environ or {}),
            }
            for rank in range(world):
                own = {"RANK": rank, "LOCAL_RANK": rank, environment.BOARD: self._make_board(rank), **shared}
                if memory is not None:  # of the host of this rank
                    own |= {environment.ARENA: memory(rank) / f"arena-{rank}", environment.HOST: memory(rank).name}
                    own = {environment.SNAPSHOT_EVERY_STEPS: 1, environment.REPLICATE_EVERY_STEPS: 1, **own}
                    if (memory(rank) / SOCKET_NAME).exists():
                        own[environment.VAULT] = memory(rank) / SOCKET_NAME
                request = {
                    "environ": {name: str(value) for name, value in own.items()},
                    "module": module,
                    "argv": flags,
                    "stderr": str(self._stderr(rank)),
                }
                self.pids.append(warm.start(request, listener if rank == 0 else None))

    def __enter__(self) -> "Membership":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait_until(lambda: self._codes() is not None, "death after SIGKILL", _ASK_S)

    def errors(self) -> str:
        return "".join(self._stderr(rank).read_text() for rank in range(self.world) if self._stderr(rank).exists())

    def wait_until(self, condition: Callable[[], bool], what: str, every_s: float = 0.001) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s\n{self.errors()}"
            time.sleep(every_s)

    def wait_step(self, step: int) -> None:
        ask_at = time.monotonic()

        def reached() -> bool:
            nonlocal ask_at
            if time.monotonic() >= ask_at:
                ask_at = time.monotonic() + _ASK_S
                early = {pid: code for pid, code in self._warm.ended(self.pids).items() if code != 0}
                assert not early, f"{early}\n{self.errors()}"
            return all(board.integer("step") >= step for board in self.boards)

        self.wait_until(reached, f"step {step}")

    def kill(self, *ranks: int) -> None:
        """SIGKILL; without ranks, all of them."""
        ended = self._warm.ended(self.pids)
        for rank in ranks or range(self.world):
            if self.pids[rank] not in ended:
                os.kill(self.pids[rank], signal.SIGKILL)

    def codes(self) -> list[int]:
        """Waits for all processes; their exit codes."""
        self.wait_until(lambda: self._codes() is not None, "exit", _ASK_S)
        codes = self._codes()
        assert codes is not None
        return codes

    def finish(self) -> None:
        codes = self.codes()
        assert codes == [0] * self.world, f"{codes}\n{self.errors()}"

    def _codes(self) -> list[int] | None:
        ended = self._warm.ended(self.pids)
        return [ended[pid] for pid in self.pids] if set(self.pids) <= set(ended) else None

    def _make_board(self, rank: int) -> Path:
        page = self.root / f"board-e{self.epoch}-r{rank}"
        page.write_bytes(bytes(SIZE))
        with page.open("r+b") as stream:
            self._pages.append(mmap.mmap(stream.fileno(), SIZE))
        board = Board(memoryview(self._pages[-1]))
        board.clear()
        board.put("spawned_at", time.time_ns() // 1000)
        board.put("phase", int(Phase.SPAWNED))
        self.boards.append(board)
        return page

    def _stderr(self, rank: int) -> Path:
        return self.root / f"stderr-e{self.epoch}-r{rank}"


def hexes(root: Path) -> dict[int, str]:
    """Losses by step, as hexadecimal floats. A step that was done again must have had the same."""
    told = losses(root / "job")
    assert not any(loss.mismatches for loss in told.values()), told
    return {step: loss.hex for step, loss in told.items()}
