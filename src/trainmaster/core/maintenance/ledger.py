"""The capacity ledger: who is in service, who is out and for what, and whether planned work may take more.

One ledger and one writer for everything that takes capacity; two tools with a budget each add up to an outage that
neither of them sees. It counts *levels* (what is missing now), not rates, and it is derived: the sides of units and the
promises of operations stand in the state, and counting them anew gives the same numbers.

Each unit is on one side: *in service* (a job may use it), *leaving* (in service still, but being drained), *out
planned*, *out failed*, or *absent* (not a part of the total). An admitted operation *promises* its units to itself
before it drains them; a unit in service that is leaving or promised counts as promised, once, by however many.

Planned work may take units if, in every book that counts them and after all that is promised:
  in service - promised - wanted >= sum of the guarantees   else guarantee-broken
  out planned + promised + wanted <= maintenance buffer     else maintenance-buffer-spent
  out failed <= failure buffer                              else failure-buffer-spent: no planned work starts at all
  out planned + promised + wanted <= cap of each domain     else domain-cap
Limits are looked at where a unit is wanted; elsewhere they may be spent.

- All or nothing: a part of a set would be drained and then wait for the rest.
- Units that are out or promised already take nothing, so repair of failed ones and hand-over are always allowed.
- Coming back is never asked for: only `check` refuses, and it is about taking.
- The maintenance buffer is a number, not a list of hosts, and failures have no claim on it. Every failure lowers what
  the guarantees leave, so planned work yields before a guarantee does.
- A unit that is out for planned work and fails moves from one buffer to the other: it leaves the maintenance buffer (a
  reboot that never returns must not hold a train's slot for ever) and may well spend the failure buffer (then trains
  stop, since work that loses hosts is not to go on). It stays on the failed side, whoever works on it, until it is in
  service again.
- A promise is no licence for ever: hosts may fail between admission and drain. `check_start` asks the same questions
  again when a drain is to begin, of what has really begun by then (units leaving or out, not mere promises, or two that
  wait would block each other). Nothing is drained while failures are above their buffer, whoever was admitted before.
- A promise of a unit that failed meanwhile counts again when the unit is back: in service less promised is then what it
  was, and `check_start` keeps the maintenance buffer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.machine import State
from trainmaster.core.base.reasons import Reason, Token, because, dominant
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.maintenance.capacity import (
    Book,
    CapacityPolicy,
    CountedUnit,
    DomainCap,
    Guarantee,
    members,
    resource_kind,
)


class Side(State):
    """On which side of the ledger a unit is."""

    IN_SERVICE = "in-service"
    LEAVING = "leaving"
    """In service until it is drained; promised to whoever drains it."""
    OUT_PLANNED = "out-planned"
    OUT_FAILED = "out-failed"
    ABSENT = "absent"
    """Not a part of the total: retired, sent away, or never in service so far."""


class BufferAccount(Value):
    """A limit and what it is used for."""

    size: int
    used: int
    left: int
    """0 when it is spent."""
    over: int
    """Used beyond it; 0 while it holds."""


class GuaranteeAccount(Value):
    name: str
    least: int
    headroom: int
    """Units that planned work could still take, after this guarantee and those before it. Negative: it is broken."""


class BookAccount(Value):
    """The numbers of a book, in units."""

    name: str
    total: int
    in_service: int
    """Promised ones included."""
    promised: int
    out_planned: int
    out_failed: int
    absent: int
    """Not in the total."""
    maintenance: BufferAccount
    failure: BufferAccount
    guarantees: tuple[GuaranteeAccount, ...]


class DomainAccount(Value):
    """The numbers of a capped resource, for one kind of unit."""

    resource: str
    kind: str
    total: int
    cap: BufferAccount


class Account(Value):
    books: tuple[BookAccount, ...]
    domains: tuple[DomainAccount, ...]
    uncounted: int
    """Units that no book counts, so that only caps limit work on them."""


def side_of(host: Host) -> Side:
    """The side of a host by its state.

    While it is verified it is out still, on the side that it came from: the last edge of its story led to *verifying*
    and begins there. A host that comes for the first time is absent until its first verification has ended, so that a
    new rack is no mass failure; so is one that never came. One that was taken out because it is at fault counts as
    failed from that moment on, also while jobs leave it and while it is repaired.
    """
    if host.state is HostState.VERIFYING:
        assert host.story, host.id
        assert host.story[-1].end == HostState.VERIFYING.word, host.id
        side = _SIDE_BEFORE[host.story[-1].start]
    elif host.state is HostState.OUT_FAILED and not host.boot:
        side = Side.ABSENT
    else:
        side = _SIDES[host.state]
    return Side.OUT_FAILED if host.at_fault and side is not Side.ABSENT else side


_SIDES: Final = {
    HostState.EXPECTED: Side.ABSENT,
    HostState.READY: Side.IN_SERVICE,
    HostState.DRAINING: Side.LEAVING,
    HostState.OUT_PLANNED: Side.OUT_PLANNED,
    HostState.OUT_FAILED: Side.OUT_FAILED,
}
_SIDE_BEFORE: Final = {
    HostState.EXPECTED.word: Side.ABSENT,
    HostState.OUT_PLANNED.word: Side.OUT_PLANNED,
    HostState.OUT_FAILED.word: Side.OUT_FAILED,
}

_ABSENT, _FREE, _PROMISED, _LEAVING, _PLANNED, _FAILED = range(6)
"""How a unit counts: places in the counts of a tally. Free: in service, neither promised nor leaving."""

_COUNTS_AS: Final = {
    Side.IN_SERVICE: _FREE,
    Side.LEAVING: _LEAVING,
    Side.OUT_PLANNED: _PLANNED,
    Side.OUT_FAILED: _FAILED,
    Side.ABSENT: _ABSENT,
}


class _Levels:
    """How many units count as what, and the total."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * 6

    @property
    def total(self) -> int:
        return sum(self.counts) - self.counts[_ABSENT]

    @property
    def in_service(self) -> int:
        return self.counts[_FREE] + self.promised

    @property
    def promised(self) -> int:
        return self.counts[_PROMISED] + self.counts[_LEAVING]

    @property
    def planned(self) -> int:
        return self.counts[_PLANNED]

    @property
    def failed(self) -> int:
        return self.counts[_FAILED]

    @property
    def taken(self) -> int:
        """What planned work has, or was promised."""
        return self.counts[_PLANNED] + self.promised

    def begun(self) -> "_Levels":
        """Without the promises that nobody has begun to take."""
        levels = _Levels()
        levels.counts = self.counts.copy()
        levels.counts[_FREE] += levels.counts[_PROMISED]
        levels.counts[_PROMISED] = 0
        return levels

    def unworn(self) -> "_Levels":
        """The same total, all in service and nothing promised."""
        levels = _Levels()
        levels.counts[_FREE] = self.total
        return levels

    def numbers(self, wanted: int, limit: int, left: int) -> dict[str, int | float | str]:
        """What a reason counts. `left` is what the limit leaves for planned work; negative if it is over already."""
        return {
            "total": self.total,
            "in_service": self.in_service,
            "out_planned": self.planned,
            "promised": self.promised,
            "out_failed": self.failed,
            "wanted": wanted,
            "limit": limit,
            "allowed": max(left, 0),
            "short_by": wanted - left,
        }


class _Tally(ABC):
    """A book or a capped domain: levels, and limits that hang on the total alone."""

    def __init__(self, order: tuple[int, int, str]) -> None:
        self.order = order
        """Books as they stand in the policy, then domains; for reasons of equal weight."""
        self.levels = _Levels()

    @abstractmethod
    def resize(self) -> None:
        """The total has changed."""

    @abstractmethod
    def refusal(self, levels: _Levels, wanted: int) -> Reason | None:
        """Why `wanted` more of free units may not be taken at these levels."""


class _BookTally(_Tally):
    def __init__(self, place: int, book: Book, guarantees: tuple[Guarantee, ...]) -> None:
        super().__init__((0, place, book.name))
        self.book, self.guarantees = book, guarantees
        self.resize()

    def resize(self) -> None:
        total = self.levels.total
        self.maintenance = self.book.buffers.maintenance.at_most(total)
        self.failure = self.book.buffers.failure.at_most(total)
        self.leasts = [guarantee.least.at_least(total) for guarantee in self.guarantees]
        self.guaranteed = sum(self.leasts)

    def refusal(self, levels: _Levels, wanted: int) -> Reason | None:
        if levels.in_service - levels.promised - wanted < self.guaranteed:
            return self._guarantee_broken(levels, wanted)
        if levels.taken + wanted > self.maintenance:
            return self._maintenance_spent(levels, wanted)
        if levels.failed > self.failure:
            return self._failure_spent(levels, wanted)
        return None

    def _guarantee_broken(self, levels: _Levels, wanted: int) -> Reason:
        """Names the first guarantee that the rest does not cover."""
        name, left = self.book.name, levels.in_service - levels.promised
        sums = accumulate(self.leasts)
        needed, guarantee = next(pair for pair in zip(sums, self.guarantees, strict=True) if left - wanted < pair[0])
        sentence = (
            f"{name}: units in service and not promised: {left}, of them guaranteed: {needed}"
            f" (up to {guarantee.name}), wanted: {wanted}"
        )
        numbers = levels.numbers(wanted, needed, left - needed)
        return because(Token.GUARANTEE_BROKEN, sentence, book=name, guarantee=guarantee.name, **numbers)

    def _maintenance_spent(self, levels: _Levels, wanted: int) -> Reason:
        name = self.book.name
        sentence = (
            f"{name}: of a maintenance buffer of {self.maintenance}, out: {levels.planned},"
            f" promised: {levels.promised}; wanted: {wanted}"
        )
        numbers = levels.numbers(wanted, self.maintenance, self.maintenance - levels.taken)
        return because(Token.MAINTENANCE_BUFFER_SPENT, sentence, book=name, **numbers)

    def _failure_spent(self, levels: _Levels, wanted: int) -> Reason:
        """What is missing here is not what is wanted, but failed units that come back."""
        name, over = self.book.name, levels.failed - self.failure
        sentence = f"{name}: failed units: {levels.failed}, {over} above the failure buffer of {self.failure}"
        numbers = levels.numbers(wanted, self.failure, 0) | {"short_by": over}
        return because(Token.FAILURE_BUFFER_SPENT, sentence, book=name, **numbers)

    def account(self) -> BookAccount:
        levels = self.levels
        left = levels.in_service - levels.promised
        guarantees = [
            GuaranteeAccount(name=guarantee.name, least=least, headroom=left - needed)
            for guarantee, least, needed in zip(self.guarantees, self.leasts, accumulate(self.leasts), strict=True)
        ]
        return BookAccount(
            name=self.book.name,
            total=levels.total,
            in_service=levels.in_service,
            promised=levels.promised,
            out_planned=levels.planned,
            out_failed=levels.failed,
            absent=levels.counts[_ABSENT],
            maintenance=_used(self.maintenance, levels.taken),
            failure=_used(self.failure, levels.failed),
            guarantees=tuple(guarantees),
        )


class _DomainTally(_Tally):
    def __init__(self, place: int, cap: DomainCap, resource: str, kind: str) -> None:
        super().__init__((1, place, f"{resource} {kind}"))
        self.cap, self.resource, self.kind = cap, resource, kind
        self.resize()

    def resize(self) -> None:
        self.most = self.cap.most.at_most(self.levels.total)

    def refusal(self, levels: _Levels, wanted: int) -> Reason | None:
        if levels.taken + wanted <= self.most:
            return None
        sentence = (
            f"{self.resource}: planned work may have {self.most} of {levels.total} of kind {self.kind} at once;"
            f" out or promised: {levels.taken}, wanted: {wanted}"
        )
        numbers = levels.numbers(wanted, self.most, self.most - levels.taken)
        return because(Token.DOMAIN_CAP, sentence, resource=self.resource, kind=self.kind, **numbers)

    def account(self) -> DomainAccount:
        cap = _used(self.most, self.levels.taken)
        return DomainAccount(resource=self.resource, kind=self.kind, total=self.levels.total, cap=cap)


class _Entry:
    """A unit: its side, how many operations were promised it, and where it counts."""

    __slots__ = ("counts_as", "promises", "side", "tallies")

    def __init__(self, tallies: tuple[_Tally, ...]) -> None:
        self.side = Side.ABSENT
        self.promises = 0
        self.counts_as = _ABSENT
        self.tallies = tallies


class Ledger:
    """Counts units. All are absent at first. Work per change grows with the books and domains of the unit alone."""

    def __init__(self, policy: CapacityPolicy, units: Iterable[CountedUnit]) -> None:
        self.policy = policy
        self._entries: dict[HostId, _Entry] = {}
        self._domains: dict[tuple[str, str], _DomainTally] = {}
        self._uncounted = 0
        self._members = [members(book) for book in policy.books]
        self._books = [
            _BookTally(place, book, tuple(other for other in policy.guarantees if other.book == book.name))
            for place, book in enumerate(policy.books)
        ]
        for unit in units:
            self.add(unit)

    def add(self, unit: CountedUnit) -> None:
        """A unit that is new to the ledger; absent until told otherwise."""
        assert unit.id not in self._entries, unit.id
        tallies: list[_Tally] = [self._books[place] for place, counts in enumerate(self._members) if counts(unit)]
        self._uncounted += not tallies
        for place, cap in enumerate(self.policy.caps):
            for resource in unit.resources:
                if resource_kind(resource) == cap.per:
                    fresh = _DomainTally(place, cap, resource, unit.kind)
                    tallies.append(self._domains.setdefault((resource, unit.kind), fresh))
        self._entries[unit.id] = _Entry(tuple(tallies))
        for tally in tallies:
            tally.levels.counts[_ABSENT] += 1

    def side(self, unit: HostId) -> Side:
        return self._entries[unit].side

    def is_promised(self, unit: HostId) -> bool:
        """An operation was promised the unit, wherever it is now."""
        return self._entries[unit].promises > 0

    def set_side(self, unit: HostId, side: Side) -> None:
        """The unit is on this side from now on. Never refused: what has happened is counted."""
        entry = self._entries[unit]
        entry.side = side
        self._recount(entry)

    def promise(self, units: Iterable[HostId]) -> None:
        """An operation that was admitted will take these units. Each call is given back by one `unpromise`."""
        for unit in set(units):
            entry = self._entries[unit]
            entry.promises += 1
            self._recount(entry)

    def unpromise(self, units: Iterable[HostId]) -> None:
        """The operation has ended, or gives these units up."""
        for unit in set(units):
            entry = self._entries[unit]
            assert entry.promises > 0, unit
            entry.promises -= 1
            self._recount(entry)

    def check(self, units: Iterable[HostId]) -> Reason | None:
        """Why planned work may not take all of these units now; None if it may. Those out or promised take nothing."""
        wanted = self._wanted(units, (_FREE,))
        return _first([(tally.order, tally.refusal(tally.levels, count)) for tally, count in wanted.items()])

    def takes(self, units: Iterable[HostId]) -> bool:
        """Whether planned work on them would take capacity: one of them is in service and not promised."""
        return any(self._entries[unit].counts_as == _FREE for unit in units)

    def check_start(self, units: Iterable[HostId]) -> Reason | None:
        """Why the drain of units that were promised may not begin now; None if it may. Those that are leaving or out
        take nothing."""
        wanted = self._wanted(units, (_FREE, _PROMISED))
        return _first([(tally.order, tally.refusal(tally.levels.begun(), count)) for tally, count in wanted.items()])

    def never(self, units: Iterable[HostId]) -> Reason | None:
        """Why planned work may not take all of these units even if all units were in service and nothing promised."""
        wanted = self._wanted(units, (_FREE, _PROMISED, _LEAVING, _PLANNED, _FAILED))
        return _first([(tally.order, tally.refusal(tally.levels.unworn(), count)) for tally, count in wanted.items()])

    def out_of(self, book: str) -> tuple[HostId, ...]:
        """Units of the book that planned work or a person's hold has taken out. Looks at all units."""
        taken = ((unit, entry) for unit, entry in self._entries.items() if entry.counts_as in (_LEAVING, _PLANNED))
        return tuple(
            unit
            for unit, entry in taken
            if any(isinstance(tally, _BookTally) and tally.book.name == book for tally in entry.tallies)
        )

    def books_of(self, units: Iterable[HostId]) -> dict[str, int]:
        """The books that count one of the units, and how many of them planned work would take there."""
        units = set(units)
        wanted = self._wanted(units, (_FREE,))
        tallies = dict.fromkeys(tally for unit in units for tally in self._entries[unit].tallies)
        return {tally.book.name: wanted.get(tally, 0) for tally in tallies if isinstance(tally, _BookTally)}

    def _wanted(self, units: Iterable[HostId], count_as: tuple[int, ...]) -> dict[_Tally, int]:
        """How many of the units each book and domain would have to give."""
        wanted: dict[_Tally, int] = {}
        entries = self._entries
        for unit in set(units):
            entry = entries[unit]
            if entry.counts_as in count_as:
                for tally in entry.tallies:
                    wanted[tally] = wanted.get(tally, 0) + 1
        return wanted

    def account(self) -> Account:
        """All numbers, in the order of the policy; domains by name."""
        domains = sorted(self._domains.values(), key=lambda tally: tally.order)
        return Account(
            books=tuple(tally.account() for tally in self._books),
            domains=tuple(tally.account() for tally in domains),
            uncounted=self._uncounted,
        )

    def _recount(self, entry: _Entry) -> None:
        before, now = entry.counts_as, _COUNTS_AS[entry.side]
        if now == _FREE and entry.promises:
            now = _PROMISED
        if now == before:
            return
        entry.counts_as = now
        for tally in entry.tallies:
            counts = tally.levels.counts
            assert counts[before] > 0, (tally.order, before)
            counts[before] -= 1
            counts[now] += 1
            if _ABSENT in (before, now):
                tally.resize()


def _first(found: list[tuple[tuple[int, int, str], Reason | None]]) -> Reason | None:
    """The dominant reason; of equals that of the first book or domain, however the units were ordered."""
    reasons = [(order, reason) for order, reason in found if reason is not None]
    if not reasons:
        return None
    return dominant(reason for _, reason in sorted(reasons, key=lambda pair: pair[0]))


def _used(size: int, used: int) -> BufferAccount:
    return BufferAccount(size=size, used=used, left=max(size - used, 0), over=max(used - size, 0))
