"""The quick task: seconds, before every job and after every visit.

It is a row of parts, each a probe as the agent has them (`probe(paths) -> str`, empty for a pass), and a part is added
by a line in `PARTS`. All are run, so that the answer names everything that is wrong and not only the first. A part that
raises has failed, for these look at what every host must have.
"""

import importlib
from time import monotonic
from typing import Final

from trainmaster.core.health.verification.outcome import Result, TaskReport, of_agents_sentence, report
from trainmaster.live.agent.paths import HostPaths

TASK: Final = "quick"
PARTS: Final[dict[str, str]] = {
    "signals": "trainmaster.live.verification.signals",
    "cores": "trainmaster.live.verification.cores",
    "memory": "trainmaster.live.agent.probes.memory",
    "disk": "trainmaster.live.agent.probes.disk",
    "shared-memory": "trainmaster.live.agent.probes.shared_memory",
    "loopback": "trainmaster.live.agent.probes.loopback",
    "python": "trainmaster.live.agent.probes.python",
    "jobs-dir": "trainmaster.live.agent.probes.jobs_dir",
    "parts": "trainmaster.live.agent.health.verified",
}
"""Modules by the name of the part."""


def run(paths: HostPaths, parts: dict[str, str] = PARTS) -> TaskReport:
    start = monotonic()
    return report(TASK, [_part(name, module, paths) for name, module in parts.items()], monotonic() - start)


def _part(name: str, module: str, paths: HostPaths) -> Result:
    try:
        failure: str = importlib.import_module(module).probe(paths)
    except Exception as error:  # noqa: BLE001  whatever a probe raises is a failure of the host
        failure = f"{type(error).__name__}: {error}"
    outcome = of_agents_sentence(f"{name}: {failure}" if failure else "")
    return Result(task=TASK, part=name, unit=name, outcome=outcome, sentence=failure or "as it should be")
