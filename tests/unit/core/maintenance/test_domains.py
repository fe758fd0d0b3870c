"""Which units a train takes out together."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fixtures import host_spec

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.seed import Stream
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.domain_size import mean_hits
from trainmaster.core.maintenance.domains import (
    Domain,
    DomainId,
    build,
    even_parts,
    expected_hits,
    hits,
    rows,
    stops_by_gang,
)
from trainmaster.core.scheduling.place import FreeIndex, Placement


def fleet(pods: int, racks: int, per_rack: int, cluster: str = "c") -> list[HostSpec]:
    """Hosts h1, h2, ... in racks r1, r2, ... of pods p1, p2, ..."""
    specs = []
    for place in range(pods * racks * per_rack):
        rack = place // per_rack
        specs.append(host_spec(f"h{place + 1}", cluster, f"p{rack // racks + 1}", f"r{rack + 1}"))
    return specs


def domain_of(domains: Sequence[Domain]) -> dict[HostId, DomainId]:
    return {unit: domain.id for domain in domains for unit in domain.units}


def assert_partition(domains: Sequence[Domain], units: Sequence[HostSpec], size: int) -> None:
    listed = [unit for domain in domains for unit in domain.units]
    assert sorted(listed) == sorted(unit.id for unit in units)
    assert len(set(listed)) == len(listed)
    assert all(1 <= len(domain.units) <= size for domain in domains)
    assert len({domain.id for domain in domains}) == len(domains)


def test_pods_are_divided_evenly_by_whole_racks() -> None:
    """1. Two pods of 12 racks of 2; at most 10 hosts a domain. 2. Each pod makes ceil(24 / 10) = 3 domains of 4 racks,
    in order; filled up to the size they would be 10, 10 and 4."""
    units = fleet(2, 12, 2)
    made = rows(build(units, 10), units)
    assert [row.id for row in made] == ["c-p1/1", "c-p1/2", "c-p1/3", "c-p2/1", "c-p2/2", "c-p2/3"]
    assert [row.hosts for row in made[:2]] == ["h[1-8]", "h[9-16]"]
    assert {(row.units, row.racks, row.pods) for row in made} == {(8, 4, 1)}


def test_a_large_cluster() -> None:
    """1. 3,072 hosts, 8 pods of 192 racks of 2, at most 47 a domain. 2. 72 domains of 21 or 22 racks, none across pods,
    where 66 would do if pods were no matter."""
    units = fleet(8, 192, 2)
    made = build(units, 47)
    assert_partition(made, units, 47)
    assert len(made) == 72
    assert {len(domain.units) for domain in made} == {42, 44}
    assert {row.pods for row in rows(made, units)} == {1}


def test_small_pods_go_together_whole() -> None:
    """1. Eight pods of 4; at most 10 a domain. 2. Pairs of pods: two and a half would divide one."""
    units = fleet(8, 2, 2)
    assert [row.hosts for row in rows(build(units, 10), units)] == ["h[1-8]", "h[9-16]", "h[17-24]", "h[25-32]"]


def test_a_rack_is_divided_only_if_it_is_above_the_size() -> None:
    units = fleet(1, 2, 5)
    assert [row.hosts for row in rows(build(units, 5), units)] == ["h[1-5]", "h[6-10]"]
    assert [row.hosts for row in rows(build(units, 4), units)] == ["h[1-2]", "h[3-5]", "h[6-7]", "h[8-10]"]
    assert len(build(units, 1)) == 10
    assert len(build(units, 10)) == 1


def test_no_units_no_domains() -> None:
    assert build([], 4) == ()
    assert expected_hits((), {"g": [HostId("h1")]}) == 0


def test_uneven_items_fall_back_to_the_smallest_limit() -> None:
    """1. Racks of 1, 1, 5, 2 and 4: by their middles the second run would hold 7. 2. Filled up to 6, all fit."""
    names = iter(range(100))
    items = [[HostId(f"h{next(names)}") for _ in range(length)] for length in (1, 1, 5, 2, 4)]
    assert [len(run) for run in even_parts(items, 6)] == [2, 5, 6]


@pytest.mark.parametrize(("size", "least"), [(6, 1), (6, 5), (100, 4)])
def test_parts_keep_the_order(size: int, least: int) -> None:
    items = [[HostId(f"h{rack}{place}") for place in range(3)] for rack in range(7)]
    made = even_parts(items, size, least)
    assert [unit for run in made for unit in run] == [unit for item in items for unit in item]
    assert max(len(run) for run in made) <= size
    assert len(made) >= least


# Gangs


def placed_gangs(units: Sequence[HostSpec], sizes: Sequence[int]) -> dict[str, tuple[HostId, ...]]:
    """Gangs where the product's own placement puts them, one after the other."""
    free = FreeIndex()
    spec = {unit.id: unit for unit in units}
    for position, unit in enumerate(units):
        free.add(unit, position)
    gangs = {}
    for number, size in enumerate(sizes):
        found = free.place(size, 0)
        assert isinstance(found, Placement)
        for host in found.members:
            assert spec[host]
            free.remove(host)
        gangs[f"job-{number + 1}.a1"] = found.members
    return gangs


def random_domains(units: Sequence[HostSpec], like: Sequence[Domain], seed: int) -> list[Domain]:
    """Domains of the same sizes with units of chance."""
    order = iter(Stream.of(seed, "domains").shuffled(unit.id for unit in units))
    return [Domain(id=domain.id, units=tuple(next(order) for _ in domain.units)) for domain in like]


def test_far_fewer_gangs_are_hit_than_by_domains_of_chance() -> None:
    """1. 3,072 hosts; gangs of 1,024, 256 and 32 hosts lie where the product places them. 2. Domains of chance meet
    several times as many gangs, over ten draws; ours are close to the average over alignments."""
    units = fleet(8, 192, 2)
    sizes = [1024, 256, 256, 256] + [32] * 30
    gangs = placed_gangs(units, sizes)
    made = build(units, 47)
    ours = expected_hits(made, gangs)
    of_chance = [expected_hits(random_domains(units, made, seed), gangs) for seed in range(10)]
    assert min(of_chance) > 5 * ours
    expected = sum(mean_hits(3072, size, len(made)) for size in sizes) / len(made)
    assert ours == pytest.approx(expected, rel=0.15)


def test_hits() -> None:
    """1. Three gangs over two domains. 2. Each stop names its gangs, in natural order; hosts that are no units count
    for nothing."""
    units = fleet(1, 4, 2)
    first, second = build(units, 4)
    gangs = {"job-10.a1": ("h1", "h2"), "job-9.a1": ("h4", "h5"), "job-2.a1": ("h8", "gone")}
    memberships = {name: [HostId(host) for host in hosts] for name, hosts in gangs.items()}
    assert hits(first, memberships) == ("job-9.a1", "job-10.a1")
    assert hits(second, memberships) == ("job-2.a1", "job-9.a1")
    assert stops_by_gang((first, second), memberships) == {"job-10.a1": 1, "job-9.a1": 2, "job-2.a1": 1}
    assert expected_hits((first, second), memberships) == 2


# Units apart


def test_both_planes_of_a_rack_are_apart() -> None:
    """1. Every rack has two switches, one a plane. 2. One may go with its rack, the other goes elsewhere; no stop takes
    both, and none is above the size."""
    units, apart = [], {}
    for rack in range(12):
        units += [host_spec(f"h{rack * 4 + place}", "c", "p1", f"r{rack}") for place in range(4)]
        units += [host_spec(f"s{rack}{plane}", "c", "p1", f"r{rack}") for plane in "ab"]
        apart[f"planes/r{rack}"] = [HostId(f"s{rack}a"), HostId(f"s{rack}b")]
    made = build(units, 20, apart)
    assert_partition(made, units, 20)
    assert len(made) == 4
    place = domain_of(made)
    assert all(place[first] != place[second] for first, second in apart.values())
    assert all(place[HostId(f"s{rack}a")] == place[HostId(f"h{rack * 4}")] for rack in range(12))


def test_small_pods_leave_room_for_their_switches() -> None:
    """1. Two pods of 4 hosts and 2 switches; 8 a domain. 2. Not one full domain of hosts and two of switches, but one
    a pod."""
    units, apart = [], {}
    for pod in ("p1", "p2"):
        units += [host_spec(f"{pod}h{place}", "c", pod, f"{pod}r") for place in range(4)]
        units += [host_spec(f"{pod}s{plane}", "c", pod, f"{pod}r") for plane in "ab"]
        apart[pod] = [HostId(f"{pod}sa"), HostId(f"{pod}sb")]
    made = build(units, 8, apart)
    assert_partition(made, units, 8)
    assert [len(domain.units) for domain in made] == [6, 6]


def test_replicas_ride_where_there_is_room_and_make_domains_if_they_must() -> None:
    """1. Five replicas in a pod of their own beside two domains of hosts with room. 2. Two ride with the hosts, three
    get a stop each."""
    units = fleet(1, 2, 3) + [host_spec(f"s{place}", "c", "storage", f"x{place}") for place in range(5)]
    made = build(units, 4, {"replicas": [HostId(f"s{place}") for place in range(5)]})
    assert_partition(made, units, 4)
    assert [row.hosts for row in rows(made, units)] == ["h[1-3],s0", "h[4-6],s1", "s2", "s3", "s4"]


def test_groups_that_left_are_passed_over() -> None:
    units = fleet(1, 1, 2)
    assert len(build(units, 2, {"planes": [HostId("gone"), HostId("h1")]}, build(fleet(1, 2, 2), 2))) == 1


# Stable


def test_new_hosts_move_nobody() -> None:
    """1. A cluster with its domains. 2. A rack is added in the middle of the declaration, then a whole pod. 3. Nobody
    changes domain; the rack fills the domain of its pod with the most room; the pod has domains of its own."""
    units = fleet(2, 10, 2)
    first = build(units, 8)
    assert [len(domain.units) for domain in first] == [6, 8, 6, 6, 8, 6]
    more = units[:4] + [host_spec(f"n{place}", "c", "p1", "new") for place in range(2)] + units[4:]
    second = build(more, 8, before=first)
    assert_partition(second, more, 8)
    assert domain_of(first).items() <= domain_of(second).items()
    assert {domain_of(second)[HostId(f"n{place}")] for place in range(2)} == {"c-p1/1"}
    most = more + [host_spec(f"m{place}", "c", "p3", f"m{place // 4}") for place in range(12)]
    third = build(most, 8, before=second)
    assert_partition(third, most, 8)
    assert domain_of(second).items() <= domain_of(third).items()
    assert [domain.id for domain in third[-2:]] == ["c-p3/1", "c-p3/2"]


def test_a_full_pod_opens_a_domain_for_new_racks() -> None:
    """1. A pod with full domains. 2. Two new racks share a new one, whose number was never used."""
    units = fleet(1, 4, 2)
    first = build(units, 4)
    more = units + [host_spec(f"n{place}", "c", "p1", f"new{place // 2}") for place in range(4)]
    second = build(more, 4, before=first)
    assert [row.hosts for row in rows(second, more)] == ["h[1-4]", "h[5-8]", "n[0-3]"]
    assert second[-1].id == "c-p1/3"


def test_a_smaller_size_moves_what_is_too_much() -> None:
    """1. Domains of 6 hosts; now at most 4. 2. The first four of each stay; the others share new domains."""
    units = fleet(1, 6, 2)
    first = build(units, 6)
    second = build(units, 4, before=first)
    assert_partition(second, units, 4)
    kept = sum(domain_of(first)[unit.id] == domain_of(second)[unit.id] for unit in units)
    assert kept == 8
    assert [row.hosts for row in rows(second, units)] == ["h[1-4]", "h[7-10]", "h[5-6,11-12]"]


def test_a_group_that_came_later_moves_one() -> None:
    """1. Two switches share a domain. 2. They become a group. 3. The one that is declared later moves."""
    units = fleet(1, 4, 2)
    first = build(units, 6)
    second = build(units, 6, {"planes": [HostId("h1"), HostId("h2")]}, first)
    assert_partition(second, units, 6)
    moved = [unit.id for unit in units if domain_of(first)[unit.id] != domain_of(second)[unit.id]]
    assert moved == ["h2"]


def test_hosts_that_left_leave_the_rest_in_place() -> None:
    units = fleet(2, 4, 2)
    first = build(units, 4)
    rest = units[:1] + units[8:]
    second = build(rest, 4, before=first)
    assert_partition(second, rest, 4)
    assert domain_of(second).items() <= domain_of(first).items()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_fleet(data: st.DataObject) -> None:
    """1. Pods and racks of any shape, groups of any kind. 2. The domains are a partition, none above the size; groups
    are apart; racks are whole; a domain with hosts of several pods holds these whole. 3. More racks move nobody."""
    shape = data.draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=5))
    size = data.draw(st.integers(1, 24))
    units = []
    for pod, racks in enumerate(shape):
        for rack, length in enumerate(racks):
            units += [host_spec(f"h{pod}-{rack}-{place}", "c", f"p{pod}", f"r{pod}-{rack}") for place in range(length)]
    names = [unit.id for unit in units]
    apart = {
        f"g{number}": data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
        for number in range(data.draw(st.integers(0, 3)))
    }
    grouped = {unit for members in apart.values() for unit in members}
    made = build(units, size, apart)
    assert_partition(made, units, size)
    place = domain_of(made)
    for members in apart.values():
        assert len({place[unit] for unit in members}) == len(members)
    for key, longest in (("rack", size), ("pod", size)):
        whole: dict[str, list[HostSpec]] = {}
        for unit in units:
            whole.setdefault(getattr(unit, key), []).append(unit)
        for name, members in whole.items():
            homes = {place[unit.id] for unit in members if unit.id not in grouped}
            assert len(members) > longest or len(homes) <= 1, name
    for domain in made:
        pods = {unit.pod for unit in units if unit.id in domain.units and unit.id not in grouped}
        for pod in pods if len(pods) > 1 else ():
            inside = {place[unit.id] for unit in units if unit.pod == pod and unit.id not in grouped}
            assert inside == {domain.id}
    more = units + [host_spec(f"n{place}", "c", "p0", f"n{place // 2}") for place in range(6)]
    again = build(more, size, apart, made)
    assert_partition(again, more, size)
    assert place.items() <= domain_of(again).items()


def test_two_clusters_of_hosts() -> None:
    """1. 6,144 hosts, with and without a partition to keep. 2. Each is in one domain, and none is too large."""
    units = fleet(16, 192, 2)
    apart = {f"g{group}": [units[group * 3 + place].id for place in range(3)] for group in range(100)}
    before = build(units, 47)
    for kept in ((), before):
        assert_partition(build(units, 47, apart, kept), units, 47)
