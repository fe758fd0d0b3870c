"""From SIGKILL of a host to the next completed step: ours against others, the same job, the same run, in turns.

The job is the reference trainer with four ranks (FSDP2 on gloo, some five million parameters), saving every ten steps.
Ours has five hosts with a rank each, one of them a spare. A kill destroys a whole host: its agent, its keeper, its
rank, its shared memory and its directory; the host of each rank has its turn, that of rank 0 too. Under the others
there is one launcher on the machine, and a kill takes one rank, which is less than a host. They resume from the same
checkpoints through the same library, so what differs is noticing, stopping, meeting again, starting. torchrun runs with
the c10d rendezvous, once as it is and once with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which keeps it from reusing the
store of the dead group; NVRx's `ft_launcher` from the environment that TRAINMASTER_BENCH_NVRX names, if it does.
torchft is not here: it wants a script written for its manager, so it would not be the same job.

What is measured is the gap between the last step before and the first after, less the median step. A kill counts as
not recovered when no step comes within `PATIENCE_S`; the job is then started anew for the next kill.

`ratio` is the other's median over ours. Ours must recover every time.
"""

import contextlib
import itertools
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
from trainmaster.core.base.ids import JobId
from trainmaster.live import jobfile
from trainmaster.live.adapters import local
from trainmaster.live.server.resources import ChangeReport, JobChange, JobDetail, JobSubmission, SubmitReport
from trainmaster.training import PRELOAD
from trainmaster.training.reference.corpus import VOCABULARY_SIZE
from trainmaster.training.reference.main import arguments
from trainmaster.training.reference.model import Llama, Shape

KILLS = int(os.environ.get("TRAINMASTER_BENCH_KILLS", "20"))
NVRX = os.environ.get("TRAINMASTER_BENCH_NVRX", "")
"""Python of an environment in which nvidia-resiliency-ext is installed, and what the library needs."""
BLOCK = 5
"""Kills of one side before the next side has its turn: sides that ran at once would slow each other down."""
RANKS = 4
PATIENCE_S = 30.0
START_S = 300.0
SETTLED_STEPS = 12
"""Steps between two kills, so that each meets a running job with a checkpoint."""
EVERY_STEPS = int(os.environ.get("TRAINMASTER_BENCH_EVERY", "10"))
TRAINER = ["-m", "trainmaster.training.reference", "--steps", "1000000", "--seq-len", "32", "--global-batch", "4"]
TRAINER += ["--dim", "512", "--layers", "1", "--hidden", "1536"]
LEAST_PARAMETERS = 5_000_000


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
        lately = before[-SETTLED_STEPS:]
        return resumed - before[-1] - statistics.median(b - a for a, b in itertools.pairwise(lately))


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


def _torchrun(folder: Path) -> Launcher:
    return Launcher(folder, "torchrun", [sys.executable, "-m", "torch.distributed.run"], {})


def _own_store(folder: Path) -> Launcher:
    command = [sys.executable, "-m", "torch.distributed.run"]
    return Launcher(folder, "torchrun, own store", command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def _nvrx(folder: Path) -> Launcher:
    return Launcher(folder, "nvrx", [NVRX, "-m", "nvidia_resiliency_ext.fault_tolerance.launcher"], {})


SIDES: tuple[Callable[[Path], Ours | Launcher], ...] = (Ours, _torchrun, _own_store, *((_nvrx,) if NVRX else ()))


def figures() -> Iterator[Figure]:
    taken: dict[str, list[float | None]] = {}
    phases: list[dict[str, float]] = []
    _check_size()
    for start in range(0, KILLS, BLOCK):
        for begin in SIDES:
            with tempfile.TemporaryDirectory() as folder:
                phases += _block(begin(Path(folder)), min(BLOCK, KILLS - start), taken)
    ours, *peers = taken
    yield from _figures(taken, ours, tuple(peers), _middle(phases))


def _check_size() -> None:
    """The model is as large as is said."""
    options = arguments(TRAINER[2:])
    shape = Shape(vocabulary=VOCABULARY_SIZE, dim=options.dim, layers=options.layers, hidden=options.hidden)
    size = sum(parameter.numel() for parameter in Llama(shape).parameters())
    assert size >= LEAST_PARAMETERS, size


def _block(side: "Ours | Launcher", kills: int, taken: dict[str, list[float | None]]) -> list[dict[str, float]]:
    """Some kills of one side, while the other sides do not run."""
    with contextlib.closing(side):
        times = taken.setdefault(side.name, [])
        for _ in range(kills):
            times.append(_one(side, len(times) % RANKS))
            sys.stderr.write(f"kill {len(times)} of {KILLS}, {side.name}: {times[-1]} s\n")
        return side.phases


def _one(side: "Ours | Launcher", rank: int) -> float | None:
    memberships = side.ready()
    result = side.steps.gap(side.kill(rank), memberships)
    if result is None:
        side.again()
    else:
        side.recovered()
    return result


def _middle(phases: list[dict[str, float]]) -> str:
    """The median of each phase, in words."""
    names = dict.fromkeys(name for each in phases for name in each)
    middle = {name: statistics.median([each.get(name, 0.0) for each in phases]) for name in names}
    return ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in middle.items() if seconds >= 0.0005)


def _figures(taken: dict[str, list[float | None]], ours: str, peers: tuple[str, ...], phases: str) -> Iterator[Figure]:
    back = {name: [seconds for seconds in times if seconds is not None] for name, times in taken.items()}
    mine, worst = statistics.median(back[ours]), max(back[ours])
    for peer in peers:
        theirs = statistics.median(back[peer]) if back[peer] else None
        suffix = "" if peer == peers[0] else "_" + peer.replace("torchrun, ", "").replace(" ", "_")
        ratio = theirs / mine if theirs is not None else None
        yield Figure(
            bench="recovery",
            figure=f"recovery.kill_to_next_step_s{suffix}",
            value=round(mine, 3),
            unit="s",
            better="lower",
            peer=round(theirs, 3) if theirs is not None else None,
            ratio=round(ratio, 2) if ratio is not None else None,
            goal="below 0.5 s, and ratio at least 10",
            holds=ratio is not None and ratio >= 10 and mine < 0.5,
            note=f"{peer}: {len(back[peer])} of {KILLS} kills recovered within {PATIENCE_S:g} s; median of those. "
            f"Ours by phase: {phases}",
        )
    yield Figure(
        bench="recovery",
        figure="recovery.worst_kill_to_next_step_s",
        value=round(worst, 3),
        unit="s",
        better="lower",
        goal="below 1 s",
        holds=worst < 1.0,
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
