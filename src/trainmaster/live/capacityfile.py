"""The `[capacity]` table of a file: what may be missing at once.

    [[capacity.book]]
    name = "roce"
    cluster = "roce"               # or hosts = "h[1-8]": a pool
    kind = "compute"               # the default; compute, storage, switch, controller
    maintenance = "3%"             # rounded down, at least 1
    maintenance_hosts = 100        # optional; where both are given the stricter holds
    failure = "2%"

    [[capacity.guarantee]]
    name = "research"              # a tenant or a pool
    book = "roce"
    least_hosts = 1024             # or least = "33.3%", rounded up

    [[capacity.cap]]
    per = "row"                    # rack, pod, row, plane
    most = "25%"                   # of the row's units of one kind; or most_hosts

A file without the table has the usual buffers (3 % and 2 % of each kind of unit in each cluster). What the numbers
mean, and which of them can never hold, is decided by `core/maintenance/capacity.py`.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import HostId
from trainmaster.core.fleet.inventory import UNIT_KINDS
from trainmaster.core.maintenance.capacity import (
    WHOLE,
    Book,
    Buffers,
    CapacityPolicy,
    CountedUnit,
    DomainCap,
    Guarantee,
    Share,
    impossible,
    usual_policy,
)
from trainmaster.live.tomlfile import Table

UNITS_LIMIT: Final = 1_000_000


def read_capacity(root: Table, units: Sequence[CountedUnit], visited: Collection[str] = ()) -> CapacityPolicy:
    """The policy in `root`'s table `capacity`, or the usual one. Notes in the document what is wrong or can never hold;
    `units` are those of the fleet, `visited` the books that trains stop in. The caller finishes `root`."""
    if not root.has("capacity"):
        return usual_policy(units)
    table = root.table("capacity")
    policy = CapacityPolicy(
        books=tuple(_book(book) for book in table.tables("book")),
        guarantees=tuple(_guarantee(guarantee) for guarantee in table.tables("guarantee")),
        caps=tuple(_cap(cap) for cap in table.tables("cap")),
    )
    table.finish()
    if not policy.books and not table.document.problems:
        table.note("book", "capacity without a book limits nothing", "add a [[capacity.book]] table")
    if not table.document.problems:  # what is misread would only add echoes
        for problem in impossible(policy, units, visited):
            table.document.note((*table.path, *problem.path), problem.reason, problem.fix)
    return policy


def _book(table: Table) -> Book:
    name = table.text("name", may_be_empty=False)
    cluster, hosts = table.text("cluster", ""), _hosts(table)
    kind = table.choice("kind", "compute", UNIT_KINDS)
    buffers = Buffers(maintenance=read_share(table, "maintenance"), failure=read_share(table, "failure"))
    table.finish()
    return Book(name=name, cluster=cluster, kind=kind, hosts=hosts, buffers=buffers)


def _guarantee(table: Table) -> Guarantee:
    name, book = table.text("name", may_be_empty=False), table.text("book")
    least = read_share(table, "least")
    table.finish()
    return Guarantee(name=name, book=book, least=least)


def _cap(table: Table) -> DomainCap:
    per, most = table.text("per"), read_share(table, "most")
    table.finish()
    return DomainCap(per=per, most=most)


def _hosts(table: Table) -> tuple[HostId, ...]:
    text = table.text("hosts", "", may_be_empty=False)
    try:
        return parse(text) if text else ()
    except HostListError as error:
        table.note("hosts", f"{error.reason} at character {error.position + 1} of {text!r}", error.fix)
        return ()


def read_share(table: Table, key: str) -> Share:
    """`KEY = "3%"`, `KEY_hosts = 3`, or both."""
    percent, hosts = table.text(key, ""), table.integer(f"{key}_hosts", 0, 0, UNITS_LIMIT)
    if not table.has(key) and not table.has(f"{key}_hosts"):
        fix = f'add {key}, a percentage such as "3%", or {key}_hosts, a number of units'
        table.note(key, "this key is missing", fix)
    return Share(
        hosts=hosts if table.has(f"{key}_hosts") else None,
        per_mille=_per_mille(table, key, percent) if table.has(key) else None,
    )


def _per_mille(table: Table, key: str, text: str) -> int:
    """0 stands in for what is noted as wrong."""
    found = re.fullmatch(r"\s*(\d{1,3})(?:\.(\d))?\s*%\s*", text)
    if found is None:
        fix = f'write a percentage with at most one decimal, such as "2.5%", or use {key}_hosts'
        table.note(key, f"{text!r} is not a percentage", fix)
        return 0
    per_mille = int(found.group(1)) * 10 + int(found.group(2) or 0)
    if per_mille > WHOLE:
        table.note(key, f"{text.strip()} is more than all", "give 0% to 100%")
        return 0
    return per_mille
