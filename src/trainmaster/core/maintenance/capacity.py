"""What may be missing at once: books, buffers, guarantees and caps, as somebody wrote them down.

A *book* is a set of units that can stand in for one another: the compute hosts of a cluster, its switches, or a named
pool. Per book two buffers say how many units may be out: one for planned work, one for failures. A *guarantee* says how
many must be left in service; a *cap* limits planned work in one place (a power row, a rack).

Arithmetic, in whole units and per mille, since no float decides whether a host may be taken:

- The denominator of every percentage is the *total* of the book it stands in: its units that are declared and not
  absent (retired, sent away for repair, or never in service so far). Never the fleet, never the units that are up:
  a percentage of what is up shrinks the limit with every failure, one of the fleet lets a small pool vanish.
- A buffer or a cap rounds down, but is at least 1 when its percentage is above 0 and there is a unit: 50 % of 3 is 1
  (rounding up would take two of three), 3 % of 5 is 1 (rounding to 0 would mean that nothing is ever repaired).
- A guarantee rounds up: 50 % of 3 is 2.
- Both hosts and percent: the stricter. The smaller for a buffer or a cap, the larger for a guarantee.
- Guarantees of one book add up: what is kept for one tenant is not there for another.
- Buffers of several books do not add up: a unit that two books count must find room in both.
- A cap counts each kind of unit by itself: 25 % of a row's hosts and 25 % of its switches, never of their mixture.

`impossible` finds what can never hold, all at once, before anything waits for it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec

WHOLE: Final = 1000
"""100 %, in per mille."""

Path = tuple[str | int, ...]


class Share(Value):
    """A number of units, absolute, as a part of a total, or both (then the stricter). At least one is given."""

    hosts: int | None = None
    per_mille: int | None = None

    def at_most(self, total: int) -> int:
        """The limit that this sets in a book of `total` units: rounded down, yet 1 for any percentage above 0."""
        assert total >= 0
        limits = [] if self.hosts is None else [self.hosts]
        if self.per_mille is not None:
            limits.append(max(total * self.per_mille // WHOLE, 1 if self.per_mille > 0 and total > 0 else 0))
        return min(limits)

    def at_least(self, total: int) -> int:
        """What this guarantees in a book of `total` units: rounded up."""
        assert total >= 0
        needs = [] if self.hosts is None else [self.hosts]
        if self.per_mille is not None:
            needs.append(-(-total * self.per_mille // WHOLE))
        return max(needs)

    def __str__(self) -> str:
        percent = [] if self.per_mille is None else [f"{self.per_mille / 10:g} %"]
        return " and ".join([*percent, *([] if self.hosts is None else [f"{self.hosts} units"])])


USUAL_MAINTENANCE: Final = Share(per_mille=30)
USUAL_FAILURE: Final = Share(per_mille=20)
"""2 % is what published reservation systems keep against random failures; 3 % out for planned work lets a train pass a
whole cluster in 34 stops."""


class Buffers(Value):
    """How many units of a book may be out at once."""

    maintenance: Share
    """For planned work, what it was promised included."""
    failure: Share
    """Failed ones; above it no planned work starts."""


class Book(Value):
    """Units that are counted together: those of one kind in a cluster, or a pool given by name."""

    name: str
    buffers: Buffers
    cluster: str = ""
    kind: str = "compute"
    """Of the cluster's units; a pool may mix kinds."""
    hosts: tuple[HostId, ...] = ()
    """A pool: exactly these units, instead of a cluster."""


class Guarantee(Value):
    """Units that stay in service for somebody."""

    name: str
    """A tenant or a pool; for the reader."""
    book: str
    least: Share


class DomainCap(Value):
    """The most that planned work may have at once of every resource of a kind."""

    per: str
    """Kind of resource: rack, row, pod, plane."""
    most: Share


class CapacityPolicy(Value):
    """All limits. Where several refuse, the order of books and guarantees here is the order in which they are named."""

    books: tuple[Book, ...]
    guarantees: tuple[Guarantee, ...] = ()
    caps: tuple[DomainCap, ...] = ()


class CountedUnit(Value):
    """What counting has to know of a unit."""

    id: HostId
    cluster: str
    kind: str = "compute"
    resources: tuple[str, ...] = ()
    """What it is a part of, as kind/name: rack/r1, row/w3."""


class Problem(Value):
    """One thing that is wrong with a policy."""

    path: Path
    """Where: ("book", 0, "maintenance")."""
    reason: str
    fix: str


def counted(spec: HostSpec) -> CountedUnit:
    """What the ledger counts of a declared host."""
    places = (("rack", spec.rack), ("pod", spec.pod), ("row", spec.row), ("plane", spec.plane))
    resources = tuple(f"{kind}/{name}" for kind, name in places if name)
    return CountedUnit(id=spec.id, cluster=spec.cluster, kind=spec.kind, resources=resources)


def usual_policy(units: Iterable[CountedUnit]) -> CapacityPolicy:
    """For fleets that state none: each kind of unit in each cluster is a book with the usual buffers."""
    kinds = sorted({(unit.cluster, unit.kind) for unit in units})
    buffers = Buffers(maintenance=USUAL_MAINTENANCE, failure=USUAL_FAILURE)
    books = [Book(name=f"{cluster}-{kind}", cluster=cluster, kind=kind, buffers=buffers) for cluster, kind in kinds]
    return CapacityPolicy(books=tuple(books))


def members(book: Book) -> Callable[[CountedUnit], bool]:
    """Whether the book counts a unit."""
    if book.hosts:
        hosts = frozenset(book.hosts)
        return lambda unit: unit.id in hosts
    return lambda unit: unit.cluster == book.cluster and unit.kind == book.kind


def resource_kind(resource: str) -> str:
    kind, slash, _ = resource.partition("/")
    assert slash, resource
    return kind


def impossible(
    policy: CapacityPolicy, units: Iterable[CountedUnit], visited: Collection[str] = ()
) -> tuple[Problem, ...]:
    """What can never hold, or counts nothing, with all `units` in service. `visited`: books that trains stop in."""
    units = tuple(units)
    found = [*_repeated(policy)]
    totals: dict[str, int] = {}
    for place, book in enumerate(policy.books):
        total = sum(map(members(book), units))
        totals.setdefault(book.name, total)
        found += _book_problems(place, book, units, total)
        found += _buffer_problems(place, book, total, book.name in visited)
    found += _guarantee_problems(policy, totals)
    kinds = {resource_kind(resource) for unit in units for resource in unit.resources}
    for place, cap in enumerate(policy.caps):
        found += _cap_problems(place, cap, kinds)
    return tuple(found)


def _repeated(policy: CapacityPolicy) -> Iterator[Problem]:
    for table, key, names in (
        ("book", "name", [book.name for book in policy.books]),
        ("guarantee", "name", [guarantee.name for guarantee in policy.guarantees]),
        ("cap", "per", [cap.per for cap in policy.caps]),
    ):
        seen: set[str] = set()
        for place, name in enumerate(names):
            if name in seen:
                yield Problem(
                    path=(table, place, key), reason=f"{name!r} stands twice", fix="merge them, or rename one"
                )
            seen.add(name)


def _book_problems(place: int, book: Book, units: tuple[CountedUnit, ...], total: int) -> Iterator[Problem]:
    """Of what it counts."""
    at: Path = ("book", place)
    if bool(book.cluster) == bool(book.hosts):
        yield Problem(path=at, reason="a book is of a cluster or of hosts", fix="give one of cluster and hosts")
    elif book.hosts:
        unknown = set(book.hosts) - {unit.id for unit in units}
        if unknown:
            yield Problem(path=(*at, "hosts"), reason=f"not in the fleet: {fold(unknown)}", fix="leave them out")
    elif book.cluster not in {unit.cluster for unit in units}:
        fix = f"known are {', '.join(sorted({unit.cluster for unit in units})) or 'none'}"
        yield Problem(path=(*at, "cluster"), reason=f"no cluster {book.cluster!r}", fix=fix)
    elif total == 0:
        fix = f"known are {', '.join(sorted({unit.kind for unit in units if unit.cluster == book.cluster}))}"
        yield Problem(path=(*at, "kind"), reason=f"{book.cluster} has no unit of kind {book.kind!r}", fix=fix)


def _buffer_problems(place: int, book: Book, total: int, visited: bool) -> Iterator[Problem]:
    at: Path = ("book", place)
    for key, share in (("maintenance", book.buffers.maintenance), ("failure", book.buffers.failure)):
        wrong = list(_share_problems((*at, key), share))
        yield from wrong
        if total and not wrong and share.hosts is not None and share.hosts > total:
            fix = f"give at most {total}, or a percentage"
            yield Problem(path=(*at, key), reason=f"{share.hosts} units of a book of {total}", fix=fix)
        elif key == "maintenance" and total and not wrong and visited and share.at_most(total) == 0:
            fix = "give it 1 or more, or take the book out of the trains"
            yield Problem(path=(*at, key), reason="a buffer of 0 lets no train ever stop here", fix=fix)


def _guarantee_problems(policy: CapacityPolicy, totals: dict[str, int]) -> Iterator[Problem]:
    """Each by itself, then the sum of those of a book against what planned work may leave of it."""
    books = {book.name: book for book in policy.books}
    sums: Counter[str] = Counter()
    for place, guarantee in enumerate(policy.guarantees):
        at: Path = ("guarantee", place)
        if guarantee.book not in books:
            fix = f"known are {', '.join(books) or 'none'}"
            yield Problem(path=(*at, "book"), reason=f"no book {guarantee.book!r}", fix=fix)
            continue
        wrong = list(_share_problems((*at, "least"), guarantee.least))
        yield from wrong
        total, buffer = totals[guarantee.book], books[guarantee.book].buffers.maintenance
        if wrong or total == 0 or any(_share_problems(at, buffer)):
            continue
        least = guarantee.least.at_least(total)
        before, sums[guarantee.book] = sums[guarantee.book], sums[guarantee.book] + least
        if least + 1 > total:
            reason = f"{least} of {total} units: not one could ever be taken for planned work"
            yield Problem(path=(*at, "least"), reason=reason, fix=f"guarantee at most {total - 1}")
        elif before + least > (room := total - buffer.at_most(total)):
            also = f" ({before} by the guarantees before it)" if before else ""
            reason = f"{before + least} units are guaranteed{also}, but planned work may leave {room} of {total}"
            fix = f"guarantee {before + least - room} fewer, or lower the maintenance buffer of {guarantee.book}"
            yield Problem(path=(*at, "least"), reason=reason, fix=fix)


def _cap_problems(place: int, cap: DomainCap, kinds: set[str]) -> Iterator[Problem]:
    if cap.per not in kinds:
        fix = f"known are {', '.join(sorted(kinds)) or 'none'}"
        yield Problem(path=("cap", place, "per"), reason=f"no unit is a part of a {cap.per!r}", fix=fix)
    yield from _share_problems(("cap", place, "most"), cap.most)
    if cap.most.hosts == 0 or cap.most.per_mille == 0:
        reason = f"a cap of 0 lets no planned work on any {cap.per}"
        yield Problem(path=("cap", place, "most"), reason=reason, fix="give it 1 or more, or pause the work instead")


def _share_problems(path: Path, share: Share) -> Iterator[Problem]:
    if share.hosts is None and share.per_mille is None:
        yield Problem(path=path, reason="neither units nor a percentage", fix='give one, such as "3%"')
    if share.hosts is not None and share.hosts < 0:
        yield Problem(path=path, reason=f"{share.hosts} units are fewer than none", fix="give 0 or more")
    if share.per_mille is not None and not 0 <= share.per_mille <= WHOLE:
        yield Problem(path=path, reason=f"{share.per_mille / 10:g} % is out of range", fix="give 0 % to 100 %")
