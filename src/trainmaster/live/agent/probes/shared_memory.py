"""The memory file system takes bytes and gives them back."""

from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes.write_read import write_and_read


def probe(paths: HostPaths) -> str:
    return write_and_read(paths.memory_dir, 1 << 20)
