"""The clock of the simulated world: a heap of what happens next.

An entry is (time, priority, sequence, handler, payload). The first three are its key, so equal times go by priority,
then in the order in which they were asked for; the sequence is unique, so a comparison never reaches the handler. Time
is a whole number of microseconds and never goes back. Nothing here draws lots, so one world makes one history.

A year of a large fleet is tens of millions of events, so the loop does as little as Python can. Measured before it was
written, for 3,072 and 100 timers that start themselves again (events a second, relative to this form):
- a handler with one payload: 1; `handler(*arguments)`: 0.9, since star calls are not inlined;
- an end of the run that is looked for before every event: 0.8 to 0.95, so the end is an entry too;
- lists that a cancellation can mark instead of tuples: 0.9 to 1;
- keys packed into one integer, with a mapping to the handlers: 0.95 to 1 (1.1 with 100,000 timers), hard to read;
- replacing the top of the heap by the first new entry: 1.03 to 1.07, at the price of a top that is there and is not;
- handlers that return the wait until they are called again: 1.1, but such a timer could not be cancelled;
- processes (generators) of SimPy: under 0.5.

A timer is cancelled by its handle, which is the entry itself. It stays in the heap and is passed over when its time
comes; when more than half of the heap is cancelled, the heap is built anew, so a cancellation costs O(1) on average.
Whether a timer of this very instant has fired is not recorded: to cancel a fired one does nothing, at any time.
"""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, NoReturn, TypeVar

from trainmaster.core.base.time import Instant

P = TypeVar("P")

Timer = tuple[Instant, float, int, Callable[[Any], object], Any]
"""The handle of something that is to happen: time, priority, sequence, handler, payload. Give it to `cancel`."""

COMPACT_AT: Final = 64
"""Below this number of cancelled timers it is not worth to build the heap anew."""

_FNV_PRIME: Final = 0x0000_0100_0000_01B3
_FNV_START: Final = 0xCBF2_9CE4_8422_2325
_WORD: Final = (1 << 64) - 1


class _Ended(Exception):
    """The end of a run has been reached."""


def _end(_: None) -> NoReturn:
    raise _Ended


class Kernel:
    """Calls handlers at their times, one after the other."""

    __slots__ = ("_cancelled", "_heap", "_running", "_sequence", "now")

    def __init__(self, start: Instant) -> None:
        self.now = start
        """The time of the event that happens now. For others to read only; a property would cost a call."""
        self._heap: list[Timer] = []
        self._sequence = 0
        self._cancelled: set[int] = set()
        self._running = False

    def at(self, time: Instant, handler: Callable[[P], object], payload: P, priority: int = 0) -> Timer:
        """Calls `handler(payload)` at an instant, not before now. Of equal times, the lower priority goes first."""
        assert time >= self.now, f"time goes back: {time} is before {self.now}"
        self._sequence = sequence = self._sequence + 1
        timer = (time, priority, sequence, handler, payload)
        heappush(self._heap, timer)
        return timer

    def after(self, wait: int, handler: Callable[[P], object], payload: P, priority: int = 0) -> Timer:
        """Calls `handler(payload)` when `wait` microseconds have passed. The same as `at`, without one call more."""
        assert wait >= 0, f"time goes back: {wait} microseconds from now"
        self._sequence = sequence = self._sequence + 1
        timer: Timer = (self.now + wait, priority, sequence, handler, payload)  # type: ignore[assignment]
        heappush(self._heap, timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """The timer will not fire. If it has fired, or has been cancelled before, nothing happens."""
        assert 0 < timer[2] <= self._sequence, f"not a timer of this kernel: {timer}"
        if timer[0] < self.now:
            return
        self._cancelled.add(timer[2])
        if len(self._cancelled) > COMPACT_AT and 2 * len(self._cancelled) > len(self._heap):
            self._compact()

    def next_at(self) -> Instant | None:
        """When the next event happens; None: nothing is left."""
        self._pass_over_cancelled()
        if not self._heap:
            return None
        if self._heap[0][3] is not _end:
            return self._heap[0][0]
        end = heappop(self._heap)
        following = self.next_at()
        heappush(self._heap, end)
        return following

    @property
    def held(self) -> int:
        """Entries in memory: pending timers, cancelled ones that were not dropped yet, the end of a run that is on."""
        return len(self._heap)

    def step(self) -> bool:
        """Lets the next event happen; False if nothing is left."""
        assert not self._running, "a handler must not run the clock"
        self._pass_over_cancelled()
        if not self._heap:
            return False
        timer = heappop(self._heap)
        assert timer[0] >= self.now
        self._running = True
        try:
            self._fire(timer)
        finally:
            self._running = False
        return True

    def run(self, until: Instant) -> None:
        """Lets everything happen up to and including an instant, which is then now.

        What a handler raises ends the run and passes through; its event counts as done, the rest stays pending.
        """
        assert not self._running, "a handler must not run the clock"
        assert until >= self.now, f"time goes back: {until} is before {self.now}"
        heap, cancelled, pop = self._heap, self._cancelled, heappop
        end: Timer = (until, math.inf, 0, _end, None)
        heappush(heap, end)
        self._running = True
        try:
            while True:
                self.now, _, sequence, handler, payload = pop(heap)
                if cancelled and sequence in cancelled:
                    cancelled.remove(sequence)
                    continue
                handler(payload)
        except _Ended:
            assert self.now == until
        except BaseException:
            heap.remove(end)
            heapify(heap)
            raise
        finally:
            self._running = False

    def _fire(self, timer: Timer) -> None:
        self.now = timer[0]
        timer[3](timer[4])

    def _pass_over_cancelled(self) -> None:
        heap, cancelled = self._heap, self._cancelled
        while heap and heap[0][2] in cancelled:
            cancelled.remove(heappop(heap)[2])

    def _compact(self) -> None:
        """Drops cancelled entries. In place, since `run` holds on to both; keys are unique, so the order stays."""
        cancelled = self._cancelled
        self._heap[:] = [timer for timer in self._heap if timer[2] not in cancelled]
        heapify(self._heap)
        # what is left over had fired before it was cancelled, and no sequence is used twice
        cancelled.clear()


class TracedKernel(Kernel):
    """Keeps a hash over what fired, for tests that two runs are one history. It has a third of the speed."""

    __slots__ = ("trace",)

    def __init__(self, start: Instant) -> None:
        super().__init__(start)
        self.trace = _FNV_START
        """FNV-1a over (time, priority, sequence) of everything that fired, a 64-bit word at a time."""

    def run(self, until: Instant) -> None:
        """As `Kernel.run`."""
        assert until >= self.now, f"time goes back: {until} is before {self.now}"
        while (following := self.next_at()) is not None and following <= until:
            self.step()
        self.now = until

    def _fire(self, timer: Timer) -> None:
        for number in timer[:3]:
            self.trace = ((self.trace ^ (int(number) & _WORD)) * _FNV_PRIME) & _WORD
        super()._fire(timer)
