"""One host with a real agent process and real workers, against a fake server; cleans up and checks that it is clean."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.fakes.agent_server import FakeServer

from trainmaster.core.base.ids import AttemptId, EffectId, HostId, JobId
from trainmaster.core.base.time import Duration
from trainmaster.core.base.value import decode
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReleaseAttempt, ReserveStore, StopWorkers
from trainmaster.core.recovery.events import WorkerExited
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.processes import ProcessName, is_alive, name_of

T = TypeVar("T")
HOST = HostId("h1")
JOB = JobId("job-1")
ATTEMPT = AttemptId("job-1.a1")


def eventually(look: Callable[[], T | None], timeout_s: float = 20.0) -> T:
    """The first true value of `look`; asks every few milliseconds."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.002)
    return found


class AgentHost:
    def __init__(self, directory: Path, server: FakeServer) -> None:
        self.directory, self.server = directory, server
        memory = tempfile.mkdtemp(prefix="trainmaster-test-", dir="/dev/shm")
        self.paths = HostPaths(host_dir=str(directory / "host"), memory_dir=memory, jobs_dir=str(directory / "jobs"))
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        (directory / "token").write_text(server.token)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = directory / "agent.log"
        self.packages = directory / "packages"
        self.reboot_command = ""
        self.flags: tuple[str, ...] = ("--kernel-log", "none", "--probes", "none")
        self._effects = 0

    def start_agent(self) -> None:
        seen = len(self.server.registers)
        command = [sys.executable, "-m", "trainmaster.cli.main", "--server", self.server.url]
        command += ["--token-file", str(self.directory / "token"), "agent", "run", "--host", HOST]
        command += ["--address", "127.0.0.1", "--host-dir", self.paths.host_dir]
        command += ["--memory-dir", self.paths.memory_dir, "--jobs-dir", self.paths.jobs_dir]
        command += ["--reboot-command", self.reboot_command, *self.flags]
        environment = {**os.environ, "TRAINMASTER_PACKAGES": str(self.packages)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        self.server.wait(lambda: len(self.server.registers) > seen)

    def kill_agent(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    def close(self) -> None:
        """Ends the agent in order and checks that nothing of the host is left."""
        names = self.leftovers()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(20) == 0, self.log.read_text()
        left = [name for name in (*names, *self.leftovers()) if is_alive(name)]
        for name in left:
            os.kill(name.pid, signal.SIGKILL)
        shutil.rmtree(self.paths.memory_dir)
        assert not left, left

    def leftovers(self) -> list[ProcessName]:
        """Keepers that were recorded, whether they live or not."""
        return [decode(path.read_bytes(), ProcessName) for path in self.paths.attempts.glob("*/keeper.json")]

    # --- effects ---

    def next_id(self) -> EffectId:
        self._effects += 1
        return EffectId(f"e{self._effects}.1")

    def script(self, text: str, name: str = "script.py") -> None:
        (self.work / name).write_text(text)

    def prepare(self, *command: str, preload: tuple[str, ...] = (), **environment: str) -> PrepareAttempt:
        return PrepareAttempt(
            id=self.next_id(),
            hosts=(HOST,),
            attempt=ATTEMPT,
            job=JOB,
            job_name="test",
            command=command or ("python", "script.py"),
            environment=environment,
            workdir=str(self.work),
            preload=preload,
            checkpoint_directory="",
            checkpoint_every_steps=0,
            checkpoint_keep=2,
            max_restarts=3,
        )

    def reserve(self, epoch: int = 1) -> ReserveStore:
        return ReserveStore(id=self.next_id(), host=HOST, attempt=ATTEMPT, epoch=epoch)

    def launch(self, epoch: int = 1, ranks: int = 1, port: int = 1) -> LaunchWorkers:
        return LaunchWorkers(
            id=self.next_id(),
            hosts=(HOST,),
            attempt=ATTEMPT,
            epoch=epoch,
            ranks=ranks,
            world=ranks,
            master_address="127.0.0.1",
            master_port=port,
            restart_count=epoch - 1,
        )

    def stop(self, epoch: int = 1, grace: int = 0) -> StopWorkers:
        return StopWorkers(id=self.next_id(), hosts=(HOST,), attempt=ATTEMPT, epoch=epoch, grace=Duration(grace))

    def release(self) -> ReleaseAttempt:
        return ReleaseAttempt(id=self.next_id(), hosts=(HOST,), attempt=ATTEMPT)

    def run(self, text: str, preload: tuple[str, ...] = (), ranks: int = 1) -> None:
        """Prepares and launches a script as epoch 1."""
        self.script(text)
        assert self.server.do(self.prepare(preload=preload)).outcome == "done"
        assert self.server.do(self.launch(ranks=ranks)).outcome == "done"

    # --- the world ---

    def exits(self, count: int) -> list[WorkerExited]:
        return self.server.wait(lambda: exits if len(exits := self.server.of(WorkerExited)) >= count else None)

    def log_text(self, rank: int = 0, epoch: int = 1) -> str:
        try:
            return self.paths.log(ATTEMPT, epoch, rank).read_text()
        except FileNotFoundError:
            return ""

    def said(self, text: str, rank: int = 0, epoch: int = 1) -> str:
        return eventually(lambda: log if text in (log := self.log_text(rank, epoch)) else None)

    def worker_pid(self, rank: int = 0, epoch: int = 1) -> int:
        """The process id that a script printed as `pid N`."""
        found = eventually(lambda: re.search(r"pid (\d+)\n", self.log_text(rank, epoch)))
        return int(found.group(1))


def is_gone(pid: int) -> bool:
    """Whether no process with this id runs (one that its new parent has not collected yet does not)."""
    name = name_of(pid)
    return name is None or not is_alive(name)
