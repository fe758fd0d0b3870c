"""Which agents fell silent?

Think of a teacher who calls the roll and sometimes dozes off. A pupil who did not answer for three seconds is missing;
but if the teacher slept for ten of them, the pupils are not to blame. So silence is counted on a clock of our own that
stands still while we do not look: every call tells the detector that we are awake, calls come at least each `tick`, and
what a gap between two calls exceeds `tick` by is time that we slept (a suspended process, a stalled disk, a long
computation) and counts for nobody.

    signal(host, now)   the host was heard (or was just welcomed)
    forget(host)        it is gone for a known reason
    tardy(now)          those that have been silent for longer than the timeout, each silence once

A fixed timeout and no suspicion level (phi accrual and the like): heartbeats come once a second from a process that
does little else, the bound is stated in the configuration, and a person must be able to check the arithmetic.
Limits: silence says nothing of the cause (host, agent and network look alike), and a host that dies while we sleep is
noticed late by as long as we slept. Times are of a clock that never steps back.
"""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Duration


class Liveness:
    """`timeout`: silence that is tolerated; `tick`: the longest time between two calls while we are awake."""

    def __init__(self, timeout: Duration, tick: Duration, now: Duration) -> None:
        assert timeout > 0
        assert 0 < tick < timeout, f"a tick of {tick} us can't measure a silence of {timeout} us"
        self._timeout = timeout
        self._tick = tick
        self._looked = now
        self._slept = Duration(0)
        self._heard: dict[HostId, Duration] = {}
        """Instant of the last signal on our own clock."""

    def signal(self, host: HostId, now: Duration) -> None:
        self._heard[host] = self._awake(now)

    def forget(self, host: HostId) -> None:
        self._heard.pop(host, None)

    def tardy(self, now: Duration) -> tuple[tuple[HostId, Duration], ...]:
        """The hosts that fell silent, with how long each has been; they are forgotten until they signal again."""
        awake = self._awake(now)
        silent = [
            (host, Duration(awake - heard)) for host, heard in self._heard.items() if awake - heard > self._timeout
        ]
        for host, _ in silent:
            del self._heard[host]
        return tuple(sorted(silent))

    def slept(self) -> Duration:
        """How long we did not look, all told."""
        return self._slept

    def _awake(self, now: Duration) -> Duration:
        """`now` on the clock that stands still while we sleep."""
        assert now >= self._looked, "the clock stepped back"
        gap = now - self._looked
        if gap > self._tick:
            self._slept = Duration(self._slept + gap - self._tick)
        self._looked = now
        return Duration(now - self._slept)
