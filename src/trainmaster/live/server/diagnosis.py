"""Diagnosis of running jobs: asks the agents, judges, and keeps watch.

    GET /v1/jobs/{job}/diagnosis     what holds up a job, right now
    GET /v1/jobs/{job}/stacks        stacks of all ranks, grouped

The watch asks nothing as long as heartbeats show that steps come at the job's own pace. When none came for longer than
its bound, or the last ones took half again as long as before, the agents are asked once and the answer is kept with the
job, where status and job show it, until the job goes on. None of that is in the log of events: it changes nothing, and
a new server finds it again. Only the word that ends a hang is (`HangFound`): it comes when the same stop was named
twice in a row and `core/recovery/hang.py` says that it will not end by itself.

A rank that is slow from the first step on changes no pace. So each epoch is looked at once when it has made some steps,
and again every ten minutes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from trainmaster.core.agent.board import Phase
from trainmaster.core.agent.ring import Rings
from trainmaster.core.agent.wire import Query, RankProgress
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.live import LiveDiagnosis, astray, diagnose
from trainmaster.core.diagnosis.pace import PHASE_S, STEPS_LEAST, Bound, Pace, bound, slowed
from trainmaster.core.diagnosis.stacks import HostStacks, JobStacks, Stack, grouped
from trainmaster.core.recovery import hang
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.recovery.cause import is_apart
from trainmaster.core.recovery.events import HangFound
from trainmaster.core.recovery.stage import before_first_step, forming
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.live.server import views
from trainmaster.live.server.http import Call, Refusal, Route
from trainmaster.live.server.links import AgentLinks
from trainmaster.live.server.people import known_job
from trainmaster.live.server.service import Service, ServiceStopped
from trainmaster.ports.event_log import LogFull

LOOK_EVERY_S: Final = 0.5
AGAIN_SHARE: Final = 0.1
"""The longer a job stands, the rarer it is looked at: after this share of the time that it stands."""
SLOWED_S: Final = 2.0
"""Between two looks at a job that became slower, as long as nobody is named."""
STRAGGLER_S: Final = 10.0
"""Between two looks at a job that one rank holds up."""
ROUTINE_STEPS: Final = 16
"""Steps of an epoch, after its first, before it is looked at for who is slow from the start."""
ROUTINE_S: Final = 600.0
CALLS: Final = 300
"""Lines of each rank's ring that are asked for."""
HOSTS_AT_ONCE: Final = 64
ALARMS: Final = (
    Kind.DESYNC, Kind.USER_CODE_STALL, Kind.PROCESS_STOPPED, Kind.IN_FLIGHT_STALL, Kind.KILLED, Kind.STRAGGLER,
)  # fmt: skip
STOPS: Final = (Kind.DESYNC, Kind.USER_CODE_STALL, Kind.IN_FLIGHT_STALL, Kind.KILLED)
BETWEEN_LOOKS_S: Final = 0.2
LOOKS_MORE: Final = 3
T = TypeVar("T", bound=Value)
logger = logging.getLogger(__name__)


async def _asked(
    links: AgentLinks, hosts: Sequence[HostId], query: Query, kind: type[T], timeout_s: float
) -> tuple[list[T], tuple[HostId, ...]]:
    """The answers of all hosts that give one in time, and the hosts that don't."""
    some = asyncio.Semaphore(HOSTS_AT_ONCE)

    async def ask(host: HostId) -> T | None:
        async with some:
            body = await links.ask(host, query, timeout_s)
        try:
            return msgspec.json.decode(body, type=kind) if body else None
        except msgspec.DecodeError as error:
            logger.error("%s answers %s with something else: %s", host, query.kind, error)
            return None

    answers = await asyncio.gather(*(ask(host) for host in hosts))
    silent = tuple(host for host, answer in zip(hosts, answers, strict=True) if answer is None)
    return [answer for answer in answers if answer is not None], silent


async def look(links: AgentLinks, job: Job, attempt: Attempt, now: Instant, timeout_s: float) -> LiveDiagnosis:
    """Asks the agents of an attempt's hosts, and judges what they tell.

    Hosts are read at slightly different moments, so a job that goes on just now can look as if its ranks were apart. A
    stop is therefore believed when a second look shows the same.
    """
    found = await _look(links, job, attempt, now, timeout_s)
    for _ in range(LOOKS_MORE):
        if found.diagnosis.kind not in STOPS:
            return found
        await asyncio.sleep(BETWEEN_LOOKS_S)
        before, found = found, await _look(links, job, attempt, now, timeout_s)
        if _claim(before.diagnosis) == _claim(found.diagnosis):
            return found
    return found


def _claim(found: Diagnosis) -> tuple[object, ...]:
    return found.kind, found.collective, found.missing_ranks, found.waiting_ranks


async def _look(links: AgentLinks, job: Job, attempt: Attempt, now: Instant, timeout_s: float) -> LiveDiagnosis:
    """One look."""
    epoch = attempt.epoch.number
    query = Query(id="", kind="rings", attempt=attempt.id, rank=0, epoch=epoch, lines=CALLS)
    rings, silent = await _asked(links, attempt.hosts_of(epoch), query, Rings, timeout_s)
    ranks, told_s = job.spec.hosts * job.spec.ranks_per_host, job.spec.hangs.told_s()
    found, standing_s, allowed = await asyncio.to_thread(diagnose, rings, ranks, silent, told_s)
    restarts = hang.restarts(job.failures, found.kind, job.spec.restart.window, now)
    return LiveDiagnosis(
        job=job.id,
        attempt=attempt.id,
        epoch=epoch,
        at=now,
        diagnosis=found,
        standing_s=round(standing_s, 3),
        bound_s=round(allowed.bound_s, 3),
        bound=allowed.sentence(),
        patience_s=round(allowed.patience_s(restarts), 3),
        silent_hosts=silent,
    )


def _allowed(attempt: Attempt, learnt: Bound, lead: RankProgress) -> Bound:
    """What a step may take before the ranks are asked. A server that has just started knows the last step alone, of an
    epoch that made many: asked, the ranks tell the others, and decide."""
    made = lead.step - max(attempt.epoch.restored_step, 0)
    if learnt.told or learnt.steps >= STEPS_LEAST or made <= STEPS_LEAST + 1:
        return learnt
    return bound([lead.step_s] * STEPS_LEAST)


class Watch:
    """Looks at the running jobs, and keeps what it found in the service's `LiveView`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._paces: dict[tuple[AttemptId, int], Pace] = {}
        self._slow: set[tuple[AttemptId, int]] = set()
        self._stopped: dict[tuple[AttemptId, int], int] = {}
        """After which step each epoch was seen to stand: the time of the next one teaches nothing, whenever it ends."""
        self._looked: dict[AttemptId, Instant] = {}
        self._routine: dict[tuple[AttemptId, int], Instant] = {}
        """When each epoch was last looked at although it keeps its pace."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.once()
            except Exception:
                logger.critical("a defect in the watch of jobs", exc_info=True)

    async def once(self) -> None:
        """Looks at every running job; asks the agents of those that stand or became slow."""
        async with self._service.settled() as runtime:
            state = runtime.engine.state
            newest = [(job, views.newest_attempt(state, job)) for job in state.jobs.values()]
            formed = [(job, attempt) for job, attempt in newest if attempt is not None and attempt.epochs]
            running = [(job, attempt) for job, attempt in formed if attempt.state is AttemptState.RUNNING]
            apart = [
                (job, attempt)
                for job, attempt in formed
                if attempt.undecided and any(is_apart(exit.first) for exit in attempt.exits.told)
            ]
        live = {(attempt.id, attempt.epoch.number) for _, attempt in running}
        self._paces = {key: pace for key, pace in self._paces.items() if key in live}
        self._routine = {key: at for key, at in self._routine.items() if key in live}
        self._stopped = {key: step for key, step in self._stopped.items() if key in live}
        self._service.live.keep_diagnoses({attempt.id for _, attempt in running})
        wanted = [(job, attempt) for job, attempt in running if self._wants(job, attempt)]
        await asyncio.gather(
            *(self._diagnose(job, attempt) for job, attempt in wanted),
            *(self._explain(job, attempt) for job, attempt in apart),
        )

    def _wants(self, job: Job, attempt: Attempt) -> bool:
        """Whether the agents should be asked; also learns from the newest heartbeats."""
        now, epoch = self._service.now(), attempt.epoch.number
        told = self._service.live.ranks(attempt.id, epoch, attempt.members)
        if not told:
            return False
        key = (attempt.id, epoch)
        pace = self._paces.setdefault(key, Pace())
        lead = max((rank for _, _, rank in told), key=lambda rank: (rank.step, rank.step_at))
        saving = any(Phase(rank.phase) is not Phase.TRAINING for _, _, rank in told)
        known = self._service.live.diagnosis(attempt.id, epoch)
        stopped = self._stopped.get(key) == pace.step or (
            known is not None and known.diagnosis.kind is not Kind.STRAGGLER
        )
        pace.see(lead.step, lead.step_at, quiet=not saving and not stopped and key not in self._slow)
        self._slow = self._slow | {key} if saving else self._slow - {key}
        allowed = _allowed(attempt, pace.bound(job.spec.hangs.told_s()), lead)
        self._service.live.keep_bound(attempt.id, epoch, allowed)
        stands = lead.step > 0 and in_seconds(now - lead.step_at) > allowed.bound_s
        since_s = in_seconds(now - self._looked.get(attempt.id, Instant(0)))
        if saving and in_seconds(now - lead.step_at) < PHASE_S:
            return False
        if stands:
            return since_s > max(LOOK_EVERY_S, AGAIN_SHARE * in_seconds(now - lead.step_at))
        if slowed(pace.steps_s) or (known is not None and known.diagnosis.kind is Kind.STRAGGLER):
            return since_s > (STRAGGLER_S if known is not None else SLOWED_S)
        if known is not None:
            self._service.live.forget_diagnosis(attempt.id)
        return self._is_routine(key, now)

    def _is_routine(self, key: tuple[AttemptId, int], now: Instant) -> bool:
        """Whether it is time for a look at an epoch that keeps its pace."""
        last = self._routine.get(key)
        due = self._paces[key].seen >= ROUTINE_STEPS if last is None else in_seconds(now - last) > ROUTINE_S
        if due:
            self._routine[key] = now
        return due

    async def _diagnose(self, job: Job, attempt: Attempt) -> None:
        service = self._service
        self._looked[attempt.id] = service.now()
        before = service.live.diagnosis(attempt.id, attempt.epoch.number)
        found = await look(service.links, job, attempt, service.now(), service.settings.query_timeout_s)
        if found.diagnosis.kind in ALARMS:
            service.live.keep_diagnosis(attempt.id, found)
            key = (attempt.id, found.epoch)
            if found.diagnosis.kind is not Kind.STRAGGLER and key in self._paces:
                self._stopped[key] = self._paces[key].step
            logger.warning("%s: %s: %s", attempt.id, found.diagnosis.kind.value, found.diagnosis.summary)
        else:
            service.live.forget_diagnosis(attempt.id)
        if job.spec.hangs.recover and before is not None and _claim(before.diagnosis) == _claim(found.diagnosis):
            await self._end_hang(job, attempt, found)

    async def _explain(self, job: Job, attempt: Attempt) -> None:
        """Ranks met in different collectives and failed. What their recorders hold outlives them."""
        service, epoch = self._service, attempt.epoch
        query = Query(id="", kind="rings", attempt=attempt.id, rank=0, epoch=epoch.number, lines=CALLS)
        hosts, ranks = attempt.hosts_of(epoch.number), job.spec.hosts * job.spec.ranks_per_host
        rings, _ = await _asked(service.links, hosts, query, Rings, service.settings.query_timeout_s)
        found = await asyncio.to_thread(astray, rings, ranks)
        if found is None:
            return
        event = HangFound(
            at=service.now(),
            attempt=attempt.id,
            epoch=epoch.number,
            kind=found.kind,
            ranks=tuple(sorted({*found.missing_ranks, *found.differing_ranks})),
            step=epoch.last_step,
            still_s=0.0,
            bound_s=0.0,
            summary=found.summary,
        )
        await self._tell(event)

    async def _end_hang(self, job: Job, attempt: Attempt, found: LiveDiagnosis) -> None:
        """Tells the engine of a stop that will not end by itself. What the newest heartbeats say of steps counts: a job
        that went on meanwhile is left alone."""
        service = self._service
        told = service.live.ranks(attempt.id, found.epoch, attempt.members)
        lead = max((rank for _, _, rank in told), key=lambda rank: (rank.step, rank.step_at), default=None)
        if lead is None or lead.step <= 0:
            return
        now, ranks = service.now(), job.spec.hosts * job.spec.ranks_per_host
        still_s = in_seconds(now - lead.step_at)
        ended = hang.judge(found.diagnosis, still_s, found.bound_s, found.patience_s, ranks)
        if ended is None:
            return
        event = HangFound(
            at=now,
            attempt=attempt.id,
            epoch=found.epoch,
            kind=ended.kind,
            ranks=ended.ranks,
            step=lead.step,
            still_s=round(still_s, 3),
            bound_s=found.bound_s,
            summary=found.diagnosis.summary,
        )
        await self._tell(event)

    async def _tell(self, event: HangFound) -> None:
        try:
            await self._service.command(lambda runtime: runtime.stage(event))
        except (ServiceStopped, LogFull) as error:
            logger.error("%s: a hang could not be ended: %s", event.attempt, error)


async def diagnosis(call: Call) -> LiveDiagnosis:
    found, attempt = await _running(call)
    service, epoch = call.service, attempt.epoch.number
    told = forming(attempt)
    if told is None:
        seen = await look(service.links, found, attempt, service.now(), service.settings.query_timeout_s)
        found, attempt = await _running(call)
        told = forming(attempt)
        if told is None and seen.epoch == epoch == attempt.epoch.number:
            said = before_first_step(attempt.epoch)
            known = seen.diagnosis
            return seen.but(diagnosis=known.but(details=(said, *known.details))) if said else seen
    if told is None:  # a whole re-forming went by meanwhile
        return await diagnosis(call)
    return LiveDiagnosis(
        job=found.id,
        attempt=attempt.id,
        epoch=attempt.epoch.number,
        at=service.now(),
        diagnosis=told,
        standing_s=0.0,
        bound_s=0.0,
        bound="nothing: no rank was asked",
    )


async def stacks(call: Call) -> JobStacks:
    found, attempt = await _running(call)
    service, epoch = call.service, attempt.epoch.number
    query = Query(id="", kind="stacks", attempt=attempt.id, rank=0, epoch=epoch)
    timeout_s = 4 * service.settings.query_timeout_s
    told, silent = await _asked(service.links, attempt.hosts_of(epoch), query, HostStacks, timeout_s)
    all_stacks: list[Stack] = [stack for host in told for stack in host.stacks]
    return JobStacks(job=found.id, attempt=attempt.id, epoch=epoch, groups=grouped(all_stacks), silent_hosts=silent)


async def _running(call: Call) -> tuple[Job, Attempt]:
    """The job and its newest attempt, whose hosts may know something. Raises `Refusal`."""
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        found = known_job(state, call.name("job"))
        attempt = views.newest_attempt(state, found)
        name = f"{found.spec.name} ({found.id})"
        if found.state not in (JobState.QUEUED, JobState.ACTIVE):
            fix = f"trainmaster diagnose LOGDIR, with the logs of its ranks; trainmaster job incidents {found.id}"
            raise Refusal(409, Token.ALREADY_ENDED, f"{name} has ended: none of its ranks runs", fix)
        if attempt is None or not attempt.epochs or not attempt.is_live():
            raise Refusal(404, Token.NO_SUCH_JOB, f"{name} waits to start: it has no ranks", "wait until it runs")
        return found, attempt


Handler = Callable[[Call], Awaitable[Value]]

ROUTES = (
    Route(
        method="GET",
        path="/v1/jobs/{job}/diagnosis",
        access="viewer",
        summary="What holds up a running job, from the recorders and processes of its ranks",
        handle=diagnosis,
        answer=LiveDiagnosis,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/stacks",
        access="operator",
        summary="Stacks of all ranks of a running job, grouped by equal ones",
        handle=stacks,
        answer=JobStacks,
        errors=(404, 409),
    ),
)
