"""A server of canned answers on a real socket, and a small world to answer with.

It checks the token, remembers what it was asked, and plays scripts of server-sent events, one a connection, so that a
broken stream can be told exactly.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from trainmaster.core.accounting.fleet import JobLine, fleet_account
from trainmaster.core.accounting.report import Incident, JobAccount, Loss
from trainmaster.core.accounting.timeline import Span, Stay
from trainmaster.core.base.ids import AttemptId, ClusterId, HostId, JobId, Owner, PodId, RackId
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import DAY, Instant
from trainmaster.core.base.value import Value, encode
from trainmaster.core.checkpoint.choice import choose
from trainmaster.core.checkpoint.rate import History, estimate
from trainmaster.core.checkpoint.tiers import Tier
from trainmaster.core.events import AnyEvent
from trainmaster.core.recovery.events import CheckpointPublished
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.core.words import sentence
from trainmaster.live.server.resources import (
    ChangeReport,
    FleetReport,
    HoldView,
    HostChangeItem,
    Hosts,
    HostView,
    JobDetail,
    JobProgress,
    Jobs,
    JobTimeline,
    JobView,
    LoggedEvent,
    Problem,
    SavesView,
    StatusView,
)

TOKEN = "t0ken-of-the-operator"
AT = Instant(1_800_000_000_000_000)


class Asked(Value):
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


_MISSING = {
    "hosts": Token.NO_SUCH_HOST,
    "operations": Token.NO_SUCH_OPERATION,
    "trains": Token.NO_SUCH_TRAIN,
    "rollouts": Token.NO_SUCH_ROLLOUT,
    "rmas": Token.NO_SUCH_RMA,
}
Answer = Callable[[Asked], tuple[int, bytes]]


class FakeApi:
    """Use as a context manager; `url` is where it listens."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answer] = {}
        self.asked: list[Asked] = []
        self.streams: list[bytes] = []
        """What each connection to /v1/watch is sent; the connection is then closed. None left: 503."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeApi":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, value: Value | str, status: int = 200) -> None:
        data = value.encode() if isinstance(value, str) else encode(value)
        self.answers[method, path] = lambda asked: (status, data)

    def refuse(self, method: str, path: str, status: int, reason: Reason, fix: str = "") -> None:
        self.answer(method, path, Problem(reason=reason, fix=fix), status)

    def bodies(self, path: str) -> list[bytes]:
        return [asked.body for asked in self.asked if asked.path == path]

    def reply(self, asked: Asked) -> tuple[int, bytes]:
        self.asked.append(asked)
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, encode(Problem(reason=because(Token.NOT_ALLOWED, "no token, or one that is not known here")))
        if asked.path == "/v1/watch":
            return (200, self.streams.pop(0)) if self.streams else (503, b"stopping")
        answer = self.answers.get((asked.method, asked.path)) or self._healthy(asked)
        if answer is None:
            kind = _MISSING.get(asked.path.split("/")[2], Token.NO_SUCH_JOB)
            name = asked.path.split("/")[3]
            return 404, encode(Problem(reason=because(kind, f"nothing is named {name}"), fix=kind.advice))
        return answer(asked)

    def _healthy(self, asked: Asked) -> Answer | None:
        """Hosts that are there are healthy, unless a test says otherwise."""
        view, _, what = asked.path.rpartition("/")
        if what != "health" or ("GET", view) not in self.answers:
            return None
        from tests.fakes.health import of_host, verdict

        return lambda asked: (200, encode(of_host(verdict(view.rpartition("/")[2]))))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                parts = urlsplit(self.path)
                headers = {key.lower(): value for key, value in self.headers.items()}
                asked = Asked(
                    method=self.command,
                    path=parts.path,
                    query=dict(parse_qsl(parts.query)),
                    headers=headers,
                    body=self.rfile.read(length),
                )
                status, data = api.reply(asked)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815  (the name is the standard library's)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


# A small world


def host(name: str, state: str = "ready", **more: Any) -> HostView:
    view = HostView(
        id=HostId(name),
        cluster=ClusterId("c1"),
        pod=PodId("p1"),
        rack=RackId("r1"),
        platform="grand-teton",
        gpus=8,
        state=state,
        since=Instant(AT - 3_600_000_000),
        connected=True,
        heartbeat_at=Instant(AT - 400_000),
        boot="b1",
        holds=(),
        attempt=None,
        role="",
        reason="verification passed" if state == "ready" else "",
    )
    return view.but(**more)


def hold(owner: str, reason: str) -> HoldView:
    return HoldView(owner=Owner(owner), reason=reason, since=Instant(AT - 60_000_000))


def job(number: int, name: str, state: str = "active", **more: Any) -> JobView:
    active = state == "active"
    view = JobView(
        id=JobId(f"job-{number}"),
        name=name,
        state=state,
        since=Instant(AT - 120_000_000 + number),
        priority=0,
        hosts_wanted=2,
        spares_wanted=1,
        attempt=AttemptId(f"job-{number}.a1") if active else None,
        attempt_state="running" if active else "",
        epoch=1 if active else 0,
        hosts=(HostId("gpu-1"), HostId("gpu-2")) if active else (),
        spares=(HostId("gpu-3"),) if active else (),
        restarts=0,
        step=1234 if active else -1,
        published_step=1200 if active else -1,
        reason=None,
    )
    return view.but(**more)


WAITS = because(Token.NOT_ENOUGH_HOSTS, "wants 2 hosts and 1 spare, 1 is free", wanted=3, free=1)


def incident(**more: Any) -> Incident:
    return Incident(
        attempt=AttemptId("job-1.a1"),
        epoch=1,
        planned=False,
        cause=because(Token.HOST_LOST, "host gpu-4 was lost: its connection closed"),
        left=(HostId("gpu-4"),),
        joined=(HostId("gpu-2"),),
        last_step_at=Instant(AT - 60_000_000),
        detected_at=Instant(AT - 59_900_000),
        decided_at=Instant(AT - 59_800_000),
        resumed_at=Instant(AT - 57_500_000),
        steps_lost=34,
        seconds_by_phase={"detect": 0.1, "restore": 2.4},
        hosts=(HostId("gpu-4"),),
        ranks=tuple(range(8)),
        lost_s=2.5,
        lost_gpu_s=40.0,
    ).but(**more)


ACCOUNT = JobAccount(
    wall_s=120.0,
    productive_s=114.0,
    goodput=0.95,
    seconds_by_phase={"productive": 114.0, "launch": 3.5, "restore": 2.4, "detect": 0.1, "save": 0.0},
    gpus=16,
    losses=(
        Loss(cause="start", phase="launch", seconds=3.5, gpu_s=56.0),
        Loss(cause="host-lost", phase="restore", seconds=2.4, gpu_s=38.4),
        Loss(cause="host-lost", phase="detect", seconds=0.1, gpu_s=1.6),
    ),
    steps=1234,
    steps_lost_planned=0,
    steps_lost_unplanned=34,
    planned_handovers=0,
    unplanned_recoveries=1,
    failed_saves=0,
    incidents=(incident(),),
)
NOTHING = JobAccount(
    wall_s=0.0,
    productive_s=0.0,
    goodput=0.0,
    seconds_by_phase={},
    steps=0,
    steps_lost_planned=0,
    steps_lost_unplanned=0,
    planned_handovers=0,
    unplanned_recoveries=0,
    failed_saves=0,
    incidents=(),
)


def progress(view: JobView, step: int) -> JobProgress:
    assert view.attempt is not None
    return JobProgress(
        job=view.id,
        attempt=view.attempt,
        epoch=view.epoch,
        at=Instant(AT - 400_000),
        step=step,
        step_at=Instant(AT - 400_000),
        loss=2.3125,
        step_s=0.25,
        published_step=1200,
        ranks=(),
    )


_RATE = estimate(History(failures=12, host_time=4_000 * DAY))
_CHOICE = choose(
    [Tier(name="storage", failures_per_s=_RATE.per_s(2), stall_s=3.0, restart_s=40.0)], 0.25, _RATE, hosts=2
)
SAVES = SavesView(
    every_steps=_CHOICE.every_steps, auto=True, sentence=_CHOICE.sentence, chosen_at=Instant(AT), choice=_CHOICE
)


def detail(view: JobView, **more: Any) -> JobDetail:
    told = JobDetail(
        index=900,
        at=AT,
        job=view,
        spec=JobSpec(name=view.name, command=("python", "train.py"), hosts=2, ranks_per_host=8, spares=1),
        by=Owner("person:kim"),
        submitted_at=Instant(AT - 121_000_000),
        directory=f"/var/lib/jobs/{view.id}",
        progress=progress(view, 1234) if view.attempt else None,
        account=ACCOUNT if view.attempt else NOTHING,
        history=(Chapter(at=Instant(AT - 120_000_000), start="queued", end="active", cause="placed"),),
        saves=SAVES if view.attempt else None,
    )
    return told.but(**more)


def life(view: JobView) -> JobTimeline:
    """The spans of `ACCOUNT`: gpu-4 was lost a minute ago, and gpu-2 took its place."""
    start, lost, back = AT - 120_000_000, AT - 60_000_000, AT - 57_500_000
    marks = ((start + 3_500_000, "launch", ""), (lost, "training", ""), (lost + 100_000, "detect", "job-1.a1/1"))
    marks += ((back, "restore", "job-1.a1/1"), (AT, "training", ""))
    spans, at = [], start
    for end, phase, incident in marks if view.attempt else ():
        spans.append(
            Span(start=Instant(at), end=Instant(end), phase=phase, attempt="job-1.a1", epoch=1, incident=incident)
        )
        at = end
    return JobTimeline(
        index=900,
        at=AT,
        job=view.id,
        start=Instant(start),
        end=AT,
        spans=tuple(spans),
        members=(
            Stay(host=HostId("gpu-2"), start=Instant(back), end=AT),
            Stay(host=HostId("gpu-4"), start=Instant(start), end=Instant(lost)),
        ),
    )


def world(api: FakeApi) -> None:
    """Eight hosts, a job that runs, one that waits, one that failed."""
    hosts = (
        host("gpu-1", attempt=AttemptId("job-1.a1"), role="member"),
        host("gpu-2", attempt=AttemptId("job-1.a1"), role="member"),
        host("gpu-3", attempt=AttemptId("job-1.a1"), role="spare"),
        host("gpu-4", "out-failed", connected=False, reason="host gpu-4 was lost: its connection closed"),
        host("gpu-5", "out-planned", holds=(hold("person:kim", "new firmware"),)),
        host("gpu-6", "out-planned", holds=(hold("person:kim", "new firmware"),)),
        host("gpu-7", "expected", connected=False, heartbeat_at=None, reason="its agent has not registered yet"),
        host("gpu-8"),
    )
    failed = because(Token.SAME_FAILURE_REPEATED, "3 starts failed with ValueError: bad lr", starts=3)
    jobs = (
        job(1, "llama"),
        job(3, "eval", "queued", reason=WAITS, priority=10),
        job(4, "eval-small", "queued", reason=because(Token.AHEAD_IN_QUEUE, "eval (job-3) comes first", ahead=1)),
    )
    ended = job(2, "broken", "failed", reason=failed)
    api.answer("GET", "/v1/hosts", Hosts(index=900, at=AT, items=hosts))
    for each in hosts:
        api.answer("GET", f"/v1/hosts/{each.id}", each)
    every = Jobs(index=900, at=AT, items=(ended, *jobs))
    active = Jobs(index=900, at=AT, items=jobs)
    api.answers["GET", "/v1/jobs"] = lambda asked: (200, encode(every if asked.query.get("all") else active))
    for view in (*jobs, ended):
        for name in (view.id, view.name):
            api.answer("GET", f"/v1/jobs/{name}", detail(view))
        api.answer("GET", f"/v1/jobs/{view.id}/timeline", life(view))
    lines = [
        JobLine(id=view.id, name=view.name, state=view.state, hosts=view.hosts_wanted, account=detail(view).account)
        for view in (*jobs, ended)
    ]
    api.answer("GET", "/v1/account", FleetReport(index=900, at=AT, account=fleet_account(lines)))
    status = StatusView(
        index=900,
        at=AT,
        server_pid=4711,
        lease=3,
        version="0.1.0",
        started_at=Instant(AT - 7_260_000_000),
        hosts_by_state={"ready": 4, "out-planned": 2, "out-failed": 1, "expected": 1},
        gpus=64,
        jobs_by_state={"active": 1, "queued": 2, "failed": 1},
        needs_attention=(
            because(failed.token, f"broken (job-2): {failed.sentence}"),
            because(Token.HOST_LOST, "gpu-4: its connection closed"),
        ),
    )
    api.answer("GET", "/v1/status", status)


def item(name: str, changed: bool = True, what: str = "is ready; no job runs on it", **more: Any) -> HostChangeItem:
    return HostChangeItem(host=HostId(name), changed=changed, sentence=what, gpus=8 if changed else 0).but(**more)


def report(*items: HostChangeItem, dry_run: bool = False, index: int = 901) -> ChangeReport:
    return ChangeReport(index=index, dry_run=dry_run, items=items, refused=sum(each.refused for each in items))


def frame(index: int, event: AnyEvent) -> bytes:
    item = LoggedEvent(index=index, event=event, sentence=sentence(event))
    return b"event: log\nid: %d\ndata: %s\n\n" % (index, encode(item))


def saved(step: int) -> CheckpointPublished:
    return CheckpointPublished(at=AT, host=HostId("gpu-1"), attempt=AttemptId("job-1.a1"), epoch=1, step=step)
