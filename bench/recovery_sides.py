"""The sides of the recovery bench that run the reference trainer as it is, and how the steps of a job are followed.

A side starts its job when it is made, says with `ready` when the next kill may come, kills one rank with `kill`, and
is asked to start anew with `again` after a kill that it did not survive. What is measured is the gap between two steps
that the job itself wrote down, so no side can gain by being slow to tell.
"""

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

from trainmaster.cli.client import Client, Place
from trainmaster.core.base.ids import JobId
from trainmaster.live import jobfile
from trainmaster.live.adapters import local
from trainmaster.live.server.resources import ChangeReport, JobChange, JobDetail, JobSubmission, SubmitReport
from trainmaster.training import PRELOAD

RANKS = 4
PATIENCE_S = 30.0
START_S = 300.0
SETTLED_STEPS = 12
"""Steps between two kills, so that each meets a running job with a checkpoint."""
EVERY_STEPS = int(os.environ.get("TRAINMASTER_BENCH_EVERY", "10"))
TRAINER = ["-m", "trainmaster.training.reference", "--steps", "1000000", "--seq-len", "32", "--global-batch", "4"]
TRAINER += ["--dim", "512", "--layers", "1", "--hidden", "1536"]


class Steps:
    """Follows the lines that a job writes, one a step, a file for each membership."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[float]:
        """When the steps ended, in order; seconds since 1970."""
        times: list[float] = []
        for path in self._folder.glob("metrics-*.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                times += [
                    json.loads(line)["time_s"]
                    for line in path.read_bytes().splitlines(keepends=True)
                    if line[-1:] == b"\n"
                ]
        return sorted(times)

    def memberships(self) -> int:
        return sum(1 for path in self._folder.glob("metrics-*.jsonl") if path.stat().st_size > 0)

    def settle(self) -> int:
        """Waits for some steps in a row; how many memberships there were."""
        since, deadline = len(self.all()), time.monotonic() + START_S
        while len(self.all()) < since + SETTLED_STEPS:
            assert time.monotonic() < deadline, f"no steps in {self._folder}"
            time.sleep(0.02)
        return self.memberships()

    def gap(self, killed: float, memberships: int) -> float | None:
        """Seconds that a kill cost: between the step before it and the first of the next membership, less a step."""
        deadline = time.monotonic() + PATIENCE_S
        while self.memberships() <= memberships:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.005)
        time.sleep(0.05)  # the line may be half written
        newest = max(self._folder.glob("metrics-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        resumed = float(json.loads(newest.read_bytes().split(b"\n")[0])["time_s"])
        before = [at for at in self.all() if at < resumed]
        assert resumed > killed, "the kill was not noticed"
        return resumed - before[-1] - median_step(before)


def median_step(times: list[float]) -> float:
    """Seconds between two of the last steps."""
    return statistics.median(after - before for before, after in itertools.pairwise(times[-SETTLED_STEPS:]))


def children_of(pid: int) -> list[int]:
    """Direct children, oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Ours:
    """A local fleet of five hosts that runs the job on four of them."""

    name = "trainmaster"

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        fleet = folder / "fleet.toml"
        fleet.write_text(
            'schema = "trainmaster.fleet/v1"\nname = "bench"\n[[cluster]]\nname = "desk"\nfabric = "loopback"\n'
            f'[[cluster.hosts]]\nlist = "h[0-{RANKS}]"\nplatform = "laptop"\n[agents]\nreboot_s = 0.5\n'
        )
        local.up(self._state, fleet, lambda text: None)
        url = local.server_url(self._state)
        assert url is not None
        token = str(self._state / "tokens" / "operator.token")
        self._client = Client(Place(url=url, origin="bench", token_file=token))
        self._job = self._submit(folder)
        self.steps = Steps(self._state / "jobs" / self._job)
        self.phases: list[dict[str, float]] = []

    def _submit(self, folder: Path) -> JobId:
        path = folder / "job.toml"
        quoted = ", ".join(f'"{word}"' for word in ["python", *TRAINER])
        warm = ", ".join(f'"{name}"' for name in PRELOAD)
        path.write_text(
            f'name = "bench"\ncommand = [{quoted}]\nhosts = {RANKS}\nspares = 1\npreload = [{warm}]\n'
            f"[checkpoint]\nevery_steps = {EVERY_STEPS}\n[restart]\nmax_restarts = 1000\nstandby = true\n"
        )
        report = self._client.post("/v1/jobs", JobSubmission(spec=jobfile.load(path)), SubmitReport)
        assert report.job is not None
        return report.job

    def _detail(self) -> JobDetail:
        return self._client.get(f"/v1/jobs/{self._job}", JobDetail)

    def ready(self) -> int:
        """Waits until the spare stands by: its host is back, and its worker has only a rank to wait for."""
        deadline = time.monotonic() + START_S
        while not any("prepared" in log.read_text() for log in self._standbys()):
            assert time.monotonic() < deadline, "no spare stands by"
            time.sleep(0.05)
        return self.steps.settle()

    def _standbys(self) -> list[Path]:
        """Logs of workers that were started ahead on the present spares and have not joined."""
        job = self._detail().job
        logs = (local.host_dir(self._state, host) / "logs" / str(job.attempt) for host in job.spares)
        return [log for folder in logs for log in folder.glob("standby-*.log")]

    def kill(self, rank: int) -> float:
        host = self._detail().job.hosts[rank]
        killed = time.time()
        local.kill_host(self._state, host)
        return killed

    def recovered(self) -> None:
        """Keeps where the time went."""
        incidents = self._detail().account.incidents
        if incidents:
            self.phases.append(incidents[-1].seconds_by_phase)

    def again(self) -> None:
        self._client.post(f"/v1/jobs/{self._job}/requeue", JobChange(reason="bench"), ChangeReport)

    def close(self) -> None:
        local.down(self._state, lambda text: None)


class Launcher:
    """A launcher of one machine with the same script: torchrun, or one with its command line."""

    def __init__(self, folder: Path, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._folder, self._command, self._environment = folder, command, environment
        self.steps = Steps(folder)
        self.phases: list[dict[str, float]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.again()

    def again(self) -> None:
        self.close()
        command = [*self._command, "--nnodes", "1", "--nproc-per-node", str(RANKS)]
        command += ["--max-restarts", "1000", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        command += [
            *TRAINER,
            "--checkpoint-dir",
            str(self._folder / "checkpoints"),
            "--checkpoint-every",
            str(EVERY_STEPS),
        ]
        environment = {
            **os.environ,
            **self._environment,
            "TRAINMASTER_JOB_DIR": str(self._folder),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def ready(self) -> int:
        return self.steps.settle()

    def kill(self, rank: int) -> float:
        assert self._process is not None
        ranks = [pid for pid in children_of(self._process.pid) if b"trainmaster.training.reference" in _command_of(pid)]
        killed = time.time()
        os.kill(ranks[-RANKS:][rank], signal.SIGKILL)
        return killed

    def recovered(self) -> None:
        pass

    def close(self) -> None:
        if self._process is None:
            return
        for pid in (*children_of(self._process.pid), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
