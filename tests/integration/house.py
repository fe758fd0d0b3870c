"""A whole local fleet under test: server, agents, keepers and real workers, driven as a person would drive it.

One fleet serves the tests of a module; `settle` brings it back to rest between two of them. What a job does is read
from its metrics files, which grow whether or not a server runs; what Trainmaster says of it is asked of the server.
Every wait has a deadline and says what it waited for.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from trainmaster.cli.client import Client, Place
from trainmaster.cli.errors import Unreachable
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.value import Value, decode
from trainmaster.core.checkpoint.listing import step_of
from trainmaster.core.scheduling.request import CheckpointPolicy, JobSpec
from trainmaster.live.adapters import local
from trainmaster.live.agent.files import read_or_none
from trainmaster.live.agent.processes import ProcessName, is_alive, send
from trainmaster.live.agent.talk import RunningGroup
from trainmaster.live.server.resources import (
    ChangeReport,
    Events,
    Hosts,
    HostsChange,
    HostView,
    JobChange,
    JobDetail,
    Jobs,
    JobSubmission,
    JobTimeline,
    SubmitReport,
)
from trainmaster.training import losses
from trainmaster.training.metrics import Line

T = TypeVar("T")
V = TypeVar("V", bound=Value)
PATIENCE_S = 60.0
SCRIPTS = Path(__file__).parents[1] / "scripts"
TRAINER = ("python", "-m", "trainmaster.training.reference", "--dim=32", "--layers=1", "--heads=2", "--key-heads=1")
TINY = (*TRAINER, "--hidden=64", "--seq-len=16", "--global-batch=4")
PACE_S = 0.03
ENDED = ("finished", "failed", "cancelled")

_references: dict[tuple[int, int], dict[int, str]] = {}
"""Of all houses, by steps and ranks."""

_FLEET = """
schema = "trainmaster.fleet/v1"
name = "house"
{top}

[[cluster]]
name = "desk"
fabric = "loopback"

[[cluster.hosts]]
list = "h[1-{hosts}]"
platform = "laptop"

[agents]
heartbeat_s = {heartbeat_s}
silent_s = {silent_s}
reboot_s = {reboot_s}
"""
Prepare = Callable[[Path, tuple[HostId, ...]], str]
"""Puts things into the state directory before the hosts boot; what it returns is added to the fleet file's top."""


def wait(what: str, look: Callable[[], T | None], timeout_s: float = PATIENCE_S, every_s: float = 0.01) -> T:
    """The first true value of `look`."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)
    return found


def training(steps: int, pace_s: float = PACE_S) -> tuple[str, ...]:
    """Command of the reference trainer in its smallest size; the pace does not change its losses."""
    return (*TINY, f"--steps={steps}", f"--step-sleep={pace_s}")


def job(name: str, command: tuple[str, ...], spares: int = 0, every: int = 10, **fields: object) -> JobSpec:
    """A job of two hosts with a warm keeper and a checkpoint each `every` steps."""
    known = {"hosts": 2, "preload": ("trainmaster.training",), "checkpoint": CheckpointPolicy(every_steps=every)}
    fields = {**known, **fields}
    return JobSpec(name=name, command=command, spares=spares, **fields)  # type: ignore[arg-type]


class House:
    def __init__(self, state: Path, fleet_file: Path) -> None:
        self.state, self.fleet_file = state, fleet_file
        self._names = 0
        self.gate = state

    def held(self, steps: int, at: int, pace_s: float = PACE_S) -> tuple[str, ...]:
        """Command of a training that does not complete step `at` until `open_gate`."""
        self.gate = self.state / f"gate-{self._names + 1}"
        return ("python", str(SCRIPTS / "held.py"), str(self.gate), str(at), *training(steps, pace_s)[3:])

    def slow(self, steps: int) -> tuple[str, ...]:
        """Command of a training that takes its time until `open_gate`, the more the nearer it comes to its end."""
        self.gate = self.state / f"gate-{self._names + 1}"
        return ("python", "-m", "trainmaster.demo.paced", str(self.gate), str(steps), *training(steps, 0.0)[3:])

    def open_gate(self) -> None:
        self.gate.touch()

    # --- asking

    def _client(self) -> Client:
        url = wait("a server writes down where it is", lambda: local.server_url(self.state))
        token = self.state / "tokens" / "operator.token"
        return Client(Place(url=url, origin=str(self.state), token_file=str(token)), 5.0)

    def get(self, path: str, kind: type[V], **query: str | int) -> V:
        """Asks again while the server is away."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._client().get(path, kind, **query)
            except Unreachable:
                assert time.monotonic() < deadline, "the server stays away"
                time.sleep(0.02)

    def change(self, path: str, body: Value) -> ChangeReport:
        return self.post(path, body, ChangeReport)

    def post(self, path: str, body: Value, kind: type[V]) -> V:
        return self._client().post(path, body, kind)

    def detail(self, name: str) -> JobDetail:
        return self.get(f"/v1/jobs/{name}", JobDetail)

    def host(self, host: HostId) -> HostView:
        return self.get(f"/v1/hosts/{host}", HostView)

    def hosts(self) -> dict[HostId, HostView]:
        return {view.id: view for view in self.get("/v1/hosts", Hosts).items}

    def sentences(self, since: int) -> list[str]:
        """Events from an index on, in words."""
        found: list[str] = []
        while True:
            page = self.get("/v1/events", Events, since=since, limit=500)
            if not page.items:
                return found
            found += [item.sentence for item in page.items]
            since = page.next

    def index(self) -> int:
        """Of the newest event of the log."""
        return self.get("/v1/hosts", Hosts).index

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainmaster", "--run-dir", str(self.state), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    # --- jobs

    def submit(self, spec: JobSpec) -> str:
        """Its name; each job gets one of its own."""
        self._names += 1
        spec = spec.but(name=f"{spec.name}-{self._names}", workdir=spec.workdir or str(self.state))
        report = self._client().post("/v1/jobs", JobSubmission(spec=spec), SubmitReport)
        assert report.job is not None
        return spec.name

    def until(
        self, name: str, what: str, reached: Callable[[JobDetail], object], timeout_s: float = PATIENCE_S
    ) -> JobDetail:
        """The job as it is when `reached`; it must not end before."""
        deadline = time.monotonic() + timeout_s
        while True:
            detail = self.detail(name)
            if reached(detail):
                return detail
            told = f"{name} is {detail.job.state} ({detail.job.attempt_state}), {detail.job.reason}"
            assert detail.job.state not in ENDED, f"ended before {what}: {told}"
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}; {told}"
            time.sleep(0.02)

    def finish(self, name: str, timeout_s: float = PATIENCE_S) -> JobDetail:
        """The finished job, whose account has been checked to add up."""
        detail = add_up(self.until(name, "it finishes", lambda detail: detail.job.state == "finished", timeout_s))
        life = self.get(f"/v1/jobs/{detail.job.id}/timeline", JobTimeline)
        assert abs(sum(span.end - span.start for span in life.spans) / 1e6 - detail.account.wall_s) < 1e-3, life
        assert (life.spans[0].start, life.spans[-1].end) == (life.start, life.end), life
        return detail

    def directory(self, name: str) -> Path:
        return Path(self.detail(name).directory)

    def checkpoints(self, name: str) -> Path:
        return self.directory(name) / "checkpoints"

    def wait_step(self, name: str, step: int) -> None:
        """Waits until the metrics tell of this step; asks no server while it waits."""
        directory = self.directory(name)
        wait(f"{name} completes step {step}", lambda: newest_step(directory) >= step)

    def published(self, name: str) -> int:
        """Newest published step, by the directory; 0 if there is none."""
        found = [entry.name for entry in self.checkpoints(name).glob("step-*")]
        return max((step_of(entry) or 0 for entry in found), default=0)

    def first_step(self, name: str, epoch: int) -> int:
        """The step with which an epoch of the newest attempt began."""
        attempt = self.detail(name).job.attempt
        path = self.directory(name) / f"metrics-{attempt}-e{epoch}.jsonl"
        return decode(path.read_bytes().partition(b"\n")[0], Line).step

    def reference(self, steps: int, hosts: int = 2, timeout_s: float = PATIENCE_S) -> dict[int, str]:
        """Losses of an undisturbed run of so many ranks, as hexadecimal floats by step. The ranks have one keeper, so
        that PyTorch is imported once; what they compute does not depend on where they are, nor on the house."""
        if (steps, hosts) not in _references:
            spec = job("reference", training(steps, 0.0), every=0, hosts=1, ranks_per_host=hosts)
            name = self.submit(spec)
            told = self.finish(name, timeout_s)
            assert told.job.restarts == 0
            found = self.hexes(name)
            assert sorted(found) == list(range(1, steps + 1))
            _references[steps, hosts] = found
        return _references[steps, hosts]

    def hexes(self, name: str) -> dict[int, str]:
        """Losses by step; a step that was done again must have had the same."""
        found = losses(self.directory(name))
        assert not [loss for loss in found.values() if loss.mismatches]
        return {step: loss.hex for step, loss in found.items()}

    def repeated(self, name: str) -> int:
        """Steps that were done more than once, by the metrics."""
        return sum(loss.runs - 1 for loss in losses(self.directory(name)).values())

    # --- processes

    def group(self, name: str, host: HostId) -> RunningGroup | None:
        """The newest group of workers of a job on a host."""
        plan = local.plan_of(self.state)
        attempt: AttemptId | None = self.detail(name).job.attempt
        assert plan is not None
        found = local.memory_dir(plan, host).glob(f"attempts/{attempt}/epoch-*/group.json")
        groups = [decode(data, RunningGroup) for path in found if (data := read_or_none(path)) is not None]
        return max(groups, key=lambda group: group.epoch, default=None)

    def worker(self, name: str, rank: int) -> ProcessName:
        hosts = self.detail(name).job.hosts
        groups = [group for host in hosts if (group := self.group(name, host)) is not None]
        return next(worker.process for group in groups for worker in group.workers if worker.rank == rank)

    def children(self, host: HostId) -> set[int]:
        """Ids of all workers that keepers of a host have forked, with a place in an epoch or not. (Their vaults give
        way to others, which tells them apart.)"""
        plan = local.plan_of(self.state)
        assert plan is not None
        keepers = [
            decode(path.read_bytes(), ProcessName)
            for path in local.memory_dir(plan, host).glob("attempts/*/keeper.json")
        ]
        tasks = [Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children") for keeper in keepers if is_alive(keeper)]
        forked = {int(pid) for task in tasks for pid in task.read_text().split()}
        return {pid for pid in forked if os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)}

    def processes(self, host: HostId) -> list[ProcessName]:
        """Agent, keepers and workers of a host."""
        plan = local.plan_of(self.state)
        assert plan is not None
        memory, agent = local.memory_dir(plan, host), local.process_of(self.state, local.agent_of(host))
        found = [decode(path.read_bytes(), ProcessName) for path in memory.glob("attempts/*/keeper.json")]
        groups = [decode(path.read_bytes(), RunningGroup) for path in memory.glob("attempts/*/epoch-*/group.json")]
        found += [worker.process for group in groups for worker in group.workers]
        return [process for process in ([agent] if agent is not None else []) + found if is_alive(process)]

    def ours(self) -> list[ProcessName]:
        """Every process of the fleet that some file names: nanny, server, agents, keepers, workers."""
        plan = local.plan_of(self.state)
        if plan is None:
            return []
        names = ("nanny", "server")
        found = [process for name in names if (process := local.process_of(self.state, name)) is not None]
        return found + [process for host in plan.hosts for process in self.processes(host)]

    # --- rest

    def settle(self) -> None:
        """Ends all jobs, lifts all holds, and waits until every host is ready and free, and runs nothing of a job."""
        for item in self.get("/v1/jobs", Jobs).items:
            if item.state not in ENDED:
                self.change(f"/v1/jobs/{item.id}/cancel", JobChange(reason="the test is over"))
        held = [host.id for host in self.hosts().values() if host.holds]
        if held:
            self.resume(*held)
        wait("every host is ready and free", self._at_rest)
        wait("nothing but agents runs", lambda: all(len(self.processes(host)) == 1 for host in self.hosts()))

    def _at_rest(self) -> bool:
        return all(
            host.state == "ready" and host.connected and host.attempt is None and not host.holds
            for host in self.hosts().values()
        )

    def drain(self, *hosts: HostId, **more: object) -> None:
        body = HostsChange(hosts=",".join(hosts), reason="planned work", **more)  # type: ignore[arg-type]
        report = self.change("/v1/hosts/drain", body)
        assert report.refused == 0, report

    def resume(self, *hosts: HostId) -> None:
        self.change("/v1/hosts/resume", HostsChange(hosts=",".join(hosts), reason="work is done"))

    def wait_host(self, host: HostId, what: str, reached: Callable[[HostView], object]) -> HostView:
        def look() -> HostView | None:
            view = self.host(host)
            return view if reached(view) else None

        return wait(f"{host} {what}", look)


def newest_step(directory: Path) -> int:
    """By the last whole line of each metrics file; -1 if there is none."""
    return max((_last_step(path) for path in directory.glob("metrics-*.jsonl")), default=-1)


def _last_step(path: Path) -> int:
    whole = path.read_bytes()[-2000:].rpartition(b"\n")[0]
    return decode(whole.rpartition(b"\n")[2], Line).step if whole else -1


def add_up(detail: JobDetail) -> JobDetail:
    """Checks what holds for every account."""
    account = detail.account
    assert abs(sum(account.seconds_by_phase.values()) - account.wall_s) < 1e-3, account
    assert min(account.seconds_by_phase.values()) >= 0.0, account
    assert abs(account.productive_s - account.goodput * account.wall_s) < 1e-3, account
    assert abs(sum(loss.seconds for loss in account.losses) + account.productive_s - account.wall_s) < 1e-3, account
    for incident in account.incidents:
        if incident.resumed_at is not None:
            away_s = (incident.resumed_at - incident.last_step_at) / 1e6
            replay_s = incident.seconds_by_phase.get("replay", 0.0)
            assert abs(incident.lost_s - replay_s - away_s) < 1e-3, incident
    return detail


def away_s(detail: JobDetail) -> list[float]:
    """For each incident: from the last step before to the first step after it."""
    return [
        (incident.resumed_at - incident.last_step_at) / 1e6
        for incident in detail.account.incidents
        if incident.resumed_at is not None
    ]


@contextmanager
def running(
    hosts: int = 4,
    reboot_s: float = 0.5,
    prepare: Prepare | None = None,
    heartbeat_s: float = 0.5,
    silent_s: float = 10.0,
) -> Iterator[House]:
    """A fleet that is up. Afterwards nothing of it is left."""
    state = Path(tempfile.mkdtemp(prefix="trainmaster-house-"))
    fleet_file = state / "fleet.toml"
    names = tuple(HostId(f"h{number}") for number in range(1, hosts + 1))
    top = prepare(state, names) if prepare is not None else ""
    fleet_file.write_text(
        _FLEET.format(hosts=hosts, reboot_s=reboot_s, top=top, heartbeat_s=heartbeat_s, silent_s=silent_s)
    )
    house = House(state, fleet_file)
    try:
        plan = local.up(state, fleet_file, lambda _: None)
        yield house
    finally:
        left = house.ours()
        local.down(state, lambda _: None)
        still = [process for process in left if is_alive(process)]
        for process in still:
            send(process, 9)
    assert not still, still
    assert not os.path.exists(plan.memory_root)
    shutil.rmtree(state)


def as_json(text: str) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(text)
    return found
