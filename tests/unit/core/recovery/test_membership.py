"""Who takes part in the next epoch."""

import pytest

from trainmaster.core.base.ids import HostId
from trainmaster.core.recovery.membership import Membership, next_membership


def plan(members: str, spares: str, must: str = "", should: str = "") -> Membership:
    """Hosts are single letters."""
    return next_membership(
        tuple(map(HostId, members)),
        tuple(map(HostId, spares)),
        must_leave=set(map(HostId, must)),
        should_leave=set(map(HostId, should)),
    )


@pytest.mark.parametrize(
    ("members", "spares", "must", "should", "next_members", "left", "joined", "missing"),
    [
        ("abc", "", "", "", "abc", "", "", 0),  # nobody leaves: the same again
        ("abc", "x", "b", "", "axc", "b", "x", 0),  # the spare takes the very place, so ranks stay where they are
        ("abc", "xy", "ac", "", "xby", "ac", "xy", 0),  # spares in their order, places in theirs
        ("abc", "x", "ab", "", "xc", "ab", "x", 1),  # one place stays vacant
        ("abc", "", "b", "", "ac", "b", "", 1),
        ("abc", "x", "", "b", "axc", "b", "x", 0),  # a drain is followed if somebody can take the place
        ("abc", "", "", "b", "abc", "", "", 0),  # and waits if not
        ("abc", "x", "c", "a", "abx", "c", "x", 0),  # the lost before the draining
        ("abc", "xy", "c", "a", "ybx", "ac", "xy", 0),
        ("abc", "xy", "", "b", "axc", "b", "x", 0),  # no more spares than needed
        ("abc", "x", "", "abc", "xbc", "a", "x", 0),  # one spare, three drains: the first place
        ("a", "x", "a", "", "x", "a", "x", 0),
    ],
)
def test_memberships(
    members: str, spares: str, must: str, should: str, next_members: str, left: str, joined: str, missing: int
) -> None:
    found = plan(members, spares, must, should)
    assert "".join(found.members) == next_members
    assert "".join(found.left) == left
    assert "".join(found.joined) == joined
    assert found.missing == missing


def test_a_spare_that_drains_is_not_handed_on_at_once() -> None:
    """A spare that should leave itself fills a lost place, and is not replaced by the next spare in the same breath."""
    assert plan("ab", "xy", must="a", should="x").joined == ("x",)


def test_a_member_that_stays_is_no_spare() -> None:
    with pytest.raises(AssertionError):
        plan("ab", "b")
