"""Who may work where, and who is next: locks on the resources of scopes, taken all at once in one global order.

Intuition: everybody queues on all of their resources with the same number in hand. Who holds the smallest number of
those that meet them has the right of way everywhere at once, so nobody waits in a circle, and numbers that are fixed at
the request only become relatively smaller, so nobody waits for ever.

Rule: an operation is granted when no operation that conflicts with it (`scope.conflict`) holds, and none that conflicts
with it waits with a smaller key. All resources are taken in one step and kept until the release. Equal keys (one may be
inherited) are ordered by name. So the smallest key that waits is granted as soon as its conflicting holders end.

Overtaking: a waiter may be known not to start before some instant (`set_not_before`: a notice that was given). At the
moment of asking, an operation that is certain to end by an instant passes over those waiters that are known not to
start before it and wait *exclusively* for the common resource. Nobody else is passed over, so the overtaken one is
never delayed past its instant by it. The certainty is of the moment of asking; who waits asks again (`overtake`).

Cost: a waiter stands in a queue of every resource, exclusive and shared ones apart, but listens at one where it is
blocked. Something that ends at a resource looks at the first exclusive waiter, and at those shared ones that listen
there and were behind an exclusive one only. Shared waiters never block each other, so thousands at a cluster cost
nothing. Queues are heaps, whose entries are void when their operation has gone or got another key.

Rejected: taking resources one by one (circles), a table of conflicting pairs (grows with the square), one bit set for
each scope (see the record of decisions on locks). Limit: a scope of n resources costs O(n) to take.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, Literal

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.scope import Scope

Key = tuple[int, int]
"""Order of operations: (aged instant in microseconds, sequence); smaller goes first."""

Entry = tuple[int, int, str, int, "_Claim"]
"""A place in queues: key, name, a number that tells two of the same apart, and whose it is."""

SLACK: Final = 32
"""Void entries that a queue may have beyond as many as valid ones."""


class Blocker(Value):
    """Somebody who keeps an operation waiting, and where."""

    name: str
    resource: int
    how: Literal["holds", "ahead"]


class _Claim:
    """One operation in the table."""

    __slots__ = ("entry", "exclusive", "key", "name", "node", "not_before", "shared", "spot", "ticket")

    def __init__(self, name: str, key: Key, scope: Scope) -> None:
        self.name = name
        self.key = key
        self.exclusive = scope.exclusive
        self.shared = scope.shared
        self.entry: Entry | None = None
        """Its place in queues while it waits; None: it holds, or has gone."""
        self.ticket = 0
        """Tells that place from those it had before; 0: none. (Identity of tuples would not survive compiling.)"""
        self.node: _Node | None = None
        """The resource at which it listens while it waits."""
        self.spot = 0
        """Where that resource stands in its scope, exclusive ones first."""
        self.not_before: Instant | None = None


class _Node:
    """One resource."""

    __slots__ = ("claims", "holder", "listening", "queue", "shared_queue", "shared_waiters", "sharers")

    def __init__(self) -> None:
        self.holder: _Claim | None = None
        self.claims = 0
        """Exclusive ones: the holder and those that wait."""
        self.sharers: dict[str, _Claim] = {}
        self.queue: list[Entry] = []
        """Who waits exclusively."""
        self.shared_queue: list[Entry] = []
        self.shared_waiters = 0
        self.listening: list[Entry] = []
        """Those of the shared queue that listen here."""


class LockTable:
    """The locks of all operations. Derived: made anew with `hold` for those that hold and `request` for those that
    wait, in the order of their keys."""

    __slots__ = ("_claims", "_nodes", "_tickets")

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._claims: dict[str, _Claim] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, name: str) -> bool:
        return name in self._claims

    def holds(self, name: str) -> bool:
        claim = self._claims.get(name)
        return claim is not None and claim.entry is None

    def waits(self, name: str) -> bool:
        claim = self._claims.get(name)
        return claim is not None and claim.entry is not None

    def request(self, name: str, key: Key, scope: Scope, ends_by: Instant | None = None) -> bool:
        """Asks for a scope. True: it is held from now on; False: it waits.

        `ends_by` is the instant by which the operation is certain to end if it is granted now; None: nobody knows.
        """
        assert name not in self._claims, name
        assert scope.exclusive, name
        claim = self._claims[name] = _Claim(name, key, scope)
        try:
            free = self._untouched(claim)
        except IndexError:  # a resource that was never asked for; rare, so that the common case does not pay for it
            free = False
        if free:
            self._take(claim)
            return True
        self._grow(claim)
        self._number(claim)
        spot = self._blocked_at(claim, ends_by)
        if spot < 0:
            claim.entry, claim.ticket = None, 0
            self._take(claim)
            return True
        self._queue(claim)
        self._listen(claim, spot)
        return False

    def hold(self, name: str, key: Key, scope: Scope) -> None:
        """Gives a scope to an operation that has held it before the table was made anew."""
        assert name not in self._claims, name
        claim = _Claim(name, key, scope)
        self._grow(claim)
        nodes = self._nodes
        assert all(nodes[index].holder is None for index in scope.exclusive + scope.shared), name
        assert not any(nodes[index].sharers for index in scope.exclusive), name
        self._claims[name] = claim
        self._take(claim)

    def release(self, name: str) -> list[str]:
        """Ends a holder. Returns the waiters that hold from now on, in the order of their keys."""
        claim = self._claims[name]
        assert claim.entry is None, f"{name} waits"
        del self._claims[name]
        nodes = self._nodes
        freed: list[_Claim] = []
        for index in claim.shared:
            node = nodes[index]
            del node.sharers[name]
            if node.claims and not node.sharers:
                _first(node, freed)
        for index in claim.exclusive:
            node = nodes[index]
            node.holder = None
            node.claims -= 1
            if node.claims or node.listening:
                _first(node, freed)
                _listeners(node, freed)
        return self._retry(freed) if freed else []

    def withdraw(self, name: str) -> list[str]:
        """Ends a waiter. Returns the waiters that hold from now on, in the order of their keys."""
        claim = self._claims[name]
        assert claim.entry is not None, f"{name} holds"
        del self._claims[name]
        self._unqueue(claim)
        freed: list[_Claim] = []
        for index in claim.shared:
            _first(self._nodes[index], freed)
        for index in claim.exclusive:
            _first(self._nodes[index], freed)
            _listeners(self._nodes[index], freed)
        return self._retry(freed)

    def rekey(self, name: str, key: Key) -> list[str]:
        """Gives an operation a smaller key. Returns its name if it was waiting and holds from now on."""
        claim = self._claims[name]
        assert key <= claim.key, (name, key, claim.key)
        if key == claim.key:
            return []
        claim.key = key
        if claim.entry is None:
            return []
        self._unqueue(claim)
        self._number(claim)
        self._queue(claim)
        return self._retry([claim])

    def set_not_before(self, name: str, instant: Instant | None) -> None:
        """Says that a waiter will not start before an instant, so that others may pass over it until then.

        An earlier instant, or None, binds only those that ask from now on.
        """
        self._claims[name].not_before = instant

    def overtake(self, name: str, ends_by: Instant) -> bool:
        """A waiter asks again, now that it is certain to end by an instant if it is granted now. True: it holds."""
        claim = self._claims[name]
        assert claim.entry is not None, f"{name} holds"
        if self._blocked_at(claim, ends_by) >= 0:
            return False
        self._grant(claim)
        return True

    def blockers(self, name: str, limit: int = 3) -> list[Blocker]:
        """Who keeps a waiter waiting: at each of its resources those that hold, or else who is first in the queue.

        At most `limit`, of those that hold a resource the smallest keys; the same for the same holders and waiters,
        however they came about. Cost: O(holders) where a wide resource is shared by many, else O(resources).
        """
        claim = self._claims[name]
        found: dict[str, Blocker] = {}
        if claim.entry is None:
            return []
        for place, index in enumerate(claim.exclusive + claim.shared):
            if len(found) >= limit:
                break
            node = self._nodes[index]
            exclusive = place < len(claim.exclusive)
            for other in _holders(node, exclusive, limit):
                found.setdefault(other.name, Blocker(name=other.name, resource=index, how="holds"))
            for entry in (_head(node.queue), _head(node.shared_queue) if exclusive else None):
                if entry is not None and entry < claim.entry:
                    found.setdefault(entry[2], Blocker(name=entry[2], resource=index, how="ahead"))
        return list(found.values())[:limit]

    def holders(self, resource: int) -> int:
        """How many operations hold a resource, in either way."""
        if resource >= len(self._nodes):
            return 0
        node = self._nodes[resource]
        return len(node.sharers) + (node.holder is not None)

    # What follows keeps: a claim stands in queues if and only if it has an entry, and then it is blocked where it
    # listens.

    def _untouched(self, claim: _Claim) -> bool:
        """Whether nobody holds or waits where it matters: the common case, without looking at keys."""
        nodes = self._nodes
        for index in claim.shared:
            if nodes[index].claims:
                return False
        for index in claim.exclusive:
            node = nodes[index]
            if node.claims or node.sharers or node.shared_waiters:
                return False
        return True

    def _take(self, claim: _Claim) -> None:
        nodes = self._nodes
        name = claim.name
        for index in claim.shared:
            nodes[index].sharers[name] = claim
        for index in claim.exclusive:
            node = nodes[index]
            assert node.holder is None, name
            node.holder = claim
            node.claims += 1

    def _grow(self, claim: _Claim) -> None:
        top = max(claim.exclusive[-1:] + claim.shared[-1:])
        while top >= len(self._nodes):
            self._nodes.append(_Node())

    def _number(self, claim: _Claim) -> None:
        self._tickets += 1
        claim.ticket = self._tickets
        claim.entry = (claim.key[0], claim.key[1], claim.name, self._tickets, claim)

    def _queue(self, claim: _Claim) -> None:
        entry = claim.entry
        assert entry is not None, claim.name
        for index in claim.exclusive:
            node = self._nodes[index]
            node.claims += 1
            _push(node.queue, entry, node.claims)
        for index in claim.shared:
            node = self._nodes[index]
            node.shared_waiters += 1
            _push(node.shared_queue, entry, node.shared_waiters)

    def _unqueue(self, claim: _Claim) -> None:
        """Makes its entries void."""
        claim.entry, claim.ticket = None, 0
        claim.node = None
        for index in claim.exclusive:
            self._nodes[index].claims -= 1
        for index in claim.shared:
            self._nodes[index].shared_waiters -= 1

    def _listen(self, claim: _Claim, spot: int) -> None:
        entry = claim.entry
        assert entry is not None, claim.name
        claim.spot = spot
        border = len(claim.exclusive)
        if spot < border:
            claim.node = self._nodes[claim.exclusive[spot]]
        else:
            claim.node = node = self._nodes[claim.shared[spot - border]]
            _push(node.listening, entry, node.shared_waiters)

    def _blocked_at(self, claim: _Claim, ends_by: Instant | None) -> int:
        """The spot in its scope where a waiter is blocked, the one where it listens first; -1: nowhere."""
        border = len(claim.exclusive)
        size = border + len(claim.shared)
        for turn in range(claim.spot, claim.spot + size):
            spot = turn if turn < size else turn - size
            if spot < border:
                if _exclusive_blocked(self._nodes[claim.exclusive[spot]], claim, ends_by):
                    return spot
            elif _shared_blocked(self._nodes[claim.shared[spot - border]], claim, ends_by):
                return spot
        return -1

    def _grant(self, claim: _Claim) -> None:
        self._unqueue(claim)
        self._take(claim)

    def _retry(self, freed: Iterable[_Claim]) -> list[str]:
        """Grants those that are blocked no more; the others listen where they are blocked now.

        The order of trying does not matter: who is not tried yet still stands in all queues.
        """
        granted: list[_Claim] = []
        for claim in freed:
            spot = self._blocked_at(claim, None)
            if spot < 0:
                self._grant(claim)
                granted.append(claim)
            else:
                self._listen(claim, spot)
        granted.sort(key=_order)
        return [claim.name for claim in granted]


def _order(claim: _Claim) -> tuple[Key, str]:
    return claim.key, claim.name


def _push(queue: list[Entry], entry: Entry, valid: int) -> None:
    """Adds an entry; sweeps void ones out when they are the most, so that it costs O(log n) on average."""
    if len(queue) > 2 * valid + SLACK:
        queue[:] = [each for each in queue if each[4].ticket == each[3]]
        heapify(queue)
    heappush(queue, entry)


def _head(queue: list[Entry]) -> Entry | None:
    """The first valid entry."""
    while queue:
        entry = queue[0]
        if entry[4].ticket == entry[3]:
            return entry
        heappop(queue)
    return None


def _exclusive_blocked(node: _Node, claim: _Claim, ends_by: Instant | None) -> bool:
    if node.holder is not None or node.sharers:
        return True
    entry = claim.entry
    assert entry is not None, claim.name
    head = _head(node.shared_queue)
    return (head is not None and head < entry) or _behind(node, entry, ends_by)


def _shared_blocked(node: _Node, claim: _Claim, ends_by: Instant | None) -> bool:
    entry = claim.entry
    assert entry is not None, claim.name
    return node.claims > 0 and (node.holder is not None or _behind(node, entry, ends_by))


def _behind(node: _Node, entry: Entry, ends_by: Instant | None) -> bool:
    """Whether an exclusive waiter with a smaller key is in the way, and can't be passed over."""
    head = _head(node.queue)
    if head is None or not head < entry:
        return False
    if ends_by is None or not _passable(head, ends_by):
        return True
    ahead = (other for other in node.queue if other < entry and other[4].ticket == other[3])
    return not all(_passable(other, ends_by) for other in ahead)


def _passable(entry: Entry, ends_by: Instant) -> bool:
    not_before = entry[4].not_before
    return not_before is not None and ends_by <= not_before


def _first(node: _Node, freed: list[_Claim]) -> None:
    """Adds the first exclusive waiter, if it listens here and nobody holds."""
    if node.holder is not None or node.sharers:
        return
    head = _head(node.queue)
    if head is not None and head[4].node is node:
        freed.append(head[4])


def _listeners(node: _Node, freed: list[_Claim]) -> None:
    """Takes those shared waiters that listen here and have no exclusive one before them any more."""
    if node.holder is not None or not node.listening:
        return
    head = _head(node.queue)
    while node.listening and (head is None or node.listening[0] < head):
        entry = heappop(node.listening)
        if entry[4].ticket == entry[3] and entry[4].node is node:
            freed.append(entry[4])


def _holders(node: _Node, exclusive: bool, limit: int) -> list[_Claim]:
    if node.holder is not None:
        return [node.holder]
    return nsmallest(limit, node.sharers.values(), key=_order) if exclusive else []
