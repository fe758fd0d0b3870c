"""The clock of the simulated world: order, ties, cancellation, and a sorted list that must agree with it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Instant
from trainmaster.twin.kernel import COMPACT_AT, Kernel, Timer, TracedKernel

KERNELS = pytest.mark.parametrize("kind", [Kernel, TracedKernel])


def world(kind: type[Kernel] = Kernel) -> tuple[Kernel, list[Any]]:
    """A kernel that starts at 100, and a list for handlers to write to."""
    return kind(Instant(100)), []


@KERNELS
def test_what_is_due_first_happens_first(kind: type[Kernel]) -> None:
    """1. Three timers are set out of order. 2. They fire in order, and now is their time. 3. Then now is the end."""
    kernel, seen = world(kind)
    for wait in (30, 10, 20):
        kernel.after(wait, lambda name: seen.append((name, kernel.now)), f"w{wait}")
    kernel.at(Instant(115), lambda name: seen.append((name, kernel.now)), "at")
    assert kernel.next_at() == 110
    kernel.run(Instant(1000))
    assert seen == [("w10", 110), ("at", 115), ("w20", 120), ("w30", 130)]
    assert kernel.now == 1000
    assert kernel.next_at() is None


@KERNELS
def test_equal_times_go_by_priority_then_by_sequence(kind: type[Kernel]) -> None:
    kernel, seen = world(kind)
    for name, priority in (("a", 5), ("b", 0), ("c", 5), ("d", -1), ("e", 0)):
        kernel.at(Instant(200), seen.append, name, priority)
    kernel.run(Instant(200))
    assert seen == ["d", "b", "e", "a", "c"]


@KERNELS
def test_what_is_due_at_the_end_happens_and_what_is_later_waits(kind: type[Kernel]) -> None:
    """1. Timers at, and a microsecond after, the end; the first with a huge priority. 2. A second run goes on."""
    kernel, seen = world(kind)
    kernel.at(Instant(200), seen.append, "at the end", 1 << 80)
    kernel.at(Instant(201), seen.append, "after")
    kernel.run(Instant(200))
    assert (seen, kernel.now, kernel.next_at()) == (["at the end"], 200, 201)
    kernel.run(Instant(200))
    assert seen == ["at the end"]
    kernel.run(Instant(201))
    assert seen == ["at the end", "after"]


@KERNELS
def test_a_handler_may_ask_for_this_very_instant(kind: type[Kernel]) -> None:
    """1. At the last instant of a run, a handler asks for more. 2. It happens in this run, by its key."""
    kernel, seen = world(kind)

    def first(name: str) -> None:
        seen.append(name)
        kernel.after(0, seen.append, "more")
        kernel.after(0, seen.append, "urgent", -1)

    kernel.at(Instant(200), first, "first")
    kernel.at(Instant(200), seen.append, "second")
    kernel.run(Instant(200))
    assert seen == ["first", "urgent", "second", "more"]


@KERNELS
def test_steps_one_at_a_time(kind: type[Kernel]) -> None:
    """1. Two timers and a cancelled one. 2. Each step fires one. 3. The third finds nothing, and time stands still."""
    kernel, seen = world(kind)
    kernel.after(10, seen.append, "a")
    kernel.cancel(kernel.after(15, seen.append, "never"))
    kernel.after(20, seen.append, "b")
    cancelled_last = kernel.after(30, seen.append, "never")
    assert kernel.step()
    assert (seen, kernel.now) == (["a"], 110)
    assert kernel.step()
    kernel.cancel(cancelled_last)
    assert not kernel.step()
    assert (seen, kernel.now) == (["a", "b"], 120)


@pytest.mark.parametrize(
    "act",
    [
        lambda kernel: kernel.at(Instant(99), print, None),
        lambda kernel: kernel.after(-1, print, None),
        lambda kernel: kernel.run(Instant(99)),
    ],
)
@KERNELS
def test_time_never_goes_back(kind: type[Kernel], act: Any) -> None:
    kernel, _ = world(kind)
    with pytest.raises(AssertionError, match="time goes back"):
        act(kernel)


@pytest.mark.parametrize("act", [lambda kernel: kernel.step(), lambda kernel: kernel.run(Instant(500))])
@KERNELS
def test_a_handler_must_not_run_the_clock(kind: type[Kernel], act: Any) -> None:
    """1. A handler runs the clock that runs it. 2. It is told. 3. The clock works on afterwards."""
    kernel, seen = world(kind)
    kernel.after(1, lambda _: act(kernel), None)
    kernel.after(2, seen.append, "after")
    with pytest.raises(AssertionError, match="must not run the clock"):
        kernel.run(Instant(300))
    kernel.run(Instant(300))
    assert seen == ["after"]


def test_a_world_may_run_inside_of_another() -> None:
    """1. A handler runs a second world to its end. 2. Only the second one ends."""
    kernel, seen = world()

    def what_if(_: None) -> None:
        inner = Kernel(kernel.now)
        inner.after(5, seen.append, "inner")
        inner.run(Instant(150))

    kernel.after(1, what_if, None)
    kernel.after(2, seen.append, "outer")
    kernel.run(Instant(300))
    assert seen == ["inner", "outer"]


@KERNELS
def test_what_a_handler_raises_passes_through(kind: type[Kernel]) -> None:
    """1. The second of three handlers fails. 2. The error is seen as it is. 3. The third is still to come."""
    kernel, seen = world(kind)
    kernel.after(10, seen.append, "a")
    kernel.after(20, lambda _: 1 / 0, None)
    kernel.after(30, seen.append, "c")
    with pytest.raises(ZeroDivisionError):
        kernel.run(Instant(1000))
    assert (seen, kernel.now, kernel.next_at(), kernel.held) == (["a"], 120, 130, 1)
    kernel.run(Instant(1000))
    assert seen == ["a", "c"]


@KERNELS
def test_a_handler_sees_what_is_next_beyond_the_end_of_the_run(kind: type[Kernel]) -> None:
    kernel, seen = world(kind)
    for wait in (10, 20, 300):
        kernel.after(wait, lambda _: seen.append(kernel.next_at()), None)
    gone = kernel.after(250, print, None)
    kernel.after(15, kernel.cancel, gone)
    kernel.run(Instant(200))
    assert seen == [115, 400]
    assert kernel.next_at() == 400


@KERNELS
def test_a_cancelled_timer_does_not_fire(kind: type[Kernel]) -> None:
    """1. One is cancelled before the run, twice. 2. One is cancelled by a handler at the very instant it is due."""
    kernel, seen = world(kind)
    before = kernel.after(10, seen.append, "before")
    kernel.cancel(before)
    kernel.cancel(before)
    victim: list[Timer] = []
    kernel.after(20, lambda _: kernel.cancel(victim[0]), None)
    victim.append(kernel.after(20, seen.append, "victim"))
    kernel.after(20, seen.append, "kept")
    assert kernel.next_at() == 120
    kernel.run(Instant(200))
    assert seen == ["kept"]


@KERNELS
def test_to_cancel_what_has_fired_does_nothing(kind: type[Kernel]) -> None:
    """1. A handler cancels its own timer. 2. Another cancels it later. 3. All others fire."""
    kernel, seen = world(kind)
    own: list[Timer] = []
    own.append(kernel.after(10, lambda _: kernel.cancel(own[0]), None))
    kernel.after(10, seen.append, "same time")
    kernel.after(20, lambda _: kernel.cancel(own[0]), None)
    kernel.after(20, seen.append, "later")
    kernel.run(Instant(200))
    assert seen == ["same time", "later"]


def test_a_timer_of_another_kernel_is_noticed() -> None:
    kernel, _ = world()
    other, _ = world()
    with pytest.raises(AssertionError, match="not a timer of this kernel"):
        kernel.cancel(other.after(1, print, None))


@KERNELS
def test_cancelled_timers_do_not_pile_up(kind: type[Kernel]) -> None:
    """1. A host sets a far deadline at each beat, cancels the one before. 2. The heap stays small, no beat is lost."""
    kernel, seen = world(kind)
    kernel.after(1_000_000_000, seen.append, "far")
    most = beats = 0

    def beat(deadline: Timer | None) -> None:
        nonlocal most, beats
        beats += 1
        if deadline is not None:
            kernel.cancel(deadline)
        kernel.after(10, beat, kernel.after(1_000_000, seen.append, "late"))
        most = max(most, kernel.held)

    kernel.after(0, beat, None)
    kernel.run(Instant(100 + 10 * 5_000))
    assert most <= 2 * COMPACT_AT
    assert (beats, seen) == (5_001, [])


@KERNELS
def test_timers_that_fired_before_they_were_cancelled_do_not_pile_up(kind: type[Kernel]) -> None:
    """1. Thousands of timers of one instant cancel themselves. 2. What is pending fires all the same."""
    kernel, seen = world(kind)
    own: list[Timer] = []

    def cancel_own(place: int) -> None:
        kernel.cancel(own[place])

    own.extend(kernel.after(10, cancel_own, place) for place in range(3_000))
    kernel.after(10, seen.append, "kept")
    kernel.after(20, seen.append, "later")
    kernel.run(Instant(200))
    assert seen == ["kept", "later"]
    assert len(kernel._cancelled) <= COMPACT_AT + 1


def test_a_heap_that_was_built_anew_keeps_the_order() -> None:
    """1. 1,000 timers with many ties; 700 are cancelled in an order of chance. 2. The rest fire by key."""
    stream = Stream.of(1, "order")
    kernel, seen = world()
    timers = [kernel.after(stream.integer(20), seen.append, n, stream.integer(3)) for n in range(1_000)]
    gone = set(stream.permutation(1_000)[:700])
    for n in sorted(gone):
        kernel.cancel(timers[n])
    assert kernel.held < 600
    kernel.run(Instant(200))
    assert seen == [timer[4] for n, timer in sorted(enumerate(timers), key=lambda pair: pair[1][:3]) if n not in gone]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("after"), st.integers(0, 12), st.integers(-1, 1)),
        st.tuples(st.just("cancel"), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("run"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("step"), st.just(0), st.just(0)),
    ),
    max_size=120,
)


class Model:
    """The same by a sorted list of (time, priority, sequence, what the handler does)."""

    def __init__(self) -> None:
        self.now, self.sequence = 100, 0
        self.pending: list[tuple[int, int, int, int]] = []
        self.seen: list[tuple[int, int]] = []

    def after(self, wait: int, priority: int, more: int) -> None:
        self.sequence += 1
        self.pending = sorted([*self.pending, (self.now + wait, priority, self.sequence, more)])

    def cancel(self, sequence: int) -> None:
        self.pending = [entry for entry in self.pending if entry[2] != sequence]

    def step(self) -> None:
        if self.pending:
            self.now, _, sequence, more = self.pending.pop(0)
            self.seen.append((self.now, sequence))
            if more:
                self.after(more - 1, 0, 0)

    def run(self, until: int) -> None:
        while self.pending and self.pending[0][0] <= until:
            self.step()
        self.now = until


class Ours:
    """A kernel whose handlers do what the model's do."""

    def __init__(self, kind: type[Kernel]) -> None:
        self.kernel = kind(Instant(100))
        self.timers: list[Timer] = []
        self.seen: list[tuple[int, int]] = []

    def after(self, wait: int, priority: int, more: int) -> None:
        self.timers.append(self.kernel.after(wait, self._fire, (len(self.timers) + 1, more), priority))

    def _fire(self, payload: tuple[int, int]) -> None:
        sequence, more = payload
        self.seen.append((self.kernel.now, sequence))
        if more:
            self.after(more - 1, 0, 0)


@pytest.mark.parametrize("compact_at", [0, COMPACT_AT])
@KERNELS
@given(actions=ACTIONS)
def test_agrees_with_a_sorted_list(kind: type[Kernel], compact_at: int, actions: list[tuple[str, int, int]]) -> None:
    """1. Timers are set, cancelled, run and stepped at random, some set others. 2. After each act both say the same."""
    ours, model = Ours(kind), Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainmaster.twin.kernel.COMPACT_AT", compact_at)
        for act, number, priority in actions:
            if act == "after":
                ours.after(number, priority, number % 4)
                model.after(number, priority, number % 4)
            elif act == "cancel" and ours.timers:
                place = number % len(ours.timers)
                ours.kernel.cancel(ours.timers[place])
                model.cancel(place + 1)
            elif act == "step":
                ours.kernel.step()
                model.step()
            elif act == "run":
                ours.kernel.run(Instant(ours.kernel.now + number))
                model.run(model.now + number)
            assert ours.seen == model.seen
            assert ours.kernel.now == model.now
            assert ours.kernel.next_at() == (model.pending[0][0] if model.pending else None)


def trace(seed: int, extra: bool = False) -> int:
    kernel = TracedKernel(Instant(0))
    stream = Stream.of(seed, "trace")

    def fire(place: int) -> None:
        kernel.after(1 + stream.integer(1_000), fire, place)

    for place in range(20):
        kernel.after(place, fire, place)
    if extra:
        kernel.after(50_000, lambda _: None, None)
    kernel.run(Instant(100_000))
    return kernel.trace


def test_a_trace_tells_histories_apart() -> None:
    """1. One seed gives one trace, now and for ever. 2. Another seed, or one event more, gives another."""
    assert trace(1) == trace(1)
    assert len({trace(1), trace(2), trace(1, extra=True)}) == 3
    kernel = TracedKernel(Instant(0))
    empty = kernel.trace
    kernel.after(7, lambda _: None, None, -3)
    kernel.run(Instant(10))
    expected = empty
    for number in (7, (1 << 64) - 3, 1):
        expected = ((expected ^ number) * 0x1_0000_0001_B3) % (1 << 64)
    assert kernel.trace == expected
