"""The index, the seal, who counts for retention, who writes what, who writes slowly."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.checkpoint.balance import shares
from trainmaster.core.checkpoint.index import Chunk, Index, Plain, Tensor, gaps, lost_moments, rows, within
from trainmaster.core.checkpoint.listing import Entry, step_name
from trainmaster.core.checkpoint.manifest import FileEntry, Manifest, sealed, unsealed
from trainmaster.core.checkpoint.pace import Pace, slow_writers
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.retention import retire

JOB = JobId("job-1")


def chunk(*sizes: int) -> Chunk:
    return Chunk(offsets=(0,) * len(sizes), sizes=sizes, file="f", offset=0, length=1)


@given(st.data())
def test_a_box_lies_in_one_piece_exactly_if_its_elements_follow_each_other(data: st.DataObject) -> None:
    """1. Any box in a chunk of up to three dimensions. 2. Its elements, counted one by one, are the stretch that is
    told, or there is no such stretch. 3. The rows that hold it hold every element of it."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    offsets = [data.draw(st.integers(0, size - 1)) for size in sizes]
    lengths = [data.draw(st.integers(1, size - at)) for size, at in zip(sizes, offsets, strict=True)]
    places = [0]
    for size, at, count in zip(sizes, offsets, lengths, strict=True):
        places = [place * size + at + step for place in places for step in range(count)]
    told = within(chunk(*sizes), offsets, lengths)
    follow = places == list(range(places[0], places[0] + len(places)))
    assert told == ((places[0], len(places)) if follow else None)
    first, count = rows(chunk(*sizes), offsets, lengths)
    assert first <= min(places)
    assert max(places) < first + count


def test_a_scalar_is_one_element_in_one_piece() -> None:
    assert within(chunk(), (), ()) == (0, 1)


def test_a_tensor_that_lacks_a_chunk_is_told() -> None:
    whole = Tensor(dtype="float32", shape=(4, 3), chunks=(chunk(2, 3), chunk(2, 3)))
    assert gaps("w", whole) is None
    problem = gaps("w", whole.but(chunks=whole.chunks[:1]))
    assert problem is not None
    assert problem.sentence == "w has 12 elements, its chunks hold 6"


def index(*names: str) -> Index:
    return Index(tensors={}, values={name: Plain(file="f", offset=0, length=1) for name in names})


@pytest.mark.parametrize(
    ("asked", "lost"),
    [
        (("o.param_groups.0.lr",), True),
        (("o.param_groups.0.lr", "o.state.0.exp_avg"), False),
        (("m.w",), False),
        (("m.w", "o.param_groups.0.lr"), True),
        ((), False),
    ],
)
def test_moments_nobody_asks_for_are_lost_only_beside_groups(asked: tuple[str, ...], lost: bool) -> None:
    stored = index("m.w", "o.param_groups.0.lr", "o.state.0.exp_avg", "o.state.0.step")
    assert (lost_moments(stored, asked) is not None) == lost


MANIFEST = Manifest(
    schema=1, job=JOB, attempt=AttemptId("job-1.a1"), epoch=1, step=8, world=2,
    position=Position(samples=64, global_batch=8, step=8), files=(FileEntry(name="a", size_bytes=10, crc32=7),),
    writer='the host "seal":"x"',
)  # fmt: skip


def test_every_single_changed_byte_of_a_manifest_is_noticed() -> None:
    """1. What was written comes back. 2. Each byte is changed, one after the other: it is no manifest any more, or its
    seal is broken."""
    data = sealed(MANIFEST)
    assert unsealed(data).but(seal=MANIFEST.seal) == MANIFEST
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 0x01]) + data[place + 1 :]
        with pytest.raises((msgspec.MsgspecError, ValueError)):
            unsealed(changed)


def entry(step: int, *, sound: bool | None = None, pin: str = "") -> Entry:
    return Entry(name=step_name(step), complete=True, owner=JOB, attempt=1, sound=sound, pin=pin)


def kept(*entries: Entry, keep: int) -> list[int]:
    plan = retire(entries, keep=keep, job=JOB, attempt=1, epoch=1)
    return [int(name.removeprefix("step-")) for name in plan.keep]


def test_what_is_damaged_does_not_count_and_the_fallback_stays() -> None:
    """1. Nothing known: the newest. 2. The newest is damaged: one more stays. 3. Only an old one was ever read whole:
    it stays. 4. A pinned one stays and does not count. 5. All are damaged: nothing is deleted."""
    assert kept(entry(1), entry(2), entry(3), keep=1) == [3]
    assert kept(entry(1), entry(2), entry(3, sound=False), keep=1) == [2, 3]
    assert kept(entry(1, sound=True), entry(2), entry(3), keep=1) == [1, 3]
    assert kept(entry(1, sound=True), entry(2, sound=True), entry(3), keep=1) == [2, 3]
    assert kept(entry(1, pin="baseline"), entry(2), entry(3), keep=1) == [1, 3]
    assert kept(entry(1, sound=False), entry(2, sound=False), keep=1) == [1, 2]


@given(st.lists(st.tuples(st.integers(1, 100), st.sets(st.integers(0, 3), min_size=1)), max_size=12))
def test_each_thing_is_written_once_and_by_a_holder(things: list[tuple[int, set[int]]]) -> None:
    holders = {place: sorted(ranks) for place, (_, ranks) in enumerate(things)}
    told = shares(holders, {place: size for place, (size, _) in enumerate(things)}, 4)
    assert all(told[place] in holders[place] for place in holders)


def test_replicas_fill_up_whoever_has_least() -> None:
    """1. Rank 0 alone has 60. 2. Of five things that all four hold, none goes to it until the others have as much."""
    sizes = {"own": 60, "a": 50, "b": 40, "c": 30, "d": 20, "e": 10}
    holders = {name: [0] if name == "own" else [0, 1, 2, 3] for name in sizes}
    assert shares(holders, sizes, 4) == {"own": 0, "a": 1, "b": 2, "c": 3, "d": 3, "e": 2}


def pace(writer: str, mib: int, seconds: float) -> Pace:
    return Pace(writer=writer, size_bytes=mib << 20, duration=round(1e6 * seconds))


def test_a_writer_that_held_the_others_up_has_a_name() -> None:
    """1. One of four at a fifth of the others' rate is named with both rates. 2. One with five times as much at the
    same rate is not. 3. Nor is one that took less than a second, nor one of two."""
    usual = [pace(f"rank {rank} on h{rank}", 1000, 1.0) for rank in range(3)]
    told = slow_writers([*usual, pace("rank 3 on h9", 1000, 5.0)])
    assert [problem.sentence for problem in told] == [
        "rank 3 on h9 wrote its 1000 MiB at 200 MiB/s, the others at 1000 MiB/s: the save waited 5.0 s for it"
    ]
    assert slow_writers([*usual, pace("rank 3 on h9", 5000, 5.0)]) == ()
    assert slow_writers([*usual, pace("rank 3 on h9", 10, 0.9)]) == ()
    assert slow_writers([usual[0], pace("rank 3 on h9", 1000, 50.0)]) == ()
