"""A light world for lemons: hosts that break as tables say, jobs that die of it, and the very policies of health.

What is real: the readers and verdicts (`faults.Stagehand`), the history and what it asks for (`note`, `advice`,
`survey`). What is light: hosts, jobs and repairs are entries of a calendar, since a run of the whole engine takes
minutes, and two hundred seeds of months are needed; `lemon_scenario` runs the same faults through the engine.

Pairs: when a host breaks, and of what, is drawn by the calendar before anything happens, from a stream of the host
alone; so two worlds of a seed have the same faults, and differ in whether the host is in service then.

A lemon is not cured by what answers its faults: that is what makes it one. It is as good as any host on most days, and
its faults come from one root cause in one place. Taken out as a lemon, a host stays out to the end.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from trainmaster.core.base.ids import CaseId, HostId, JobId, PodId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.advice import advice
from trainmaster.core.health.offender.lemon import Subject, survey
from trainmaster.core.health.offender.notes import note
from trainmaster.core.health.offender.record import History, Incident, IncidentKind
from trainmaster.core.health.words import Answer, Remedy, Verdict
from trainmaster.twin.chance import REPAIR, Lognormal, Purpose, happens
from trainmaster.twin.faults import CAUSES, NOISE, ROOTS, SHAPES, Cause, Shape, Stagehand, Table
from trainmaster.twin.kernel import Kernel, Timer

START: Final = Instant(20_000 * DAY)
OLD: Final = Duration(400 * DAY)
"""So long most hosts have been in service when the world begins."""
LARGE: Final = 64
"""Hosts of a large job, at least: 512 GPUs."""
_HEALTHY: Final = Answer(verdict=Verdict.OK, remedy=Remedy.NONE)


Policy = Literal["kept", "found", "known"]
"""*kept*: every fault is answered by its own remedy, history is never asked. *found*: history is asked, and what it
condemns is taken out. *known*: all lemons are taken out before the first day, which nobody can; how far one could come.
"""


class Shares(NamedTuple):
    """Jobs of one size: so many of them at any time, with durations of this median and 90th percentile."""

    name: str
    hosts: int
    at_once: int
    median_h: float
    p90_h: float


class LemonFleet(Value):
    """A fleet with lemons. Where the numbers come from is stated in the page on the experiment."""

    hosts: int = 1024
    days: int = 84
    warm_up_days: int = 28
    """What happens to jobs is counted after it: the survey needs a past."""
    per_thousand_host_days: float = 1.78
    """Of hosts that are no lemons."""
    lemon_share: float = 0.012
    lemon_low: float = 10.0
    lemon_high: float = 1000.0
    """A lemon breaks so many times as often, log-uniform between these."""
    new_share: float = 0.05
    """Hosts that came within the last three weeks, and break three times as often for a month."""
    noise_per_host_day: float = 0.05
    """Lines of applications' faults and corrected errors."""
    app_failure: float = 0.12
    """Jobs that end by their own fault."""
    jobs: tuple[Shares, ...] = (
        Shares("large", 64, 5, 5.0, 24.0),
        Shares("huge", 128, 2, 5.0, 24.0),
        Shares("middle", 8, 20, 5.0, 24.0),
        Shares("single", 1, 60, 8.0, 36.0),
    )

    @classmethod
    def of(cls, hosts: int, days: int) -> "LemonFleet":
        """The same fleet in another size: as many jobs for each host."""
        usual = cls()
        jobs = tuple(each._replace(at_once=each.at_once * hosts // usual.hosts) for each in usual.jobs)
        return usual.but(hosts=hosts, days=days, jobs=jobs)


EARLY: Final = Duration(30 * DAY)
EARLY_FACTOR: Final = 3.0
SHUNNED_DAYS: Final = 100.0
"""A user excludes a host without cause about so rarely."""


class Breakage(NamedTuple):
    """What happens to a host by the calendar."""

    at: Instant
    shape: Shape
    place: int
    away: Duration
    """What a person takes to repair it, if that is asked for."""


class Host:
    """One host of the light world."""

    __slots__ = ("born", "calendar", "factor", "id", "in_service", "job", "pod", "removed_at", "removed_by", "root")

    def __init__(self, name: HostId, pod: PodId) -> None:
        self.id, self.pod = name, pod
        self.born = START
        """When its service began."""
        self.factor = 1.0
        """How many times as often it breaks."""
        self.root: Cause | None = None
        """Of a lemon."""
        self.in_service = True
        self.job: Job | None = None
        self.removed_at: Instant | None = None
        """When it was taken out as a lemon or an offender."""
        self.removed_by = ""
        """history (a fault that asked for more than its remedy) or survey (once a day)."""
        self.calendar: list[Breakage] = []


class Job:
    __slots__ = ("began", "hosts", "number", "shares", "timer")

    def __init__(self, number: int, shares: Shares, hosts: tuple[Host, ...], began: Instant) -> None:
        self.number, self.shares, self.hosts, self.began = number, shares, hosts, began
        self.timer: Timer | None = None


class Counts:
    """What is counted after the warm-up."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        """Jobs by size: large (from `LARGE` hosts on) and others."""
        self.failed: dict[str, int] = {}
        """Of them, those that a host killed."""
        self.by_lemon = 0
        """Of the large ones, those that a lemon killed."""
        self.touched = 0
        """Jobs that had a lemon among their hosts."""
        self.faults = 0
        self.host_days = 0.0
        self.false_actions = 0
        """Hosts that were taken out for a line that is no fault of the host. Must stay 0."""


class LemonWorld:
    """One history under a policy."""

    def __init__(
        self, fleet: LemonFleet, seed: int, stagehand: Stagehand, policy: Policy, limits: OffenderLimits
    ) -> None:
        self.fleet, self.limits, self.stagehand = fleet, limits, stagehand
        self.removes = policy == "found"
        self.kernel = Kernel(START)
        self.end = Instant(START + fleet.days * DAY)
        self.counted_from = Instant(START + fleet.warm_up_days * DAY)
        self.history = History()
        self.counts = Counts()
        self.cases = 0
        self._jobs = Purpose(seed, "lemon jobs")
        self._numbers: dict[str, int] = {}
        self._law = {
            each.name: Lognormal(
                median=Duration(round(each.median_h * HOUR)), p90=Duration(round(each.p90_h * HOUR)),
                limit=Duration(7 * DAY),
            )
            for each in fleet.jobs
        }  # fmt: skip
        self.hosts = planted(fleet, [HostId(f"h{each:04}") for each in range(fleet.hosts)], seed, START, self.end)
        self.history.first_seen = {host.id: host.born for host in self.hosts}
        self.subjects = [Subject(host=host.id, pod=host.pod) for host in self.hosts]
        self.by_name = {host.id: host for host in self.hosts}
        self.free: deque[Host] = deque(Stream.of(seed, "lemon places").shuffled(self.hosts))
        """Hosts go to the end when they become free, so jobs wander over the fleet."""
        self.queue: deque[Shares] = deque()
        for host in self.hosts if policy == "known" else ():
            if host.root is not None:
                self._remove(host, "known")
                self.free.remove(host)

    def run(self) -> Counts:
        kernel = self.kernel
        for host in self.hosts:
            for breakage in host.calendar:
                kernel.at(breakage.at, self._breaks, (host, breakage))
        for shares in self.fleet.jobs:
            self.queue.extend([shares] * shares.at_once)
        kernel.at(START, self._serve, None, 1)
        kernel.at(Instant(START + DAY), self._survey, None, 2)
        kernel.run(self.end)
        days = (self.end - self.counted_from) / DAY
        gone = sum((self.end - max(host.removed_at, self.counted_from)) / DAY for host in self.hosts if host.removed_at)
        self.counts.host_days = len(self.hosts) * days - gone
        return self.counts

    # --- jobs

    def _serve(self, _: object = None) -> None:
        """Starts what fits, in order."""
        while self.queue and len(self.free) >= self.queue[0].hosts:
            shares = self.queue.popleft()
            number = self._numbers[shares.name] = self._numbers.get(shares.name, 0) + 1
            hosts = tuple(self.free.popleft() for _ in range(shares.hosts))
            job = Job(number, shares, hosts, self.kernel.now)
            for host in hosts:
                host.job = job
            if shares.hosts == 1:
                days = self.history.alone.setdefault(hosts[0].id, [])
                today = self.kernel.now // DAY
                days.append((today, 1))
                del days[:-40]
            stream = self._jobs.stream(f"{shares.name} {number}")
            lasts = max(self._law[shares.name].draw(stream), SECOND)
            by_itself = happens(stream, self.fleet.app_failure)
            job.timer = self.kernel.after(lasts, self._ends, (job, by_itself, stream))

    def _ends(self, told: tuple[Job, bool, Stream]) -> None:
        """A job has done its work, or fails by its own fault, which its hosts write down."""
        job, by_itself, stream = told
        self._over(job, None)
        if by_itself:
            shape = stream.choice(_APP_FAULTS)
            host = stream.choice(job.hosts)
            self._noise(host, shape, stream.integer(8))
            self._note(host, "job-failed", "host", job=job, offence=False)
        self._serve()

    def _over(self, job: Job, killer: Host | None) -> None:
        for host in job.hosts:
            host.job = None
            if host.in_service and host is not killer:
                self.free.append(host)
        self.queue.append(job.shares)
        if self.kernel.now < self.counted_from:
            return
        counts, size = self.counts, "large" if job.shares.hosts >= LARGE else "other"
        counts.ended[size] = counts.ended.get(size, 0) + 1
        counts.touched += any(host.root is not None for host in job.hosts)
        if killer is not None:
            counts.failed[size] = counts.failed.get(size, 0) + 1
            counts.by_lemon += size == "large" and killer.root is not None

    # --- faults

    def _breaks(self, told: tuple[Host, Breakage]) -> None:
        host, breakage = told
        if not host.in_service:
            return
        shape = breakage.shape
        if shape.name in NOISE:
            self._noise(host, shape, breakage.place)
            return
        if shape.name == _SHUN:
            self._note(host, "excluded", "host", number=breakage.place)
            return
        self.counts.faults += self.kernel.now >= self.counted_from
        job = host.job
        worst = _worst(self.stagehand.play(shape, breakage.place).findings)
        if job is not None and shape.kills:
            assert job.timer is not None
            self.kernel.cancel(job.timer)
            self._over(job, host)
            if worst is not None or shape.takes_host:  # of a wrong result nobody knows where it came from
                self._note(host, "job-failed", "host", job=job, offence=shape.takes_host)
        elif job is None:
            self.free.remove(host)
        else:
            return
        if shape.takes_host:
            self._note(host, "lost", "host")
        if worst is not None and worst.verdict is Verdict.BAD:
            self._case(host, worst, breakage.away)
        elif shape.takes_host:
            self._out(host, breakage.away if breakage.away < Duration(12 * HOUR) else Duration(30 * MINUTE))
        else:
            self._out(host, Duration(10 * MINUTE))
        self._serve()

    def _case(self, host: Host, worst: Finding, away: Duration) -> None:
        """A bad verdict, and what answers it. History may ask for more, if it is asked."""
        self.cases += 1
        case = CaseId(f"case-{self.cases}")
        self._note(host, "verdict", worst.unit, finding=worst, case=case)
        now = self.kernel.now
        if self.removes and advice(self.history, host.id, worst.unit, "", now, self.limits, case) is not None:
            self._remove(host, "history")
            return
        remedy = worst.remedy
        person = remedy in (Remedy.TRIAGE, Remedy.RMA, Remedy.CONFIG)
        self._note(host, "ticket" if person else "remedy", worst.unit, finding=worst, case=case)
        self._out(host, away if person else Duration((15 if remedy is Remedy.RESET_GPU else 30) * MINUTE))

    def _noise(self, host: Host, shape: Shape, place: int) -> None:
        worst = _worst(self.stagehand.play(shape, place).findings)
        self.counts.false_actions += worst is not None and worst.verdict is Verdict.BAD

    def _note(
        self, host: Host, kind: IncidentKind, unit: str, *, finding: Finding | None = None, job: Job | None = None,
        case: CaseId | None = None, offence: bool = True, number: int = 0,
    ) -> None:  # fmt: skip
        answer = finding.answer if finding is not None else _HEALTHY
        name = JobId(f"{job.shares.name}-{job.number}") if job is not None else JobId(f"user-{number}")
        incident = Incident(
            at=self.kernel.now, kind=kind, host=host.id, unit=unit, rule=finding.rule if finding is not None else "",
            verdict=answer.verdict, remedy=answer.remedy, case=case, job=name,
            nodes=job.shares.hosts if job is not None else 0, offence=offence,
        )  # fmt: skip
        note(self.history, incident)

    def _out(self, host: Host, duration: Duration) -> None:
        host.in_service = False
        self.kernel.after(max(duration, MINUTE), self._returns, host)

    def _returns(self, host: Host) -> None:
        host.in_service = True
        self.free.append(host)
        self._serve()

    def _remove(self, host: Host, by: str) -> None:
        host.in_service = False
        host.removed_at, host.removed_by = self.kernel.now, by

    def _survey(self, _: None) -> None:
        """Once a day. A suspect leaves when its job has ended; nobody kills a job for it."""
        if self.removes:
            for suspect in survey(self.history, self.subjects, self.kernel.now, self.limits):
                host = self.by_name[suspect.host]
                condemned = suspect.answer is not None and suspect.answer.verdict is Verdict.BAD
                if condemned and host.in_service and host.job is None:
                    self.free.remove(host)
                    self._remove(host, "survey")
        if self.kernel.now + DAY < self.end:
            self.kernel.after(DAY, self._survey, None, 2)


_SHUN: Final = "excluded-by-a-user"
_APP_FAULTS: Final = tuple(shape for shape in NOISE.values() if shape.kills)


def _worst(findings: tuple[Finding, ...]) -> Finding | None:
    """The worst finding about a unit of the host; None: it shows nothing of the host's own."""
    own = [each for each in findings if not each.echo_of and each.unit != "job"]
    return max(own, key=lambda each: each.answer.rank, default=None)


def planted(fleet: LemonFleet, names: Sequence[HostId], seed: int, start: Instant, end: Instant) -> list[Host]:
    """The hosts with what will happen to each, whatever is done about it."""
    count = len(names)
    pods = max(1, count // 128)
    hosts = [Host(name, PodId(f"p{number * pods // count}")) for number, name in enumerate(names)]
    chosen = Stream.of(seed, "lemons")
    places = chosen.permutation(count)
    lemons = round(count * fleet.lemon_share)
    roots = Table(ROOTS)
    for place in places[:lemons]:
        host = hosts[place]
        host.factor = fleet.lemon_low * (fleet.lemon_high / fleet.lemon_low) ** chosen.uniform()
        host.root = roots.cause(chosen)
    new = frozenset(places[lemons : lemons + round(count * fleet.new_share)])
    calendars, laws = Purpose(seed, "lemon calendar"), (Table(CAUSES), roots)
    for place, host in enumerate(hosts):
        stream = calendars.stream(host.id)
        host.born = Instant(start - (stream.integer(21) * DAY if place in new else OLD))
        noise = calendars.stream(f"{host.id} noise")
        host.calendar = [*_faults(fleet, host, stream, start, end, laws), *_noise(fleet, noise, start, end)]
    return hosts


def _faults(
    fleet: LemonFleet, host: Host, stream: Stream, start: Instant, end: Instant, laws: tuple[Table, Table]
) -> list[Breakage]:
    usual, roots = laws
    fault_place = stream.integer(1 << 16)
    """A lemon's root sits in one place; other faults are anywhere."""
    rate = fleet.per_thousand_host_days / 1000 * host.factor
    fastest = rate * EARLY_FACTOR
    found: list[Breakage] = []
    at = float(start)
    while True:
        at += stream.exponential(DAY / fastest)
        if at >= end:
            return found
        is_early = at - host.born < EARLY and host.root is None
        skipped = not happens(stream, 1.0 if is_early else 1 / EARLY_FACTOR)
        if host.root is not None:
            shape = roots.shape(host.root, stream)
            place = fault_place
            stream.uniform()
        else:
            cause = usual.cause(stream)
            shape, place = usual.shape(cause, stream), stream.integer(1 << 16)
        away = REPAIR.draw(stream)
        if not skipped:
            found.append(Breakage(Instant(round(at)), shape, place, away))


def _noise(fleet: LemonFleet, stream: Stream, start: Instant, end: Instant) -> list[Breakage]:
    """Lines that mean nothing, and users who exclude a host for no reason."""
    shapes, shun = tuple(NOISE.values()), Shape(name=_SHUN, unit="host", kills=False)
    total = fleet.noise_per_host_day + 1 / SHUNNED_DAYS
    found = []
    at = float(start)
    while (at := at + stream.exponential(DAY / total)) < end:
        shunned = happens(stream, 1 / SHUNNED_DAYS / total)
        shape = stream.choice(shapes)
        shape = shun if shunned else shape
        found.append(Breakage(Instant(round(at)), shape, stream.integer(1 << 16), Duration(0)))
    return found


assert _SHUN not in SHAPES
