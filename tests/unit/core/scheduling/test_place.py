"""Where a gang goes, and why it does not."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fixtures import host_spec

from trainmaster.core.base.ids import ClusterId, HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.scheduling.place import FreeIndex, Placement


def index(*rows: tuple[str, str, str, str]) -> FreeIndex:
    """Rows of (host, cluster, pod, rack), in the order of declaration."""
    free = FreeIndex()
    for position, (host, cluster, pod, rack) in enumerate(rows):
        free.add(host_spec(host, cluster, pod, rack), position)
    return free


def placed(found: Placement | Reason) -> Placement:
    assert isinstance(found, Placement), found
    return found


def test_the_tightest_pod_that_holds_the_gang() -> None:
    """1. Pods with 4, 2 and 3 free hosts. 2. A gang of 2 takes the one with 2, a gang of 3 then the one with 3: large
    holes stay for large gangs."""
    rows = [(f"a{n}", "c", "p1", "r1") for n in range(4)]
    rows += [(f"b{n}", "c", "p2", "r2") for n in range(2)]
    rows += [(f"d{n}", "c", "p3", "r3") for n in range(3)]
    free = index(*rows)
    assert placed(free.place(2, 0)).members == ("b0", "b1")
    assert placed(free.place(3, 0)).members == ("d0", "d1", "d2")
    assert placed(free.place(4, 0)).members == ("a0", "a1", "a2", "a3")


def test_within_a_pod_the_fullest_racks() -> None:
    """1. Racks with 1, 2 and 1 free hosts. 2. A gang of 2 stays within one rack."""
    free = index(("h1", "c", "p1", "r1"), ("h2", "c", "p1", "r2"), ("h3", "c", "p1", "r2"), ("h4", "c", "p1", "r3"))
    assert placed(free.place(2, 0)).members == ("h2", "h3")


def test_spares_are_taken_near() -> None:
    """1. The gang fills a pod of three but for one host. 2. The spare is that one, though another pod has more."""
    rows = [("a1", "c", "p1", "r1"), ("a2", "c", "p1", "r1"), ("a3", "c", "p1", "r2")]
    rows += [(f"b{n}", "c", "p2", "r3") for n in range(4)]
    found = placed(index(*rows).place(2, 1))
    assert found.members == ("a1", "a2")
    assert found.spares == ("a3",)


def test_a_gang_goes_without_the_spares_that_are_not_there() -> None:
    found = placed(index(("h1", "c", "p", "r"), ("h2", "c", "p", "r")).place(2, 3))
    assert found.spares == ()


def test_a_gang_larger_than_any_pod_takes_the_fullest_pods() -> None:
    """1. Pods with 1, 3 and 2 free hosts. 2. A gang of 5 takes those with 3 and 2; ranks follow the declaration."""
    rows = [("a0", "c", "p1", "r1")]
    rows += [(f"b{n}", "c", "p2", "r2") for n in range(3)]
    rows += [(f"d{n}", "c", "p3", "r3") for n in range(2)]
    assert placed(index(*rows).place(5, 0)).members == ("b0", "b1", "b2", "d0", "d1")


def test_two_clusters_are_never_mixed() -> None:
    """1. Two clusters with two free hosts each. 2. A gang of 3 fits into none, and the numbers say by how much."""
    free = index(("a1", "ca", "p", "r"), ("a2", "ca", "p", "r"), ("b1", "cb", "p", "r"), ("b2", "cb", "p", "r"))
    refused = free.place(3, 0)
    assert isinstance(refused, Reason)
    assert refused.token is Token.NOT_ENOUGH_HOSTS
    assert refused.numbers == {"wanted": 3, "free": 2, "short": 1}
    assert refused.sentence == "wants 3 hosts in one cluster; the most that are free in one are 2"
    assert placed(free.place(1, 3)).spares in (("a2",), ("b2",))


def test_an_empty_index_refuses() -> None:
    refused = FreeIndex().place(1, 0)
    assert isinstance(refused, Reason)
    assert refused.numbers == {"wanted": 1, "free": 0, "short": 1}


def test_what_was_removed_is_not_placed() -> None:
    free = index(("h1", "c", "p", "r"), ("h2", "c", "p", "r"))
    free.remove(HostId("h1"))
    assert HostId("h1") not in free
    assert placed(free.place(1, 1)).members == ("h2",)
    assert free.nearest(ClusterId("c"), "", 5) == ["h2"]
    assert free.nearest(ClusterId("nowhere"), "", 5) == []


Rows = list[tuple[int, int, int]]
FLEETS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=12)


@settings(max_examples=120, deadline=None)
@given(rows=FLEETS, taken=st.sets(st.integers(0, 11)), hosts=st.integers(1, 6), spares=st.integers(0, 3))
def test_a_placement_is_what_a_search_of_all_finds_possible(
    rows: Rows, taken: set[int], hosts: int, spares: int
) -> None:
    """1. Any small fleet, some of it taken. 2. There is a placement exactly if a cluster has that many free hosts.
    3. The gang is whole, of one cluster, all free, in order of declaration, none twice; as many spares as there can be.
    4. If a pod holds the gang, one pod holds it, and no pod that could have is smaller. 5. The index is unchanged."""
    free = index(*((f"h{n}", f"c{c}", f"p{p}", f"p{p}r{r}") for n, (c, p, r) in enumerate(rows)))
    for number in sorted(taken):
        if number < len(rows):
            free.remove(HostId(f"h{number}"))
    left = {f"h{n}": row for n, row in enumerate(rows) if n not in taken}
    sizes = {cluster: sum(1 for row in left.values() if row[0] == cluster) for cluster in (0, 1)}
    found = free.place(hosts, spares)
    if max(sizes.values()) < hosts:
        assert isinstance(found, Reason)
        assert found.numbers == {"wanted": hosts, "free": max(sizes.values()), "short": hosts - max(sizes.values())}
        return
    gang = placed(found)
    chosen = [*gang.members, *gang.spares]
    cluster = int(gang.cluster[1:])
    assert len(gang.members) == hosts
    assert len(set(chosen)) == len(chosen)
    assert all(left[host][0] == cluster for host in chosen)
    assert list(gang.members) == sorted(gang.members, key=lambda host: int(host[1:]))
    assert len(gang.spares) == min(spares, sizes[cluster] - hosts)
    assert sizes[cluster] == min(size for size in sizes.values() if size >= hosts)
    pods = {pod: sum(1 for c, p, _ in left.values() if (c, p) == (cluster, pod)) for pod in range(3)}
    holding = [count for count in pods.values() if count >= hosts]
    used = {left[host][1] for host in gang.members}
    if holding:
        assert [pods[pod] for pod in used] == [min(holding)]
    else:
        smallest = min(pods[pod] for pod in used)
        assert all(count <= smallest for pod, count in pods.items() if pod not in used)
    assert free.place(hosts, spares) == gang


def test_bad_hosts_come_last() -> None:
    """1. Of six hosts in two pods two are known to be bad. 2. Gangs and spares take others as long as there are any,
    though the pod with the bad one would fit more tightly. 3. Who wants all gets all. 4. One that is well again counts
    as before; all are counted as free at all times."""
    rows = [("a1", "c", "p1", "r1"), ("a2", "c", "p1", "r1")]
    rows += [(f"b{n}", "c", "p2", "r2") for n in range(4)]
    free = index(*rows)
    free.mark(HostId("a1"), 0, True)
    free.mark(HostId("b0"), 2, True)
    found = placed(free.place(2, 1))
    assert (found.members, found.spares) == (("b1", "b2"), ("b3",))
    assert placed(free.place(2, 4)).spares == ("b3", "a2", "a1", "b0")
    assert placed(free.place(6, 0)).members == ("a1", "a2", "b0", "b1", "b2", "b3")
    assert free.nearest(ClusterId("c"), "", 5) == ["b1", "b2", "b3", "a2", "a1"]
    assert (free.count(ClusterId("c"), ""), free.counts(), free.holds(ClusterId("c"), 6)) == (6, {"c": 6}, True)
    refused = free.place(7, 0)
    assert isinstance(refused, Reason)
    assert refused.numbers["free"] == 6
    free.mark(HostId("a1"), 0, False)
    assert placed(free.place(2, 0)).members == ("a1", "a2")
    free.remove(HostId("b0"))
    assert HostId("b0") not in free
    assert free.counts() == {"c": 5}
