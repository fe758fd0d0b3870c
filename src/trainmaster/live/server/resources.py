"""What the API shows: the values behind every JSON body, and so behind the OpenAPI document and the command line.

    GET  /healthz                                    {"status": "ok"} without a token; nothing else is told
    GET  /openapi.json                               the generated document
    GET  /v1/status                                  StatusView
    GET  /v1/hosts                                   Hosts        ?hosts=LIST&state=S
    GET  /v1/hosts/H                                 HostView
    GET  /v1/hosts/H/history                         History
    POST /v1/hosts/drain                             HostsChange  -> ChangeReport     (also when dry_run)
    POST /v1/hosts/resume                            HostsChange  -> ChangeReport
    GET  /v1/jobs                                    Jobs         ?all=1
    POST /v1/jobs                                    JobSubmission -> SubmitReport
    GET  /v1/jobs/J                                  JobDetail    (J: id, or the name of the newest job of that name)
    GET  /v1/jobs/J/logs                             text/plain   ?rank=0&epoch=0&lines=100
    POST /v1/jobs/J/cancel | requeue                 JobChange    -> ChangeReport
    .    /v1/account, /v1/jobs/J/timeline            see `accounts.py`
    GET  /v1/snapshot                                the state of the engine, canonical bytes; for operators
    GET  /v1/events                                  Events       ?since=INDEX&limit=N
    .    /v1/maintenance, operations, trains, ...    see `maintenance_resources.py`
    GET  /v1/watch                                   server-sent events: `event: log` (data: LoggedEvent, id: index) and
                                                     `event: progress` (data: JobProgress); ?job=J&since=INDEX
Errors of every route: status 4xx/5xx with body Problem. 404 no such thing, 409 the world moved or a conflict, 400 bad
input, 401 no or wrong token, 403 not allowed, 413 too large, 500 a fault of the server (with an incident number),
503 it is stopping, 504 an agent does not answer, 507 its disk is full. A change notes who asks, by the header
`Trainmaster-User: NAME`.
"""

from trainmaster.core.accounting.fleet import FleetAccount
from trainmaster.core.accounting.report import JobAccount
from trainmaster.core.accounting.timeline import Span, Stay
from trainmaster.core.base.ids import AttemptId, ClusterId, ComponentName, HostId, JobId, Owner, PodId, RackId
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.choice import Choice
from trainmaster.core.events import AnyEvent
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.live.server.maintenance_resources import VisitView


class Problem(Value):
    """What went wrong with a request: a token of the closed vocabulary, a sentence, numbers, and what to do next."""

    reason: Reason
    fix: str = ""


class HoldView(Value):
    owner: Owner
    reason: str
    since: Instant


class HostView(Value):
    id: HostId
    cluster: ClusterId
    pod: PodId
    rack: RackId
    platform: str
    gpus: int
    state: str
    since: Instant
    connected: bool
    heartbeat_at: Instant | None
    """Of the last heartbeat; None: none since the server started."""
    boot: str
    holds: tuple[HoldView, ...]
    attempt: AttemptId | None
    role: str
    """member, spare, or empty."""
    reason: str
    """Why it is in this state, one sentence."""
    kind: str = "compute"
    """compute, storage, switch, controller."""
    visit: VisitView | None = None
    """It is out for maintenance, or about to be."""
    demands: tuple[str, ...] = ()
    """Verification tasks that its last work demands before it returns."""
    versions: dict[ComponentName, str] = {}
    """Of its components, as last observed; only in the answer for one host."""


class Hosts(Value):
    index: int
    """Log index that the answer reflects."""
    at: Instant
    items: tuple[HostView, ...]


class History(Value):
    id: str
    items: tuple[Chapter, ...]


class RankView(Value):
    rank: int
    host: HostId
    phase: str
    step: int
    step_at: Instant
    loss: float | None
    """None: not a finite number."""
    step_s: float
    note: str


class JobProgress(Value):
    """Live figures from heartbeats; not in the log."""

    job: JobId
    attempt: AttemptId
    epoch: int
    at: Instant
    """Of the newest heartbeat."""
    step: int
    """Newest completed step of any rank; -1: none in this epoch yet."""
    step_at: Instant
    """End of that step."""
    loss: float | None
    """None: not a finite number."""
    """Of that step."""
    step_s: float
    published_step: int
    ranks: tuple[RankView, ...]


class JobView(Value):
    id: JobId
    name: str
    state: str
    since: Instant
    priority: int
    hosts_wanted: int
    spares_wanted: int
    attempt: AttemptId | None
    attempt_state: str
    epoch: int
    hosts: tuple[HostId, ...]
    """Members in rank order."""
    spares: tuple[HostId, ...]
    restarts: int
    step: int
    published_step: int
    reason: Reason | None
    """Why it waits, re-forms, or failed."""


class Jobs(Value):
    index: int
    at: Instant
    items: tuple[JobView, ...]


class SavesView(Value):
    """How often a job saves into its storage, and why."""

    every_steps: int
    """0: when asked for and at the end."""
    auto: bool
    sentence: str
    chosen_at: Instant | None = None
    choice: Choice | None = None
    """Of an automatic interval, what was chosen and by which numbers; None before the first save was measured."""


class JobDetail(Value):
    index: int
    at: Instant
    job: JobView
    spec: JobSpec
    by: Owner
    submitted_at: Instant
    directory: str
    progress: JobProgress | None
    account: JobAccount
    history: tuple[Chapter, ...]
    saves: SavesView | None = None


class FleetReport(Value):
    index: int
    """Log index that the answer reflects."""
    at: Instant
    account: FleetAccount


class JobTimeline(Value):
    index: int
    at: Instant
    job: JobId
    start: Instant
    end: Instant
    """Of the job; while it lives, now."""
    spans: tuple[Span, ...]
    """In order and without gaps."""
    members: tuple[Stay, ...]
    """Of hosts that did not stay from the first epoch to the last."""


class StatusView(Value):
    index: int
    at: Instant
    server_pid: int
    lease: int
    version: str
    started_at: Instant
    hosts_by_state: dict[str, int]
    gpus: int
    jobs_by_state: dict[str, int]
    needs_attention: tuple[Reason, ...]
    """What wants a person, oldest first."""


class JobSubmission(Value):
    spec: JobSpec
    dry_run: bool = False


class SubmitReport(Value):
    index: int
    dry_run: bool
    job: JobId | None
    """None in a dry run."""
    would_start_on: tuple[HostId, ...]
    waits: Reason | None


class HostsChange(Value):
    hosts: str
    """A host list."""
    reason: str
    dry_run: bool = False
    deadline_s: float | None = None
    evict: bool = False
    check_index: int | None = None
    """Refuse (409, world-moved) if the log has moved on since the plan with this index."""
    owner: str = ""
    """Of the hold that a resume lifts: a policy that left the host to a person; empty: of one's own."""


class HostChangeItem(Value):
    host: HostId
    changed: bool
    sentence: str
    refused: bool = False
    """Not as asked; unlike a host that is as wanted already."""
    job: JobId | None = None
    gpus: int = 0


class ChangeReport(Value):
    index: int
    dry_run: bool
    items: tuple[HostChangeItem, ...] = ()
    refused: int = 0
    sentence: str = ""


class JobChange(Value):
    reason: str
    dry_run: bool = False


class LoggedEvent(Value):
    index: int
    event: AnyEvent
    sentence: str
    """The event in words."""


class Events(Value):
    items: tuple[LoggedEvent, ...]
    next: int
    """Ask for this index next."""
