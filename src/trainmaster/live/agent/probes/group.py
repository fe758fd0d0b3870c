"""The group task of verification over ranks of this host alone, as the agent asks for it."""

from trainmaster.core.health.verification.outcome import sentence_for_agents
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.verification import ranks
from trainmaster.live.verification.tries import settled


def probe(paths: HostPaths, budget_s: float = ranks.DEFAULT_BUDGET_S) -> str:
    return sentence_for_agents(settled(lambda: ranks.run(budget_s)))
