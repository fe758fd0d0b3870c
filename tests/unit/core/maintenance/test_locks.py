"""Locks against a model that looks at everybody: exclusion, order, no lost wake-up, overtaking, the end of all."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.locks import Blocker, LockTable
from trainmaster.core.maintenance.scope import Scope, conflict

CLUSTER, POD_A, POD_B, A1, A2, B1, B2 = range(7)
PARENTS = {CLUSTER: (), POD_A: (CLUSTER,), POD_B: (CLUSTER,), **dict.fromkeys((A1, A2), (CLUSTER, POD_A)),
           **dict.fromkeys((B1, B2), (CLUSTER, POD_B))}  # fmt: skip


def scope(*exclusive: int) -> Scope:
    marks = {parent for index in exclusive for parent in PARENTS[index]} - set(exclusive)
    return Scope(exclusive=tuple(sorted(set(exclusive))), shared=tuple(sorted(marks)))


@dataclass
class Model:
    """The rule, said plainly."""

    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    not_before: dict[str, int] = field(default_factory=dict)

    def order(self, name: str) -> tuple[tuple[int, int], str]:
        return self.keys[name], name

    def blockers(self, name: str, ends_by: int | None = None) -> list[str]:
        mine = self.scopes[name]
        return [
            other
            for other in sorted(self.holding | self.waiting)
            if other != name
            and conflict(mine, self.scopes[other])
            and (
                other in self.holding
                or (self.order(other) < self.order(name) and not self.passed(name, other, ends_by))
            )
        ]

    def passed(self, name: str, other: str, ends_by: int | None) -> bool:
        """Whether the other is known to start late enough, and waits exclusively wherever the two meet."""
        if ends_by is None or other not in self.not_before or ends_by > self.not_before[other]:
            return False
        return not set(self.scopes[name].exclusive) & set(self.scopes[other].shared)

    def settle(self) -> list[str]:
        """Grants whoever can be, smallest first."""
        granted = []
        for name in sorted(self.waiting, key=self.order):
            if not self.blockers(name):
                self.waiting.remove(name)
                self.holding.add(name)
                granted.append(name)
        return granted


class Pair:
    """A table and the model, driven alike."""

    def __init__(self) -> None:
        self.table, self.model, self.sequence = LockTable(), Model(), 0

    def request(self, wanted: Scope, aged_at: int, ends_by: int | None = None) -> str:
        self.sequence += 1
        name = f"op-{self.sequence}"
        self.model.keys[name], self.model.scopes[name] = (aged_at, self.sequence), wanted
        free = not self.model.blockers(name, ends_by)
        (self.model.holding if free else self.model.waiting).add(name)
        at = None if ends_by is None else Instant(ends_by)
        assert self.table.request(name, (aged_at, self.sequence), wanted, at) == free
        return name

    def end(self, name: str) -> None:
        held = name in self.model.holding
        self.model.holding.discard(name)
        self.model.waiting.discard(name)
        expected = self.model.settle()
        assert (self.table.release(name) if held else self.table.withdraw(name)) == expected

    def rekey(self, name: str, key: tuple[int, int]) -> None:
        self.model.keys[name] = key
        assert self.table.rekey(name, key) == self.model.settle()

    def announce(self, name: str, instant: int) -> None:
        self.model.not_before[name] = instant
        self.table.set_not_before(name, Instant(instant))

    def overtake(self, name: str, ends_by: int) -> None:
        free = not self.model.blockers(name, ends_by)
        if free:
            self.model.waiting.remove(name)
            self.model.holding.add(name)
        assert self.table.overtake(name, Instant(ends_by)) == free

    def check(self) -> None:
        model, table = self.model, self.table
        holding = sorted(model.holding)
        assert not any(
            conflict(model.scopes[one], model.scopes[other])
            for place, one in enumerate(holding)
            for other in holding[place + 1 :]
        )
        assert all(table.holds(name) and not table.waits(name) for name in model.holding)
        for name in model.waiting:
            assert table.waits(name)
            found = table.blockers(name, limit=100)
            assert found, name
            assert {blocker.name for blocker in found} <= set(model.blockers(name))
            assert all(table.holds(blocker.name) == (blocker.how == "holds") for blocker in found)


ACTIONS = st.tuples(
    st.sampled_from(("request", "request", "request", "end", "end", "withdraw", "rekey", "announce", "overtake")),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 9)),
)


@settings(max_examples=200)
@given(st.lists(ACTIONS, max_size=60))
def test_does_what_the_rule_says(actions: list[tuple[str, list[int], int, int | None]]) -> None:
    """1. Operations ask, end, give up, get smaller keys, announce and overtake, in any order. 2. After each step the
    table has granted what the rule grants, in order; nobody waits without a reason. 3. Then all end, smallest first."""
    pair = Pair()
    for what, resources, number, ends_by in actions:
        model = pair.model
        waiting, holding = sorted(model.waiting), sorted(model.holding)
        if what == "request":
            pair.request(scope(*resources), number, ends_by)
        elif what == "end" and holding:
            pair.end(holding[number % len(holding)])
        elif waiting and what in ("withdraw", "rekey", "announce", "overtake"):
            name = waiting[number % len(waiting)]
            if what == "withdraw":
                pair.end(name)
            elif what == "rekey":
                pair.rekey(name, min(model.keys[name], (resources[0], 0)))
            elif what == "announce":
                pair.announce(name, number)
            else:
                pair.overtake(name, number)
        pair.check()
    _drain(pair)


def _drain(pair: Pair) -> None:
    """Ends whoever holds; the smallest key that waits never waits for more than those that hold now."""
    while pair.model.holding or pair.model.waiting:
        if pair.model.waiting:
            first = min(pair.model.waiting, key=pair.model.order)
            assert set(pair.model.blockers(first)) <= pair.model.holding
        pair.end(min(pair.model.holding, key=pair.model.order))
        pair.check()
    assert len(pair.table) == 0


@settings(max_examples=200)
@given(st.lists(ACTIONS, max_size=40))
def test_is_the_same_when_made_anew(actions: list[tuple[str, list[int], int, int | None]]) -> None:
    """1. Anything happens. 2. A second table is made of those that hold and wait. 3. Both name the same blockers and
    grant the same to the end."""
    pair = Pair()
    for what, resources, number, ends_by in actions:
        if what == "request":
            pair.request(scope(*resources), number, ends_by)
        elif pair.model.holding:
            pair.end(sorted(pair.model.holding)[number % len(pair.model.holding)])
    model, anew = pair.model, LockTable()
    for name in sorted(model.holding):
        anew.hold(name, model.keys[name], model.scopes[name])
    for name in sorted(model.waiting, key=model.order):
        assert not anew.request(name, model.keys[name], model.scopes[name])
    for name in model.waiting:
        assert anew.blockers(name) == pair.table.blockers(name)
    pair.table = anew
    _drain(pair)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.booleans()), min_size=1, max_size=40))
def test_who_is_overtaken_is_never_delayed_past_its_instant(asked: list[tuple[int, int, bool]]) -> None:
    """1. A pod waits behind one of its hosts, and is known to start not before 6. 2. Every tick somebody else asks,
    certain of its end or not; all that hold end when they said. 3. At 6 nobody who came later is in the pod's way."""
    table, ends, wanted = LockTable(), dict[str, int](), {"pod": scope(POD_A)}
    table.request("first", (0, 0), scope(A1))
    assert not table.request("pod", (0, 1), scope(POD_A))
    table.set_not_before("pod", Instant(6))
    for now, (resource, lasts, certain) in enumerate(asked):
        if now == 6:
            break
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            for granted in table.release(name):
                assert not conflict(wanted[granted], scope(POD_A))
                ends[granted] = now + lasts
        name = f"op-{now}"
        wanted[name] = scope(resource)
        if table.request(name, (1, now), scope(resource), Instant(now + lasts) if certain else None):
            ends[name] = now + lasts
            assert not (conflict(scope(resource), scope(POD_A)) and (not certain or now + lasts > 6))
    for name in [name for name, end in ends.items() if end <= 6]:
        assert "pod" not in table.release(name)
    assert [blocker.name for blocker in table.blockers("pod")] == ["first"]
    assert "pod" in table.release("first")


def test_overtaking() -> None:
    """1. A pod waits for a host that works, until 100 at least. 2. Another host of the pod asks: uncertain, or certain
    to end too late, it waits; certain to end in time, it goes. 3. One that waits asks again. 4. Behind a second pod
    operation, which has announced nothing, nobody passes."""
    table = LockTable()
    assert table.request("host", (0, 1), scope(A1))
    assert not table.request("pod", (0, 2), scope(POD_A))
    assert not table.request("early", (0, 3), scope(A2), Instant(50))
    table.set_not_before("pod", Instant(100))
    assert not table.overtake("early", Instant(101))
    assert not table.request("late", (0, 4), scope(A2), Instant(101))
    assert not table.request("unsure", (0, 5), scope(A2))
    assert not table.overtake("late", Instant(100))  # "early" is ahead of it at the host
    assert table.overtake("early", Instant(100))
    assert table.release("early") == []
    assert table.overtake("late", Instant(100))
    assert not table.request("pod again", (0, 2), scope(POD_A))
    assert table.release("late") == []
    assert not table.overtake("unsure", Instant(60))
    assert table.release("host") == ["pod"]
    assert table.release("pod") == ["pod again"]
    assert table.release("pod again") == ["unsure"]


def test_a_wide_one_goes_between_narrow_ones() -> None:
    """1. Hosts work; a cluster, then more hosts ask. 2. The cluster goes when the first hosts end, then all others."""
    table = LockTable()
    assert table.request("a1", (1, 1), scope(A1))
    assert table.request("b1", (1, 2), scope(B1))
    assert not table.request("all", (1, 3), scope(CLUSTER))
    assert not table.request("a2", (1, 4), scope(A2))
    assert not table.request("b2", (1, 5), scope(B2))
    assert table.blockers("all") == [
        Blocker(name="a1", resource=CLUSTER, how="holds"), Blocker(name="b1", resource=CLUSTER, how="holds")
    ]  # fmt: skip
    assert table.blockers("all", limit=1) == [Blocker(name="a1", resource=CLUSTER, how="holds")]
    assert table.blockers("b2") == [Blocker(name="all", resource=CLUSTER, how="ahead")]
    assert (table.holders(CLUSTER), table.holders(POD_A), table.holders(99)) == (2, 1, 0)
    assert table.release("b1") == []
    assert table.release("a1") == ["all"]
    assert table.release("all") == ["a2", "b2"]


def test_grants_are_told_in_order() -> None:
    """1. A selection of two hosts works; both are asked for. 2. It ends: the smaller key is told first, not the smaller
    index; so too when one gives up that both stood behind."""
    table = LockTable()
    table.request("both", (1, 1), scope(A1, B1))
    table.request("b1", (1, 2), scope(B1))
    table.request("a1", (1, 3), scope(A1))
    assert table.release("both") == ["b1", "a1"]
    table.request("both", (1, 4), scope(A1, A2, B1, B2))
    table.request("b2", (1, 5), scope(B2))
    table.request("a2", (1, 6), scope(A2))
    assert table.withdraw("both") == ["b2", "a2"]


def test_giving_up_frees_those_behind() -> None:
    """1. A cluster waits behind a host, and another host behind the cluster. 2. The cluster gives up."""
    table = LockTable()
    table.request("a1", (1, 1), scope(A1))
    table.request("all", (1, 2), scope(CLUSTER))
    table.request("b1", (1, 3), scope(B1))
    assert table.withdraw("all") == ["b1"]
    assert "all" not in table


def test_a_smaller_key_passes() -> None:
    """1. A cluster waits for a host, and another host behind it. 2. Something urgent needs the second host first, so
    it inherits the smaller key, and goes; equal keys go by name. 3. A holder's key changes nothing."""
    table = LockTable()
    table.request("a1", (1, 1), scope(A1))
    table.request("z", (1, 2), scope(CLUSTER))
    table.request("b1", (1, 3), scope(B1))
    assert table.rekey("b1", (1, 3)) == []
    assert table.rekey("b1", (1, 2)) == ["b1"]
    assert table.rekey("b1", (0, 0)) == []
    assert table.release("b1") == []
    assert table.release("a1") == ["z"]


def test_misuse_is_found_at_once() -> None:
    """1. A name asks twice, ends without holding, gives up without waiting, gets a larger key."""
    table = LockTable()
    table.request("a", (1, 1), scope(A1))
    table.request("b", (1, 2), scope(A1))
    for wrong in (
        lambda: table.request("a", (2, 1), scope(B1)), lambda: table.release("b"), lambda: table.withdraw("a"),
        lambda: table.rekey("a", (2, 1)), lambda: table.hold("c", (1, 3), scope(POD_A)),
        lambda: table.hold("d", (1, 3), scope(A1)), lambda: table.overtake("a", Instant(1)),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            wrong()
    with pytest.raises(KeyError):
        table.release("nobody")


def test_queues_forget_those_that_gave_up() -> None:
    """1. A host works for long; thousands ask for it and give up. 2. The queues, also the wide ones, stay short."""
    table = LockTable()
    table.request("long", (0, 0), scope(A1))
    for number in range(5_000):
        table.request(f"op-{number}", (1, number), scope(A1))
        table.withdraw(f"op-{number}")
    nodes = [table._nodes[index] for index in (CLUSTER, POD_A, A1)]
    assert max(len(queue) for node in nodes for queue in (node.queue, node.shared_queue, node.listening)) < 100
    assert table.release("long") == []
