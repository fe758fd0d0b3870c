"""Which states are passed over after replicas disagreed."""

from pathlib import Path

from trainmaster.core.base.ids import AttemptId
from trainmaster.training.distrust import Distrust, note, noted

A1 = AttemptId("job-1.a1")


def test_later_steps_of_that_epoch_alone(tmp_path: Path) -> None:
    """1. Epoch 2 agreed for the last time after step 20. 2. Its later steps are not believed; step 20 is, and so
    is what the epochs before and after it took. 3. A second note is kept beside the first."""
    note(tmp_path, Distrust(attempt=A1, epoch=2, after_step=20))
    note(tmp_path, Distrust(attempt=A1, epoch=3, after_step=40))
    first, second = noted(tmp_path)
    assert first.covers(A1, 2, 21)
    assert not first.covers(A1, 2, 20)
    assert not first.covers(A1, 1, 30)
    assert not first.covers(A1, 3, 30)
    assert not first.covers(AttemptId("job-1.a2"), 2, 30)
    assert second.covers(A1, 3, 41)


def test_without_a_job_directory_there_is_nothing(tmp_path: Path) -> None:
    """1. No Trainmaster, or nothing noted. 2. Everything is believed."""
    note(None, Distrust(attempt=A1, epoch=2, after_step=20))
    assert noted(None) == noted(tmp_path) == ()
