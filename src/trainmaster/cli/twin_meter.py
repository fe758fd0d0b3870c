"""What runs of the twin need of this machine, since they have none of their own: clocks, and a line of progress."""

import os
import resource
import sys
from time import perf_counter, perf_counter_ns, process_time_ns
from typing import Final

TOLD_EVERY_S: Final = 2.0


class Meter:
    """What `trainmaster.twin.report.Clocks` asks for."""

    def wall_ns(self) -> int:
        return perf_counter_ns()

    def processor_ns(self) -> int:
        return process_time_ns()

    def peak_mib(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


class Progress:
    """One line on stderr that is renewed at a terminal; silence elsewhere."""

    def __init__(self) -> None:
        self._next = perf_counter() + TOLD_EVERY_S
        self._shown = sys.stderr.isatty() and "CI" not in os.environ
        self._told = False

    def tell(self, text: str) -> None:
        """Shows the text, if the last one has stood for a while."""
        if not self._shown or perf_counter() < self._next:
            return
        self._next = perf_counter() + TOLD_EVERY_S
        self._told = True
        sys.stderr.write(f"\r{text}\033[K")
        sys.stderr.flush()

    def end(self) -> None:
        """Leaves the line, if there is one."""
        if self._told:
            sys.stderr.write("\n")
