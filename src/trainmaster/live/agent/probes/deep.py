"""The deep task of verification, as the agent asks for it."""

from trainmaster.core.health.verification.outcome import sentence_for_agents
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.verification import deep
from trainmaster.live.verification.tries import settled


def probe(paths: HostPaths, budget_s: float = deep.DEFAULT_BUDGET_S) -> str:
    return sentence_for_agents(settled(lambda: deep.run(budget_s)))
