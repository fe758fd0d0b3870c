"""The workers of one epoch on this host, as the agent sees them: boards, processes, and what was told of them."""

import logging
import math
from collections.abc import Callable

from trainmaster.core.agent.board import Phase, Reading
from trainmaster.core.agent.watch import Told, WorkerExit
from trainmaster.core.agent.wire import GroupProgress, RankProgress
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.value import decode
from trainmaster.core.events import AgentReport
from trainmaster.live.agent.boards import MappedBoard
from trainmaster.live.agent.files import now, read_or_none
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.processes import ProcessName
from trainmaster.live.diagnosis.ranks import Seen

_log = logging.getLogger(__name__)


class Group:
    def __init__(
        self, host: HostId, attempt: AttemptId, epoch: int, paths: HostPaths, report: Callable[[AgentReport], None]
    ) -> None:
        self.attempt, self.epoch, self._paths, self._report = attempt, epoch, paths, report
        self.told = Told(host, attempt, epoch)
        self.boards: dict[int, MappedBoard] = {}
        self.processes: dict[int, ProcessName] = {}
        self._sequence = -1

    def make_boards(self, ranks: range) -> None:
        """Fresh boards for a launch. Raises `OSError`."""
        directory = self._paths.epoch(self.attempt, self.epoch)
        directory.mkdir(parents=True, exist_ok=True)
        for rank in ranks:
            self.boards[rank] = MappedBoard(self._paths.board(self.attempt, self.epoch, rank), fresh=True)

    def adopt_boards(self) -> None:
        """Maps the boards that an earlier agent process made."""
        for path in sorted(self._paths.epoch(self.attempt, self.epoch).glob("board-*")):
            rank = int(path.name.removeprefix("board-"))
            try:
                self.boards[rank] = MappedBoard(path, fresh=False)
            except ValueError as error:  # the agent died between making the file and clearing it: no worker had it
                _log.warning("%s", error)

    def living(self) -> list[int]:
        """Ranks whose end was not told."""
        return [rank for rank in self.boards if not self.told.has_exited(rank)]

    def reading(self, rank: int) -> Reading:
        return self.boards[rank].read()

    def seen(self) -> dict[int, Seen]:
        """All ranks, also those that have ended, for a look from outside."""
        place = (self.attempt, self.epoch)
        return {
            rank: Seen(
                rank,
                self.processes[rank].pid if rank in self.processes and not self.told.has_exited(rank) else None,
                self._paths.ring(*place, rank),
                self._paths.stacks(*place, rank),
                board.read(),
            )
            for rank, board in self.boards.items()
        }

    def speaks(self) -> bool:
        """Whether rank 0, which speaks for the epoch, runs here."""
        return 0 in self.boards and not self.told.has_exited(0)

    def look(self) -> None:
        """Tells what is new on the board of rank 0. Cheap when nothing moved."""
        assert self.speaks()
        board = self.boards[0]
        sequence = board.integer("sequence")
        if sequence != self._sequence:
            self._sequence = sequence
            self._tell(self.told.look(board.read(), now()))

    def _tell(self, events: tuple[AgentReport, ...]) -> None:
        for event in events:
            self._report(event)

    def exited(self, fact: WorkerExit) -> None:
        """Tells the end of a worker, once."""
        if fact.rank not in self.boards:
            _log.error("%s epoch %d: exit of rank %d, which has no board", self.attempt, self.epoch, fact.rank)
            return
        reading = self.reading(fact.rank)
        if fact.rank == 0:
            self._tell(self.told.look(reading, fact.at))
        record = read_or_none(self._paths.error_record(self.attempt, self.epoch, fact.rank))
        event = self.told.exited(fact, reading, record)
        if event is not None:
            self._report(event)

    def collect_records(self) -> None:
        """Tells the ends that the keeper recorded while nobody listened."""
        for rank in self.living():
            data = read_or_none(self._paths.exit_record(self.attempt, self.epoch, rank))
            if data is not None:
                self.exited(decode(data, WorkerExit))

    def progress(self) -> GroupProgress:
        return GroupProgress(
            attempt=self.attempt,
            epoch=self.epoch,
            ranks=tuple(_progress(rank, self.reading(rank)) for rank in sorted(self.living())),
        )

    def close(self) -> None:
        for board in self.boards.values():
            board.close()
        self.boards.clear()


def _progress(rank: int, reading: Reading) -> RankProgress:
    return RankProgress(
        rank=rank,
        phase=int(reading.phase),
        step=reading.step if reading.phase >= Phase.ATTACHED else -1,
        step_at=reading.step_at,
        loss=reading.loss if math.isfinite(reading.loss) else None,
        step_s=reading.step_s,
        published_step=reading.published_step,
        note=reading.note,
    )
