"""Who keeps whose copies: another domain first, everybody as many, the same answer everywhere."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.checkpoint.peers import Member, peers


def members(*domains: str) -> list[Member]:
    return [Member(host=f"h{place}", place=8 * place, domain=domain) for place, domain in enumerate(domains)]


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        ((), {}),
        (("a",), {}),
        (("a", "a"), {"h0": "h1", "h1": "h0"}),
        (("", ""), {"h0": "h1", "h1": "h0"}),
        (("", "", ""), {"h0": "h1", "h1": "h2", "h2": "h0"}),
        (("a", "a", "b", "b"), {"h0": "h2", "h1": "h3", "h2": "h0", "h3": "h1"}),
        (("a", "b", "a", "b"), {"h0": "h1", "h2": "h3", "h1": "h0", "h3": "h2"}),
        (("a", "a", "a", "b"), {"h0": "h3", "h1": "h0", "h2": "h1", "h3": "h2"}),
        (("a", "a", "b"), {"h0": "h2", "h1": "h0", "h2": "h1"}),
    ],
)
def test_peers_of_small_fleets(domains: tuple[str, ...], expected: dict[str, str]) -> None:
    assert peers(members(*domains)) == expected


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_each_keeps_one_and_as_many_as_can_be_are_elsewhere(domains: list[str], random: object) -> None:
    """1. Everybody sends to one other and keeps the copies of one. 2. The number that lie in another domain is the
    largest that this allows. 3. The order in which hosts are named is of no matter."""
    listed = members(*domains)
    chosen = peers(listed)
    assert sorted(chosen) == sorted(chosen.values()) == sorted(member.host for member in listed)
    assert all(host != peer for host, peer in chosen.items())
    where = {member.host: member.domain for member in listed}
    largest = max(Counter(domains).values())
    elsewhere = sum(where[host] != where[peer] for host, peer in chosen.items())
    forced = max(0, 2 * largest - len(domains))
    assert elsewhere >= len(domains) - forced
    shuffled = list(listed)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert peers(shuffled) == chosen


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=20), st.integers(0, 100))
def test_a_spare_of_the_same_domain_takes_the_lost_hosts_part(domains: list[str], lost: int) -> None:
    before = members(*domains)
    place = lost % len(before)
    after = [member.but(host="spare") if at == place else member for at, member in enumerate(before)]
    renamed = {f"h{place}": "spare"}
    expected = {renamed.get(host, host): renamed.get(peer, peer) for host, peer in peers(before).items()}
    assert peers(after) == expected
