"""The log of a live server, lived through again: does the engine still decide what it decided then?

Every event goes into a fresh engine; what it wants done must be, byte for byte, what stands beside the event in the
log. The first difference ends the replay: from there on state and log are two histories, and a comparison of them
would only repeat the first. After events, the invariants are looked at, which the live server does not pay for.

Causes of lost time are those of the accounts of the jobs (`core/accounting`): all together are wall time minus
productive time, exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from trainmaster.core.accounting.goodput import account, gpus_of
from trainmaster.core.accounting.report import JobAccount
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.effects import AnyEffect
from trainmaster.core.engine import Engine
from trainmaster.core.events import AnyEvent
from trainmaster.core.invariants import broken
from trainmaster.core.maintenance.watcher import Watcher
from trainmaster.core.words import sentence
from trainmaster.twin.report import Wait, operations_by_kind, operations_by_outcome, sums

SAMPLES: Final = 1_000
KEPT: Final = 100
"""Broken invariants that are told in full; the others are counted."""


class Difference(Value):
    """Where log and engine part."""

    index: int
    at: Instant
    event: str
    """In words."""
    sentence: str
    """What differs, in words."""
    logged: str
    """The first effect that differs, as it stands in the log; empty: there is none."""
    caused: str
    """What this engine wants instead; empty: nothing."""


class ReplayReport(Value):
    events: int
    """That were replayed, the one that differs included."""
    first_at: Instant
    last_at: Instant
    span_s: float
    wall_s: float
    events_by_type: dict[str, int]
    difference: Difference | None
    snapshots_equal: int
    """Stored snapshots that the replay reached and met; one that is not equal is a difference."""
    invariants_looked: int
    invariants_broken: int
    broken: tuple[str, ...]
    operations_requested: int
    operations_done: int
    operations_by_outcome: dict[str, int]
    operations_by_kind: dict[str, dict[str, int]]
    unfinished: int
    hosts_visited: int
    hosts_missed: int
    """Compute hosts without a visit that ended in a return."""
    visits: int
    hosts_by_state: dict[str, int]
    """At the end."""
    jobs: dict[str, int]
    """By state, at the end."""
    interruptions: dict[str, int]
    interruptions_by_job: dict[str, dict[str, int]]
    """Job, then cause."""
    lost_gpu_s_by_cause: dict[str, int]
    """All of them together are wall time minus productive time, times the GPUs of each job."""
    trained_gpu_s: int
    waits_by_reason: dict[str, Wait]
    """Of operations, by samples at even times."""
    job_waits_by_reason: dict[str, Wait]
    """The same of jobs in the queue; `operations` counts jobs."""


class Replay:
    """Feed it with the rows of a log, in order, as long as `apply` says True."""

    def __init__(self, first_at: Instant, last_at: Instant, look_every: int = 1) -> None:
        """Samples are spread from `first_at` to `last_at`; `look_every` 0: invariants are not looked at, 1: also what
        an event may not do, whatever state it leaves."""
        self.engine = Engine()
        self._watcher = Watcher() if look_every == 1 else None
        self.difference: Difference | None = None
        self.found: list[str] = []
        self.broken = self.looked = self.snapshots_equal = 0
        self.types: dict[str, int] = {}
        self._first, self._last, self._every = first_at, last_at, look_every
        self._gap = max((last_at - first_at) // SAMPLES, 1)
        self._next = first_at
        self._samples = 0
        self._waits: dict[str, int] = {}
        self._job_waits: dict[str, int] = {}

    def apply(self, index: int, event: AnyEvent, effects: bytes) -> bool:
        """False: here is the difference."""
        assert self.difference is None
        assert index == self.engine.index + 1, (index, self.engine.index)
        self._sample(event.at)
        name = type(event).__name__
        self.types[name] = self.types.get(name, 0) + 1
        if self._watcher is not None:
            self._watcher.before(self.engine.state)
        try:
            caused = self.engine.handle(event)
        except Exception as error:  # noqa: BLE001  (whatever it is, this engine does not go where that one went)
            what = f"this engine finds the event impossible: {type(error).__name__}: {error}"
            self.difference = _difference(index, event, what, "", "")
            return False
        if encode(caused) != effects:
            self.difference = _compared(index, event, effects, caused)
            return False
        if self._watcher is not None:
            self._note(self._watcher.after(self.engine.state, self.engine._derived, event, caused))
        if self._every and index % self._every == 0:
            self.look()
        return True

    def met(self, index: int, snapshot: bytes) -> bool:
        """Compares a snapshot that the log has of this index; False: here is the difference."""
        assert index == self.engine.index
        mine = self.engine.snapshot()
        if mine == snapshot:
            self.snapshots_equal += 1
            return True
        place = next((place for place, pair in enumerate(zip(mine, snapshot, strict=False)) if pair[0] != pair[1]), 0)
        logged, caused = (text[max(place - 60, 0) : place + 60].decode(errors="replace") for text in (snapshot, mine))
        what = f"the stored snapshot of event {index} is of another state, from byte {place} on"
        self.difference = Difference(
            index=index, at=self.engine.state.now, event="(snapshot)", sentence=what, logged=logged, caused=caused
        )
        return False

    def look(self) -> None:
        """Looks at the invariants."""
        self.looked += 1
        self._note(broken(self.engine.state, self.engine._derived))

    def _note(self, wrong: Iterable[str]) -> None:
        for one in wrong:
            self.broken += 1
            if len(self.found) < KEPT:
                self.found.append(f"event {self.engine.index}: {one}")

    def _sample(self, at: Instant) -> None:
        """What waited at the sample times before this event."""
        if at < self._next:
            return
        count = (min(at, self._last) - self._next) // self._gap + 1
        state = self.engine.state
        self._next = Instant(self._next + count * self._gap)
        self._samples += count
        for operation in state.maintenance.operations.values():
            if operation.reason is not None:
                token = operation.reason.token.value
                self._waits[token] = self._waits.get(token, 0) + count
        for name in state.queue:
            reason = state.jobs[name].reason
            token = reason.token.value if reason is not None else "not-looked-at"
            self._job_waits[token] = self._job_waits.get(token, 0) + count

    def report(self, wall_s: float) -> ReplayReport:
        """What was lived through so far."""
        state = self.engine.state
        maintenance = state.maintenance
        compute = [host.id for host in state.hosts.values() if host.spec.kind == "compute"]
        outcomes = operations_by_outcome(maintenance.counts)
        visited = sum(1 for host in compute if maintenance.visited.get(host))
        jobs = {job.id: (job, [state.attempts[name] for name in job.attempts]) for job in state.jobs.values()}
        accounts = {
            name: account(job, attempts, state.now, gpus=gpus_of(attempts, state.hosts))
            for name, (job, attempts) in jobs.items()
        }
        causes: dict[str, float] = {}
        rows: dict[str, dict[str, int]] = {}
        trained = 0.0
        for name, (job, _) in jobs.items():
            told = accounts[name]
            trained += told.productive_s * told.gpus
            for cause, lost_gpu_s in lost_by_cause(told).items():
                causes[cause] = causes.get(cause, 0.0) + lost_gpu_s
            rows[f"{name} {job.spec.name}"] = _interruptions(told)
        return ReplayReport(
            events=self.engine.index,
            first_at=self._first,
            last_at=state.now,
            span_s=in_seconds(max(state.now - self._first, 0)),
            wall_s=round(wall_s, 3),
            events_by_type=dict(sorted(self.types.items(), key=lambda row: (-row[1], row[0]))),
            difference=self.difference,
            snapshots_equal=self.snapshots_equal,
            invariants_looked=self.looked,
            invariants_broken=self.broken,
            broken=tuple(self.found),
            operations_requested=maintenance.requested,
            operations_done=outcomes.get("done", 0),
            operations_by_outcome=outcomes,
            operations_by_kind=operations_by_kind(maintenance.counts),
            unfinished=len(maintenance.operations),
            hosts_visited=visited,
            hosts_missed=len(compute) - visited,
            visits=sum(maintenance.visited.values()),
            hosts_by_state=counted(host.state.value for host in state.hosts.values()),
            jobs=counted(job.state.value for job in state.jobs.values()),
            interruptions=sums(rows),
            interruptions_by_job={name: row for name, row in rows.items() if row},
            lost_gpu_s_by_cause={cause: round(lost) for cause, lost in sorted(causes.items()) if round(lost)},
            trained_gpu_s=round(trained),
            waits_by_reason=self._told(self._waits),
            job_waits_by_reason=self._told(self._job_waits),
        )

    def _told(self, waits: Mapping[str, int]) -> dict[str, Wait]:
        samples = max(self._samples, 1)
        hours = self._gap / 3.6e9
        rows = sorted(waits.items(), key=lambda row: (-row[1], row[0]))
        return {token: Wait(operations=round(n / samples, 3), hours=round(n * hours, 4)) for token, n in rows}


def _compared(index: int, event: AnyEvent, logged: bytes, caused: Sequence[AnyEffect]) -> Difference:
    """The first effect that differs."""
    try:
        before = decode(logged, tuple[AnyEffect, ...])
    except msgspec.DecodeError as error:
        what = f"the effects in the log are of another version: {error}"
        return _difference(index, event, what, logged.decode(errors="replace"), encode(tuple(caused)).decode())
    place = 0
    while place < min(len(before), len(caused)) and before[place] == caused[place]:
        place += 1
    old = before[place] if place < len(before) else None
    new = caused[place] if place < len(caused) else None
    what = f"effect {place + 1}: the log has {_words(old)}, this engine wants {_words(new)}"
    return _difference(index, event, what, _bytes(old), _bytes(new))


def _difference(index: int, event: AnyEvent, what: str, logged: str, caused: str) -> Difference:
    return Difference(index=index, at=event.at, event=sentence(event), sentence=what, logged=logged, caused=caused)


def _words(effect: AnyEffect | None) -> str:
    return f"{type(effect).__name__} to {fold(effect.hosts)}" if effect is not None else "nothing"


def _bytes(effect: AnyEffect | None) -> str:
    return encode(effect).decode() if effect is not None else ""


# Where the time went


def lost_by_cause(told: JobAccount) -> dict[str, float]:
    """Seconds of a job's GPUs that were not productive, by cause (see `Loss`)."""
    lost: dict[str, float] = {}
    for loss in told.losses:
        lost[loss.cause] = lost.get(loss.cause, 0.0) + loss.gpu_s
    return lost


def _interruptions(told: JobAccount) -> dict[str, int]:
    return counted(incident.cause.token.value for incident in told.incidents)


def counted(words: Iterable[str]) -> dict[str, int]:
    """How often each word stands there, by word."""
    return dict(sorted(Counter(words).items()))
