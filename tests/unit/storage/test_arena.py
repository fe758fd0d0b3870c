"""Arenas: at every moment, whoever reads and whoever dies, the last whole snapshot is there and none that is not."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.core.checkpoint.index import Outline
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import arena as arenas
from trainmaster.storage.arena import Arena, Part, Table, map_file, newest_in, open_file
from trainmaster.storage.checksum import crc32
from trainmaster.storage.room import refuse_full

BYTES = 10_000


@pytest.fixture
def fd() -> Iterator[int]:
    made = arenas.make("test")
    yield made
    os.close(made)


def table(step: int, rank: int = 0) -> Table:
    position = Position(samples=step, global_batch=1, step=step)
    return Table(rank=rank, world=1, epoch=1, position=position, items=(), outline=Outline(tensors={}))


def begun(arena: Arena) -> Part:
    part = arena.begin()
    assert part is not None
    return part


def write(arena: Arena, step: int) -> int:
    """A whole snapshot, each byte of which is the step; its number."""
    part = begun(arena)
    part.payload[:BYTES] = bytes([step]) * BYTES
    part.commit(table(step), BYTES)
    return part.sequence


def step_of(arena: Arena) -> int:
    """The step of the newest; every byte of it says so."""
    newest = arena.newest()
    if newest is None:
        return 0
    step = newest.table.position.step
    assert bytes(newest.payload) == bytes([step]) * BYTES
    return step


@pytest.mark.parametrize("parts", [2, 3])
def test_whoever_looks_at_whatever_moment_sees_the_last_whole_one(fd: int, parts: int) -> None:
    """1. Six snapshots are written, a tenth at a time. 2. After each tenth another process's view has the one before,
    whole. 3. After the commit it has the new one, and not earlier."""
    mine = Arena(fd, 1000, BYTES, parts)
    theirs = Arena.found(fd)
    assert theirs is not None
    for step in range(1, 7):
        part = begun(mine)
        assert step_of(theirs) == step - 1
        for start in range(0, BYTES, BYTES // 10):
            part.payload[start : start + BYTES // 10] = bytes([step]) * (BYTES // 10)
            assert step_of(theirs) == step - 1
        part.commit(table(step), BYTES)
        assert step_of(theirs) == step


@pytest.mark.parametrize(
    ("words", "steps_kept"),
    [
        ({}, {3}),
        ({"busy_sequence": 2}, {3, 2}),
        ({"replicated_sequence": 1}, {3, 1}),
        ({"busy_sequence": 3, "replicated_sequence": 3}, {3}),
        ({"busy_sequence": 1, "replicated_sequence": 1}, {3, 1}),
        ({"busy_sequence": 1, "replicated_sequence": 2}, {3, 2, 1}),
        ({"busy_sequence": 77, "replicated_sequence": 78}, {3}),
    ],
)
def test_what_is_needed_is_not_written_over(fd: int, words: dict[str, int], steps_kept: set[int]) -> None:
    """1. Three snapshots are whole and the vault says which it needs. 2. The next goes elsewhere, or nowhere."""
    arena = Arena(fd, 1000, BYTES)
    for step in (1, 2, 3):
        write(arena, step)
    for name, value in words.items():
        arena.put_word(name, value)
    part = arena.begin()
    assert (part is None) == (len(steps_kept) == 3)
    left = {snapshot.table.position.step for snapshot in arena.snapshots()}
    assert left >= steps_kept
    assert len(left) == (2 if part else 3)


@pytest.mark.parametrize("later", [0, 1, 2, 3])
def test_a_reader_learns_that_it_was_overtaken(fd: int, later: int) -> None:
    """1. A reader takes the newest of three parts. 2. Meanwhile some more snapshots are taken. 3. It still has what it
    took after one and two of them; a third goes where it reads, and it learns so, before a byte has changed."""
    arena = Arena(fd, 1000, BYTES)
    write(arena, 1)
    held = arena.newest()
    assert held is not None
    for step in range(2, 2 + later):
        write(arena, step)
    assert held.is_whole() == (later < 3)
    assert (bytes(held.payload) == bytes([1]) * BYTES) == (later < 3)
    if later == 2:
        begun(arena)
        assert not held.is_whole()
        assert bytes(held.payload) == bytes([1]) * BYTES


def test_a_process_dies_in_the_middle_of_a_copy(fd: int) -> None:
    """1. A process writes two snapshots and dies within the third. 2. The second is there. 3. Numbers go on."""
    arena = Arena(fd, 1000, BYTES)
    child = os.fork()
    if child == 0:
        write(arena, 1)
        write(arena, 2)
        begun(arena).payload[: BYTES // 2] = bytes([3]) * (BYTES // 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert step_of(arena) == 2
    assert write(arena, 3) == 3
    assert step_of(arena) == 3


def test_steps_that_did_not_happen_are_forgotten(fd: int) -> None:
    """1. A job goes on from step 2 though this rank has 3. 2. Its 3 is dropped, and 2 outlives the next copy."""
    arena = Arena(fd, 1000, BYTES, 2)
    write(arena, 2)
    write(arena, 3)
    arena.forget_after(2)
    assert step_of(arena) == 2
    begun(arena)
    assert step_of(arena) == 2


@pytest.mark.parametrize("damage", ["a bit", "no table", "a length beyond the part"])
def test_damage_of_a_table_makes_the_older_one_the_newest(fd: int, damage: str) -> None:
    """1. The newest of two is damaged. 2. The older one is the newest. 3. The next goes where the damaged one lies."""
    arena = Arena(fd, 1000, BYTES)
    write(arena, 1)
    write(arena, 2)
    write(arena, 3)
    part = begun(arena)
    part.payload[:BYTES] = bytes([4]) * BYTES
    part.commit(table(4), BYTES)
    length, told, _ = arena._slot(part.number)
    if damage == "a bit":
        part.table[3] ^= 8
    elif damage == "no table":
        part.table[:2] = b"{}"
        length, told = 2, crc32(b"{}")
    size = 1 << 40 if damage == "a length beyond the part" else BYTES
    arenas._SLOT.pack_into(arena._memory, arenas._SLOTS_AT + 64 * part.number + 8, length, told, size)
    assert step_of(arena) == 3
    arena.put_word("replicated_sequence", 3)
    again = begun(arena)
    assert again.number == part.number or damage == "no table"
    assert step_of(arena) == 3


def test_words_have_one_writer_and_are_read_by_all(fd: int) -> None:
    arena, other = Arena(fd, 1000, BYTES), Arena.found(fd)
    assert other is not None
    for value, name in enumerate(("busy_sequence", "replicated_sequence", "stored_step", "failed_stores"), 5):
        assert arena.word(name) == 0
        other.put_word(name, value)
        assert arena.word(name) == value
    other.put_note("the disk is full: " + "ä" * 3000)
    assert arena.note().startswith("the disk is full: ä")
    write(arena, 1)
    assert arena.word("busy_sequence") == 5


def test_a_file_keeps_what_fits_and_moves_aside_what_does_not(tmp_path: Path) -> None:
    """1. An arena is made, and opened again a little larger: the snapshot is there. 2. One of twice the size takes its
    place; the old one stands beside it, and who had mapped it still reads it. 3. An empty one is not kept."""
    path = tmp_path / "arena-0"
    write(open_file(path, 1000, BYTES), 1)
    assert step_of(open_file(path, 1001, BYTES + 20)) == 1
    mapped = map_file(path)
    assert mapped is not None
    larger = open_file(path, 1000, 300 * BYTES)
    assert larger.newest() is None
    assert step_of(mapped) == 1
    old = map_file(arenas.before(path))
    assert old is not None
    assert step_of(old) == 1
    open_file(path, 1000, 900 * BYTES)
    assert step_of(map_file(arenas.before(path)) or larger) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["arena-0", "arena-0.before"]
    assert path.stat().st_mode & 0o77 == 0


def test_what_is_no_arena_is_none(tmp_path: Path, fd: int) -> None:
    assert map_file(tmp_path / "nothing") is None
    assert newest_in(fd) is None
    (tmp_path / "zeros").write_bytes(bytes(9999))
    assert map_file(tmp_path / "zeros") is None
    arena = open_file(tmp_path / "cut", 1000, BYTES)
    os.truncate(tmp_path / "cut", arena.size_bytes - 1)
    assert map_file(tmp_path / "cut") is None


@pytest.mark.parametrize(
    ("available_kb", "limit", "used", "files", "needed_mib", "fits"),
    [
        (8_000_000, None, 0, 0, 6_000, True),
        (8_000_000, None, 0, 0, 7_000, False),  # an eighth of 8 GB is left to others
        (8_000_000, "max", 0, 0, 6_000, True),
        (8_000_000, "4000000000", 1_000_000_000, 0, 2_000, True),
        (8_000_000, "4000000000", 1_000_000_000, 0, 2_600, False),
        (8_000_000, "4000000000", 1_000_000_000, 800_000_000, 2_600, True),
    ],
)
def test_room_is_asked_for_first(
    tmp_path: Path, available_kb: int, limit: str | None, used: int, files: int, needed_mib: int, fits: bool
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        f"MemTotal: 8000000 kB\nMemAvailable: {available_kb} kB\nHugePages_Free: 0\n"
    )
    if limit is not None:
        group = tmp_path / "sys/fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")
    if fits:
        refuse_full(needed_mib << 20, tmp_path)
        return
    with pytest.raises(OSError, match="MiB of memory are needed") as told:
        refuse_full(needed_mib << 20, tmp_path)
    assert told.value.errno == errno.ENOMEM
