"""Where time went, over the API: the fleet's account, and the life of a job as spans.

    GET  /v1/account                FleetReport    all jobs that the server knows, summed
    GET  /v1/jobs/J/timeline        JobTimeline    the spans of a job's account, and who was a member when

The account of one job is part of `/v1/jobs/J`.
"""

from trainmaster.core.accounting.fleet import JobLine, fleet_account
from trainmaster.core.accounting.timeline import members, timeline
from trainmaster.live.server import views
from trainmaster.live.server.http import Call, Route
from trainmaster.live.server.people import known_job
from trainmaster.live.server.resources import FleetReport, JobTimeline


async def account(call: Call) -> FleetReport:
    service = call.service
    async with service.settled() as runtime:
        state, now = runtime.engine.state, service.now()
        lines = (
            JobLine(
                id=job.id,
                name=job.spec.name,
                state=job.state.value,
                hosts=job.spec.hosts,
                account=views.job_account(state, job, service.live, now),
            )
            for job in state.jobs.values()
        )
        return FleetReport(index=state.index, at=now, account=fleet_account(lines))


async def job_timeline(call: Call) -> JobTimeline:
    service = call.service
    async with service.settled() as runtime:
        state, now = runtime.engine.state, max(service.now(), runtime.engine.state.now)
        job = known_job(state, call.name("job"))
        attempts = [state.attempts[name] for name in job.attempts]
        return JobTimeline(
            index=state.index,
            at=now,
            job=job.id,
            start=job.submitted_at,
            end=job.ended_at if job.ended_at is not None else now,
            spans=timeline(job, attempts, now, views.still_since(state, job, service.live, now)),
            members=members(job, attempts, now),
        )


ROUTES = (
    Route(
        method="GET",
        path="/v1/account",
        access="viewer",
        summary="What all jobs lost, by cause and phase, and how often they were interrupted",
        handle=account,
        answer=FleetReport,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/timeline",
        access="viewer",
        summary="The life of a job as spans of time, by phase and incident",
        handle=job_timeline,
        answer=JobTimeline,
        errors=(404,),
    ),
)
