"""From board readings and exits to events: what is worth telling the server, and telling once.

Rank 0 speaks for its epoch: its board gives the phases and the checkpoints. Phases that passed between two looks are
told all the same, in order, with the instants that the board kept. SAVING is not told: it comes and goes with every
save, and heartbeats show it. What was told already can be rebuilt from the events themselves (`Told.remember`), so a
new agent process goes on where the old one stopped.

How a worker ended is judged from its board before its exit code, because a process that has said FINISHED and is then
aborted by a library's teardown has finished (measured: 10 of 29 clean runs of torch 2.13 with gloo end in SIGABRT).
"""

from typing import Final

from trainmaster.core.agent import failure
from trainmaster.core.agent.board import Origin, Phase, Reading
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import CheckpointFailed, CheckpointPublished, EpochPhase, How, WorkerExited

_PHASE_INSTANTS: Final = (
    (Phase.ATTACHED, "attached_at"),
    (Phase.GROUPED, "grouped_at"),
    (Phase.RESTORED, "restored_at"),
    (Phase.TRAINING, "first_step_at"),
)
_LAST_PHASES: Final = (Phase.YIELDED, Phase.FINISHED)


class WorkerExit(Value):
    """The facts of the end of a worker process, as its keeper saw them."""

    rank: int
    exit_code: int | None
    signal: int | None
    stopped: bool
    """We sent it a signal before it ended."""
    at: Instant
    output: str = ""
    """The end of its output."""
    note: str = ""
    """What we know of the cause and the process could not say."""
    warm: bool = True
    """Another can be forked at once."""


class Told:
    """What was told of one epoch of an attempt on this host. Mutable."""

    def __init__(self, host: HostId, attempt: AttemptId, epoch: int) -> None:
        assert epoch > 0, epoch
        self.host, self.attempt, self.epoch = host, attempt, epoch
        self._phases: set[Phase] = set()
        self._published = -1
        self._failed_saves = 0
        self._exited: set[int] = set()

    def remember(self, event: AgentReport) -> None:
        """An event that an earlier life of the agent told."""
        match event:
            case EpochPhase():
                self._phases.add(event.phase)
            case CheckpointPublished():
                self._published = max(self._published, event.step)
            case CheckpointFailed():
                self._failed_saves += 1
            case WorkerExited():
                self._exited.add(event.rank)
            case _:
                pass

    def has_exited(self, rank: int) -> bool:
        return rank in self._exited

    def look(self, reading: Reading, now: Instant) -> tuple[AgentReport, ...]:
        """What the board of rank 0 says that was not told yet, oldest first."""
        events = self._checkpoints(reading, now) + self._new_phases(reading, now)
        return tuple(sorted(events, key=lambda event: event.at))

    def _new_phases(self, reading: Reading, now: Instant) -> list[AgentReport]:
        reached: list[tuple[Phase, Instant]] = [
            (phase, Instant(int(getattr(reading, name)))) for phase, name in _PHASE_INSTANTS if getattr(reading, name)
        ]
        if reading.phase in _LAST_PHASES:
            reached.append((reading.phase, now))
        new = [(phase, at) for phase, at in reached if phase not in self._phases]
        self._phases.update(phase for phase, _ in new)
        return [self._phase(phase, at, reading) for phase, at in new]

    def _phase(self, phase: Phase, at: Instant, reading: Reading) -> EpochPhase:
        step = reading.restored_step if phase == Phase.RESTORED else reading.step
        note = reading.note if phase == Phase.RESTORED else ""
        known = phase == Phase.RESTORED and reading.origin is not Origin.NOWHERE
        return EpochPhase(
            at=at,
            host=self.host,
            attempt=self.attempt,
            epoch=self.epoch,
            phase=phase,
            step=step,
            note=note,
            origin=reading.origin.name.lower().replace("_", " ") if known else "",
        )

    def _checkpoints(self, reading: Reading, now: Instant) -> list[AgentReport]:
        events: list[AgentReport] = []
        if reading.failed_saves > self._failed_saves:
            self._failed_saves = reading.failed_saves
            detail = reading.note or "no reason given"
            events.append(
                CheckpointFailed(
                    at=now, host=self.host, attempt=self.attempt, epoch=self.epoch, step=reading.step, detail=detail
                )
            )
        if reading.published_step > max(self._published, reading.restored_step):
            self._published = reading.published_step
            events.append(
                CheckpointPublished(
                    at=now,
                    host=self.host,
                    attempt=self.attempt,
                    epoch=self.epoch,
                    step=reading.published_step,
                    stall_s=reading.last_save_s,
                    lag_s=reading.last_lag_s,
                )
            )
        return events

    def exited(self, fact: WorkerExit, reading: Reading, record: bytes | None) -> WorkerExited | None:
        """The event for the end of a worker, with its last board; None if it was told already."""
        if fact.rank in self._exited:
            return None
        self._exited.add(fact.rank)
        how = how_ended(reading.phase, fact)
        attached = reading.attached_at > 0
        told = None
        if how == "failed":
            told = failure.of_exit(record, fact.output, fact.exit_code, fact.signal, fact.at)
            told = told.but(message=fact.note) if fact.note else told
        return WorkerExited(
            at=fact.at,
            host=self.host,
            attempt=self.attempt,
            epoch=self.epoch,
            rank=fact.rank,
            how=how,
            exit_code=fact.exit_code,
            signal=fact.signal,
            attached=attached,
            phase=reading.phase,
            step=reading.step if attached else -1,
            step_at=reading.step_at,
            save_s=reading.save_s,
            failure=told,
            warm=fact.warm,
        )


def how_ended(phase: Phase, fact: WorkerExit) -> How:
    """The word for the end of a worker."""
    assert (fact.exit_code is None) != (fact.signal is None), fact
    if phase == Phase.FINISHED and (fact.exit_code == 0 or fact.signal is not None):
        return "finished"
    if phase == Phase.YIELDED and (fact.exit_code == 0 or fact.signal is not None):
        return "yielded"
    if fact.stopped:
        return "stopped"
    return "finished" if fact.exit_code == 0 else "failed"
