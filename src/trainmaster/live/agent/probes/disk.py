"""The host directory's disk takes bytes and gives them back."""

from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes.write_read import write_and_read


def probe(paths: HostPaths) -> str:
    return write_and_read(paths.host_dir, 1 << 20)
