"""Admission: shares, turns, accounts. A store that does one thing after the other stands behind it."""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.time import Duration, Instant
from trainmaster.core.storage.admission import Admission, Refusal, share_of
from trainmaster.core.storage.classes import KINDS, Kind, Pace, Policy, problems
from trainmaster.core.storage.turns import SaveReport, Turn, report

SMALL: Final = Policy(
    checkpoint_percent=60, data_percent=30, code_percent=10, window_bytes=40, quantum_bytes=10, lease=Duration(1000)
)
RATE: Final = 100_000
"""Bytes a second of the store: ten microseconds a byte."""


class Store:
    """Moves what was granted, in order, at `RATE`; writers want their next piece when one is moved."""

    def __init__(self, policy: Policy) -> None:
        self.now = Instant(0)
        self.admission = Admission(policy, self.now)
        self.left: dict[str, int] = {}
        self.line: deque[tuple[str, int]] = deque()
        self.order: list[tuple[str, int]] = []
        """What was granted, in this order."""
        self.idle = 0
        """Time in which the store did nothing though somebody wanted something."""
        self.turns: dict[str, Turn] = {}

    def comes(self, writer: str, kind: Kind, size_bytes: int, save: str = "", depth: int = 4) -> None:
        self.admission.open(writer, kind, size_bytes if save else 0, self.now, save)
        self.left[writer] = size_bytes
        for _ in range(depth):
            self._want(writer)

    def _want(self, writer: str) -> None:
        piece = min(self.left[writer], self.admission.policy.quantum_bytes)
        if piece:
            self.left[writer] -= piece
            self.admission.want(writer, piece, self.now)

    def step(self) -> bool:
        """Moves one piece; False if there is nothing to do."""
        given = self.admission.grants(self.now)
        self.line += [(grant.writer, grant.size_bytes) for grant in given]
        self.order += [(grant.writer, grant.size_bytes) for grant in given]
        if not self.line:
            later = self.admission.next_at(self.now)
            if later is None:
                return False
            assert later > self.now
            self.idle += later - self.now
            self.now = later
            return True
        writer, size_bytes = self.line.popleft()
        self.now = Instant(self.now + size_bytes * 1_000_000 // RATE)
        self.admission.done(writer, size_bytes, self.now)
        self._want(writer)
        return True

    def ends(self, writer: str) -> None:
        self.line = deque(each for each in self.line if each[0] != writer)
        self.turns[writer] = self.admission.close(writer, self.now)

    def run(self) -> None:
        while self.step():
            pass
        for writer in list(self.left):
            if writer not in self.turns:
                self.ends(writer)

    def report(self, save: str) -> SaveReport:
        return report([turn for turn in self.turns.values() if turn.save == save])


@contextlib.contextmanager
def refused(token: str) -> Iterator[None]:
    with pytest.raises(Refusal) as caught:
        yield
    assert caught.value.problem.token == token


def test_a_save_of_one_writer() -> None:
    """1. A writer of 95 bytes moves them in pieces of 10 at most. 2. Everything is accounted for."""
    store = Store(SMALL)
    store.comes("rank 0", "checkpoint", 95, "step 1")
    store.run()
    told = store.report("step 1")
    assert (told.moved_bytes, told.makespan, told.unfinished) == (95, 950, ())
    assert (told.slowest, told.phase) == ("rank 0", "moving")
    assert store.admission.moved() == store.admission.granted() == {"checkpoint": 95, "data": 0, "code": 0}
    assert store.admission.under_way_bytes == 0


def test_writers_are_staggered_and_the_largest_starts_first() -> None:
    """1. Of eight writers only a window's worth is let in. 2. The largest is first, the others come in turn. 3. The
    last one has spent its time in the queue, and the report names it."""
    store = Store(SMALL)
    for rank in range(8):
        store.comes(f"rank {rank}", "checkpoint", 40 if rank != 5 else 80, "step 1")
    store.step()
    assert {writer for writer, _ in store.order} == {"rank 5"}
    store.run()
    firsts = list(dict.fromkeys(writer for writer, _ in store.order))
    assert firsts == ["rank 5", "rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 6", "rank 7"]
    told = store.report("step 1")
    assert (told.slowest, told.phase, told.writers) == ("rank 7", "queued", 8)
    assert told.makespan == (7 * 40 + 80) * 1_000_000 // RATE
    assert "the last was rank 7: 0.00 s queued" in told.sentence


def test_saves_go_one_after_the_other() -> None:
    """1. Two saves come at once. 2. The first ends when half of all bytes are moved, not at the end of all."""
    store = Store(SMALL)
    for save in ("a", "b"):
        for rank in range(4):
            store.comes(f"{save} {rank}", "checkpoint", 100, save)
    store.run()
    assert store.report("a").makespan <= 4 * 100 * 1_000_000 // RATE
    assert store.report("b").makespan == 8 * 100 * 1_000_000 // RATE


def test_streams_take_turns() -> None:
    """1. Three readers want much. 2. At any time they have had the same, but for what one may want at once."""
    store = Store(SMALL)
    for reader in "xyz":
        store.comes(reader, "data", 1000, depth=2)
    had = dict.fromkeys("xyz", 0)
    while store.step():
        had = {reader: sum(size for writer, size in store.order if writer == reader) for reader in "xyz"}
        if max(had.values()) < 1000:
            assert max(had.values()) - min(had.values()) <= 2 * SMALL.quantum_bytes
    assert set(had.values()) == {1000}


def test_an_idle_class_leaves_its_share_and_gets_it_back() -> None:
    """1. A save is alone and gets all. 2. A reader comes: it is granted something within the stated time. 3. From then
    on it has its share. 4. When it goes, the save gets all again, and the store never stood still."""
    store = Store(SMALL)
    store.comes("rank 0", "checkpoint", 10_000, "step 1")
    for _ in range(100):
        store.step()
    assert share_of(store.admission.moved(), "checkpoint") == 1
    came_at, at = store.now, len(store.order)
    store.comes("reader", "data", 1000)
    while not any(writer == "reader" for writer, _ in store.order[at:]):
        store.step()
    assert store.now - came_at <= SMALL.back_within(RATE)
    at = len(store.order)
    while store.left["reader"]:
        store.step()
    data = sum(size for writer, size in store.order[at:] if writer == "reader")
    assert data / sum(size for _, size in store.order[at:]) == pytest.approx(30 / 90, abs=0.02)
    store.run()
    assert store.now == 11_000 * 1_000_000 // RATE


def test_who_dies_leaves_its_room() -> None:
    """1. A writer holds the whole window. 2. It goes. 3. What it held and wanted is free, and the next one is let in.
    4. The report says that it was not done."""
    store = Store(SMALL)
    store.comes("rank 0", "checkpoint", 400, "step 1")
    store.comes("rank 1", "checkpoint", 40, "step 1")
    store.step()
    store.ends("rank 0")
    assert {grant.writer for grant in store.admission.grants(store.now)} == {"rank 1"}
    store.admission.close("rank 1", store.now)
    assert store.admission.under_way_bytes == 0
    assert report([store.turns["rank 0"]]).unfinished == ("rank 0",)


def test_who_hangs_holds_nobody_up_for_ever() -> None:
    """1. A writer was granted the window and moves nothing. 2. Before its lease is over it keeps it. 3. After it the
    others are let in, and it is named. 4. If it wakes, what it says is still right."""
    admission = Admission(SMALL, Instant(0))
    admission.open("hung", "checkpoint", 400, Instant(0), "step 1")
    admission.open("well", "checkpoint", 10, Instant(0), "step 1")
    for _ in range(4):
        admission.want("hung", 10, Instant(0))
    assert len(admission.grants(Instant(0))) == 4
    admission.want("well", 10, Instant(1))
    assert (admission.lapse(Instant(999)), admission.grants(Instant(999))) == ((), [])
    assert admission.lapse(Instant(1000)) == ("hung",)
    assert [grant.writer for grant in admission.grants(Instant(1000))] == ["well"]
    for at in range(4):
        admission.done("hung", 10, Instant(1001 + at))
    admission.done("well", 10, Instant(1010))
    assert admission.moved()["checkpoint"] == 50
    assert admission.under_way_bytes == 0
    with refused("more-than-granted"):
        admission.done("hung", 1, Instant(1011))


def test_a_pace_is_kept() -> None:
    """1. The bucket is full: a burst goes at once. 2. After it the rate is the pace's, whatever the store could do."""
    policy = SMALL.but(pace=Pace(rate_bytes_s=RATE // 2, depth_bytes=100))
    store = Store(policy)
    store.comes("rank 0", "checkpoint", 1000, "step 1")
    store.run()
    took = store.now
    paced = (1000 - 100) * 1_000_000 // (RATE // 2)
    assert paced - 20 * 20 <= took <= paced + 20 * 20
    assert store.idle > 0


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"data_percent": 31}, "shares-not-whole"),
        ({"data_percent": 0, "checkpoint_percent": 90}, "share-too-small"),
        ({"window_bytes": 19}, "window-too-small"),
        ({"pace": Pace(rate_bytes_s=0, depth_bytes=10)}, "pace-too-small"),
        ({"pace": Pace(rate_bytes_s=1, depth_bytes=9)}, "pace-too-small"),
    ],
)
def test_policies_that_starve_or_stand_still_are_refused(change: dict[str, object], token: str) -> None:
    policy = SMALL.but(**change)
    assert [problem.token for problem in problems(policy)] == [token]
    with pytest.raises(ValueError):
        Admission(policy, Instant(0))
    assert problems(SMALL) == problems(Policy()) == ()


def test_what_writers_may_not_say() -> None:
    """Each refusal has its token, and changes nothing."""
    admission = Admission(SMALL, Instant(0))
    admission.open("rank 0", "checkpoint", 15, Instant(0), "step 1")
    with refused("writer-twice"):
        admission.open("rank 0", "checkpoint", 15, Instant(0), "step 1")
    with refused("bad-writer"):
        admission.open("rank 1", "checkpoint", 0, Instant(0), "step 1")
    with refused("bad-writer"):
        admission.open("rank 1", "gold", 1, Instant(0), "step 1")  # type: ignore[arg-type]
    with refused("no-such-writer"):
        admission.want("rank 1", 1, Instant(0))
    with refused("piece-too-large"):
        admission.want("rank 0", 11, Instant(0))
    admission.want("rank 0", 10, Instant(0))
    with refused("more-than-said"):
        admission.want("rank 0", 6, Instant(0))
    with refused("more-than-granted"):
        admission.done("rank 0", 1, Instant(0))
    assert [grant.size_bytes for grant in admission.grants(Instant(0))] == [10]
    with pytest.raises(AssertionError, match="time goes back"):
        Admission(SMALL, Instant(5)).grants(Instant(4))


WRITERS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(1, 300), st.sampled_from(["", "a", "b"]), st.integers(1, 6),
        st.integers(0, 30),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
"""Class, bytes, save, pieces wanted at once, and after how many steps it comes."""


@settings(max_examples=100, deadline=None)
@given(writers=WRITERS, paced=st.booleans())
def test_everything_moves_and_nothing_stands_still(writers: list[tuple[Kind, int, str, int, int]], paced: bool) -> None:
    """1. Writers of all classes come and move. 2. The window is never overrun. 3. While somebody wants something that
    would fit, the store has work. 4. All end, all bytes are accounted for, and times add up."""
    store = Store(SMALL.but(pace=Pace(rate_bytes_s=RATE, depth_bytes=20)) if paced else SMALL)
    coming = sorted(enumerate(writers), key=lambda each: each[1][4])
    steps = 0
    while True:
        while coming and coming[0][1][4] <= steps:
            number, (kind, size_bytes, save, depth, _) = coming.pop(0)
            store.comes(f"w{number}", kind, size_bytes, save, depth)
        alive = store.step()
        steps += 1
        assert store.admission.under_way_bytes == sum(size for _, size in store.line)
        assert store.admission.under_way_bytes <= SMALL.window_bytes
        store.line += [(grant.writer, grant.size_bytes) for grant in store.admission.grants(store.now)]
        waiting = any(store.admission.waiting(kind) for kind in KINDS)
        if waiting and not paced:
            assert store.admission.under_way_bytes > SMALL.window_bytes - SMALL.quantum_bytes
        if not alive and not coming:
            break
    store.run()
    whole: dict[Kind, int] = dict.fromkeys(KINDS, 0)
    for kind, size_bytes, *_ in writers:
        whole[kind] += size_bytes
    assert store.admission.moved() == store.admission.granted() == whole
    assert store.admission.under_way_bytes == 0
    for turn in store.turns.values():
        assert turn.whole()
        assert turn.queued + turn.shaped + turn.moving + turn.own == turn.since - turn.opened_at
    if not paced:
        assert store.idle == 0


@settings(max_examples=100, deadline=None)
@given(
    shares=st.tuples(st.integers(1, 97), st.integers(1, 97)).filter(lambda two: sum(two) <= 99),
    pieces=st.tuples(*[st.integers(1, 10)] * 3),
    steps=st.integers(5, 400),
)
def test_shares_hold_at_every_moment(shares: tuple[int, int], pieces: tuple[int, int, int], steps: int) -> None:
    """1. All three classes want more than they get, in pieces of sizes of their own. 2. At every moment what two of
    them were granted differs from their shares by one piece of each, at most."""
    percents = dict(zip(KINDS, (*shares, 100 - sum(shares)), strict=True))
    admission = Admission(SMALL.but(**{f"{kind}_percent": share for kind, share in percents.items()}), Instant(0))
    for kind, piece in zip(KINDS, pieces, strict=True):
        admission.open(kind, kind, 0, Instant(0))
        for _ in range(steps):
            admission.want(kind, piece, Instant(0))
    for _ in range(steps):
        for grant in admission.grants(Instant(0)):
            admission.done(grant.writer, grant.size_bytes, Instant(0))
        if not all(admission.waiting(kind) for kind in KINDS):
            break
        granted = admission.granted()
        normal = {kind: granted[kind] / percents[kind] for kind in KINDS}
        allowed = {kind: piece / percents[kind] for kind, piece in zip(KINDS, pieces, strict=True)}
        for one in KINDS:
            for other in KINDS:
                assert normal[one] - normal[other] <= allowed[one] + allowed[other] + 0.01


@settings(max_examples=100, deadline=None)
@given(
    shares=st.tuples(st.integers(1, 97), st.integers(1, 97)).filter(lambda two: sum(two) <= 99),
    others=st.lists(st.sampled_from(["checkpoint", "code"]), min_size=1, max_size=6),
    before=st.integers(0, 100),
    depth=st.integers(1, 8),
)
def test_a_late_class_is_back_in_the_stated_time(
    shares: tuple[int, int], others: list[Kind], before: int, depth: int
) -> None:
    """1. Others use the store for a while. 2. Data comes. 3. It is granted its first piece in the stated time, whatever
    its share."""
    percents = dict(zip(KINDS, (*shares, 100 - sum(shares)), strict=True))
    policy = SMALL.but(**{f"{kind}_percent": share for kind, share in percents.items()})
    store = Store(policy)
    for number, kind in enumerate(others):
        store.comes(f"w{number}", kind, 100_000, f"s{number}", depth)
    for _ in range(before):
        store.step()
    came_at, at = store.now, len(store.order)
    store.comes("reader", "data", 10)
    while not any(writer == "reader" for writer, _ in store.order[at:]):
        assert store.step()
        assert store.now - came_at <= policy.back_within(RATE)
