"""Operations by a real agent: an installer that works, fails, hangs, lies, or waits for a boot; crashes; reboots."""

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.integration.agent_host import HOST, AgentHost, eventually, is_gone

from trainmaster.core.base.ids import ComponentName, OperationId
from trainmaster.core.base.time import seconds
from trainmaster.core.effects import Observation, RebootHost, RunSteps, StepCommand
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.agent.packages import Behaviour, pack

pytestmark = pytest.mark.real

COMPONENT = ("{python}", "-m", "trainmaster.live.agent.component")
WAITS = """
import os, time
print("pid", os.getpid(), flush=True)
while True:
    time.sleep(0.01)
"""


def packed(host: AgentHost, version: str, behaviour: Behaviour = "") -> None:
    source = host.directory / "source"
    source.mkdir(exist_ok=True)
    (source / "tool.txt").write_text("tool\n")
    pack(source, host.packages, "tool", version, behaviour, 0.0)


def install(host: AgentHost, version: str, deadline_s: float = 20.0) -> RunSteps:
    command = (*COMPONENT, "install", "tool", version)
    look = Observation(
        component=ComponentName("tool"), command=(*COMPONENT, "show", "tool"), deadline=seconds(20), wanted=version
    )
    return row(host, StepCommand(name="install", command=command, deadline=seconds(deadline_s)), look)


def row(host: AgentHost, step: StepCommand, observe: Observation | None = None) -> RunSteps:
    name = OperationId("op-7")
    return RunSteps(id=host.next_id(), host=HOST, operation=name, leg="apply", steps=(step,), observe=observe)


def shell(host: AgentHost, text: str) -> RunSteps:
    return row(host, StepCommand(name="script", command=("sh", "-c", text), deadline=seconds(20)))


def lines(host: AgentHost, name: str) -> list[str]:
    path = Path(host.paths.host_dir, name)
    return path.read_text().split() if path.exists() else []


def test_installers_of_every_kind(host: AgentHost) -> None:
    """1. One that works. 2. One that fails, lies, hangs: each failed, with the words a person needs, and the version
    that is really there. 3. The agent names the versions at its next registration."""
    packed(host, "1.0")
    done = host.server.do(install(host, "1.0"))
    assert (done.outcome, done.detail, done.numbers) == ("done", "", {"step": 1, "component": "tool", "version": "1.0"})
    packed(host, "2.0", "fail")
    failed = host.server.do(install(host, "2.0"))
    assert failed.outcome == "failed"
    assert failed.detail == (
        "step install ended with exit code 3: component: the installer of tool 2.0 failed half way; "
        "observed 1.0, wanted 2.0"
    )
    assert failed.numbers == {"step": 0, "component": "tool", "version": "1.0", "exit_code": 3}
    packed(host, "3.0", "lie")
    lied = host.server.do(install(host, "3.0"))
    assert (lied.outcome, lied.detail) == ("failed", "observed 1.0, wanted 3.0")
    packed(host, "4.0", "hang")
    hung = host.server.do(install(host, "4.0", deadline_s=1.0))
    assert hung.outcome == "failed"
    assert hung.detail.startswith("step install was past its deadline of 1 s and was killed after ")
    assert hung.detail.endswith("installing tool 4.0 ...")
    host.kill_agent()
    host.start_agent()
    assert [register.versions for register in host.server.registers] == [{}, {"tool": "1.0"}]


def test_agent_crash_in_a_step(host: AgentHost) -> None:
    """1. A step runs, with a child in a group of its own; the agent gets SIGKILL. 2. The new agent ends both, looks,
    and runs the step again; the effect is done, once."""
    effect = shell(host, "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & echo $$ >> pids; test -e go || sleep 1000")
    host.server.send(effect)
    eventually(lambda: len(lines(host, "pids")) == 2)
    first = [int(pid) for pid in lines(host, "pids")]
    host.kill_agent()
    assert not any(is_gone(pid) for pid in first)
    Path(host.paths.host_dir, "go").touch()
    host.start_agent()
    assert host.server.outcome(effect).outcome == "done"
    assert all(is_gone(pid) for pid in first)
    eventually(lambda: all(is_gone(int(pid)) for pid in lines(host, "pids")))
    assert [outcome.outcome for outcome in host.server.outcomes(effect)] == ["done"]


def test_completed_step_is_not_run_again_by_an_agent_without_a_journal(host: AgentHost) -> None:
    """1. A row is done. 2. The journal is lost. 3. The same effect is answered, and its step did not run again."""
    effect = shell(host, "echo ran >> ran")
    assert host.server.do(effect).outcome == "done"
    host.kill_agent()
    host.paths.journal.unlink()
    host.start_agent()
    host.server.send(effect)
    host.server.wait(lambda: len(host.server.outcomes(effect)) == 2)
    assert [outcome.outcome for outcome in host.server.outcomes(effect)] == ["done", "done"]
    assert lines(host, "ran") == ["ran"]


def test_orderly_end_ends_a_step(host: AgentHost) -> None:
    """1. SIGTERM while a step runs. 2. The agent exits with 0, the step is gone, no outcome was told."""
    effect = shell(host, "echo $$ >> pids; sleep 1000")
    host.server.send(effect)
    eventually(lambda: lines(host, "pids"))
    assert host.process is not None
    host.process.terminate()
    assert host.process.wait(20) == 0
    assert is_gone(int(lines(host, "pids")[0]))
    assert host.server.outcomes(effect) == []


def takes_down(host: AgentHost) -> str:
    """A reboot command: the memory is gone, and then the agent."""
    assert host.process is not None
    text = f"rm -r {host.paths.memory_dir}/*; echo x >> {host.paths.host_dir}/boots; kill -9 {host.process.pid}"
    return f"sh -c '{text}'"


def test_reboot_and_a_version_that_needs_it(host: AgentHost) -> None:
    """1. A version is installed that takes effect with the next boot. 2. The host is booted once, and the effect is
    done, with both boot ids. 3. The version is there. 4. The reason is on the disk. 5. It is answered, not repeated,
    by yet another agent."""
    host.reboot_command = f"sh {host.directory}/reboot"
    host.kill_agent()
    host.start_agent()
    (host.directory / "reboot").write_text(takes_down(host))
    packed(host, "1.0", "needs-reboot")
    staged = host.server.do(install(host, "1.0"))
    assert (staged.outcome, "tool is not installed here" in staged.detail) == ("failed", True)
    reboot = RebootHost(id=host.next_id(), host=HOST, operation=OperationId("op-7"), why="tool 1.0 needs it")
    host.server.send(reboot)
    assert host.process is not None
    assert host.process.wait(20) == -signal.SIGKILL
    assert host.server.outcomes(reboot) == []
    host.start_agent()
    done = host.server.outcome(reboot)
    before, after = host.server.registers[-2].boot, host.server.registers[-1].boot
    assert before != after
    assert (done.outcome, done.numbers["boot_before"], done.numbers["boot"]) == ("done", before, after)
    assert (done.numbers["tries"], float(done.numbers["reboot_s"]) > 0) == (1, True)
    assert host.server.registers[-1].versions == {"tool": "1.0"}
    assert '"why":"tool 1.0 needs it"' in host.paths.reboot.read_text()
    host.kill_agent()
    host.start_agent()
    host.server.send(reboot)
    host.server.wait(lambda: len(host.server.outcomes(reboot)) == 2)
    assert {outcome.outcome for outcome in host.server.of(EffectEnded) if outcome.effect == reboot.id} == {"done"}
    assert lines(host, "boots") == ["x"]


def test_no_reboot_under_workers(host: AgentHost) -> None:
    """1. Workers run: the reboot is refused, in words. 2. So it is where no command is known."""
    reboot = RebootHost(id=host.next_id(), host=HOST, operation=OperationId("op-7"), why="new kernel")
    refused = host.server.do(reboot)
    assert (refused.outcome, "--reboot-command" in refused.detail) == ("not-run", True)
    host.run(WAITS)
    host.worker_pid()
    refused = host.server.do(reboot.but(id=host.next_id()))
    assert refused.outcome == "not-run"
    assert refused.detail == "not rebooted: workers of job-1.a1 epoch 1 run on h1"
    assert not host.paths.reboot.exists()


def test_many_operations_that_do_nothing(host: AgentHost) -> None:
    """1. Five hundred at once. 2. All are done, in far less time than as many syncs and processes would take, and
    nothing is left of them but the journal."""
    nothing = StepCommand(name="nothing", command=("trainmaster:noop",), deadline=seconds(1))
    effects = [row(host, nothing) for _ in range(500)]
    for effect in effects:
        host.server.send(effect)
    host.server.wait(lambda: len(host.server.of(EffectEnded)) == len(effects))
    assert {event.outcome for event in host.server.of(EffectEnded)} == {"done"}
    assert not host.paths.operations.exists()


def test_the_interpreter_of_a_step_is_the_agents(host: AgentHost) -> None:
    words = ("{python}", "-c", "import sys; open('python', 'w').write(sys.executable)")
    assert host.server.do(row(host, StepCommand(name="x", command=words, deadline=seconds(20)))).outcome == "done"
    assert os.path.samefile(lines(host, "python")[0], sys.executable)
