"""From SIGKILL of a worker to the next completed step: ours against torchrun, the same job, the same run, in turns.

The job is the reference trainer at a small size with two ranks (FSDP2 on gloo), saving every ten steps; under torchrun
it resumes from its checkpoints through the same library, so what differs is the launcher: noticing the death, stopping
the rest, meeting again, starting processes. torchrun runs with the c10d rendezvous, once as it is and once with
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which keeps it from reusing the store of the dead group. A kill counts as not
recovered when no step comes within `PATIENCE_S`; the job is then started anew for the next kill.

`ratio` is torchrun's median over ours. Twenty kills each; ours must recover twenty of twenty.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure
from trainmaster.cli.client import Client, Place
from trainmaster.core.base.ids import HostId, JobId
from trainmaster.live import jobfile
from trainmaster.live.adapters import local
from trainmaster.live.server.resources import ChangeReport, JobChange, JobSubmission, SubmitReport
from trainmaster.training import PRELOAD

KILLS = int(os.environ.get("TRAINMASTER_BENCH_KILLS", "20"))
BLOCK = 5
"""Kills of one side before the next side has its turn: sides that ran at once would slow each other down."""
PATIENCE_S = 20.0
START_S = 90.0
TRAINER = [
    "-m",
    "trainmaster.training.reference",
    "--steps",
    "1000000",
    "--dim",
    "128",
    "--layers",
    "2",
    "--heads",
    "4",
]
TRAINER += ["--key-heads", "2", "--hidden", "256", "--seq-len", "32", "--global-batch", "4", "--step-sleep", "0.02"]


class Steps:
    """Follows the lines that a job writes, one a step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def last(self) -> float:
        """When the newest step ended; seconds since 1970, 0 if there is none."""
        newest = 0.0
        for path in self._folder.glob("metrics-*.jsonl"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = path.read_bytes()[-4096:].splitlines(keepends=True)
                whole = [line for line in lines if line.endswith(b"\n")]
                newest = max(newest, float(json.loads(whole[-1])["time_s"]))
        return newest

    def after(self, moment: float, patience_s: float) -> float | None:
        """The first sight of a step that ended after `moment`; None if none came in time."""
        deadline = time.time() + patience_s
        while time.time() < deadline:
            seen = self.last()
            if seen > moment:
                return seen
            time.sleep(0.01)
        return None

    def settle(self) -> None:
        """Some steps after the last recovery, so that each kill meets a running job with a checkpoint."""
        for _ in range(12):
            assert self.after(time.time(), START_S) is not None, f"no step in {self._folder}"


def children_of(pid: int) -> list[int]:
    """Direct children, oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_one(pid: int, steps: Steps) -> float | None:
    """Seconds from the kill to the end of the next step."""
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    # a step that was all but done may still be reported by the survivor; the group needs far longer than this
    resumed = steps.after(killed + 0.02, PATIENCE_S)
    return resumed - killed if resumed is not None else None


class Ours:
    """A local fleet of one host that runs the job."""

    name = "trainmaster"

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        fleet = folder / "fleet.toml"
        fleet.write_text(
            'schema = "trainmaster.fleet/v1"\nname = "bench"\n[[cluster]]\nname = "desk"\nfabric = "loopback"\n'
            '[[cluster.hosts]]\nlist = "h0"\nplatform = "laptop"\n'
        )
        local.up(self._state, fleet, lambda text: None)
        url = local.server_url(self._state)
        assert url is not None
        token = str(self._state / "tokens" / "operator.token")
        self._client = Client(Place(url=url, origin="bench", token_file=token))
        self._job = self._submit(folder)
        self.steps = Steps(self._state / "jobs" / self._job)

    def _submit(self, folder: Path) -> JobId:
        path = folder / "job.toml"
        quoted = ", ".join(f'"{word}"' for word in ["python", *TRAINER])
        warm = ", ".join(f'"{name}"' for name in PRELOAD)
        path.write_text(
            f'name = "bench"\ncommand = [{quoted}]\nhosts = 1\nranks_per_host = 2\npreload = [{warm}]\n'
            f"[checkpoint]\nevery_steps = 10\n[restart]\nmax_restarts = 1000\n"
        )
        report = self._client.post("/v1/jobs", JobSubmission(spec=jobfile.load(path)), SubmitReport)
        assert report.job is not None
        return report.job

    def worker(self) -> int:
        return local.workers_of(self._state, HostId("h0"))[-1].pid

    def ready(self) -> None:
        self.steps.settle()

    def again(self) -> None:
        self._client.post(f"/v1/jobs/{self._job}/requeue", JobChange(reason="bench"), ChangeReport)

    def close(self) -> None:
        local.down(self._state, lambda text: None)


class Torchrun:
    """torchrun with the same script."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self._folder, self._environment = folder, environment
        self.steps = Steps(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.again()

    def again(self) -> None:
        self.close()
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"]
        command += ["--max-restarts", "1000", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        command += [*TRAINER, "--checkpoint-dir", str(self._folder / "checkpoints"), "--checkpoint-every", "10"]
        environment = {
            **os.environ,
            **self._environment,
            "TRAINMASTER_JOB_DIR": str(self._folder),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def worker(self) -> int:
        assert self._process is not None
        return children_of(self._process.pid)[-1]

    def ready(self) -> None:
        self.steps.settle()

    def close(self) -> None:
        if self._process is None:
            return
        for pid in (*children_of(self._process.pid), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


SIDES: tuple[Callable[[Path], Ours | Torchrun], ...] = (
    Ours,
    lambda folder: Torchrun(folder, "torchrun", {}),
    lambda folder: Torchrun(folder, "torchrun, own store", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
)


def figures() -> Iterator[Figure]:
    taken: dict[str, list[float | None]] = {}
    for start in range(0, KILLS, BLOCK):
        for begin in SIDES:
            with tempfile.TemporaryDirectory() as folder:
                _block(begin(Path(folder)), min(BLOCK, KILLS - start), taken)
    ours, *peers = taken
    yield from _figures(taken, ours, (peers[0], peers[1]))


def _block(side: "Ours | Torchrun", kills: int, taken: dict[str, list[float | None]]) -> None:
    """Some kills of one side, while the other sides do not run."""
    with contextlib.closing(side):
        times = taken.setdefault(side.name, [])
        for _ in range(kills):
            times.append(_one(side))
            sys.stderr.write(f"kill {len(times)} of {KILLS}, {side.name}: {times[-1]} s\n")


def _one(side: "Ours | Torchrun") -> float | None:
    side.ready()
    result = kill_one(side.worker(), side.steps)
    if result is None:
        side.again()
    return result


def _figures(taken: dict[str, list[float | None]], ours: str, peers: tuple[str, ...]) -> Iterator[Figure]:
    back = {name: [seconds for seconds in times if seconds is not None] for name, times in taken.items()}
    mine = statistics.median(back[ours])
    for peer in peers:
        theirs = statistics.median(back[peer]) if back[peer] else None
        suffix = "" if peer == peers[0] else "_own_store"
        yield Figure(
            bench="recovery",
            figure=f"recovery.kill_to_next_step_s{suffix}",
            value=round(mine, 3),
            unit="s",
            better="lower",
            peer=round(theirs, 3) if theirs is not None else None,
            ratio=round(theirs / mine, 2) if theirs is not None else None,
            goal="ratio at least 3",
            holds=theirs is not None and theirs / mine >= 3,
            note=f"{peer}: {len(back[peer])} of {KILLS} kills recovered within {PATIENCE_S:g} s; median of those",
        )
    yield Figure(
        bench="recovery",
        figure="recovery.recovered",
        value=len(back[ours]),
        unit="kills",
        better="higher",
        peer=len(back[peers[0]]),
        ratio=round(len(back[ours]) / max(len(back[peers[0]]), 1), 2),
        goal=f"{KILLS} of {KILLS}",
        holds=len(back[ours]) == KILLS,
    )
