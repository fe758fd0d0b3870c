"""Where a job is at this moment, by what lies in the memory of its hosts, so that a kill can be aimed.

Nothing here asks the server: it may be the one that is dead, and a question takes longer than the moments that are
aimed at. Boards tell the phase of each rank, directories of epochs and the records of their processes tell how far the
forming of a membership is, the directory of checkpoints tells how far a save is. A look takes a fraction of a
millisecond; what it saw may be over when the signal arrives, so who shoots looks again afterwards.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.kills.draw import Moment
from trainmaster.core.agent.board import Board, Phase
from trainmaster.core.agent.journal import Line as JournalLine
from trainmaster.core.base.ids import AttemptId, EffectId, HostId
from trainmaster.core.base.value import Value, decode
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, unpublished_of
from trainmaster.live.adapters import local
from trainmaster.live.adapters.local import LocalPlan
from trainmaster.live.agent.files import read_or_none
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.processes import ProcessName, is_alive, name_of
from trainmaster.live.agent.talk import RunningGroup
from trainmaster.storage.arena import Arena, map_file
from trainmaster.training.metrics import Line

LOOK_S = 0.0005


class Seat(Value):
    """A rank of an epoch. `process` is None until its host has recorded it."""

    epoch: int
    rank: int
    host: HostId
    board: str
    process: ProcessName | None

    def phase(self) -> Phase:
        """CREATED if its host is gone, and its board with it."""
        data = read_or_none(Path(self.board))
        return Phase(Board(memoryview(bytearray(data))).integer("phase")) if data else Phase.CREATED

    def runs(self) -> bool:
        return self.process is not None and is_alive(self.process)


class Eye:
    """Looks at one attempt."""

    def __init__(self, state: Path, plan: LocalPlan, attempt: AttemptId, ranks: int, checkpoints: Path) -> None:
        self.plan, self.attempt, self.ranks, self._checkpoints = plan, attempt, ranks, checkpoints
        self._paths = {
            host: HostPaths(
                host_dir=str(local.host_dir(state, host)),
                memory_dir=str(local.memory_dir(plan, host)),
                jobs_dir=str(state / "jobs"),
            )
            for host in plan.hosts
        }

    def paths(self, host: HostId) -> HostPaths:
        return self._paths[host]

    def epoch(self) -> int:
        """The newest epoch of which a host has boards; 0 if there is none."""
        return max((epoch for host in self.plan.hosts for epoch in self._epochs(host)), default=0)

    def _epochs(self, host: HostId) -> list[int]:
        found = self._paths[host].attempt(self.attempt).glob("epoch-*")
        return [int(path.name.removeprefix("epoch-")) for path in found]

    def seats(self, epoch: int) -> list[Seat]:
        """The ranks of an epoch on hosts that still have their memory, in rank order."""
        return sorted((seat for host in self.plan.hosts for seat in self._on(host, epoch)), key=lambda seat: seat.rank)

    def _on(self, host: HostId, epoch: int) -> Iterator[Seat]:
        directory = self._paths[host].epoch(self.attempt, epoch)
        record = read_or_none(directory / "group.json")
        workers = decode(record, RunningGroup).workers if record is not None else ()
        processes = {worker.rank: worker.process for worker in workers}
        for path in directory.glob("board-*"):
            rank = int(path.name.removeprefix("board-"))
            yield Seat(epoch=epoch, rank=rank, host=host, board=str(path), process=processes.get(rank))

    def seat(self, rank: int) -> Seat | None:
        """The newest seat of a rank whose host lives."""
        for epoch in range(self.epoch(), 0, -1):
            for seat in self.seats(epoch):
                if seat.rank == rank:
                    return seat
        return None

    def keeper(self, host: HostId) -> ProcessName | None:
        """The keeper of the attempt on a host, if it runs."""
        record = read_or_none(self._paths[host].keeper(self.attempt))
        keeper = decode(record, ProcessName) if record is not None else None
        return keeper if keeper is not None and is_alive(keeper) else None

    def vault(self, host: HostId) -> ProcessName | None:
        """The vault of the attempt on a host, if it runs: the child of the keeper that gives way to the others."""
        return next((child for child in self._children(host) if _gives_way(child)), None)

    def standby(self, host: HostId) -> ProcessName | None:
        """A worker that the keeper of a spare started ahead, if it runs."""
        return next((child for child in self._children(host) if not _gives_way(child)), None)

    def _children(self, host: HostId) -> list[ProcessName]:
        """What the keeper has forked."""
        keeper = self.keeper(host)
        listed = read_or_none(Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")) if keeper is not None else None
        children = [name_of(int(pid)) for pid in (listed or b"").split()]
        return [child for child in children if child is not None and is_alive(child)]

    def spares(self) -> list[HostId]:
        """Hosts that keep the attempt warm and hold no rank of its newest epoch."""
        members = {seat.host for seat in self.seats(self.epoch())}
        return [host for host in self.plan.hosts if host not in members and self.keeper(host) is not None]

    def busy(self) -> list[HostId]:
        """Hosts whose agents have not done all that they were asked: a keeper that is not warm yet, for one."""
        return [host for host in self.plan.hosts if not self._is_idle(host)]

    def _is_idle(self, host: HostId) -> bool:
        open_effects: dict[EffectId, bool] = {}
        for raw in (read_or_none(self._paths[host].journal) or b"").splitlines(keepends=True):
            line = decode(raw, JournalLine) if raw.endswith(b"\n") else JournalLine()
            if line.entry is not None:
                open_effects[line.entry.effect] = line.entry.outcome is None
            for effect in line.dropped:
                open_effects.pop(effect, None)
        return not any(open_effects.values())

    def is_at(self, moment: Moment, after: int) -> bool:
        """Whether the job is there now. `after`: for moments of a re-forming, the epoch that was broken."""
        if moment in (Moment.SAVE, Moment.PUBLISH):
            return self._saves(published_next=moment is Moment.PUBLISH)
        if moment in (Moment.COPY, Moment.REPLICATION):
            return any(_is_held(arena, moment) for arena in self._arenas())
        phases = [seat.phase() for seat in self.seats(self.epoch())] if self.epoch() > after else []
        if moment is Moment.STOPPED:
            inside = sum(seat.runs() and not self._is_told(seat) for seat in self.seats(after))
            return inside < self.ranks - 1 and max(phases, default=Phase.CREATED) is Phase.CREATED
        if moment is Moment.ADRIFT:
            adrift = any(self._is_told(seat) and seat.runs() for seat in self.seats(after))
            return adrift and max(phases, default=Phase.CREATED) is Phase.CREATED
        if moment is Moment.JOINING:
            return any(Phase.SPAWNED <= phase <= Phase.ATTACHED for phase in phases)
        assert moment is Moment.FIRST_STEP, moment
        return Phase.RESTORED in phases

    def _is_told(self, seat: Seat) -> bool:
        """Whether its end in the epoch was told. A rank that is out of it and lives is adrift."""
        return self._paths[seat.host].exit_record(self.attempt, seat.epoch, seat.rank).exists()

    def _arenas(self) -> Iterator[Arena]:
        for seat in self.seats(self.epoch()):
            arena = map_file(self._paths[seat.host].arena(self.attempt, seat.rank))
            if arena is not None:
                yield arena

    def _saves(self, published_next: bool) -> bool:
        """Whether a save of the newest epoch is under way; `published_next`: and has only its rename left."""
        epoch = self.epoch()
        for path in self._checkpoints.glob(".staging-step-*"):
            save = unpublished_of(path.name)
            if save is not None and save.epoch == epoch and (not published_next or (path / MANIFEST_NAME).exists()):
                return True
        return False


def _gives_way(process: ProcessName) -> bool:
    try:
        return os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    except ProcessLookupError:
        return False


def _is_held(arena: Arena, moment: Moment) -> bool:
    """Whether a snapshot is being taken, or one that is whole is not yet at a peer."""
    whole = arena.snapshots()
    newest = whole[0].sequence if whole else 0
    if moment is Moment.COPY:
        return newest > arena.parts > len(whole)
    return newest > arena.word("replicated_sequence") > 0


class Steps:
    """The lines that a job writes, read on from where the last look ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.lines: dict[int, list[Line]] = {}

    def look(self) -> None:
        for path in self._directory.glob("metrics-*.jsonl"):
            done = self._read.get(path, 0)
            if path.stat().st_size == done:
                continue
            with path.open("rb") as stream:
                stream.seek(done)
                whole = stream.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = done + len(whole) + 1
                epoch = int(path.stem.rpartition("-e")[2])
                self.lines.setdefault(epoch, []).extend(decode(raw, Line) for raw in whole.split(b"\n"))

    def newest(self) -> int:
        """The newest step that is done; 0 if there is none."""
        self.look()
        return max((lines[-1].step for lines in self.lines.values()), default=0)

    def after(self, moment_s: float, least_epoch: int) -> tuple[int, Line] | None:
        """The first step that ended after a moment, in this epoch or a later one; with its epoch."""
        self.look()
        found = [
            (epoch, line)
            for epoch, lines in self.lines.items()
            if epoch >= least_epoch
            for line in lines
            if line.time_s > moment_s
        ]
        return min(found, key=lambda pair: pair[1].time_s, default=None)


def until(what: str, look: Callable[[], object], deadline_s: float, every_s: float = LOOK_S) -> None:
    """Waits for a condition. Raises `AssertionError` with `what` if it does not come in time."""
    end = time.monotonic() + deadline_s
    while not look():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(every_s)
