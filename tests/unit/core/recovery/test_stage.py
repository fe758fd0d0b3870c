"""What is said of a job that re-forms, where a look at its ranks would mislead."""

from tests.unit.fixtures import ECHO, failure, job_spec, stage

from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.recovery.stage import before_first_step, forming


def test_a_job_that_starts_and_re_forms() -> None:
    """1. A job is placed: it starts. 2. It trains: its ranks tell. 3. A rank lost its peers and nobody knows why. 4. A
    rank fails: the next epoch begins, with what ended the one before. 5. It trains again."""
    play = stage(3)
    play.submit(job_spec(hosts=2))
    attempt = play.attempt("job-1.a1")
    found = forming(attempt)
    assert found is not None
    assert (found.kind, found.summary) == (
        Kind.FORMING, "the job starts: epoch 1 begins, its hosts are being made ready"
    )  # fmt: skip
    play.train(attempt)
    assert forming(attempt) is None
    assert before_first_step(attempt.epoch) == ""
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO))
    found = forming(attempt)
    assert found is not None
    assert found.summary == "the job re-forms: epoch 1 is over, and what interrupted it is not known yet"
    play.exit(attempt, 1, "failed", failure("ValueError", "bad"))
    found = forming(attempt)
    assert found is not None
    assert found.summary.startswith("the job re-forms: epoch 2 begins, its ")
    assert "ValueError: bad" in found.first_cause
    assert not found.hosts
    play.train(attempt)
    assert forming(attempt) is None
    attempt.epoch.first_step_at = None
    assert before_first_step(attempt.epoch).startswith("epoch 2 has told of no step yet: ")
