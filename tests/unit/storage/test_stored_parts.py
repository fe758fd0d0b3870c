"""Storing by parts: death before every single file operation, writers that were replaced, clocks that go wrong."""

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.checkpoint.index import Form, Outline, Stored
from trainmaster.core.checkpoint.listing import parts_name, published_steps, staging_name, step_name
from trainmaster.core.checkpoint.parts import Order
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.retention import retire
from trainmaster.storage import directory, parts, saving, whole
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.parts import Outrun, Shard, Staging, StoreFailed

OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir"})
KILLED = 77
WORLD = 2
SIZE = 1000
OUTLINE = Outline(
    tensors={
        "state": Form(dtype="uint8", shape=(WORLD * SIZE,), boxes=tuple(((r * SIZE,), (SIZE,)) for r in range(WORLD)))
    }
)


def order(root: Path, step: int, epoch: int = 1, keep: int = 1, job: str = "job-1") -> Order:
    return Order(
        directory=str(root), job=JobId(job), attempt=AttemptId(f"{job}.a1"), epoch=epoch, step=step, world=WORLD,
        keep=keep,
    )  # fmt: skip


def at(step: int) -> Position:
    return Position(samples=step, global_batch=1, step=step)


def shard(rank: int, step: int) -> tuple[Shard, memoryview]:
    item = Stored(name="state", offsets=(rank * SIZE,), file=f"__{rank}_0.distcp", offset=0, length=SIZE, payload=0)
    data = bytearray([step % 256]) * SIZE
    return Shard(rank=rank, sequence=step, position=at(step), items=(item,)), memoryview(data)


def store(made: Order) -> None:
    """What the vaults of both ranks do, one after the other."""
    staging = Staging(made, threading.Event())
    staging.open(0)
    if not staging.is_complete():
        for rank in range(WORLD):
            staging.await_opened(1.0)
            told, payload = shard(rank, made.step)
            if not staging.holds(told):
                staging.put(staging.write(told, payload, f"h{rank}"))
        staging.assemble(staging.gather(at(made.step), {}, 1.0), OUTLINE, at(made.step))
    staging.publish()
    staging.retire()


def store_and_die(made: Order, operations: int) -> bool:
    """Stores in a child that dies before its operation of that number; whether it died."""
    child = os.fork()
    if child == 0:
        left = operations

        def count(event: str, _: tuple[object, ...]) -> None:
            nonlocal left
            if event in OPERATIONS:
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(count)
        store(made)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


def is_whole(root: Path, step: int) -> bool:
    return whole.verify(whole.Opened(root / step_name(step))) == ()


def test_a_death_at_any_operation_leaves_a_whole_checkpoint_and_work_that_goes_on(tmp_path: Path) -> None:
    """1. Step 1 is published. 2. Whoever stores step 2 dies before its n-th file operation, for every n. 3. The newest
    published one is whole. 4. Another process goes on, and leaves exactly step 2, whole."""
    deaths, dying = 0, True
    while dying:
        root = tmp_path / str(deaths)
        store(order(root, 1))
        dying = store_and_die(order(root, 2), deaths)
        assert is_whole(root, published_steps(directory.look(root))[0]), deaths
        with contextlib.suppress(Outrun):  # it was published just before
            store(order(root, 2))
        Staging(order(root, 2), threading.Event()).retire()
        assert [path.name for path in root.iterdir()] == [step_name(2)], deaths
        assert is_whole(root, 2)
        assert not [name for name in os.listdir(root / step_name(2)) if "part" in name]
        deaths += dying
    assert deaths > 40


def test_a_shard_whose_part_was_put_is_not_touched_again(tmp_path: Path) -> None:
    """A writer that was started anew finds its part there, or the manifest which comes before parts go."""
    staging = Staging(order(tmp_path, 1), threading.Event())
    staging.open(0)
    for rank in range(WORLD):
        told, payload = shard(rank, 1)
        assert not staging.holds(told)
        staging.put(staging.write(told, payload, "h"))
        assert staging.holds(told)
        assert not staging.holds(told.but(sequence=9))
    staging.assemble(staging.gather(at(1), {}, 1.0), OUTLINE, at(1))
    (staging.path / "part-0.json").unlink()
    assert staging.holds(shard(0, 1)[0])


def test_a_writer_that_was_replaced_publishes_nothing(tmp_path: Path) -> None:
    """1. Epoch 1 has all parts of step 5. 2. Epoch 2 publishes step 3, then step 5. 3. Epoch 1 can't any more."""
    old = Staging(order(tmp_path, 5, epoch=1), threading.Event())
    old.open(0)
    for rank in range(WORLD):
        told, payload = shard(rank, 5)
        old.put(old.write(told, payload, "h"))
    old.assemble(old.gather(at(5), {}, 1.0), OUTLINE, at(5))
    new = Staging(order(tmp_path, 3, epoch=2), threading.Event())
    new.open(0)
    with pytest.raises(Outrun) as caught:
        old.publish()
    assert not caught.value.published
    assert published_steps(directory.look(tmp_path)) == ()


def test_two_jobs_store_one_step_in_one_directory(tmp_path: Path) -> None:
    """1. Two jobs store the same step of the same membership, each rank in turn. 2. Retention of each runs meanwhile,
    and touches nothing of the other. 3. One publishes; the other is refused, and what was published is whole."""
    both = [Staging(order(tmp_path, 1, job=job), threading.Event()) for job in ("job-1", "job-2")]
    for staging in both:
        staging.open(0)
    for rank in range(WORLD):
        for value, staging in enumerate(both):
            told, payload = shard(rank, 1)
            payload[:] = bytes([value]) * SIZE
            staging.put(staging.write(told, payload, f"h{rank}"))
            assert [each.retire() for each in both] == ["", ""]
    for staging in both:
        staging.assemble(staging.gather(at(1), {}, 1.0), OUTLINE, at(1))
    both[1].publish()
    with pytest.raises(FileExistsError, match="is not this job's"):
        both[0].publish()
    final = tmp_path / step_name(1)
    assert {(final / f"__{rank}_0.distcp").read_bytes() for rank in range(WORLD)} == {b"\x01" * SIZE}
    assert directory.read_manifest(final).job == "job-2"
    assert both[0].discard("refused", 0) == "refused"
    assert os.listdir(tmp_path) == [step_name(1)]


def test_who_moved_something_newer_aside_puts_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. An older membership looks: what has the name is older still. 2. In that moment a newer one publishes. 3. The
    older one has moved the newer one aside, sees that, and puts it back."""
    final = tmp_path / step_name(1)
    mark = OwnerMark(job=JobId("job-1"), attempt=1, epoch=2)
    store(order(tmp_path, 1, epoch=1))
    staging = tmp_path / parts_name(1, 2, mark.job)
    directory.open_staging(staging, mark)
    stays, looks = saving._stays, []

    def while_another_publishes(path: Path, by: OwnerMark, fenced: bool) -> bool:
        found = stays(path, by, fenced)
        looks.append(path)
        if len(looks) == 1:
            directory.remove(path)
            monkeypatch.setattr(saving, "_stays", stays)
            store(order(tmp_path, 1, epoch=3))
        return found

    monkeypatch.setattr(saving, "_stays", while_another_publishes)
    assert saving.publish_once(staging, final, mark) is False
    owner = directory.owner_of(final)
    assert owner is not None
    assert owner.epoch == 3
    assert is_whole(tmp_path, 1)


def test_who_moved_another_jobs_checkpoint_aside_puts_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A save looks: what has the name is its own and older. 2. In that moment another job publishes there. 3. The
    save has moved that aside, sees it, puts it back, and is refused."""
    final = tmp_path / step_name(1)
    store(order(tmp_path, 1, epoch=1))
    other = tmp_path / "other"
    directory.open_staging(other, OwnerMark(job=JobId("job-2"), attempt=1, epoch=1))
    mark = OwnerMark(job=JobId("job-1"), attempt=1, epoch=2)
    staging = tmp_path / staging_name(1, 2, mark.job)
    directory.open_staging(staging, mark)
    stays = saving._stays

    def while_another_publishes(path: Path, by: OwnerMark, fenced: bool) -> bool:
        found = stays(path, by, fenced)
        if other.exists():
            directory.remove(path)
            other.rename(final)
        return found

    monkeypatch.setattr(saving, "_stays", while_another_publishes)
    with pytest.raises(FileExistsError, match="not this job's"):
        saving.publish(staging, final, mark)
    owner = directory.owner_of(final)
    assert owner is not None
    assert owner.job == "job-2"
    assert staging.is_dir()


def test_clocks_of_hosts_say_nothing_about_what_is_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Step 2 is published by a host whose clock is a year behind, and its files are dated so. 2. It is the newest,
    and retention keeps it."""
    year_s = 365 * 86400
    store(order(tmp_path, 1, keep=5))
    present = parts.time.time_ns()
    monkeypatch.setattr(parts.time, "time_ns", lambda: present - year_s * 10**9)
    store(order(tmp_path, 2, keep=5))
    for path in (tmp_path / step_name(2), *(tmp_path / step_name(2)).iterdir()):
        os.utime(path, (present / 1e9 - year_s, present / 1e9 - year_s))
    older, newer = (directory.read_manifest(tmp_path / step_name(step)) for step in (1, 2))
    assert newer.written_at < older.written_at
    entries = directory.look(tmp_path)
    assert published_steps(entries) == (2, 1)
    assert retire(entries, keep=1, job=JobId("job-1"), attempt=1, epoch=1).delete == (step_name(1),)


def test_a_slow_writer_is_named_though_it_is_published(tmp_path: Path) -> None:
    """1. Four ranks write; rank 2 took a hundred times as long. 2. The complaint names it and its host."""
    boxes = tuple(((rank * SIZE,), (SIZE,)) for rank in range(4))
    outline = Outline(tensors={"state": Form(dtype="uint8", shape=(4 * SIZE,), boxes=boxes)})
    staging = Staging(order(tmp_path, 1).but(world=4), threading.Event())
    staging.open(0)
    for rank in range(4):
        told, payload = shard(rank, 1)
        part = staging.write(told, payload, f"h{rank}")
        assert part.pace is not None
        staging.put(part.but(pace=part.pace.but(duration=2_000_000 if rank == 2 else 20_000)))
    complaint = staging.assemble(staging.gather(at(1), {}, 1.0), outline, at(1))
    assert complaint.startswith("rank 2 on h2 wrote its 0 MiB at 0 MiB/s")
    assert staging.publish() == ""
    assert is_whole(tmp_path, 1)


def test_parts_that_do_not_come_or_are_of_another_moment_end_it(tmp_path: Path) -> None:
    staging = Staging(order(tmp_path, 1), threading.Event())
    staging.open(0)
    told, payload = shard(1, 1)
    staging.put(staging.write(told, payload, "h1"))
    with pytest.raises(StoreFailed, match="nothing came from rank 0 on h0 in 0 s"):
        staging.gather(at(1), {0: "h0"}, 0.0)
    staging.fail(shard(0, 1)[0], "h0", "its disk is gone")
    with pytest.raises(StoreFailed, match="rank 0 on h0: its disk is gone"):
        staging.gather(at(1), {}, 0.0)
    (staging.path / "part-0.json").unlink()
    with pytest.raises(StoreFailed, match="rank 1 on h1 wrote step 1 of epoch 1"):
        staging.gather(at(2), {}, 0.0)
    staging.cancel.set()
    with pytest.raises(StoreFailed, match="given up while 1 of 2 ranks had not written"):
        staging.gather(at(1), {}, 9.0)
    assert staging.discard("why", 0) == "why"
    assert os.listdir(tmp_path) == []


def test_a_writer_that_comes_late_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A store failed, and its directory is being removed. 2. A writer that does not know yet puts its part when all
    files are gone and the directory is not. 3. It is removed all the same. 4. One that puts files without end is told.
    """
    staging = Staging(order(tmp_path, 1), threading.Event())
    staging.open(0)
    told, payload = shard(1, 1)
    late = 1
    remove = os.rmdir

    def remove_late(path: str, **where: int) -> None:
        nonlocal late
        if late:
            late -= 1
            staging.put(staging.write(told, payload, "h1"))
        remove(path, **where)

    monkeypatch.setattr(os, "rmdir", remove_late)
    assert staging.discard("why", 0) == "why"
    assert late == 0
    assert os.listdir(tmp_path) == []
    staging.open(0)
    late = 1000
    name = parts_name(1, 1, JobId("job-1"))
    assert f"why; and {name} could not be removed: [Errno 39]" in staging.discard("why", 0)
    assert late > 900
