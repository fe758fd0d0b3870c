"""A loader that works ahead, and has no position of its own.

    loader = Loader(fetch, tell=session.waited_for_data)
    for step in session.steps(total=1000):
        wanted = Wanted(first=session.samples, global_batch=8, rank=session.rank, world=session.world)
        batch = loader.take(wanted)

The usual trouble with prefetching: the loader counts what it has *handed out of the store*, a checkpoint saves that
count, and what was in flight at the crash is lost for good, or read twice. Here the only position is the session's:
samples that were in the checkpoint when it was loaded, plus those of steps that were reported since. The loader is
asked for one place and guesses the next; a guess is a guess, and dies with the process. Asked for something else (the
job went back, the batch or the number of ranks changed), it drops its guesses and starts there.

Threads rather than processes: reading and decoding release the interpreter, and there is nothing to fork, to clean up,
or to find again after a crash. They start with the first `take`, so a loader may be made before a fork.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

from trainmaster.core.base.value import Value

T = TypeVar("T")
AHEAD: Final = 2


class Wanted(Value):
    """A rank's share of the global batch that begins at a global sample."""

    first: int
    global_batch: int
    rank: int
    world: int

    def following(self) -> "Wanted":
        return self.but(first=self.first + self.global_batch)


class _Slot(Generic[T]):
    """A batch that is asked for."""

    def __init__(self) -> None:
        self.done = False
        self.batch: T | None = None
        self.error: Exception | None = None


class Loader(Generic[T]):
    """Fetches up to `ahead` batches beyond the one that is taken. `take` is for one thread; `fetch` runs in others.

    `tell` gets the seconds that each `take` waited.
    """

    def __init__(
        self,
        fetch: Callable[[Wanted], T],
        *,
        ahead: int = AHEAD,
        threads: int = 1,
        tell: Callable[[float], None] | None = None,
    ) -> None:
        assert ahead >= 0
        assert threads > 0
        self._fetch, self._ahead, self._threads, self._tell = fetch, ahead, threads, tell
        self._changed = threading.Condition()
        self._slots: dict[Wanted, _Slot[T]] = {}
        self._open: deque[tuple[Wanted, _Slot[T]]] = deque()
        self._running: list[threading.Thread] = []
        self._closed = False

    def take(self, wanted: Wanted) -> T:
        """The batch; waits until it is there. Raises what `fetch` raised for it."""
        assert 0 <= wanted.rank < wanted.world
        started = time.monotonic()
        with self._changed:
            assert not self._closed
            self._ask(wanted)
            slot = self._slots.pop(wanted)
            while not slot.done:
                self._changed.wait()
        if self._tell is not None:
            self._tell(time.monotonic() - started)
        if slot.error is not None:
            raise slot.error
        assert slot.batch is not None
        return slot.batch

    @property
    def in_flight(self) -> tuple[Wanted, ...]:
        """What was fetched, or is, and was not taken."""
        with self._changed:
            return tuple(self._slots)

    def close(self) -> None:
        """No more is fetched; a fetch that runs is not waited for."""
        with self._changed:
            self._closed = True
            self._slots.clear()
            self._open.clear()
            self._changed.notify_all()

    def __enter__(self) -> "Loader[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, wanted: Wanted) -> None:
        """Makes slots for what is wanted and what follows it; drops all others."""
        chain = [wanted]
        for _ in range(self._ahead):
            chain.append(chain[-1].following())
        known = self._slots
        self._slots = {each: known.get(each) or _Slot() for each in chain}
        self._open = deque((each, slot) for each, slot in self._open if self._slots.get(each) is slot)
        self._open.extend((each, slot) for each, slot in self._slots.items() if each not in known)
        while len(self._running) < self._threads:
            thread = threading.Thread(target=self._work, name="trainmaster-loader", daemon=True)
            self._running.append(thread)
            thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._open and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                wanted, slot = self._open.popleft()
            batch, error = None, None
            try:
                batch = self._fetch(wanted)
            except Exception as problem:  # noqa: BLE001  (told to whoever takes it)
                error = problem
            with self._changed:
                slot.batch, slot.error, slot.done = batch, error, True
                self._changed.notify_all()
