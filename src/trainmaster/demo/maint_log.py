"""What maintenance did to each host: visits, operations and reboots, from the log, played through the very engine."""

from collections.abc import Iterable

from trainmaster.core.base.ids import ComponentName, HostId, JobId, OperationId, RolloutId, TrainName
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.engine import Engine
from trainmaster.core.maintenance.train import CycleProof
from trainmaster.core.maintenance.visit import Visit
from trainmaster.live.server.resources import LoggedEvent


class Done(Value):
    """An operation that ended."""

    operation: OperationId
    host: HostId
    component: ComponentName
    version: str
    state: str
    started_at: Instant
    sentence: str
    """Why it failed; empty if it did not."""
    train: TrainName | None
    rollout: RolloutId | None
    job: JobId | None
    """The job whose gang it belongs to."""


class Visited(Value):
    """A visit of a host, from its notice to its return."""

    host: HostId
    opened_at: Instant
    closed_at: Instant
    train: TrainName | None
    drains: int
    reboots: int
    done: tuple[Done, ...]
    """In the order in which they were carried out."""
    in_production_between: bool
    """The host took work again before the visit was over. Never."""


class Upkeep(Value):
    visits: tuple[Visited, ...]
    """In the order of their ends."""
    proofs: tuple[CycleProof, ...]
    stops: int
    """Of the train, in its first cycle."""


def read(events: Iterable[LoggedEvent], train: TrainName) -> Upkeep:
    """`train`: whose stops and proofs are wanted."""
    engine = Engine()
    reader = _Reader(engine, train)
    for logged in events:
        engine.handle(logged.event)
        reader.look()
    found = engine.state.maintenance.trains[train]
    return Upkeep(visits=tuple(reader.visited), proofs=found.proofs, stops=reader.stops)


class _Reader:
    """Looks at the state after each event."""

    def __init__(self, engine: Engine, train: TrainName) -> None:
        self._engine, self._train = engine, train
        self._open: dict[HostId, Visit] = {}
        self._jobs: dict[OperationId, JobId] = {}
        self._seen = 0
        self._done: dict[HostId, list[Done]] = {}
        self._stop_began: Instant | None = None
        self.visited: list[Visited] = []
        self.stops = 0

    def look(self) -> None:
        state = self._engine.state.maintenance
        self._jobs |= {one.id: one.job for one in state.operations.values() if one.job is not None}
        self._look_at_ended()
        for host, visit in list(self._open.items()):
            if state.visits.get(host) is not visit:
                self.visited.append(self._close(visit))
                del self._open[host]
        self._open |= state.visits
        train = state.trains.get(self._train)
        if train is not None and train.stop is not None and train.cycle == 1:
            self.stops += train.stop.began_at != self._stop_began
            self._stop_began = train.stop.began_at

    def _look_at_ended(self) -> None:
        ended = self._engine.state.maintenance.ended
        for one in ended[self._seen :]:
            if one.started_at is None:
                continue
            host = HostId(one.spec.scope[0].removeprefix("host/"))
            done = Done(
                operation=one.id,
                host=host,
                component=one.spec.component,
                version=one.spec.version,
                state=one.state.value,
                started_at=one.started_at,
                sentence=one.reason.sentence if one.reason is not None else "",
                train=one.train,
                rollout=one.rollout,
                job=self._jobs.get(one.id),
            )
            self._done.setdefault(host, []).append(done)
        self._seen = len(ended)

    def _close(self, visit: Visit) -> Visited:
        now = self._engine.state.now
        story: tuple[Chapter, ...] = self._engine.state.hosts[visit.unit].story
        during = [chapter for chapter in story if visit.opened_at <= chapter.at <= now]
        back = [place for place, chapter in enumerate(during) if chapter.end == "ready"]
        return Visited(
            host=visit.unit,
            opened_at=visit.opened_at,
            closed_at=now,
            train=visit.train,
            drains=sum(chapter.end == "draining" for chapter in during),
            reboots=sum(chapter.end == "rebooting" for chapter in visit.story),
            done=tuple(sorted(self._done.pop(visit.unit, []), key=lambda done: done.started_at)),
            in_production_between=bool(back) and back[0] < len(during) - 1,
        )
