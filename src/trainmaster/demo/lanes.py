"""What happened to each host and to the job, as spans of time: the log, played through the very engine."""

from collections.abc import Iterable

from trainmaster.core.accounting.timeline import Span, timeline
from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.engine import Engine
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.maintenance.visit import Visit
from trainmaster.live.server.resources import LoggedEvent

WORK = frozenset({"applying", "rebooting", "checking"})
"""Phases of a visit in which something is done to a host."""


class Stay(Value):
    """A host in one situation."""

    host: HostId
    start: Instant
    end: Instant
    what: str
    """member, spare, verifying, draining, out for maintenance (or just what is done: applying, rebooting, checking),
    lost, ready, expected."""


class Lanes(Value):
    hosts: tuple[Stay, ...]
    job: tuple[Span, ...]
    start: Instant
    end: Instant


def lanes(events: Iterable[LoggedEvent], job: JobId) -> Lanes:
    """The lanes from the submission of a job to its end."""
    engine = Engine()
    open_stays: dict[HostId, tuple[Instant, str]] = {}
    stays: list[Stay] = []
    for logged in events:
        engine.handle(logged.event)
        at = engine.state.now
        for host in engine.state.hosts.values():
            what = situation(host, engine.state.maintenance.visits.get(host.id))
            since, before = open_stays.get(host.id, (at, what))
            if what != before:
                stays.append(Stay(host=host.id, start=since, end=at, what=before))
                since = at
            open_stays[host.id] = (since, what)
    found = engine.state.jobs[job]
    start = found.submitted_at
    end = found.ended_at if found.ended_at is not None else engine.state.now
    stays += [
        Stay(host=host, start=since, end=engine.state.now, what=what) for host, (since, what) in open_stays.items()
    ]
    clipped = (stay.but(start=max(stay.start, start), end=min(stay.end, end)) for stay in stays)
    attempts = [engine.state.attempts[name] for name in found.attempts]
    return Lanes(
        hosts=tuple(sorted((s for s in clipped if s.end > s.start), key=lambda s: (s.host, s.start))),
        job=timeline(found, attempts, end),
        start=start,
        end=end,
    )


def situation(host: Host, visit: Visit | None) -> str:
    if host.state is HostState.OUT_PLANNED and visit is not None and visit.phase.value in WORK:
        return visit.phase.value
    if host.state is HostState.READY and host.allocation is not None:
        return host.role if host.role in ("member", "spare") else "leaving"
    words = {
        HostState.EXPECTED: "expected",
        HostState.VERIFYING: "verifying",
        HostState.READY: "ready",
        HostState.DRAINING: "draining",
        HostState.OUT_PLANNED: "out for maintenance",
        HostState.OUT_FAILED: "lost",
    }
    return words[host.state]
