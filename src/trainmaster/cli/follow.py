"""Follow one job until it ends: for `job watch` and `job submit --wait`.

The log's stream says what happens; what that made of the job is asked for after each event, and every two seconds in
any case, because a job may also change through an event that does not name it (time passing, a host coming back). A
*teller* turns news into output: lines where nobody looks, one redrawn line on a terminal, JSON for programs.
"""

import sys
import time
from typing import Final, Protocol, TextIO

from trainmaster.cli.client import Client, Pause, job_path
from trainmaster.cli.errors import Failed, Unreachable
from trainmaster.cli.output import duration_text
from trainmaster.cli.words import ENDED, clock_text, hosts_text, job_state, loss_text, reason_text
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import encode
from trainmaster.core.recovery.events import EffectEnded, EffectsEnded
from trainmaster.core.words import count_text
from trainmaster.live.server.resources import JobDetail, JobProgress, JobView, LoggedEvent

ASK_EVERY_S: Final = 2.0
ASK_AT_MOST_EVERY_S: Final = 0.2


class Teller(Protocol):
    """Gets the news of one job in order."""

    def event(self, item: LoggedEvent) -> None: ...
    def changed(self, job: JobView, at: int) -> None: ...
    def progress(self, figures: JobProgress) -> None: ...
    def connection(self, lost: str) -> None: ...
    def end(self) -> None: ...


class Lines:
    """One line a change. Figures change all the time and are left out, as is what agents did as they were asked."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def event(self, item: LoggedEvent) -> None:
        if not (isinstance(item.event, EffectEnded | EffectsEnded) and item.event.outcome == "done"):
            self._write(f"{clock_text(item.event.at)}  {item.sentence}")

    def changed(self, job: JobView, at: int) -> None:
        why = _why(job)
        where = f" on {hosts_text(job.hosts)}" if job.hosts else ""
        self._write(f"{clock_text(at)}  {job.id} {job.name} is {job_state(job)}{where}" + (f": {why}" if why else ""))

    def progress(self, figures: JobProgress) -> None:
        pass

    def connection(self, lost: str) -> None:
        sys.stderr.write(f"the server went away ({lost}); trying again\n" if lost else "the server is back\n")

    def end(self) -> None:
        pass

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class Json(Lines):
    """A value a line: events, figures, and the job whenever its state changes."""

    def event(self, item: LoggedEvent) -> None:
        self._write(_tagged("event", item))

    def changed(self, job: JobView, at: int) -> None:
        self._write(_tagged("job", job))

    def progress(self, figures: JobProgress) -> None:
        self._write(_tagged("progress", figures))


def _tagged(kind: str, value: object) -> str:
    return f'{{"schema":"trainmaster.{kind}/v1",{encode(value).decode()[1:]}'


class Screen(Lines):
    """What happens scrolls by; the last line says how things are and is redrawn."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._job: JobView | None = None
        self._figures: JobProgress | None = None
        self._lost = ""

    def changed(self, job: JobView, at: int) -> None:
        self._job = job
        super().changed(job, at)

    def progress(self, figures: JobProgress) -> None:
        self._figures = figures
        self._draw()

    def connection(self, lost: str) -> None:
        self._lost = lost
        self._draw()

    def end(self) -> None:
        self._stream.write("\r\033[K")
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write("\r\033[K")
        super()._write(line)
        self._draw()

    def _draw(self) -> None:
        if self._job is not None:
            self._stream.write("\r\033[K" + status_line(self._job, self._figures, self._lost)[: _columns() - 1])
            self._stream.flush()


def status_line(job: JobView, figures: JobProgress | None, lost: str) -> str:
    """How a job is, in one line; what is asked for first stands first."""
    facts = [f"{job.name} {job_state(job)}"]
    if figures is not None and job_state(job) == "running":
        current = (figures.attempt, figures.epoch) == (job.attempt, job.epoch) and figures.step >= 0
        if current:
            facts += [f"step {figures.step:,}", f"loss {loss_text(figures.loss)}", f"{figures.step_s:.3f} s/step"]
        if current and figures.published_step >= 0:
            facts.append(f"saved {figures.published_step:,}")
    if job.hosts:
        facts.append(hosts_text(job.hosts) + (f" +{count_text(len(job.spares), 'spare')}" if job.spares else ""))
    if job.reason is not None:
        facts.append(_why(job))
    if lost:
        facts.insert(0, f"no server ({lost})")
    return "  ".join(facts)


def _why(job: JobView) -> str:
    """Without the token where it only repeats the state (finished: finished)."""
    if job.reason is not None and job.reason.token == job_state(job):
        return job.reason.sentence
    return reason_text(job.reason)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def follow(client: Client, detail: JobDetail, teller: Teller, timeout_s: float | None = None) -> JobView:
    """Tells what happens to a job until it ends; returns it as it ended. Raises `Unreachable` after `timeout_s`."""
    asked_at = started = time.monotonic()
    job, lost, dirty = detail.job, "", False
    teller.changed(job, detail.at)
    try:
        if job.state in ENDED:
            return job
        for heard in client.watch(detail.index + 1, job.id):
            now = time.monotonic()
            if timeout_s is not None and now - started > timeout_s:
                raise _too_late(job, timeout_s)
            if isinstance(heard, LoggedEvent):
                teller.event(heard)
                dirty = True
            elif isinstance(heard, JobProgress):
                teller.progress(heard)
            gone = heard.lost if isinstance(heard, Pause) else ""
            if bool(gone) != bool(lost):
                teller.connection(gone)
                asked_at = now  # what was missed comes first, then what became of it
            lost = gone
            if lost or now - asked_at < (ASK_AT_MOST_EVERY_S if dirty else ASK_EVERY_S):
                continue
            fresh = client.get(job_path(job.id), JobDetail)
            asked_at, dirty = now, False
            if _shown(fresh.job) != _shown(job):
                teller.changed(fresh.job, fresh.at)
            job = fresh.job
            if job.state in ENDED:
                return job
    finally:
        teller.end()
    raise AssertionError("a watch has no end")


def _shown(job: JobView) -> tuple[object, ...]:
    """What a change of is worth a line."""
    return (job_state(job), job.epoch, job.hosts, job.reason.token if job.reason is not None else None)


def _too_late(job: JobView, timeout_s: float) -> Unreachable:
    return Unreachable(
        f"{job.name} ({job.id}) did not end within {duration_text(seconds(timeout_s))}",
        f"it is {job_state(job)}" + (f": {reason_text(job.reason)}" if job.reason is not None else ""),
        f"it goes on; trainmaster job watch {job.id}",
    )


def judge(job: JobView) -> None:
    """Raises `Failed` unless the job finished."""
    if job.state != "finished":
        raise Failed(f"{job.name} ({job.id}) {job.state}", reason_text(job.reason), f"trainmaster job show {job.id}")
