"""The clocks of this machine, for runs of the twin, which has none of its own."""

import resource
from time import perf_counter_ns, process_time_ns


class Meter:
    """What `trainmaster.twin.report.Clocks` asks for."""

    def wall_ns(self) -> int:
        return perf_counter_ns()

    def processor_ns(self) -> int:
        return process_time_ns()

    def peak_mib(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
