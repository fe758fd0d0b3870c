"""Runs probes in order and prints a line of JSON for each: HOST_DIR MEMORY_DIR JOBS_DIR TASK...

Not for people: `trainmaster.live.agent.verify` starts it and ends it.
"""

import importlib
import sys

from trainmaster.core.base.value import encode
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes import PROBES


def _run(task: str, paths: HostPaths) -> str:
    try:
        sentence: str = importlib.import_module(PROBES[task]).probe(paths)
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
