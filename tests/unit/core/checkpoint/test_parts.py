"""Checkpoints from parts: when they are whole, when they never will be, and who was outrun."""

import pytest

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.checkpoint.listing import (
    Entry,
    Unpublished,
    owner_tag,
    parts_name,
    staging_name,
    step_name,
    unpublished_of,
)
from trainmaster.core.checkpoint.parts import Order, Part, late, missing, objection, part_name, rank_of
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.publish import outrun_by
from trainmaster.core.checkpoint.retention import retire

JOB = JobId("job-1")
ORDER = Order(directory="/c", job=JOB, attempt=AttemptId("job-1.a2"), epoch=3, step=8, world=4, keep=2)
POSITION = Position(samples=64, global_batch=8, step=8)


def part(rank: int, **changes: object) -> Part:
    made = Part(rank=rank, sequence=5, epoch=3, world=4, position=POSITION, writer=f"h{rank}")
    return made.but(**changes)


def test_names() -> None:
    assert [rank_of(name) for name in (part_name(12), "part-.json", "part-1.json.x", ".part-1.json.9")] == [
        12,
        None,
        None,
        None,
    ]
    assert unpublished_of(parts_name(8, 3, JOB)) == Unpublished(
        step=8, epoch=3, by_parts=True, owner_tag=owner_tag(JOB)
    )
    assert unpublished_of(staging_name(8, 3, JOB)) == Unpublished(step=8, epoch=3, owner_tag=owner_tag(JOB))
    assert unpublished_of(".torn-step-00000008-e3-parts") is None
    assert (ORDER.attempt_number(), ORDER.but(attempt=AttemptId("x")).attempt_number()) == (2, 0)


@pytest.mark.parametrize(
    ("parts", "token", "said"),
    [
        ([], None, ""),
        ([part(0), part(3)], None, ""),
        ([part(0), part(1, failure="[Errno 28] No space")], "part-failed", "rank 1 on h1: [Errno 28] No space"),
        (
            [part(rank, failure="gone") for rank in range(4)],
            "part-failed",
            "rank 0 on h0: gone; rank 1 on h1: gone; rank 2 on h2: gone; and 1 more",
        ),
        ([part(0), part(2, epoch=2)], "part-of-another-moment", "rank 2 on h2 wrote step 8 of epoch 2 with 4 ranks"),
        ([part(1, world=8)], "part-of-another-moment", "with 8 ranks, not step 8 of epoch 3 with 4"),
        ([part(1, position=POSITION.but(samples=63))], "part-of-another-moment", "rank 1 on h1"),
    ],
)
def test_what_speaks_against_parts(parts: list[Part], token: str | None, said: str) -> None:
    problem = objection({each.rank: each for each in parts}, ORDER, POSITION)
    assert (problem.token if problem else None) == token
    assert said in (problem.sentence if problem else "")


def test_those_who_are_late_are_named() -> None:
    assert missing({0: part(0), 2: part(2)}, 4) == (1, 3)
    assert late((1, 3), {1: "h1"}, 20.4).sentence == "nothing came from rank 1 on h1, rank 3 in 20 s"
    assert late(tuple(range(9)), {}, 5.0).sentence.endswith("rank 0, rank 1, rank 2 and 6 more in 5 s")


def entry(name: str, *, attempt: int = 2, epoch: int = 3, complete: bool = True, owner: str = "job-1") -> Entry:
    return Entry(name=name, complete=complete, owner=JobId(owner), attempt=attempt, epoch=epoch)


@pytest.mark.parametrize(
    ("there", "outrun"),
    [
        (entry(step_name(7)), False),
        (entry(step_name(8)), True),
        (entry(step_name(8), complete=False), False),
        (entry(step_name(8), epoch=2), False),
        (entry(step_name(8), epoch=4), True),
        (entry(step_name(3), epoch=4), True),
        (entry(step_name(3), attempt=3, epoch=1), True),
        (entry(step_name(9), attempt=1, epoch=9), False),
        (entry(step_name(9), attempt=3, owner="job-2"), False),
        (entry(staging_name(2, 4, JOB), epoch=0, complete=False), True),
        (entry(parts_name(8, 3, JOB), epoch=0, complete=False), False),
        (entry(parts_name(2, 1, JOB), attempt=3, epoch=0, complete=False), True),
        (entry("step-9.backup", epoch=9), False),
    ],
)
def test_who_was_replaced_publishes_nothing(there: Entry, outrun: bool) -> None:
    found = outrun_by([there], step=8, job=JOB, attempt=2, epoch=3)
    assert (found is not None) == outrun


def test_a_save_from_memory_goes_on_beside_a_synchronous_one() -> None:
    """A synchronous save of the same membership cleans up. A staging directory of a save from memory stays while its
    step is newer than what is published, and goes when it is not; one of an older membership goes."""
    there = [entry(step_name(8))]
    for name, stays in ((parts_name(9, 3, JOB), True), (parts_name(8, 3, JOB), False), (parts_name(9, 2, JOB), False)):
        gone = retire([*there, entry(name, complete=False)], keep=2, job=JOB, attempt=2, epoch=3).delete
        assert gone == (() if stays else (name,))
