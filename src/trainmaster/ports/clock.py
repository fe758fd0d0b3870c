"""Time as a port. Only the edge asks what time it is; the core is told."""

from typing import Protocol

from trainmaster.core.base.time import Duration, Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall clock in microseconds since 1970-01-01 UTC; may step backwards."""
        ...

    def elapsed(self) -> Duration:
        """Microseconds since an arbitrary start; never steps backwards, and counts while this process is suspended."""
        ...
