"""The quick task of verification, as the agent asks for it."""

from trainmaster.core.health.verification.outcome import sentence_for_agents
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.verification import quick


def probe(paths: HostPaths) -> str:
    return sentence_for_agents(quick.run(paths))
