"""The nanny of a local fleet: starts the server and the agents, and starts again what ends.

    python -m trainmaster.live.adapters.nanny STATE

A server or an agent that ended is started again at once, later and later if it keeps ending. A host whose memory is
gone has lost its power: it is started again after the fleet's `reboot_s`, as a machine would be. A nanny that is itself
started again finds what runs by the records and looks after it.

The nanny ends nothing: SIGTERM ends only itself, and `down` ends the rest.
"""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Final

from trainmaster.core.agent.steps import PACKAGES
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import in_seconds
from trainmaster.live.adapters import local
from trainmaster.live.adapters.local import LocalPlan
from trainmaster.live.agent.files import write_whole
from trainmaster.live.agent.processes import ProcessName
from trainmaster.live.server.tokens import agent_token, load_or_make

LOOK_EVERY_S: Final = 0.05
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
STEADY_S: Final = 10.0
"""A process that ran this long did not end because of how it was started: the next restart is at once again."""


class Ward:
    """One process that should run."""

    def __init__(self, state: Path, name: str, arguments: list[str]) -> None:
        self.state, self.name, self._arguments = state, name, arguments
        self._process: ProcessName | None = local.process_of(state, name)
        self._started_s = 0.0
        self._wait_s = FIRST_WAIT_S
        self._due_s = 0.0
        self._ran = self._process is not None

    def look(self, now_s: float, lost_power: bool, reboot_s: float) -> None:
        """Starts the process if it does not run and its time has come. `now_s` is monotonic."""
        if self._runs():
            return
        if self._ran:
            self._ran = False
            self._due_s = now_s + self._delay_s(now_s, lost_power, reboot_s)
            _say(f"{self.name} ended{' with its host' if lost_power else ''}; again in {self._due_s - now_s:.1f} s")
        if now_s >= self._due_s:
            self._start(now_s)

    def _runs(self) -> bool:
        return self._process is not None and local.runs(self._process)

    def _delay_s(self, now_s: float, lost_power: bool, reboot_s: float) -> float:
        if lost_power:
            self._wait_s = FIRST_WAIT_S
            return reboot_s
        if now_s - self._started_s > STEADY_S:
            self._wait_s = FIRST_WAIT_S
            return 0.0
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_WAIT_S)
        return wait_s

    def _start(self, now_s: float) -> None:
        self._process = local.spawn(self.state, self.name, self._arguments)
        self._started_s, self._ran = now_s, True


def _say(text: str) -> None:
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, flush=True)


def _server(state: Path, plan: LocalPlan) -> Ward:
    command = ["trainmaster.cli.main", "server", "run", "--fleet", plan.fleet_file, "--state", str(state)]
    return Ward(state, "server", command)


def _agent(state: Path, plan: LocalPlan, host: HostId, secret: str) -> Ward:
    token_file = state / "run" / f"{local.agent_of(host)}.token"
    write_whole(token_file, agent_token(secret, host).encode())
    command = ["trainmaster.cli.main", "--server", f"@{state / 'server.json'}", "--token-file", str(token_file)]
    command += ["agent", "run", "--host", host, "--address", "127.0.0.1", "--jobs-dir", str(state / "jobs")]
    command += ["--host-dir", str(local.host_dir(state, host)), "--memory-dir", str(local.memory_dir(plan, host))]
    reboot = (sys.executable, "-m", "trainmaster.live.adapters.local_reboot", str(state), host)
    command += ["--reboot-command", shlex.join(reboot), *local.health_flags(state, host)]
    return Ward(state, local.agent_of(host), command)


def watch(state: Path, plan: LocalPlan) -> None:
    """Looks after the fleet until the process is ended. Raises `UserError` if the tokens can't be used."""
    os.environ.setdefault(PACKAGES, str(state / "packages"))  # agents hand it on to the steps of operations
    secret = load_or_make(state / "tokens").secret
    server = _server(state, plan)
    agents = {host: _agent(state, plan, host, secret) for host in plan.hosts}
    reboot_s = in_seconds(plan.reboot)
    while True:
        server.look(time.monotonic(), False, reboot_s)
        for host, agent in agents.items():
            agent.look(time.monotonic(), not local.memory_dir(plan, host).exists(), reboot_s)
        time.sleep(LOOK_EVERY_S)


def main(state: Path) -> None:
    plan = local.plan_of(state)
    assert plan is not None, f"no plan in {state}"
    _say(f"looking after {len(plan.hosts)} hosts of {plan.fleet}")
    watch(state, plan)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
