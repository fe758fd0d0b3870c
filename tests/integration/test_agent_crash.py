"""Crashes, lost servers, repeated and stale effects, full disks: nothing is lost and nothing is done twice."""

import os
import signal
from pathlib import Path

import pytest
from tests.integration.agent_host import ATTEMPT, AgentHost, eventually, is_gone

from trainmaster.core.base.ids import HostId
from trainmaster.core.effects import VerifyHost
from trainmaster.core.recovery.events import EffectEnded, WorkerExited

pytestmark = pytest.mark.real

WAITS = """
import os, time
print("pid", os.getpid(), flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("went")
"""


def test_workers_survive_the_agent_and_are_adopted(host: AgentHost) -> None:
    """1. The agent gets SIGKILL. 2. The worker runs on. 3. A new agent of the same boot names the attempt. 4. The
    worker's end is told, once."""
    host.run(WAITS, ("json",))
    pid = host.worker_pid()
    host.kill_agent()
    assert not is_gone(pid)
    host.start_agent()
    first, second = host.server.registers
    assert (first.boot, first.attempts) == (second.boot, ())
    assert second.attempts == ((ATTEMPT, 1),)
    assert first.session != second.session
    (host.work / "go").touch()
    assert host.exits(1)[0].how == "finished"
    assert host.server.do(host.stop()).outcome == "done"
    assert len(host.server.of(WorkerExited)) == 1


def test_exit_while_no_agent_runs_is_told_by_the_next(host: AgentHost) -> None:
    """1. The agent is dead while the worker fails. 2. The next agent tells the end with its cause, once, even if it is
    started a third time; it names the attempt, whose keeper is left."""
    host.run(WAITS + "raise OSError(98, 'Address already in use')\n", ("json",))
    host.worker_pid()
    host.kill_agent()
    (host.work / "go").touch()
    eventually(lambda: host.paths.exit_record(ATTEMPT, 1, 0).exists())
    host.start_agent()
    exit = host.exits(1)[0]
    assert exit.failure is not None
    assert (exit.failure.exception, "Address already in use" in exit.failure.message) == ("OSError", True)
    assert host.server.registers[-1].attempts == ((ATTEMPT, 0),)
    host.server.do(host.stop())  # its report follows the acknowledgement of the exit
    host.kill_agent()
    host.start_agent()
    assert host.server.do(host.stop()).outcome == "done"
    assert len(host.server.of(WorkerExited)) == 1


def test_keeper_that_died_while_no_agent_ran_is_noticed(host: AgentHost) -> None:
    """1. Agent and keeper get SIGKILL. 2. The next agent tells that the workers are gone."""
    host.run(WAITS)
    pid = host.worker_pid()
    keeper = host.leftovers()[0]
    host.kill_agent()
    os.kill(keeper.pid, signal.SIGKILL)
    eventually(lambda: is_gone(pid))
    host.start_agent()
    exit = host.exits(1)[0]
    assert (exit.how, exit.signal) == ("failed", signal.SIGKILL)


def test_report_is_not_lost_while_the_server_is_away(host: AgentHost) -> None:
    """1. The server goes. 2. The worker ends meanwhile. 3. The server comes back: the agent registers anew in the same
    session and the report arrives, once, although its first acknowledgement is lost."""
    host.run(WAITS, ("json",))
    host.worker_pid()
    host.server.stop()
    (host.work / "go").touch()
    eventually(lambda: host.paths.exit_record(ATTEMPT, 1, 0).exists())
    host.server.lose_acknowledgements = 1
    host.server.start()
    assert host.exits(1)[0].how == "finished"
    assert len({register.session for register in host.server.registers}) == 1
    assert host.server.do(host.stop()).outcome == "done"
    assert len(host.server.of(WorkerExited)) == 1


def test_repeated_effect_is_answered_not_repeated(host: AgentHost) -> None:
    """1. A launch is sent twice, and again to a new agent. 2. One worker was started; each repeat is answered done."""
    host.script("open('starts', 'a').write('x')\n" + WAITS)
    host.server.do(host.prepare())
    launch = host.launch()
    host.server.send(launch)
    host.server.do(launch)
    host.worker_pid()
    host.kill_agent()
    host.start_agent()
    seen = len(host.server.outcomes(launch))
    host.server.send(launch)
    host.server.wait(lambda: len(host.server.outcomes(launch)) > seen)
    assert {outcome.outcome for outcome in host.server.outcomes(launch)} == {"done"}
    assert (host.work / "starts").read_text() == "x"


def test_who_runs_is_recorded_though_the_agent_died_before_it_was(host: AgentHost) -> None:
    """1. The agent dies after the launch and before it has written down which processes run (its file is taken away).
    2. The next one asks the keeper, and writes it."""
    host.run(WAITS)
    pid = host.worker_pid()
    record = host.paths.epoch(ATTEMPT, 1) / "group.json"
    host.kill_agent()
    before = record.read_bytes()
    record.unlink()
    host.start_agent()
    assert eventually(lambda: record.exists() and record.read_bytes()) == before
    assert f'"pid":{pid}'.encode() in before


def test_stale_lease_is_refused(host: AgentHost) -> None:
    """1. A newer server speaks. 2. An effect of the older lease is not run."""
    host.server.lease = 7
    host.server.do(host.prepare())
    launch = host.launch()
    host.server.send(launch, lease=6)
    outcome = host.server.outcome(launch)
    assert (outcome.outcome, "stale lease" in outcome.detail) == ("not-run", True)


def test_reboot_gets_a_new_boot_id_and_old_effects_are_not_done(host: AgentHost) -> None:
    """1. A launch is done. 2. The host "reboots": everything dies and the memory is gone. 3. The boot id is new, and
    the repeated launch answers that it is no longer done."""
    host.run(WAITS)
    launch, done = host.launch(), host.server.of(EffectEnded)[-1]
    keeper = host.leftovers()[0]
    host.kill_agent()
    os.kill(keeper.pid, signal.SIGKILL)
    for path in sorted(Path(host.paths.memory_dir).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    host.start_agent()
    assert host.server.registers[0].boot != host.server.registers[1].boot
    again = launch.but(id=done.effect)
    seen = len(host.server.outcomes(again))
    host.server.send(again)
    host.server.wait(lambda: len(host.server.outcomes(again)) > seen)
    assert (host.server.outcomes(again)[-1].outcome, host.server.registers[1].attempts) == ("failed", ())


def test_wrong_token_ends_the_agent_with_5(host: AgentHost) -> None:
    """1. The server changes the token. 2. At the next registration the agent ends with exit code 5 and says why."""
    host.server.token = "another"
    host.server.stop()
    host.server.start()
    assert host.process is not None
    assert host.process.wait(20) == 5
    assert "refused the token" in host.log.read_text()
    assert "Traceback" not in host.log.read_text()


def test_orderly_end_leaves_no_process(host: AgentHost) -> None:
    """1. The agent gets SIGTERM while a worker runs. 2. Worker and keeper end, the agent exits with 0."""
    host.run(WAITS)
    pid = host.worker_pid()
    assert host.process is not None
    host.process.terminate()
    assert host.process.wait(20) == 0
    assert is_gone(pid)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_loses_no_worker(host: AgentHost) -> None:
    """1. The worker's log goes to a full device. 2. The worker prints a lot, and then fails. 3. Its failure is told
    with its cause, which the keeper kept in memory."""
    host.script("for i in range(2000): print('x' * 100)\nassert 1 == 2, 'numbers differ'\n")
    host.server.do(host.prepare())
    host.paths.logs(ATTEMPT).mkdir(parents=True, exist_ok=True)
    host.paths.log(ATTEMPT, 1, 0).symlink_to("/dev/full")
    host.server.do(host.launch())
    exit = host.exits(1)[0]
    assert exit.failure is not None
    assert (exit.failure.exception, exit.failure.message) == ("AssertionError", "numbers differ")


def test_verification_passes_here_and_names_what_fails(host: AgentHost) -> None:
    """1. All tasks pass. 2. A jobs directory that is a file makes that task fail, by name. 3. An unknown task fails."""
    tasks = ("memory", "disk", "shared-memory", "loopback", "python", "jobs-dir")
    good = host.server.do(VerifyHost(id=host.next_id(), host=HostId("h1"), tasks=tasks))
    assert (good.outcome, good.detail) == ("done", "")
    jobs = Path(host.paths.jobs_dir)
    jobs.rmdir()
    jobs.write_text("")
    bad = host.server.do(VerifyHost(id=host.next_id(), host=HostId("h1"), tasks=tasks))
    assert (bad.outcome, bad.detail.startswith("jobs-dir: ")) == ("failed", True)
    unknown = host.server.do(VerifyHost(id=host.next_id(), host=HostId("h1"), tasks=("gpu-burn",)))
    assert (unknown.outcome, "gpu-burn" in unknown.detail) == ("failed", True)
