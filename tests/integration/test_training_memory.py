"""Snapshots in the memory of hosts: real ranks with gloo die, and go on from it to the bit, at whatever world size.

A host is a directory here; what its vault would do, a copy of its ranks' snapshots at a peer, the test does by hand.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.training_cluster import STEPS, TINY, Membership, Warm, hexes

from trainmaster.core.agent.board import Origin
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.storage.arena import Arena, map_file, open_file
from trainmaster.storage.checksum import crc32

pytestmark = [pytest.mark.real, pytest.mark.torch]


def hosts_of(root: Path, ranks_each: int = 1) -> Callable[[int], Path]:
    """Each host has so many ranks."""

    def host_of(rank: int) -> Path:
        folder = root / "memory" / f"host-{rank // ranks_each}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    return host_of


def replicate(host_of: Callable[[int], Path], rank: int, peer: int) -> Arena:
    """A copy of the snapshots of a rank at the host of another one, as a vault leaves it: summed."""
    mine = map_file(host_of(rank) / f"arena-{rank}")
    assert mine is not None
    copy = open_file(host_of(peer) / f"replica-{rank}", mine._table_bytes + 4096, mine._payload_bytes, mine.parts)
    for snapshot in reversed(mine.snapshots()):
        part = copy.begin()
        assert part is not None
        size = len(snapshot.payload)
        part.payload[:size] = snapshot.payload
        blocks = [snapshot.payload[start : start + BLOCK_BYTES] for start in range(0, size, BLOCK_BYTES)]
        part.commit(snapshot.table.but(sums="".join(f"{crc32(block):08x}" for block in blocks)), size)
    return copy


def flip(arena: Arena | None) -> None:
    """One bit of the newest snapshot, in the middle of a tensor."""
    assert arena is not None
    newest = arena.newest()
    assert newest is not None
    place = max(newest.table.items, key=lambda item: item.length)
    newest.payload[place.payload + place.length // 2] ^= 4


def lose(host: Path) -> None:
    shutil.rmtree(host)
    host.mkdir()


def origins(job: Membership) -> list[Origin]:
    return [board.read().origin for board in job.boards]


def killed_after(warm: Warm, root: Path, step: int, *flags: str, **options: object) -> None:
    """Four ranks train, and die after a step."""
    with Membership(warm, root, STEPS, *TINY, "--step-sleep=0.05", *flags, **options) as job:  # type: ignore[arg-type]
        job.wait_step(step)
        job.kill()
        job.codes()


def test_ranks_die_and_go_on_from_their_own_memory(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. All ranks die after step 6; nothing was ever saved. 2. They go on from a step that is hardly older, without a
    file. 3. Twice. 4. The losses are those of the undisturbed run, replayed ones included."""
    memory = hosts_of(tmp_path)
    killed_after(warm, tmp_path, 6, memory=memory)
    with Membership(warm, tmp_path, STEPS, *TINY, "--step-sleep=0.05", epoch=2, memory=memory) as job:
        job.wait_step(9)
        restored = job.boards[0].read()
        assert restored.restored_step in (4, 5, 6)
        assert {board.read().restored_step for board in job.boards} == {restored.restored_step}
        assert set(origins(job)) == {Origin.OWN_MEMORY}
        assert f"resumed from step {restored.restored_step} (own memory on 4 of 4 ranks)" in job.errors()
        job.kill()
        job.codes()
    assert not job.checkpoints.exists()
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=3, memory=memory) as job:
        job.finish()
        assert job.boards[0].read().restored_step in (7, 8, 9, 10)
        assert [path.name for path in sorted(job.checkpoints.iterdir())] == ["step-00000012"]
    assert hexes(tmp_path) == undisturbed


def test_a_host_is_lost_and_its_peer_has_its_state(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. All die; the memory of rank 2's host is gone, its copy is with rank 0's. 2. The new rank 2 gets its state from
    there, the others have theirs. 3. Its own snapshots are there again after a step."""
    memory = hosts_of(tmp_path)
    killed_after(warm, tmp_path, 6, memory=memory)
    replicate(memory, 2, 0)
    lose(memory(2))
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2, memory=memory) as job:
        job.finish()
        assert set(origins(job)) == {Origin.PEER_MEMORY}  # the farthest of all ranks: one had none of its own
        assert "own memory on 3 of 4 ranks, peer memory on 1" in job.errors()
        assert job.boards[2].read().restored_step >= 4
    assert hexes(tmp_path) == undisturbed
    own = map_file(memory(2) / "arena-2")
    assert own is not None
    assert own.newest() is not None


def test_a_host_is_lost_without_a_copy(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. A save at step 4, death after 6, a host is gone and nobody has a copy. 2. Storage is what is left, and the job
    says what was lost. 3. What memory held of later steps does not come back later."""
    memory = hosts_of(tmp_path)
    killed_after(warm, tmp_path, 6, memory=memory, every=4)
    lose(memory(1))
    with Membership(warm, tmp_path, STEPS, *TINY, "--step-sleep=0.05", epoch=2, memory=memory) as job:
        job.wait_step(8)
        assert set(origins(job)) == {Origin.STORAGE}
        assert job.boards[3].read().restored_step == 4
        assert re.search(r"resumed from step 4 \(storage\); step \d is lost: memory lacks the shards of 1 of 4 ranks "
                         r"\(rank 1 first\)", job.errors())  # fmt: skip
        job.kill()
        job.codes()
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=3, memory=memory) as job:
        job.finish()
        assert set(origins(job)) == {Origin.OWN_MEMORY}
        assert job.boards[0].read().restored_step >= 6
    assert hexes(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("damaged", "others", "step", "said"),
    [
        ("own", "there", 7, "the snapshot of rank 2: __2_0.distcp has its size but not its content"),
        ("copy", "lost", 1, "a copy of the snapshot of rank 2: __2_0.distcp has its size but not its content"),
        ("both", "there", 1, "the snapshot of rank 2: __2_0.distcp has its size but not its content"),
        ("copy", "there", 7, "a copy of the snapshot of rank 2: __2_0.distcp has its size but not its content"),
    ],
)
def test_a_flipped_bit_is_found_by_the_sums_of_the_copy(
    warm: Warm, tmp_path: Path, damaged: str, others: str, step: int, said: str
) -> None:
    """1. Four ranks have snapshots of steps 1 and 7, and rank 2's have a copy at a peer. 2. One bit of its 7 flips, in
    one of the two or in both; or its own are lost. 3. All ranks take the same: the 7 that is sound, else 1, and say
    why."""
    memory = hosts_of(tmp_path)
    with Membership(warm, tmp_path, "take", "7", module="memory_ranks", memory=memory) as job:
        job.finish()
    copy = replicate(memory, 2, 0)
    if damaged in ("copy", "both"):
        flip(copy)
    if damaged in ("own", "both"):
        flip(map_file(memory(2) / "arena-2"))
    if others == "lost":
        lose(memory(2))
    with Membership(warm, tmp_path, "recall", str(step), module="memory_ranks", epoch=2, memory=memory) as job:
        job.finish()
        assert said in job.errors()


def test_damage_with_nothing_behind_it_is_refused(warm: Warm, tmp_path: Path) -> None:
    """1. All copies of a shard are damaged, and nothing is in storage. 2. Every rank exits with 2 and a sentence: a
    start from zero is nobody's wish."""
    memory = hosts_of(tmp_path)
    killed_after(warm, tmp_path, 6, memory=memory)
    copy = replicate(memory, 2, 0)
    for snapshot in copy.snapshots():
        place = max(snapshot.table.items, key=lambda item: item.length)
        snapshot.payload[place.payload + place.length // 2] ^= 4
    lose(memory(2))
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2, memory=memory) as job:
        assert job.codes() == [2] * 4
        assert "nothing is in storage; requeue the job to start at the beginning" in job.errors()
        assert "Traceback" not in job.errors()


def test_the_newest_of_memory_and_storage_wins(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. A job without snapshots goes on from what memory held, and saves a later step. 2. Storage is newer now. 3. A
    flipped bit there makes memory the newest again."""
    memory = hosts_of(tmp_path)
    none = {"TRAINMASTER_SNAPSHOT_EVERY_STEPS": "0"}
    killed_after(warm, tmp_path, 5, memory=memory)
    killed_after(warm, tmp_path, 9, epoch=2, memory=memory, every=8, environ=none)
    with Membership(warm, tmp_path, "--steps=8", *TINY, epoch=3, memory=memory, environ=none) as job:
        job.finish()
        assert set(origins(job)) == {Origin.STORAGE}
        assert job.boards[0].read().restored_step == 8
    shard = job.checkpoints / "step-00000008" / "__2_0.distcp"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0x10
    shard.write_bytes(data)
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=4, memory=memory) as job:
        job.finish()
        assert set(origins(job)) == {Origin.OWN_MEMORY}
        assert job.boards[0].read().restored_step < 6
    assert hexes(tmp_path) == undisturbed


def test_memory_of_another_attempt_is_not_used(warm: Warm, tmp_path: Path) -> None:
    memory = hosts_of(tmp_path)
    killed_after(warm, tmp_path, 4, memory=memory)
    with Membership(warm, tmp_path, "--steps=3", *TINY, memory=memory, attempt="job-1.a2") as job:
        job.finish()
        assert {(each.restored_step, each.origin) for each in (board.read() for board in job.boards)} == {
            (0, Origin.NOWHERE)
        }


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (4, 3), (3, 1), (4, 4)])
def test_a_state_in_memory_moves_between_numbers_of_ranks(warm: Warm, tmp_path: Path, before: int, after: int) -> None:
    """1. Ranks take snapshots of two steps, one rank a host. 2. Hosts are lost: the second, and those that the smaller
    world has no rank on; copies are with the others. 3. Another number of ranks recalls the newer step, all bits equal.
    4. Without the first host there is nothing."""
    memory = hosts_of(tmp_path)
    with Membership(warm, tmp_path, "take", "7", module="memory_ranks", world=before, memory=memory) as job:
        job.finish()
    for lost in range(1, before):
        if lost == 1 or lost >= after:
            replicate(memory, lost, 2 if after > 2 and lost == 1 and before > 2 else 0)
            lose(memory(lost))
    recalled = {"module": "memory_ranks", "world": after, "memory": memory}
    with Membership(warm, tmp_path, "recall", "7", epoch=2, **recalled) as job:  # type: ignore[arg-type]
        job.finish()
        assert len(job.errors().split()) == after
    lose(memory(0))
    with Membership(warm, tmp_path, "recall", "0", epoch=3, **recalled) as job:  # type: ignore[arg-type]
        job.finish()


def test_two_ranks_a_host_recall_from_its_memory(warm: Warm, tmp_path: Path) -> None:
    """1. Four ranks on two hosts; the second host is lost, its copies are with the first. 2. Its new ranks are sent
    theirs."""
    memory = hosts_of(tmp_path, ranks_each=2)
    with Membership(warm, tmp_path, "take", "5", module="memory_ranks", memory=memory) as job:
        job.finish()
    for rank in (2, 3):
        replicate(memory, rank, 0)
    lose(memory(2))
    with Membership(warm, tmp_path, "recall", "5", module="memory_ranks", epoch=2, memory=memory) as job:
        job.finish()
        assert len(job.errors().split()) == 4
