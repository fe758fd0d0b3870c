"""Pairs into hosts: tables of who is bad and what has to be said, and properties over random sets."""

import csv
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.health.verification.conclude import conclude
from trainmaster.core.health.verification.level import Limits, level_of
from trainmaster.core.health.verification.outcome import Outcome, Result
from trainmaster.core.health.verification.pairing import follow_up, matchings, ring
from trainmaster.core.health.verification.pairwise import Judgement, Measured, judge

CASES = Path(__file__).parents[3] / "cases"
USUAL = 0.010


def hosts(count: int) -> tuple[str, ...]:
    return tuple(f"h{number}" for number in range(1, count + 1))


def measure(
    count: int,
    bad: dict[int, float] | None = None,
    *,
    paths: dict[tuple[int, int], float] | None = None,
    noise: float = 0.02,
    seed: int = 1,
    broken: dict[int, str] | None = None,
    rounds: tuple[tuple[tuple[int, int], ...], ...] | None = None,
) -> list[Measured]:
    """A ring over hosts; a pair is as slow as the slower of the two, or as its path. Numbers count from 1."""
    random = Random(seed)
    bad, paths, broken = bad or {}, paths or {}, broken or {}
    found = []
    for number, pairs in enumerate(rounds or ring(count)):
        for one, other in pairs:
            a, b = one + 1, other + 1
            problem = broken.get(a) or broken.get(b) or ""
            factor = max(bad.get(a, 1.0), bad.get(b, 1.0), paths.get((a, b), 1.0), paths.get((b, a), 1.0))
            costs = tuple(USUAL * factor * (1.0 + noise * random.expovariate(1.0)) for _ in range(4))
            found.append(
                Measured(
                    round=number,
                    hosts=(f"h{a}", f"h{b}"),
                    costs=() if problem else costs,
                    problem=problem,  # type: ignore[arg-type]
                    detail="silent for 10 s" if problem == "dead" else "corrupt" if problem else "",
                )
            )
    return found


def judged(count: int, measured: list[Measured], **more: object) -> Judgement:
    return judge("bandwidth", hosts(count), measured, Limits(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "bad", "cause", "named", "doubtful"),
    [
        (3, {}, "none", (), ()),
        (8, {}, "none", (), ()),
        (9, {}, "none", (), ()),
        (3, {2: 4.0}, "host", ("h2",), ()),
        (4, {1: 4.0}, "host", ("h1",), ()),
        (5, {5: 4.0}, "host", ("h5",), ()),
        (7, {1: 1.8}, "host", ("h1",), ()),
        (8, {8: 4.0}, "host", ("h8",), ()),
        (8, {4: 100.0}, "host", ("h4",), ()),
        (8, {3: 1.3}, "none", (), ()),
        (8, {2: 4.0, 3: 3.0}, "hosts", ("h2", "h3"), ()),
        (8, {2: 4.0, 6: 3.0}, "hosts", ("h2", "h6"), ()),
        (8, {2: 4.0, 4: 4.0}, "hosts", ("h2", "h4"), ("h3",)),
        (16, {2: 4.0, 7: 4.0, 12: 2.0}, "hosts", ("h2", "h7", "h12"), ()),
        (8, {2: 4.0, 3: 4.0, 4: 4.0, 5: 4.0}, "common", (), ()),
        (8, {2: 4.0, 3: 4.0, 5: 4.0, 6: 4.0}, "unknown", (), ()),
        (4, {2: 4.0, 3: 4.0}, "common", (), ()),
        (8, dict.fromkeys(range(1, 7), 4.0), "unknown", (), ()),
        (2, {}, "unknown", (), ()),
        (2, {1: 9.0}, "unknown", (), ()),
    ],
)
def test_who_is_slow(
    count: int, bad: dict[int, float], cause: str, named: tuple[str, ...], doubtful: tuple[str, ...]
) -> None:
    """1. Hosts are measured in a ring, some of them slow by a factor. 2. What is said, and of whom."""
    found = judged(count, measure(count, bad))
    assert (found.cause, found.named) == (cause, named), found.sentence
    if cause in ("host", "hosts", "none"):
        assert found.doubtful == doubtful
    assert all(found.host_outcome(host) is Outcome.FAIL for host in named)
    assert all(found.host_outcome(host) is not Outcome.FAIL for host in hosts(count) if host not in named)
    expected = {"none": Outcome.PASS, "unknown": Outcome.INVALID}.get(cause, Outcome.FAIL)
    assert found.outcome is expected


def test_a_good_host_between_two_bad_ones_is_cleared_by_the_follow_up() -> None:
    """1. Hosts 2 and 4 are slow, 3 has met nobody else. 2. A round with a fast partner settles it."""
    bad = {2: 4.0, 4: 4.0}
    first = judged(8, measure(8, bad))
    assert first.doubtful == ("h3",)
    names = hosts(8)
    met = [pair for pairs in ring(8) for pair in pairs]
    rounds = follow_up([names.index("h3")], [names.index(host) for host in first.cleared], [], met)
    assert len(rounds) == 1
    again = judged(8, [*measure(8, bad), *measure(8, bad, rounds=rounds)])
    assert (again.named, again.doubtful) == (("h2", "h4"), ())
    assert "h3" in again.cleared


def test_a_round_that_was_slow_by_chance_names_nobody() -> None:
    """1. In the two first rounds a host is slow. 2. It is fast with the third partner: cleared, and its paths are asked
    about instead; both were measured once more and are fast."""
    slow, fast = measure(8, {3: 4.0}), measure(8)
    assert judged(8, slow).named == ("h3",)
    found = judged(8, [*slow, *fast])
    assert (found.cause, found.outcome) == ("none", Outcome.PASS)


def test_a_slow_path_is_nobody_s_fault() -> None:
    found = judged(8, measure(8, paths={(3, 4): 5.0}))
    assert (found.cause, found.paths, found.outcome) == ("path", (("h3", "h4"),), Outcome.FAIL)
    assert {found.host_outcome(host) for host in hosts(8)} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("bad", "common", "named"),
    [
        ({3: 4.0, 4: 4.0}, ("s2",), ()),
        ({3: 4.0}, (), ("h3",)),
        ({3: 4.0, 4: 4.0, 7: 4.0}, ("s2",), ("h7",)),
        ({2: 4.0, 3: 4.0}, (), ("h2", "h3")),
    ],
)
def test_hosts_of_one_switch(bad: dict[int, float], common: tuple[str, ...], named: tuple[str, ...]) -> None:
    """1. Two hosts a switch. 2. If all behind one are slow, it is the switch; who is slow elsewhere keeps the blame."""
    switches = {f"h{number}": f"s{(number + 1) // 2}" for number in range(1, 9)}
    found = judged(8, measure(8, bad), switches=switches)
    assert (found.common, found.named) == (common, named), found.sentence
    for host in hosts(8):
        assert (found.host_outcome(host) is Outcome.FAIL) == (host in named)


def test_an_uplink_is_a_common_cause() -> None:
    """1. Hosts 1 to 4 hang on one switch, fast among themselves. 2. Both paths across are slow: its edge."""
    switches = {f"h{number}": "leaf-1" if number <= 4 else "leaf-2" for number in range(1, 9)}
    found = judged(8, measure(8, paths={(4, 5): 5.0, (8, 1): 5.0}), switches=switches)
    assert (found.cause, found.named, found.paths) == ("common", (), (("h1", "h8"), ("h4", "h5")))
    assert found.common in (("leaf-1",), ("leaf-2",))


def test_all_slow_is_seen_only_against_an_expected_figure() -> None:
    """1. All hosts are four times too slow: alike. 2. With the figure they should reach, a common cause."""
    all_slow = measure(8, dict.fromkeys(range(1, 9), 4.0))
    assert judged(8, all_slow).cause == "none"
    found = judged(8, all_slow, expected_cost=USUAL)
    assert (found.cause, found.outcome, found.named) == ("common", Outcome.FAIL, ())
    assert judged(8, measure(8), expected_cost=USUAL).cause == "none"
    assert judged(2, measure(2), expected_cost=USUAL).cause == "none"


@pytest.mark.parametrize(
    ("broken", "cause", "named"),
    [
        ({5: "dead"}, "host", ("h5",)),
        ({5: "corrupt"}, "host", ("h5",)),
        ({5: "corrupt", 1: "dead"}, "hosts", ("h1", "h5")),
        (dict.fromkeys(range(1, 9), "dead"), "common", ()),
    ],
)
def test_pairs_that_are_corrupt_or_dead(broken: dict[int, str], cause: str, named: tuple[str, ...]) -> None:
    found = judged(8, measure(8, broken=broken))
    assert (found.cause, found.named, found.outcome) == (cause, named, Outcome.FAIL)


def test_a_corrupt_transfer_is_not_forgiven_by_a_later_clean_one() -> None:
    """1. A pair corrupts once, and is clean and fast in the next round: chance explains slow, never wrong bits."""
    once = Measured(round=0, hosts=("h1", "h2"), problem="corrupt", detail="corrupt: bit 3")
    found = judged(8, [once, *measure(8)])
    assert (found.cause, found.paths, found.outcome) == ("path", (("h1", "h2"),), Outcome.FAIL)
    assert "bit 3" in found.sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"costs": (0.01, 0.01)}, "2 samples"),
        ({"costs": (0.01, float("nan"), 0.01)}, "is none"),
        ({"costs": (0.01, -0.01, 0.01)}, "is none"),
        ({"costs": (0.01, 0.0, 0.01)}, "is none"),
        ({"ends_s": (1.0, 3.0)}, "1 s at one end and 3 s"),
        ({"ends_s": (0.2, 0.0)}, "at the other"),
    ],
)
def test_samples_that_can_not_be_believed(change: dict[str, Any], words: str) -> None:
    """1. One pair of a good set has such samples. 2. Invalid, and nobody is blamed."""
    first, *rest = measure(8)
    found = judged(8, [first.but(**change), *rest])
    assert found.outcome is Outcome.INVALID
    assert words in found.sentence
    assert {found.host_outcome(host) for host in hosts(8)} == {Outcome.INVALID}


def test_no_partner_is_not_run() -> None:
    found = judged(1, [])
    assert (found.outcome, found.host_outcome("h1")) == (Outcome.NOT_RUN, Outcome.NOT_RUN)


def test_who_was_not_measured_is_neither_cleared_nor_blamed() -> None:
    found = judged(8, [each for each in measure(8) if "h8" not in each.hosts])
    assert found.unseen == ("h8",)
    assert found.host_outcome("h8") is Outcome.NOT_RUN


def test_a_set_that_is_too_unsteady_is_invalid() -> None:
    """1. Costs of hosts spread over a factor of 30 without a level. 2. It can't be said that nobody is slow."""
    bad = {number: 1.7**number for number in range(1, 9)}
    assert judged(8, measure(8, bad)).outcome is Outcome.INVALID


def test_two_that_are_near_each_other_make_nobody_slow() -> None:
    """1. Two hosts are ten times as fast with each other. 2. Can't tell; known to share a switch, all is well."""
    near = [*measure(8), Measured(round=9, hosts=("h1", "h2"), costs=(USUAL / 10,) * 3)]
    assert (judged(8, near).cause, judged(8, near).named) == ("unknown", ())
    switches = {"h1": "s1", "h2": "s1", **{f"h{number}": f"s{number}" for number in range(3, 9)}}
    assert judged(8, near, switches=switches).cause == "none"


def test_case_77_pairwise_check_in_two_rounds() -> None:
    """1. The times of six nodes in two rounds. 2. Node 3, relative to the usual time; 2 and 4 are cleared. 3. After the
    first round alone, nobody is named: 2 and 3 are in doubt."""
    rounds: list[list[Measured]] = []
    for number in (1, 2):
        text = (CASES / "77-pairwise-check-two-rounds" / f"round{number}.csv").read_text()
        rows = csv.DictReader(text.splitlines())
        rounds.append(
            [
                Measured(round=number, hosts=tuple(row["pair"].split(",")), costs=(float(row["seconds"]),))
                for row in rows
            ]  # type: ignore[arg-type]
        )
    nodes, limits = tuple("012345"), Limits(least_samples=1)
    found = judge("bandwidth", nodes, [*rounds[0], *rounds[1]], limits)
    assert (found.cause, found.named) == ("host", ("3",))
    assert {"2", "4"} <= set(found.cleared)
    assert found.numbers["usual_us"] == pytest.approx(12.25e6, rel=0.01)
    early = judge("bandwidth", nodes, rounds[0], limits)
    assert (early.named, early.doubtful, early.outcome) == ((), ("2", "3"), Outcome.INVALID)


@given(count=st.integers(4, 40), seed=st.integers(0, 10_000), noise=st.floats(0.0, 0.08))
def test_a_healthy_set_blames_nobody(count: int, seed: int, noise: float) -> None:
    found = judged(count, measure(count, noise=noise, seed=seed))
    assert (found.cause, found.outcome) == ("none", Outcome.PASS), found.sentence


@given(data=st.data(), count=st.integers(5, 40), seed=st.integers(0, 10_000))
def test_few_bad_hosts_are_named_and_nobody_else(data: st.DataObject, count: int, seed: int) -> None:
    """1. Up to a fifth of the hosts is slow. 2. After the rounds and their follow-up exactly these are named."""
    most = max(1, count // 5)
    chosen = data.draw(st.sets(st.integers(1, count), min_size=1, max_size=most))
    bad = {number: data.draw(st.floats(2.0, 50.0)) for number in sorted(chosen)}
    names, rounds = hosts(count), ring(count)
    measured = measure(count, bad, seed=seed)
    found = judged(count, measured)
    places = {name: place for place, name in enumerate(names)}
    more = follow_up(
        [places[host] for host in (*found.named, *found.doubtful)],
        [places[host] for host in found.cleared],
        [],
        [pair for pairs in rounds for pair in pairs],
    )
    found = judged(count, [*measured, *measure(count, bad, seed=seed + 1, rounds=more)])
    assert set(found.named) == {f"h{number}" for number in bad}
    assert found.doubtful == ()


@given(data=st.data(), count=st.integers(3, 12))
def test_whatever_is_measured_names_only_who_was_never_fast(data: st.DataObject, count: int) -> None:
    """1. Any costs, problems and pairs. 2. No crash; who is named was in no pair that is not slow, and is not cleared;
    the outcome is a failure if anybody is named."""
    pairs = [pair for pairs in ring(count) for pair in pairs]
    measured = [
        Measured(
            round=0,
            hosts=(f"h{one + 1}", f"h{other + 1}"),
            costs=tuple(data.draw(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=4))),
            problem=data.draw(st.sampled_from(["", "", "", "dead", "corrupt"])),
            detail="broken",
        )
        for one, other in pairs
    ]
    found = judged(count, measured)
    assert not set(found.named) & set(found.cleared)
    assert not found.named or found.outcome is Outcome.FAIL
    assert 2 * len(found.named) < count or not found.named
    assert found.sentence


@given(count=st.integers(2, 200))
def test_the_ring(count: int) -> None:
    """1. Nobody twice in a round. 2. All pairs differ, and everybody has two partners (of two hosts, one)."""
    rounds = ring(count)
    for pairs in rounds:
        members = [place for pair in pairs for place in pair]
        assert len(members) == len(set(members))
    met = {frozenset(pair) for pairs in rounds for pair in pairs}
    assert len(met) == sum(map(len, rounds))
    for place in range(count):
        assert sum(place in pair for pair in met) == min(2, count - 1)
    assert len(rounds) == (1 if count == 2 else 2 + count % 2)


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(10, 19))))
def test_matchings(pairs: list[tuple[int, int]]) -> None:
    rounds = matchings(pairs)
    assert sorted(pair for each in rounds for pair in each) == sorted(pairs)
    for each in rounds:
        members = [place for pair in each for place in pair]
        assert len(members) == len(set(members))


def test_nobody_cleared_nothing_to_follow() -> None:
    assert ring(0) == ring(1) == ()
    assert follow_up([1, 2], [], [], []) == ()


def test_the_level_stays_where_it_is_until_half_are_bad() -> None:
    """1. One of eight is 100 times as slow. 2. By mean and deviation it is 2.5 sigma away; here it is worse, and the
    level is that of the others."""
    costs = [1.0] * 7 + [100.0]
    level = level_of(costs)
    assert (level.centre, level.spread) == (1.0, 0.0)
    assert level.is_worse(100.0, Limits())
    assert not level.is_worse(1.4, Limits())
    assert not level.is_worse(100.0, Limits(least_difference=100.0))
    mean = sum(costs) / 8
    deviation = (sum((each - mean) ** 2 for each in costs) / 8) ** 0.5
    assert (100.0 - mean) / deviation < 3.0


NOTHING_WRONG = Result(task="group", part="collective", unit="group", outcome=Outcome.PASS, sentence="right")


def test_ranks_of_one_host_are_that_host() -> None:
    """1. Four hosts with two ranks each, joined rail by rail; both ranks of h2 are slow. 2. The host is named, by its
    name, and nobody else fails."""
    units = [f"h{host} rank {rank}" for rank in (0, 1) for host in (1, 2, 3, 4)]
    host_of = {unit: unit.split()[0] for unit in units}
    measured = [
        each.but(hosts=(units[int(each.hosts[0][1:]) - 1], units[int(each.hosts[1][1:]) - 1]))
        for each in measure(8, {2: 4.0, 6: 4.0})
    ]
    bandwidth = judge("bandwidth", units, measured, Limits(), switches=host_of)
    latency = bandwidth.but(kind="latency", cause="none", outcome=Outcome.PASS, named=(), common=(), shared_by=())
    found = conclude(host_of, bandwidth, latency, NOTHING_WRONG, 1.0)
    assert (found.slow, found.outcome) == (("h2",), Outcome.FAIL)
    assert {host: outcome.value for host, outcome in found.hosts.items()} == {
        "h1": "pass", "h2": "fail", "h3": "pass", "h4": "pass"
    }  # fmt: skip


def test_one_rank_of_a_host_is_enough() -> None:
    host_of = {f"h{number} rank 0": f"h{number}" for number in range(1, 9)}
    measured = [each.but(hosts=(f"{each.hosts[0]} rank 0", f"{each.hosts[1]} rank 0")) for each in measure(8, {5: 9.0})]
    bandwidth = judge("bandwidth", list(host_of), measured, Limits())
    clean = judge("latency", list(host_of), [each.but(costs=(1e-4,) * 3) for each in measured], Limits())
    found = conclude(host_of, bandwidth, clean, NOTHING_WRONG, 1.0)
    assert (found.slow, found.outcome) == (("h5",), Outcome.FAIL)
    none = conclude(host_of, clean.but(kind="bandwidth"), clean, NOTHING_WRONG, 1.0)
    assert (none.slow, none.outcome) == ((), Outcome.PASS)
    assert none.sentence == "8 hosts alike in bandwidth and latency; the collective is right"


@pytest.mark.parametrize(("least", "unsteady"), [(0.0, True), (0.1, True), (100.0, False)])
def test_what_is_below_the_least_difference_unsettles_nobody(least: float, unsteady: bool) -> None:
    """1. Peers that differ by a factor of four. 2. Unsteady, unless all of that is less than what is looked at."""
    level = level_of([1.0, 1.3, 1.7, 2.2, 2.8, 3.6, 4.6])
    assert level.is_unsteady(Limits(least_difference=least)) is unsteady


def test_slow_without_a_processor_says_nothing() -> None:
    """1. A host is slow in all rounds, while others used its processors. 2. Not told, nobody is blamed. 3. Fast in
    spite of it is fast. 4. Slow with processors to itself, or slower than the waiting explains, it is named."""
    waiting = [each.but(waited_shares=(0.9, 0.8, 0.8, 2.0)) for each in measure(8, {3: 4.0})]
    found = judged(8, waiting)
    assert (found.cause, found.outcome, found.named, found.unseen) == ("unknown", Outcome.INVALID, (), ("h3",))
    assert found.host_outcome("h3") is Outcome.NOT_RUN
    assert "h2 - h3, h3 - h4: slow while others used the processors" in found.sentence
    assert judged(8, [each.but(waited_shares=(0.9, 0.8, 0.8, 2.0)) for each in measure(8)]).cause == "none"
    assert judged(8, [*waiting, *measure(8, {3: 4.0})]).named == ("h3",)
    assert judged(8, [each.but(waited_shares=(0.9, 0.4, 0.9, 0.9)) for each in measure(8, {3: 4.0})]).named == ("h3",)
    all_busy = judged(
        3, [each.but(waited_shares=(0.8,) * 3, costs=(i + 1.0,) * 3) for i, each in enumerate(measure(3))]
    )
    assert all_busy.named == ()
