"""The routes that people and their programs use, those that change something apart (`changes.py`)."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

import trainmaster
from trainmaster.core.agent.wire import Query
from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value, encode
from trainmaster.core.commands import find_job, unknown_hosts
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.state import ClusterState
from trainmaster.live.server import views
from trainmaster.live.server.http import Call, Refusal, Route, Stream
from trainmaster.live.server.resources import Events, History, Hosts, HostView, JobDetail, Jobs, StatusView
from trainmaster.live.server.runtime import Runtime
from trainmaster.live.server.service import Service

WATCH_READ: Final = 500
WATCH_PAUSE_S: Final = 0.02
"""Gathers what comes in quick succession into one write."""


class Health(Value):
    status: str


class HostsQuery(Value):
    hosts: str = ""
    state: str = ""


class JobsQuery(Value):
    all: bool = False


class EventsQuery(Value):
    since: Annotated[int, msgspec.Meta(ge=1)] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class WatchQuery(Value):
    job: str = ""
    since: Annotated[int, msgspec.Meta(ge=1)] | None = None


class LogsQuery(Value):
    rank: Annotated[int, msgspec.Meta(ge=0)] = 0
    epoch: Annotated[int, msgspec.Meta(ge=0)] = 0
    lines: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100


def known_hosts(state: ClusterState, text: str) -> tuple[HostId, ...]:
    """The hosts of a host list; refuses what can't be read and hosts that the fleet does not have."""
    try:
        hosts = parse(text)
    except HostListError as error:
        raise Refusal(400, Token.BAD_REQUEST, f"the host list can't be read: {error}") from error
    unknown = unknown_hosts(state, hosts)
    if unknown:
        raise Refusal(404, Token.NO_SUCH_HOST, f"the fleet has no host {', '.join(unknown[:5])}", unknown=len(unknown))
    return hosts


def known_job(state: ClusterState, name: str) -> Job:
    job = find_job(state, name)
    if job is None:
        raise Refusal(404, Token.NO_SUCH_JOB, f"no job has the id or name {name}")
    return job


async def healthz(call: Call) -> Health:
    return Health(status="stopping" if call.service.stopping else "ok")


async def status(call: Call) -> StatusView:
    service = call.service
    async with service.settled() as runtime:
        state = runtime.engine.state
        return StatusView(
            index=state.index,
            at=service.now(),
            server_pid=os.getpid(),
            lease=runtime.lease,
            version=trainmaster.__version__,
            started_at=service.started_at,
            hosts_by_state=views.hosts_by_state(state),
            gpus=sum(host.spec.gpus for host in state.hosts.values()),
            jobs_by_state=views.jobs_by_state(state),
            needs_attention=(
                *views.log_full(service.log_full, service.now()),
                *views.needs_attention(runtime.engine.glance(service.now()), service.live),
            ),
        )


async def hosts(call: Call) -> Hosts:
    query: HostsQuery = call.query
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        wanted = known_hosts(state, query.hosts) if query.hosts else tuple(state.hosts)
        found = [state.hosts[name] for name in wanted]
        chosen = sorted((host for host in found if query.state in ("", host.state.value)), key=lambda h: h.position)
        items = tuple(views.host_view(state, host, call.service.live) for host in chosen)
        return Hosts(index=state.index, at=call.service.now(), items=items)


async def host(call: Call) -> HostView:
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        [name] = known_hosts(state, call.name("host"))[:1]
        view = views.host_view(state, state.hosts[name], call.service.live)
        return view.but(versions=dict(state.hosts[name].versions))


async def host_history(call: Call) -> History:
    async with call.service.settled() as runtime:
        [name] = known_hosts(runtime.engine.state, call.name("host"))[:1]
        return History(id=name, items=runtime.engine.state.hosts[name].story)


async def jobs(call: Call) -> Jobs:
    query: JobsQuery = call.query
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        shown = [job for job in state.jobs.values() if query.all or job.state in (JobState.QUEUED, JobState.ACTIVE)]
        shown.sort(key=lambda job: job.submitted_index)
        items = tuple(views.job_view(state, job, call.service.live, call.service.now()) for job in shown)
        return Jobs(index=state.index, at=call.service.now(), items=items)


async def job(call: Call) -> JobDetail:
    service = call.service
    async with service.settled() as runtime:
        state = runtime.engine.state
        found = known_job(state, call.name("job"))
        directory = os.path.join(service.settings.jobs_dir, found.id)
        return views.job_detail(state, found, service.live, service.now(), directory)


async def job_logs(call: Call) -> Response:
    """Asks the agent of the rank's host."""
    query: LogsQuery = call.query
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        found = known_job(state, call.name("job"))
        attempt = views.newest_attempt(state, found)
        if attempt is None or not attempt.epochs:
            raise Refusal(404, Token.NO_SUCH_JOB, f"{found.spec.name} ({found.id}) has not started yet: no output")
        number = query.epoch or attempt.epoch.number
        ranks = found.spec.hosts * found.spec.ranks_per_host
        if number > attempt.epoch.number or query.rank >= ranks:
            sentence = f"{attempt.id} has epochs 1 to {attempt.epoch.number} and ranks 0 to {ranks - 1}"
            raise Refusal(404, Token.NO_SUCH_JOB, sentence)
        where = attempt.hosts_of(number)[query.rank // found.spec.ranks_per_host]
    question = Query(id="", kind="log", attempt=attempt.id, rank=query.rank, epoch=number, lines=query.lines)
    text = await call.service.links.ask(where, question, call.service.settings.query_timeout_s)
    if text is None:
        sentence = f"the output lies on {where}, whose agent is not connected or does not answer"
        raise Refusal(504, Token.HOST_SILENT, sentence)
    return Response(text, media_type="text/plain; charset=utf-8")


async def snapshot(call: Call) -> Response:
    """The bytes of the engine's state, which equals the log at this moment. An operator's, since the state has the
    environment of jobs in it."""
    async with call.service.settled() as runtime:
        state = runtime.engine.snapshot()
    return Response(state, media_type="application/json")


async def events(call: Call) -> Events:
    query: EventsQuery = call.query
    async with call.service.settled() as runtime:
        items = tuple(views.logged(entry) for entry in runtime.read(query.since, query.limit))
    return Events(items=items, next=items[-1].index + 1 if items else query.since)


async def watch(call: Call) -> Response:
    query: WatchQuery = call.query
    async with call.service.settled() as runtime:
        since = _watch_from(call, runtime, query)
        job = known_job(runtime.engine.state, query.job).id if query.job else None
    return Stream(_watch(call.service, since, job), "text/event-stream")


def _watch_from(call: Call, runtime: Runtime, query: WatchQuery) -> int:
    """The first index to send: after the last one that the client has seen, from where it asks, or from now on."""
    newest = runtime.engine.index
    seen = call.request.headers.get("last-event-id", "")
    since = int(seen) + 1 if seen.isascii() and seen.isdigit() else query.since
    if since is not None and since > newest + 1:
        sentence = f"index {since} is asked for, and the log ends at {newest}: it is another log"
        raise Refusal(409, Token.WORLD_MOVED, sentence, index=newest)
    return since if since is not None else newest + 1


async def _watch(service: Service, since: int, only: JobId | None) -> AsyncIterator[bytes]:
    """Frames of server-sent events. A watcher reads the log at its own pace, so a slow one costs nobody memory."""
    yield b": watching\n\n"
    told = -1.0
    while not service.stopping:
        news = service.news
        async with service.settled() as runtime:
            state = runtime.engine.state
            entries = runtime.read(since, WATCH_READ)
            chosen = tuple(state.jobs.values()) if only is None else (state.jobs[only],)
            shown = [entry for entry in entries if only is None or views.concerns(entry, state.jobs[only])]
            frames = [_frame("log", views.logged(entry), entry.index) for entry in shown]
            now = asyncio.get_running_loop().time()
            if now - told >= 1.0:
                told = now
                frames += [_frame("progress", each) for each in views.live_progress(state, chosen, service.live)]
        since += len(entries)
        if frames:
            yield b"".join(frames)
        if len(entries) < WATCH_READ:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), 5.0)
            if not frames:
                yield b": still here\n\n"
            await asyncio.sleep(WATCH_PAUSE_S)


def _frame(kind: str, value: Value, index: int | None = None) -> bytes:
    number = f"id: {index}\n" if index is not None else ""
    return f"event: {kind}\n{number}data: ".encode() + encode(value) + b"\n\n"


ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        access="anyone",
        summary="Whether the server answers",
        handle=healthz,
        answer=Health,
    ),
    Route(
        method="GET",
        path="/v1/status",
        access="viewer",
        summary="One screen: hosts, jobs, what needs a person",
        handle=status,
        answer=StatusView,
    ),
    Route(
        method="GET",
        path="/v1/hosts",
        access="viewer",
        summary="Hosts, in the order of declaration",
        handle=hosts,
        query=HostsQuery,
        answer=Hosts,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/hosts/{host}",
        access="viewer",
        summary="One host",
        handle=host,
        answer=HostView,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/hosts/{host}/history",
        access="viewer",
        summary="The last edges that a host took, with causes",
        handle=host_history,
        answer=History,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        access="viewer",
        summary="Jobs that wait or run; with all=1 those that ended too",
        handle=jobs,
        query=JobsQuery,
        answer=Jobs,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}",
        access="viewer",
        summary="One job, by id, or the newest of that name",
        handle=job,
        answer=JobDetail,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/logs",
        access="viewer",
        summary="The tail of a rank's output",
        handle=job_logs,
        query=LogsQuery,
        answer="text/plain",
        errors=(404, 504),
    ),
    Route(
        method="GET",
        path="/v1/snapshot",
        access="operator",
        summary="The whole state as canonical JSON, of the same version only: what simulations begin with",
        handle=snapshot,
        answer="application/json",
    ),
    Route(
        method="GET",
        path="/v1/events",
        access="viewer",
        summary="The log, a page at a time",
        handle=events,
        query=EventsQuery,
        answer=Events,
    ),
    Route(
        method="GET",
        path="/v1/watch",
        access="viewer",
        summary="Server-sent events: log entries and progress, as they come",
        handle=watch,
        query=WatchQuery,
        answer="text/event-stream",
        errors=(404, 409),
    ),
)
