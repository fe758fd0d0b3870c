"""The demo's course of events: it watches the job through the API and disturbs it at set steps.

It acts like a person at the keyboard and like bad luck, never like a part of the product: it submits and drains through
the API, and kills with signals. Everything that it says about the job comes from the server.
"""

import time
from collections.abc import Callable
from pathlib import Path

from trainmaster.cli.client import Client
from trainmaster.cli.errors import Failed
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.demo.narrator import Narrator
from trainmaster.demo.scene import HOSTS
from trainmaster.live import jobfile
from trainmaster.live.adapters import local
from trainmaster.live.server.resources import (
    ChangeReport,
    Events,
    HostsChange,
    HostView,
    JobDetail,
    JobSubmission,
    LoggedEvent,
    SubmitReport,
)

POLL_S = 0.2
PATIENCE_S = 240.0
"""A demo that stands still for this long has failed; it says where and ends."""

TOLD = {"worker-exited", "effect-ended", "heartbeat"}
"""Events that come by the dozen; the lines about attempts tell the same."""


class Disturbances(Value):
    """What was done to the disturbed run, as far as it was done."""

    killed: HostId
    killed_at: Instant
    drained: HostId
    drained_at: Instant


class Story:
    patience_s = PATIENCE_S

    def __init__(self, client: Client, narrator: Narrator, state_dir: Path, steps: int) -> None:
        self._client, self._narrator, self._state_dir, self._steps = client, narrator, state_dir, steps
        self._next_event = 1

    def undisturbed(self, job_file: Path) -> JobDetail:
        """Submits a job and watches it to its end."""
        name = self.submit(job_file)
        return self._until(name, "the undisturbed run ends", lambda detail: detail.job.state == "finished")

    def disturbed(self, job_file: Path) -> tuple[JobDetail, Disturbances]:
        """Kills rank 0's host at about a third and drains another member at about two thirds."""
        name = self.submit(job_file)
        third = self._steps // 3
        detail = self._until(name, f"step {third}", lambda detail: step_of(detail) >= third)
        victim = detail.job.hosts[0]
        self._narrator.say(f"SIGKILL to host {victim}, which holds rank 0: agent, workers, memory, local directory")
        killed_at = now()
        local.kill_host(self._state_dir, victim)
        self._until(name, "the job trains again", lambda detail: len(detail.account.incidents) > 0 and _resumed(detail))
        self._until(name, f"{victim} is back as a spare", lambda detail: victim in detail.job.spares)
        two_thirds = 2 * third
        detail = self._until(name, f"step {two_thirds}", lambda detail: step_of(detail) >= two_thirds)
        leaver = next(host for host in detail.job.hosts if host != detail.job.hosts[0])
        self._narrator.say(f"drains host {leaver} for maintenance (trainmaster host drain {leaver} --reason ...)")
        drained_at = now()
        change = HostsChange(hosts=leaver, reason="firmware update, planned")
        self._client.post("/v1/hosts/drain", change, ChangeReport)
        detail = self._until(name, "the run ends", lambda detail: detail.job.state == "finished")
        told = Disturbances(killed=victim, killed_at=killed_at, drained=leaver, drained_at=drained_at)
        return detail, told

    def wait_for_hosts(self) -> None:
        """Until all hosts are ready again, so that the second run starts like the first."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            hosts = self.hosts()
            if all(host.state == "ready" and host.attempt is None for host in hosts):
                return
            if time.monotonic() > deadline:
                states = ", ".join(f"{host.id} {host.state}" for host in hosts)
                raise Failed("the fleet did not become ready", states, "trainmaster host why HOST")
            time.sleep(POLL_S)

    def hosts(self) -> tuple[HostView, ...]:
        from trainmaster.live.server.resources import Hosts

        return self._client.get("/v1/hosts", Hosts).items

    def log(self) -> tuple[LoggedEvent, ...]:
        """All events of the log."""
        events: list[LoggedEvent] = []
        while True:
            page = self._client.get("/v1/events", Events, since=len(events) + 1, limit=500)
            if not page.items:
                return tuple(events)
            events += page.items

    def submit(self, job_file: Path) -> str:
        """Its id."""
        spec = jobfile.load(job_file)
        report = self._client.post("/v1/jobs", JobSubmission(spec=spec), SubmitReport)
        assert report.job is not None
        self._narrator.say(f"submitted {spec.name} ({report.job}): {HOSTS} hosts, {self._steps} steps")
        return report.job

    def _until(self, job: str, what: str, reached: Callable[[JobDetail], bool]) -> JobDetail:
        deadline = time.monotonic() + self.patience_s
        while True:
            detail = self._client.get(f"/v1/jobs/{job}", JobDetail)
            self._tell_events()
            self._narrator.progress(detail, self._steps)
            if reached(detail):
                return detail
            if detail.job.state in ("failed", "cancelled", "finished"):
                why = detail.job.reason.sentence if detail.job.reason is not None else "no reason is given"
                raise Failed(f"{job} {detail.job.state} before {what}", why, f"trainmaster job show {job}")
            if time.monotonic() > deadline:
                raise Failed(f"{job} did not get so far: {what}", "it took too long", f"trainmaster job why {job}")
            time.sleep(POLL_S)

    def _tell_events(self) -> None:
        page = self._client.get("/v1/events", Events, since=self._next_event, limit=200)
        for logged in page.items:
            if logged.event.__struct_config__.tag not in TOLD:
                self._narrator.say(f"  {logged.sentence}")
        self._next_event = page.next


def step_of(detail: JobDetail) -> int:
    return detail.progress.step if detail.progress is not None else 0


def _resumed(detail: JobDetail) -> bool:
    return detail.account.incidents[-1].resumed_at is not None


def now() -> Instant:
    return Instant(time.time_ns() // 1000)
