"""The clocks of the operating system."""

import time

from trainmaster.core.base.time import Duration, Instant


class SystemClock:
    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000)

    def elapsed(self) -> Duration:
        return Duration(time.monotonic_ns() // 1_000)
