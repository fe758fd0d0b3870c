"""Runs probes in order and prints a line of JSON for each: HOST_DIR MEMORY_DIR JOBS_DIR TASK...

Not for people: `trainmaster.live.agent.verify` starts it and ends it.
"""

import importlib
import sys

from trainmaster.core.base.value import encode
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes import PROBES, split


def _run(task: str, paths: HostPaths) -> str:
    try:
        known = split(task)
        assert known is not None, task
        name, budget_s = known
        probe = importlib.import_module(PROBES[name]).probe
        sentence: str = probe(paths) if budget_s is None else probe(paths, budget_s)
    except Exception as error:  # noqa: BLE001  whatever a probe raises is a failure of the host
        return f"{type(error).__name__}: {error}"
    return sentence


def main(arguments: list[str]) -> None:
    host_dir, memory_dir, jobs_dir, *tasks = arguments
    paths = HostPaths(host_dir=host_dir, memory_dir=memory_dir, jobs_dir=jobs_dir)
    for task in tasks:
        print(encode({"task": task, "failure": _run(task, paths)}).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
