"""Host lists: what is read, what is refused, and that folding loses nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.hostlist import HostListError, fold, parse, sort
from trainmaster.core.base.ids import HostId

CASE = Path(__file__).parents[3] / "cases" / "52-fold-mixed-padding"


def groups(name: str) -> list[HostId] | None:
    known = {"gpu": ["h1", "h2", "h3"], "rack:r1": ["h1"], "rack:r2": ["h2"], "empty": []}
    return [HostId(host) for host in known[name]] if name in known else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("h1", "h1"),
        ("h[1-3]", "h1 h2 h3"),
        ("h[08-11]", "h08 h09 h10 h11"),
        ("h[98-101]", "h98 h99 h100 h101"),
        ("h[098-101]", "h098 h099 h100 h101"),
        ("h[98-100]", "h98 h99 h100"),
        ("h[08-09]", "h08 h09"),
        ("a[0-1]b[3-4]", "a0b3 a0b4 a1b3 a1b4"),
        ("a[1-2].example.com", "a1.example.com a2.example.com"),
        ("n[1-3,10]", "n1 n2 n3 n10"),
        ("n[1-3, 10]", "n1 n2 n3 n10"),
        ("[1-3]", "1 2 3"),
        ("10.0.0.[9-11]", "10.0.0.9 10.0.0.10 10.0.0.11"),
        ("a[1-2][3-4]", "a13 a14 a23 a24"),
        ("a[1-2]5", "a15 a25"),
        ("n[0-10/5]", "n0 n5 n10"),
        ("n[0-11:5]", "n0 n5 n10"),
        ("n[00-11:5]", "n00 n05 n10"),
        ("h2,h1,h2,h[1-2]", "h1 h2"),
        ("h2 h1\th3\n\nh4\r\nh5", "h1 h2 h3 h4 h5"),
        ("# spare hosts\nh1 # broken fan\nh2", "h1 h2"),
        ("Node1,node1", "Node1 node1"),
        ("h7,h07,h007", "h7 h07 h007"),
        ("h[1-5]!h3", "h1 h2 h4 h5"),
        ("h[1-5] & h[4-9]", "h4 h5"),
        ("h[1-3]^h[3-4]", "h1 h2 h4"),
        ("h1,h2!h1,h1", "h1 h2"),
        ("h1!h2&h1", "h1"),
        ("h[1-3]\n!h2", "h1 h3"),
        ("@gpu", "h1 h2 h3"),
        ("@gpu!@rack:r[1-2]", "h3"),
        ("@empty", ""),
        ("my_host-1", "my_host-1"),
    ],
)
def test_reads(text: str, expected: str) -> None:
    assert " ".join(parse(text, groups)) == expected


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("h[5-1]", 2, "runs backwards; write 1-5"),
        ("h[1-5", 1, "bracket is not closed"),
        ("h1-5]", 4, "a ']' without a '['"),
        ("h[]", 1, "empty brackets"),
        ("h[ ]", 1, "empty brackets"),
        ("h[[1-2]]", 1, "brackets inside brackets"),
        ("h[1-2,[3]]", 1, "brackets inside brackets"),
        ("h[1,,2]", 4, "number is missing"),
        ("h[1-2,]", 6, "number is missing"),
        ("h[1-]", 2, "'1-' is not a number"),
        ("h[-2]", 2, "'-2' is not a number"),
        ("h[a-c]", 2, "'a-c' is not a number"),
        ("h[1-2-3]", 2, "not a number or a range"),
        ("h[1-4/0]", 2, "step of 1-4/0 is 0"),
        ("h[8-012]", 2, "padded differently; write 008-012, or 8-12"),
        ("h[08-9]", 2, "padded differently; write 08-09"),
        ("h[001-12]", 2, "padded differently; write 001-012"),
        ("h1,,h2", 3, "no host before ','"),
        (",h1", 0, "no host before ','"),
        ("!h1", 0, "no host before '!'"),
        ("h1,", 2, "no host behind ','"),
        ("h1 &", 3, "no host behind '&'"),
        ("h1 ! & h2", 5, "no host before '&'"),
        ("h*", 1, "patterns are not expanded"),
        ("h[1–3]", 2, "'1–3' is not a number or a range"),
        ("h1–3", 2, "not a hyphen"),
        ("root@h1", 4, "leave out the user"),
        ("h1:8000", 2, "leave out the port"),
        ("-w", 0, "cannot begin with '-'"),
        ("h1;h2", 2, "unexpected ';'"),
        ("h1 h2\nh3 h[", 10, "character 5 of line 2"),
        ("@", 0, "'@' without a group"),
        ("@nope", 0, "no group @nope"),
        ("h[1-100000000000]", 1, "100,000,000,000 hosts, more than the limit of 1,000,000"),
        ("h[1-2000]c[1-2000]", 10, "4,000,000 hosts"),
        ("h[1-1000000],x1", 13, "1,000,001 hosts"),
        ("h" + "[0-9]" * 40, 31, "10,000,000 hosts"),
        ("h[1-" + "9" * 5000 + "]", 2, "more than 18 digits"),
        ("h" * 300, 0, "more than 253 characters"),
    ],
)
def test_refuses_with_position_reason_and_fix(text: str, position: int, part: str) -> None:
    with pytest.raises(HostListError) as caught:
        parse(text, groups)
    assert part in str(caught.value)
    assert caught.value.position == position
    assert caught.value.fix


def test_group_without_a_resolver_is_an_error() -> None:
    with pytest.raises(HostListError, match="groups like @gpu are not known here"):
        parse("@gpu")


def test_excerpt_points_at_the_place() -> None:
    with pytest.raises(HostListError) as caught:
        parse("h1,h2\nh[1-3],g[5-1]")
    assert caught.value.excerpt() == "h[1-3],g[5-1]\n         ^"
    with pytest.raises(HostListError) as caught:
        parse("abcdefghij" * 20 + "*" + "abcdefghij" * 20)
    line, caret = caught.value.excerpt().split("\n")
    assert len(line) == 72
    assert line[len(caret) - 1] == "*"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("", ""),
        ("h1", "h1"),
        ("h1 h2", "h[1-2]"),
        ("h10 h9 h11", "h[9-11]"),
        ("h9 h10 h09", "h[9,09-10]"),
        ("h98 h99 h100", "h[98-100]"),
        ("h098 h099 h100 h101", "h[098-101]"),
        ("h08 h09 h100", "h[08-09,100]"),
        ("h7 h07 h007", "h[7,07,007]"),
        ("login h1 h2 admin", "admin,h[1-2],login"),
        ("r1n1 r1n2 r2n1 r2n2", "r[1-2]n[1-2]"),
        ("r1n1 r1n2 r2n1 r2n3", "r1n[1-2],r2n[1,3]"),
        ("gpu2-n1 gpu2-n2", "gpu2-n[1-2]"),
        ("a1.example.com a2.example.com a1", "a1,a[1-2].example.com"),
        ("10.0.0.1 10.0.0.2 10.0.1.1 10.0.1.2", "10.0.[0-1].[1-2]"),
        ("1 2 3", "[1-3]"),
        ("h0 h00 h1 h01", "h[0-1,00-01]"),
    ],
)
def test_folds(hosts: str, expected: str) -> None:
    assert fold(hosts.split()) == expected


def test_refuses_to_fold_what_no_list_can_hold() -> None:
    for name in ("", "a,b", "a[1]", "-a", "a b", "é1", "h" * 254):
        with pytest.raises(HostListError, match="is not a host name"):
            fold([name])


def test_field_case_mixed_padding() -> None:
    """1. Names with different zero padding are folded. 2. No host is invented and none is lost."""
    hosts = [(CASE / name).read_text() for name in ("hosts.txt", "hosts2.txt", "hosts3.txt")]
    assert fold(hosts[0].split()) == "nodea[001-002],nodeb[01-04,007-009,10]"
    assert len(parse(hosts[0])) == 10
    assert set(parse(fold(hosts[1].split()))) == set(hosts[1].split())
    assert len(parse(hosts[1])) == 3
    assert fold(hosts[2].split()) == "n[1-4]c[01-09]"
    assert len(parse("n[1-4]c[01-09]")) == 36


names = st.from_regex(r"[a-c]{0,2}[0-9]{1,3}(-[0-9]{1,2}){0,2}(\.x)?", fullmatch=True)
name_sets = st.frozensets(names, max_size=60)


@given(name_sets)
def test_expand_undoes_fold(hosts: frozenset[str]) -> None:
    assert parse(fold(hosts)) == sort(hosts)


@given(st.lists(names, max_size=40), st.randoms())
def test_fold_is_the_same_for_every_order(hosts: list[str], random: object) -> None:
    shuffled = list(hosts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fold(shuffled) == fold(hosts) == fold(parse(fold(hosts)))


dense = st.frozensets(st.integers(0, 130).flatmap(lambda n: st.sampled_from([f"h{n}", f"h{n:02}", f"h{n:03}"])))


@given(dense)
def test_expand_undoes_fold_where_paddings_meet(hosts: frozenset[str]) -> None:
    assert set(parse(fold(hosts))) == hosts


@given(st.lists(st.tuples(st.sampled_from(",!&^"), name_sets), min_size=1, max_size=5))
def test_operators_agree_with_sets(steps: list[tuple[str, frozenset[str]]]) -> None:
    """1. Each operand is a group, since a folded list may hold commas. 2. Operators apply from left to right."""
    operations = {
        ",": frozenset.union,
        "!": frozenset.difference,
        "&": frozenset.intersection,
        "^": frozenset.symmetric_difference,
    }
    text, expected = "zero0", frozenset({"zero0"})
    for index, (operator, hosts) in enumerate(steps):
        text += f"{operator}@g{index}"
        expected = operations[operator](expected, hosts)
    assert set(parse(text, lambda name: sort(steps[int(name[1:])][1]))) == expected


def read_or_refuse(text: str) -> None:
    try:
        hosts = parse(text, groups, limit=5000)
    except HostListError:
        return
    assert parse(fold(hosts)) == hosts


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """1. Whatever is typed, the answer is a list that folds back or a `HostListError`, whose own checks hold."""
    read_or_refuse(text)


@given(st.text(alphabet="ab01-[],!&^/:@ \n", max_size=25))
def test_text_in_the_letters_of_the_grammar_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


def test_a_fleet_folds_into_a_line() -> None:
    """1. 6,144 hosts of two clusters. 2. They are one short line."""
    hosts = [f"{cluster}-r{rack:04}-h{slot}" for cluster in ("roce", "ib") for rack in range(1536) for slot in (1, 2)]
    assert fold(hosts) == "ib-r[0000-1535]-h[1-2],roce-r[0000-1535]-h[1-2]"
