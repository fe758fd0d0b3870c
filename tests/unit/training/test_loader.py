"""The loader works ahead and counts nothing: every sample is consumed once, whatever was in flight when a job ended."""

import os
import random
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.checkpoint.position import Position, audit_epoch, proceed
from trainmaster.training.loader import Loader, Wanted

DEADLINE_S = 30.0
JOBS = int(os.environ.get("TRAINMASTER_LOADER_JOBS", "60"))


def wanted(first: int, batch: int = 4, rank: int = 0, world: int = 1) -> Wanted:
    return Wanted(first=first, global_batch=batch, rank=rank, world=world)


def share(each: Wanted) -> list[int]:
    """Sample ids of a rank's part of a batch."""
    return list(range(each.first + each.rank, each.first + each.global_batch, each.world))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.001)


def test_it_works_ahead_and_what_is_in_flight_is_not_consumed() -> None:
    """1. The first batch is taken. 2. The next three are fetched meanwhile, and no further one. 3. They are in flight,
    not consumed: the position that is saved is the session's."""
    fetched: list[int] = []

    def fetch(each: Wanted) -> list[int]:
        fetched.append(each.first)
        return share(each)

    with Loader(fetch, ahead=3) as loader:
        assert loader.take(wanted(0)) == [0, 1, 2, 3]
        until(lambda: len(fetched) == 4)
        assert [each.first for each in loader.in_flight] == [4, 8, 12]
        assert loader.take(wanted(4)) == [4, 5, 6, 7]
        until(lambda: len(fetched) == 5)
        assert fetched == [0, 4, 8, 12, 16]


def test_nothing_starts_before_the_first_batch() -> None:
    """A loader may be made before a fork: it has no thread yet."""
    before = threading.active_count()
    with Loader(share):
        assert threading.active_count() == before


def test_threads_end_with_it() -> None:
    loader = Loader(share, threads=3)
    loader.take(wanted(0))
    loader.close()
    until(lambda: not any(thread.name == "trainmaster-loader" for thread in threading.enumerate()))
    assert loader.in_flight == ()


@pytest.mark.parametrize(
    "other",
    [wanted(0), wanted(100), wanted(4, batch=8), wanted(4, rank=1, world=2), wanted(4, rank=0, world=3)],
    ids=["back", "elsewhere", "batch", "rank", "world"],
)
def test_asked_for_something_else_it_starts_there(other: Wanted) -> None:
    """1. Batches 4, 8, 12 are in flight. 2. The job goes back, or has another batch or world. 3. It gets just that, and
    the guesses are gone."""
    with Loader(share, ahead=3) as loader:
        loader.take(wanted(0))
        assert loader.take(other) == share(other)
        assert [each.first for each in loader.in_flight] == [other.first + other.global_batch * n for n in (1, 2, 3)]


def test_an_error_belongs_to_its_batch() -> None:
    """1. The batch at 8 can't be read. 2. Those before it come; the error comes when it is taken, and at no other."""

    def fetch(each: Wanted) -> list[int]:
        if each.first == 8:
            raise OSError("shard 2 is gone")
        return share(each)

    with Loader(fetch, ahead=3) as loader:
        assert loader.take(wanted(0)) == [0, 1, 2, 3]
        assert loader.take(wanted(4)) == [4, 5, 6, 7]
        with pytest.raises(OSError, match="shard 2 is gone"):
            loader.take(wanted(8))
        assert loader.take(wanted(12)) == [12, 13, 14, 15]


def test_the_wait_is_told() -> None:
    """1. A fetch that ends when it is let go. 2. The wait of that step is told, once a batch."""
    told: list[float] = []
    free = threading.Event()

    def fetch(each: Wanted) -> int:
        if each.first == 4:
            assert free.wait(DEADLINE_S)
        return each.first

    with Loader(fetch, ahead=0, tell=told.append) as loader:
        loader.take(wanted(0))
        timer = threading.Timer(0.05, free.set)
        timer.start()
        loader.take(wanted(4))
        timer.join()
    assert len(told) == 2
    assert told[1] >= 0.04


@settings(max_examples=JOBS, deadline=None)
@given(st.integers(0, 1 << 30))
def test_every_sample_once_through_restarts_and_other_worlds(seed: int) -> None:
    """1. A job of a random number of steps a life, saved at random steps, killed with batches in flight; each life has
    another number of ranks, depth, threads, and now and then another batch. 2. What the steps of the final history
    consumed is every sample once, in order of the job, in each epoch of 50."""
    chance = random.Random(seed)
    total, batch = 150, chance.choice([1, 3, 8])
    saved = Position(samples=0, global_batch=batch, step=0)
    history: dict[int, list[int]] = {}
    lives = 0
    while saved.samples < total:
        lives += 1
        world = chance.randint(1, 5)
        batch = chance.choice([batch, batch, max(world, chance.randint(1, 9))])
        position = saved.but(samples=proceed(saved, world, batch).first_sample)
        loaders = [Loader(share, ahead=chance.randint(0, 4), threads=chance.randint(1, 3)) for _ in range(world)]
        for _ in range(chance.randint(1, 8) if lives < 200 else total):
            if position.samples >= total:
                break
            size = min(batch, total - position.samples)
            asked = [wanted(position.samples, size, rank, world) for rank in range(world)]
            parts = [loader.take(each) for loader, each in zip(loaders, asked, strict=True)]
            history[position.samples] = [sample for part in parts for sample in part]
            position = Position(samples=position.samples + size, global_batch=size, step=position.step + 1)
            if chance.random() < 0.4:
                saved = position
        for loader in loaders:
            loader.close()
        if position.samples >= total:
            saved = position
        history = {first: ids for first, ids in history.items() if first < saved.samples}
    seen = [sample for first in sorted(history) for sample in history[first]]
    assert sorted(seen) == list(range(total))
    assert audit_epoch(seen, total).problems == ()


def test_a_position_that_counts_what_was_fetched_would_lose_samples() -> None:
    """The check finds the usual mistake: a position taken from the loader, with batches in flight at the kill."""
    with Loader(share, ahead=3) as loader:
        seen = list(loader.take(wanted(0)))
        mistaken = max(each.first + each.global_batch for each in loader.in_flight)
    with Loader(share, ahead=3) as loader:
        while mistaken < 40:
            seen += loader.take(wanted(mistaken))
            mistaken += 4
    audit = audit_epoch(seen, 40)
    assert (audit.seen_twice, audit.never_seen) == (0, 12)
