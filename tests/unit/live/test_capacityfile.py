"""The `[capacity]` table: what it says, and what is refused."""

from pathlib import Path

import pytest

from trainmaster.core.base.ids import HostId
from trainmaster.core.maintenance.capacity import (
    USUAL_FAILURE,
    USUAL_MAINTENANCE,
    Book,
    Buffers,
    CapacityPolicy,
    CountedUnit,
    DomainCap,
    Guarantee,
    Share,
    counted,
    impossible,
)
from trainmaster.core.maintenance.ledger import Ledger, Side
from trainmaster.live.capacityfile import read_capacity
from trainmaster.live.fleetfile import load
from trainmaster.live.tomlfile import Document, FileError

SCENARIOS = Path(__file__).parents[3] / "scenarios"
UNITS = [CountedUnit(id=HostId(f"h{n}"), cluster="roce", resources=(f"row/w{n % 2}",)) for n in range(100)]


def read(tmp_path: Path, text: str) -> CapacityPolicy:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    document = Document(file, "fleet file")
    policy = read_capacity(document.root, UNITS, visited=("roce",))
    document.root.finish()
    document.finish()
    return policy


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        read(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


def test_all_that_can_be_said(tmp_path: Path) -> None:
    policy = read(
        tmp_path,
        """
        [[capacity.book]]
        name = "roce"
        cluster = "roce"
        maintenance = "3%"
        maintenance_hosts = 2
        failure = "2.5 %"

        [[capacity.book]]
        name = "pool"
        hosts = "h[0-9]"
        maintenance_hosts = 1
        failure = "10%"

        [[capacity.guarantee]]
        name = "research"
        book = "roce"
        least_hosts = 64

        [[capacity.guarantee]]
        name = "serving"
        book = "pool"
        least = "33.3%"

        [[capacity.cap]]
        per = "row"
        most = "25%"
        """,
    )
    roce = Buffers(maintenance=Share(hosts=2, per_mille=30), failure=Share(per_mille=25))
    pool = Buffers(maintenance=Share(hosts=1), failure=Share(per_mille=100))
    assert policy == CapacityPolicy(
        books=(
            Book(name="roce", cluster="roce", buffers=roce),
            Book(name="pool", hosts=tuple(HostId(f"h{n}") for n in range(10)), buffers=pool),
        ),
        guarantees=(
            Guarantee(name="research", book="roce", least=Share(hosts=64)),
            Guarantee(name="serving", book="pool", least=Share(per_mille=333)),
        ),
        caps=(DomainCap(per="row", most=Share(per_mille=250)),),
    )


def test_what_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    text = """\
[[capacity.book]]
name = "roce"
cluster = "roce"
kind = "hosts"
maintenance = "three"
failure = 0.02

[[capacity.book]]
name = "pool"
hosts = "h[3-1]"
maintenance = "120%"
failure_host = 2

[[capacity.guarantee]]
name = "research"
book = "roce"
least_hosts = -1

[[capacity.cap]]
per = "row"
most = "0.25%"
"""
    assert problems(tmp_path, text) == [
        'line 4: capacity.book[1].kind: \'hosts\' is not known; known are compute, storage, switch, controller',
        "line 5: capacity.book[1].maintenance: 'three' is not a percentage; write a percentage with at most one"
        ' decimal, such as "2.5%", or use maintenance_hosts',
        "line 6: capacity.book[1].failure: this is a number; write a string in quotes",
        'line 8: capacity.book[2].failure: this key is missing; add failure, a percentage such as "3%", or'
        " failure_hosts, a number of units",
        "line 10: capacity.book[2].hosts: the range 3-1 runs backwards at character 3 of 'h[3-1]'; write 1-3",
        "line 11: capacity.book[2].maintenance: 120% is more than all; give 0% to 100%",
        "line 12: capacity.book[2].failure_host: this key is not known; did you mean failure_hosts?",
        "line 17: capacity.guarantee[1].least_hosts: -1 is out of range; use 0 to 1000000",
        "line 21: capacity.cap[1].most: '0.25%' is not a percentage; write a percentage with at most one decimal, such"
        ' as "2.5%", or use most_hosts',
    ]  # fmt: skip


def test_what_can_never_hold_has_its_line(tmp_path: Path) -> None:
    text = """\
[[capacity.book]]
name = "roce"
cluster = "roce"
maintenance = "0%"
failure = "2%"

[[capacity.guarantee]]
name = "research"
book = "roce"
least = "100%"

[[capacity.cap]]
per = "shelf"
most_hosts = 1
"""
    assert problems(tmp_path, text) == [
        "line 4: capacity.book[1].maintenance: a buffer of 0 lets no train ever stop here; give it 1 or more, or take"
        " the book out of the trains",
        "line 10: capacity.guarantee[1].least: 100 of 100 units: not one could ever be taken for planned work;"
        " guarantee at most 99",
        "line 13: capacity.cap[1].per: no unit is a part of a 'shelf'; known are row",
    ]


def test_a_table_without_books(tmp_path: Path) -> None:
    assert problems(tmp_path, "[capacity]\n") == [
        "line 1: capacity.book: capacity without a book limits nothing; add a [[capacity.book]] table"
    ]


def test_without_a_table_the_usual_buffers_hold(tmp_path: Path) -> None:
    (book,) = read(tmp_path, "").books
    assert (book.name, book.cluster, book.kind) == ("roce-compute", "roce", "compute")
    assert book.buffers == Buffers(maintenance=USUAL_MAINTENANCE, failure=USUAL_FAILURE)


def test_the_two_clusters(tmp_path: Path) -> None:
    """1. The fleet of 2 x 3,072 hosts is counted. 2. The usual buffers are possible: 92 for planned work, 61 failed.
    3. Caps per rack count its two hosts."""
    units = [counted(spec) for spec in load(SCENARIOS / "two-clusters.toml").fleet.hosts]
    file = tmp_path / "fleet.toml"
    file.write_text("")
    policy = read_capacity(Document(file, "fleet file").root, units)
    policy = policy.but(caps=(DomainCap(per="rack", most=Share(per_mille=500)),))
    assert impossible(policy, units, visited=[book.name for book in policy.books]) == ()
    ledger = Ledger(policy, units)
    for unit in units:
        ledger.set_side(unit.id, Side.IN_SERVICE)
    compute = {book.name: book for book in ledger.account().books if book.name.endswith("compute")}
    assert {(book.total, book.maintenance.size, book.failure.size) for book in compute.values()} == {(3072, 92, 61)}
    hosts = [unit.id for unit in units if unit.kind == "compute"]
    assert ledger.check(hosts[0:184:2]) is None
    assert ledger.check(hosts[0:2]) is not None
