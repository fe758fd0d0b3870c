"""Did hosts fail, or did something fail on all hosts?

When one host of four cannot start its ranks, the host is the suspect. When all four cannot, four hosts did not break in
the same minute: what they share did, the image, a driver, a path, the network's configuration. Replacing them then
burns healthy hosts one after the other, and each replacement hides the pattern, because somebody is always still
starting. So the question is asked of the *initial* set alone, the hosts that were asked together; who came later has no
vote. One host alone proves nothing about what is common.
"""

from collections.abc import Iterable, Mapping

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value

COMMON_LEAST = 2
"""Hosts that must have failed together before the cause is called common."""


class CheckVerdict(Value):
    initial: int
    failed: tuple[HostId, ...]
    """Of the initial set, in its order."""
    common: bool
    """All of the initial set failed: no host is to blame for it."""

    def sentence(self, what: str) -> str:
        """What happened, for people; `what` is a verb: launch, prepare."""
        if self.common:
            return (
                f"{len(self.failed)} of {self.initial} hosts could not {what}: the cause is common to them (image, "
                "driver, path, network), and no host is to blame"
            )
        return f"{len(self.failed)} of {self.initial} hosts could not {what}"


def judge(initial: Iterable[HostId], failures: Mapping[HostId, str]) -> CheckVerdict:
    """Judges the hosts that were asked together by who failed; failures of other hosts do not count."""
    asked = tuple(initial)
    assert asked
    failed = tuple(host for host in asked if host in failures)
    return CheckVerdict(
        initial=len(asked), failed=failed, common=len(failed) == len(asked) and len(asked) >= COMMON_LEAST
    )
