"""Manifest, publishing, retention, choice and order of samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.machine import IllegalTransition
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.checkpoint.listing import (
    Entry,
    Problem,
    Unpublished,
    own_steps,
    owner_tag,
    parts_name,
    published_steps,
    staging_name,
    step_name,
    step_of,
    torn_name,
    unpublished_of,
)
from trainmaster.core.checkpoint.manifest import FileEntry, Manifest, Observed, check, repeats
from trainmaster.core.checkpoint.order import permuted, sample_at
from trainmaster.core.checkpoint.position import Position, audit_epoch, proceed
from trainmaster.core.checkpoint.publish import MACHINE, Stage
from trainmaster.core.checkpoint.retention import retire
from trainmaster.core.checkpoint.select import Fresh, Refused, Resume, Verify, select
from trainmaster.core.checkpoint.space import Volume, before_save, explain

JOB = JobId("job-1")
BAD = (Problem(token="short-file", sentence="a is short"),)
MANIFEST = Manifest(
    schema=1,
    job=JOB,
    attempt=AttemptId("job-1.a1"),
    epoch=1,
    step=8,
    world=2,
    position=Position(samples=64, global_batch=8, step=8),
    files=(FileEntry(name="a", size_bytes=10, crc32=7), FileEntry(name="b", size_bytes=20, crc32=8)),
    writer="host-1",
)
WHOLE = (Observed(name="a", size_bytes=10, crc32=7), Observed(name="b", size_bytes=20, crc32=8))


def test_a_manifest_survives_the_wire_and_names_its_content() -> None:
    assert decode(encode(MANIFEST), Manifest) == MANIFEST
    assert MANIFEST.digest() == MANIFEST.but(files=MANIFEST.files[::-1], step=9).digest()
    assert MANIFEST.digest() != MANIFEST.but(files=MANIFEST.files[:1]).digest()
    assert MANIFEST.size_bytes() == 30


def test_two_steps_with_the_same_bytes_are_told() -> None:
    described = MANIFEST.but(step=9, files=(*MANIFEST.files, FileEntry(name=".metadata", size_bytes=1, crc32=1)))
    problem = repeats(described, [MANIFEST, described])
    assert problem is not None
    assert problem.numbers == {"step": 9, "older_step": 8}
    assert repeats(described, [described, MANIFEST.but(files=MANIFEST.files[:1])]) is None


@pytest.mark.parametrize(
    ("seen", "deep", "tokens"),
    [
        (WHOLE, True, []),
        ((*WHOLE, Observed(name="stray", size_bytes=1)), True, []),
        (WHOLE[:1], False, ["missing-file"]),
        ((Observed(name="a", size_bytes=0), WHOLE[1]), False, ["empty-file"]),
        ((Observed(name="a", size_bytes=9), WHOLE[1]), False, ["short-file"]),
        ((Observed(name="a", size_bytes=11), WHOLE[1]), False, ["long-file"]),
        ((Observed(name="a", size_bytes=10), WHOLE[1]), False, []),
        ((Observed(name="a", size_bytes=10), WHOLE[1]), True, ["unread-file"]),
        ((Observed(name="a", size_bytes=10, crc32=0), WHOLE[1]), True, ["checksum-mismatch"]),
        ((), True, ["missing-file", "missing-file"]),
    ],
)
def test_check_finds_what_is_wrong_with_files(seen: tuple[Observed, ...], deep: bool, tokens: list[str]) -> None:
    assert [problem.token for problem in check(MANIFEST, seen, step=8, deep=deep)] == tokens


def test_check_finds_a_manifest_that_does_not_belong() -> None:
    assert [p.token for p in check(MANIFEST, WHOLE, step=9, deep=True)] == ["wrong-step"]
    assert [p.token for p in check(MANIFEST.but(schema=2), WHOLE, step=8, deep=True)] == ["unknown-schema"]
    assert [p.token for p in check(MANIFEST.but(files=()), WHOLE, step=8, deep=True)] == ["no-files"]


@given(st.integers(0, 10**11), st.integers(0, 10**6))
def test_names_are_read_as_they_are_written(step: int, epoch: int) -> None:
    save = Unpublished(step=step, epoch=epoch, owner_tag=owner_tag(JOB))
    assert step_of(step_name(step)) == step
    assert unpublished_of(staging_name(step, epoch, JOB)) == save
    assert unpublished_of(torn_name(step, epoch, JOB)) == save
    assert step_of(staging_name(step, epoch, JOB)) is None
    assert unpublished_of(step_name(step)) is None


@pytest.mark.parametrize(
    "name", ["step-100.backup", "old-step-100", "step-", "step-1\n", "step-१", ".staging-step-1-e", "latest"]
)
def test_names_that_only_resemble_ours_are_not_ours(name: str) -> None:
    assert step_of(name) is None
    assert unpublished_of(name) is None


def test_a_save_takes_the_edges_of_its_table_only() -> None:
    story = MACHINE.step("step-8", (), Stage.STAGED, Stage.WRITTEN, Instant(1), "all ranks wrote and synced")
    with pytest.raises(IllegalTransition, match="staged->written"):
        MACHINE.step("step-8", story, Stage.WRITTEN, Stage.PUBLISHED, Instant(2), "in a hurry")
    assert MACHINE.final_states() == {Stage.TORN}


def entry(name: str, complete: bool = True, owner: str | None = "job-1", attempt: int = 1) -> Entry:
    return Entry(name=name, complete=complete, owner=JobId(owner) if owner else None, attempt=attempt)


def deleted(*entries: Entry, keep: int = 1, epoch: int = 2, in_flight: Unpublished | None = None) -> tuple[str, ...]:
    return retire(entries, keep=keep, job=JOB, attempt=1, epoch=epoch, in_flight=in_flight).delete


def test_retention_never_deletes_the_last_published_one() -> None:
    """Even with one to keep and a save in flight that counts as one."""
    assert deleted(entry("step-1"), in_flight=Unpublished(step=2, epoch=2)) == ()
    assert deleted(entry("step-1"), entry("step-2", complete=False)) == ("step-2",)


def test_retention_leaves_what_belongs_to_others() -> None:
    """Another job's checkpoints neither count nor go; staging of a newer membership or attempt stays."""
    assert deleted(entry("step-1"), entry("step-2", owner="job-2")) == ()
    assert deleted(entry("step-1"), entry("step-0", owner=None), entry("step-2", complete=False, owner=None)) == ()
    assert deleted(entry("step-1"), entry(".staging-step-2-e3", complete=False)) == ()
    assert deleted(entry("step-1"), entry(".staging-step-2-e1", complete=False, attempt=2)) == ()
    assert deleted(entry("step-1"), entry(".staging-step-2-e9", complete=False, attempt=0)) == (".staging-step-2-e9",)
    assert deleted(entry("step-1"), entry(".torn-step-2-e2", complete=True)) == (".torn-step-2-e2",)
    others = JobId("job-2")
    for name in (staging_name(2, 1, others), parts_name(2, 1, others), torn_name(2, 1, others)):
        assert deleted(entry("step-1"), entry(name, complete=False, owner=None, attempt=0)) == ()  # no mark yet
    assert deleted(entry("step-1"), entry(staging_name(2, 1, JOB), complete=False, owner=None, attempt=0)) != ()


@given(
    st.dictionaries(st.integers(0, 40).map(step_name), st.booleans(), max_size=12),
    st.dictionaries(st.integers(0, 40).map(lambda step: staging_name(step, 1, JOB)), st.just(False), max_size=4),
    st.integers(1, 5),
)
def test_retention_keeps_the_newest_complete_ones(final: dict[str, bool], staged: dict[str, bool], keep: int) -> None:
    entries = [entry(name, complete) for name, complete in {**final, **staged}.items()]
    gone = retire(entries, keep=keep, job=JOB, attempt=1, epoch=1).delete
    left = [each for each in entries if each.name not in gone]
    assert published_steps(left) == published_steps(entries)[:keep]
    assert all(each.complete for each in left)


def test_selection_asks_for_one_verification_at_a_time() -> None:
    """1. Nothing there: fresh. 2. The newest is verified first. 3. If it is bad, the next, and the answer says so."""
    assert select([], {}) == Fresh()
    assert select([4, 8, 12], {}) == Verify(step=12)
    assert select([4, 8, 12], {12: ()}) == Resume(step=12, sentence="")
    assert select([4, 8, 12], {12: BAD}) == Verify(step=8)
    choice = select([4, 8, 12], {12: BAD, 8: BAD, 4: ()})
    assert isinstance(choice, Resume)
    assert choice.step == 4
    assert choice.sentence == (
        "resumed from step 4, not from the newest published step 12: a is short"
        " (2 checkpoints passed over, 8 steps to replay)"
    )


def test_selection_refuses_rather_than_starts_over() -> None:
    for choice, token in (
        (select([4, 8], {4: BAD, 8: BAD}), "no-checkpoint-verifies"),
        (select([4, 8], {}, requested=5), "no-such-checkpoint"),
        (select([4, 8], {4: BAD}, requested=4), "checkpoint-invalid"),
    ):
        assert isinstance(choice, Refused)
        assert choice.problem.token == token
    assert select([4, 8], {}, requested=4) == Verify(step=4)


@given(st.integers(1, 3000), st.integers())
def test_an_order_is_a_permutation(size: int, seed: int) -> None:
    assert audit_epoch((permuted(place, size, seed) for place in range(size)), size).problems == ()


def test_an_order_depends_on_seed_and_epoch_and_looks_shuffled() -> None:
    """Pinned values: a change of the order would break the resume of every running job."""
    epochs = [[sample_at(epoch * 64 + place, 64, 1) for place in range(64)] for epoch in (0, 1)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != [sample_at(place, 64, 2) for place in range(64)]
    assert sorted(epochs[1]) == list(range(64))
    neighbours = sum(abs(a - b) == 1 for a, b in zip(epochs[0], epochs[0][1:], strict=False))
    assert neighbours < 8
    assert epochs[0][:6] == [49, 45, 38, 0, 6, 12]


def test_uneven_shares_are_told() -> None:
    told = proceed(Position(samples=80, global_batch=8, step=10), 3, 8)
    assert (told.first_sample, told.share_max, told.share_min) == (80, 3, 2)
    assert [warning.token for warning in told.warnings] == ["uneven-share"]


@pytest.mark.parametrize(
    ("kind", "free", "inodes", "suspect", "command"),
    [
        ("ext4", 0, 1, "volume", "df -h /v"),
        ("ext4", 500, 1, "quota", "quota -s; df -h /v"),
        ("ext4", 500, 100, "inodes", "df -i /v"),
        ("lustre", 500, 1, "storage-target-or-quota", "lfs df -h /v"),
        ("beegfs", 500, 1, "storage-target-or-quota", "df -h /v"),
        ("lustre", 10, 1, "volume", "df -h /v"),
    ],
)
def test_a_shortage_has_a_suspect(kind: str, free: int, inodes: int, suspect: str, command: str) -> None:
    volume = Volume(path="/v", kind=kind, size_bytes=1000, free_bytes=free, inodes_used_percent=inodes)
    shortage = explain(volume, needed_bytes=100, written_bytes=40)
    assert (shortage.suspect, shortage.next_command, shortage.resumable) == (suspect, command, False)


def test_a_save_that_cannot_fit_is_not_tried() -> None:
    volume = Volume(path="/v", kind="ext4", size_bytes=1000, free_bytes=99, inodes_used_percent=1)
    assert [problem.token for problem in before_save(volume, 100)] == ["no-space"]
    assert before_save(volume, 99) == ()


def test_a_job_goes_on_from_its_own_checkpoints() -> None:
    """1. Another job is further in the same directory: its checkpoints are passed over. 2. Before the job has published
    any, it may go on from whatever is there."""
    mine, other = JobId("job-1"), JobId("job-2")
    entries = [
        Entry(name="step-00000010", complete=True, owner=mine),
        Entry(name="step-00000020", complete=False, owner=mine),
        Entry(name="step-00000030", complete=True, owner=other),
        Entry(name="step-00000040", complete=True),
    ]
    for began in (None, 0, 30):
        assert own_steps(entries, mine, began) == (10,)
        assert own_steps([], mine, began) == ()
    new = JobId("job-3")
    assert own_steps(entries, new, None) == (40, 30, 10)  # its very start
    assert own_steps(entries, new, 0) == ()  # it began anew: what came there since is not its own past
    assert own_steps(entries, new, 30) == (30,)
    assert own_steps(entries, new, 20) == ()
