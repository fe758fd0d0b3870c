"""torchft's side of the recovery bench: a lighthouse, replica groups of one rank, and who starts them anew.

`bench/torchft_job.py` is the job. A kill takes a replica with SIGKILL; the thread that keeps it starts it anew at once.
The others go on without it as soon as they have agreed to, so there are two gaps: from the last step before the kill to
the first after it by whoever lives (`name`), and to the first with as many replicas as before (`name`, full strength).

Three settings: torchft's defaults; timeouts as short as this machine bears; and those with one replica more, which
takes the place of a lost one as our fifth host does, and is awaited before each kill as ours is. Such a spare holds the
whole state and computes every step, and its gradients are thrown away.

A gloo collective that loses a member fails at once only in the neighbours of the dead in the ring. The replica across
waits out the timeout of its group, or until the others leave it; by default both take a minute. So with the defaults a
kill costs the five seconds of the heartbeat or more than a minute, as its moment will have it.

torchft's DistributedDataParallel is not used: as of 0.2.0 its hook fails an assertion when a gloo collective fails, and
all survivors die of that. The job gives its gradients to the manager in one piece instead, which is sound.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from bench.recovery_sides import RANKS, SETTLED_STEPS, START_S, TRAINER, Steps, median_step

PYTHON = os.environ.get("TRAINMASTER_BENCH_TORCHFT", "")
"""Python of an environment in which torchft is installed, and what the library needs; its lighthouse is beside it."""
PATIENCE_S = 180.0
LEAST_REPLICAS = 2
"""As in torchft's example; it also keeps one replica from starting alone."""
SHORT_LIGHTHOUSE = ("--heartbeat_timeout_ms", "500", "--join_timeout_ms", "500", "--quorum_tick_ms", "10")
SHORT_MANAGER = ("--timeout-s", "2", "--heartbeat-s", "0.05")
Line = tuple[float, int, int]
"""When a step ended, in seconds since 1970, how many replicas were in it, and how many in the quorum, spares too."""


class QuorumSteps(Steps):
    """Follows lines that also tell the number of replicas, a file for each quorum and writer."""

    def __init__(self, folder: Path, members: int) -> None:
        super().__init__(folder)
        self._members = members
        self._settled: set[Path] = set()
        self._before: list[float] = []

    def _lines(self, paths: set[Path]) -> list[Line]:
        raw = [line for path in paths for line in path.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"]
        return sorted((line["time_s"], line["replicas"], line["members"]) for line in map(json.loads, raw))

    def _files(self) -> set[Path]:
        return set(self._folder.glob("metrics-*.jsonl"))

    def settle(self) -> int:
        """Waits for some steps in a row at full strength and with all spares; how many files there were."""
        since, deadline = time.time(), time.monotonic() + START_S
        while True:
            self._settled = self._files()
            lately = [counts for at, *counts in self._lines(self._settled) if at > since][-SETTLED_STEPS:]
            if lately == [[RANKS, self._members]] * SETTLED_STEPS:
                return len(self._settled)
            assert time.monotonic() < deadline, f"no steps at full strength in {self._folder}"
            time.sleep(0.02)

    def gap(self, killed: float, memberships: int) -> float | None:
        """Seconds between the last step before the kill and the first of another quorum, less a step."""
        assert memberships == len(self._settled)
        self._before = [at for at, *_ in self._lines(self._settled)]
        resumed = self._first_with(1)
        assert resumed is None or resumed > killed, "the kill was not noticed"
        self._before = [at for at, *_ in self._lines(self._settled)]  # one may have been under way
        return None if resumed is None else resumed - self._before[-1] - median_step(self._before)

    def full_strength(self) -> float | None:
        """The same up to the first step with all replicas."""
        resumed = self._first_with(RANKS)
        return None if resumed is None else resumed - self._before[-1] - median_step(self._before)

    def _first_with(self, least: int) -> float | None:
        """Waits for a step of another quorum with so many replicas; when it ended."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            fitting = [at for at, replicas, _ in self._lines(self._files() - self._settled) if replicas >= least]
            if fitting:
                return fitting[0]
            time.sleep(0.005)
        return None


class Torchft:
    """A lighthouse and replica groups that are started anew whenever they end."""

    def __init__(self, folder: Path, name: str, lighthouse: tuple[str, ...], job: tuple[str, ...], spares: int) -> None:
        self.name = name
        self._folder, self._lighthouse_options, self._job_options = folder, lighthouse, job
        self._groups = RANKS + spares
        self.phases: list[dict[str, float]] = []
        self.full_strength: list[float | None] = []
        self._runs = 0
        self._lighthouse: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        self._runs += 1
        self._run = self._folder / f"run-{self._runs}"  # a new lighthouse counts its quorums from one
        self._run.mkdir()
        self.steps = QuorumSteps(self._run, self._groups)
        with socket.create_server(("127.0.0.1", 0)) as free:  # the lighthouse does not tell which port it took
            port = free.getsockname()[1]
        self._lighthouse = self._popen(
            str(Path(PYTHON).with_name("torchft_lighthouse")),
            *("--bind", f"[::]:{port}", "--min_replicas", str(LEAST_REPLICAS), *self._lighthouse_options),
        )
        self._closing = threading.Event()
        self._replicas: dict[int, subprocess.Popen[bytes]] = {}
        self._keepers = [
            threading.Thread(target=self._keep, args=(group, f"http://127.0.0.1:{port}"), daemon=True)
            for group in range(self._groups)
        ]
        for keeper in self._keepers:
            keeper.start()

    def _popen(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[1],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _keep(self, group: int, lighthouse: str) -> None:
        """Runs a replica group again and again, each time in a process of its own."""
        command = [PYTHON, "-m", "bench.torchft_job", "--group", str(group), "--replicas", str(RANKS)]
        command += ["--lighthouse", lighthouse, "--folder", str(self._run), *self._job_options, *TRAINER[2:]]
        while not self._closing.is_set():
            self._replicas[group] = self._popen(*command)
            self._replicas[group].wait()

    def ready(self) -> int:
        return self.steps.settle()

    def kill(self, rank: int) -> float:
        killed = time.time()
        os.kill(self._replicas[rank].pid, signal.SIGKILL)
        return killed

    def recovered(self) -> None:
        """Waits for full strength."""
        self.full_strength.append(self.steps.full_strength())

    def again(self) -> None:
        self.full_strength.append(None)
        self.close()
        self._start()

    def close(self) -> None:
        self._closing.set()
        for group, keeper in enumerate(self._keepers):
            while keeper.is_alive():  # it may be about to start one more
                if group in self._replicas:
                    self._replicas[group].kill()
                keeper.join(0.05)
        if self._lighthouse is not None:
            self._lighthouse.kill()
            self._lighthouse.wait()
            self._lighthouse = None


def defaults(folder: Path) -> Torchft:
    return Torchft(folder, "torchft", (), (), spares=0)


def short_timeouts(folder: Path) -> Torchft:
    return Torchft(folder, "torchft, short timeouts", SHORT_LIGHTHOUSE, SHORT_MANAGER, spares=0)


def with_spare(folder: Path) -> Torchft:
    return Torchft(
        folder, "torchft, short timeouts and spare", SHORT_LIGHTHOUSE, (*SHORT_MANAGER, "--spares"), spares=1
    )
