"""What is told of a board and of an end, and that it is told once."""

import pytest

from trainmaster.core.agent.board import SIZE, Board, Phase, Reading
from trainmaster.core.agent.watch import Told, WorkerExit, how_ended
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.recovery.events import CheckpointFailed, CheckpointPublished, EpochPhase

NOW = Instant(1_000_000)


def board(**fields: int) -> Board:
    made = Board(memoryview(bytearray(SIZE)))
    made.clear()
    for name, value in fields.items():
        made.put(name, value)
    return made


def reading(**fields: int) -> Reading:
    return board(**fields).read()


def told() -> Told:
    return Told(HostId("h1"), AttemptId("job-1.a1"), 1)


def ended(code: int | None = None, signal: int | None = None, stopped: bool = False) -> WorkerExit:
    return WorkerExit(rank=0, exit_code=code, signal=signal, stopped=stopped, at=NOW)


@pytest.mark.parametrize(
    ("phase", "fact", "how"),
    [
        (Phase.SPAWNED, ended(code=0), "finished"),
        (Phase.SPAWNED, ended(code=1), "failed"),
        (Phase.SPAWNED, ended(code=0, stopped=True), "stopped"),
        (Phase.TRAINING, ended(code=0), "finished"),
        (Phase.TRAINING, ended(signal=9), "failed"),
        (Phase.TRAINING, ended(signal=9, stopped=True), "stopped"),
        (Phase.TRAINING, ended(code=143, stopped=True), "stopped"),
        (Phase.YIELDED, ended(code=0), "yielded"),
        (Phase.YIELDED, ended(code=0, stopped=True), "yielded"),
        (Phase.YIELDED, ended(code=1), "failed"),
        (Phase.FINISHED, ended(code=0), "finished"),
        (Phase.FINISHED, ended(signal=6), "finished"),
        (Phase.FINISHED, ended(code=3), "failed"),
    ],
)
def test_how_a_worker_ended(phase: Phase, fact: WorkerExit, how: str) -> None:
    """1. A worker ended so, with the board in that phase. 2. The word for it."""
    assert how_ended(phase, fact) == how


def test_phases_that_passed_between_two_looks_are_all_told_in_order() -> None:
    """1. The first look finds the worker training already. 2. Four phases are told with their own instants. 3. The next
    look tells nothing."""
    seen = reading(
        phase=Phase.TRAINING, step=41, restored_step=40, attached_at=1, grouped_at=2, restored_at=3, first_step_at=4
    )
    watch = told()
    events = watch.look(seen, NOW)
    assert [(event.phase, event.at, event.step) for event in events if isinstance(event, EpochPhase)] == [
        (Phase.ATTACHED, 1, 41),
        (Phase.GROUPED, 2, 41),
        (Phase.RESTORED, 3, 40),
        (Phase.TRAINING, 4, 41),
    ]
    assert len(events) == 4
    assert watch.look(seen, NOW) == ()


def test_saving_is_not_told_and_finished_is() -> None:
    """1. A save begins. 2. Nothing is told. 3. The script says that it is done: told, at the time of the look."""
    watch = told()
    watch.look(reading(phase=Phase.TRAINING, first_step_at=4), NOW)
    assert watch.look(reading(phase=Phase.SAVING, first_step_at=4), NOW) == ()
    (event,) = watch.look(reading(phase=Phase.FINISHED, first_step_at=4), NOW)
    assert isinstance(event, EpochPhase)
    assert (event.phase, event.at) == (Phase.FINISHED, NOW)


def test_checkpoints_are_told_once() -> None:
    """1. A publish, then a failed save with a note. 2. Each is told once."""
    watch = told()
    page = board(published_step=10, step=10)
    (published,) = watch.look(page.read(), NOW)
    assert isinstance(published, CheckpointPublished)
    assert published.step == 10
    page.put("failed_saves", 1)
    page.put_note("OSError: No space left on device")
    (failed,) = watch.look(page.read(), NOW)
    assert isinstance(failed, CheckpointFailed)
    assert "No space left" in failed.detail
    assert watch.look(page.read(), NOW) == ()


def test_remembered_events_are_not_told_again() -> None:
    """1. An agent told phases, a checkpoint and an end. 2. The next one remembers them and tells none again."""
    first, second = told(), told()
    seen = reading(phase=Phase.TRAINING, attached_at=1, first_step_at=4, published_step=10, failed_saves=1)
    end = first.exited(ended(code=1), seen, None)
    assert end is not None
    for event in (*first.look(seen, NOW), end):
        second.remember(event)
    assert second.look(seen, NOW) == ()
    assert second.exited(ended(code=1), seen, None) is None


def test_end_tells_the_last_step_only_of_an_attached_script() -> None:
    """1. A script without our library has an unknown step. 2. One with it has the step of its board."""
    plain = told().exited(ended(code=0), reading(phase=Phase.SPAWNED), None)
    attached = told().exited(ended(signal=9), reading(phase=Phase.TRAINING, attached_at=1, step=7), None)
    assert plain is not None
    assert attached is not None
    assert (plain.attached, plain.step) == (False, -1)
    assert (attached.attached, attached.step, attached.how) == (True, 7, "failed")
