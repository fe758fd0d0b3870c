"""Real workers under a real agent: launch, output, ends, stops, fences."""

import json
import os
import signal
import socket
import time

import pytest
from tests.integration.agent_host import ATTEMPT, AgentHost, eventually, is_gone

from trainmaster.core.agent.wire import Query
from trainmaster.core.base.time import seconds
from trainmaster.core.recovery.events import WorkerExited
from trainmaster.live.agent.processes import name_of

pytestmark = pytest.mark.real

WAITS = """
import os, time
print("pid", os.getpid(), flush=True)
time.sleep(600)
"""
HAS_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
print("child", child.pid)
"""
SHOWS = """
import json, os, sys
seen = {"env": dict(os.environ), "argv": sys.argv, "path0": sys.path[0], "name": __name__, "cwd": os.getcwd()}
print(json.dumps(seen))
"""


@pytest.mark.parametrize("preload", [(), ("json",)])
def test_worker_sees_torchrun_environment(host: AgentHost, preload: tuple[str, ...]) -> None:
    """1. A script that prints what it sees is launched, by exec or by fork. 2. It sees what torchrun would give it, its
    arguments and its directory as under `python script.py`, and nothing of the agent's token. 3. It has finished."""
    host.script(SHOWS)
    host.server.do(host.prepare("python", "-u", "script.py", "--steps", "3", preload=preload, MINE="yes"))
    port = host.server.do(host.reserve()).numbers["port"]
    host.server.do(host.launch(ranks=2, port=int(port)))
    exits = host.exits(2)
    assert {(exit.rank, exit.how, exit.exit_code, exit.attached) for exit in exits} == {
        (0, "finished", 0, False),
        (1, "finished", 0, False),
    }
    for rank in (0, 1):
        seen = json.loads(host.log_text(rank))
        env = seen["env"]
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        expected |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "MINE": "yes", "TORCHELASTIC_RESTART_COUNT": "0"}
        assert {name: env[name] for name in expected} == expected
        assert ("TRAINMASTER_STORE_FD" in env) == (rank == 0)
        assert not any("TOKEN" in name and name.startswith("TRAINMASTER") for name in env)
        assert seen["argv"] == ["script.py", "--steps", "3"]
        assert (seen["path0"], seen["name"], seen["cwd"]) == (str(host.work), "__main__", str(host.work))


def test_module_command_runs_by_fork(host: AgentHost) -> None:
    """1. `python -m tool a` with a preload runs the module of the working directory as __main__."""
    host.script("import sys; print(__name__, sys.argv[1:])", "tool.py")
    host.server.do(host.prepare("python", "-m", "tool", "a", preload=("json",)))
    host.server.do(host.launch())
    assert host.exits(1)[0].how == "finished"
    assert host.log_text() == "__main__ ['a']\n"


@pytest.mark.parametrize("preload", [(), ("json",)])
def test_failure_names_type_message_and_line(host: AgentHost, preload: tuple[str, ...]) -> None:
    """1. A script raises in a function. 2. The report names type, message and the line of the script."""
    host.run("def step():\n    raise ValueError('loss is nan')\n\nstep()\n", preload)
    exit = host.exits(1)[0]
    assert (exit.how, exit.exit_code) == ("failed", 1)
    assert exit.failure is not None
    assert (exit.failure.exception, exit.failure.message) == ("ValueError", "loss is nan")
    assert exit.failure.location.endswith("script.py:2")
    assert "Traceback (most recent call last)" in host.log_text()
    assert "trainmaster/live" not in host.log_text()


def test_command_that_does_not_exist_fails_with_its_name(host: AgentHost) -> None:
    """1. The command names no program. 2. The worker's failure says so."""
    host.server.do(host.prepare("no-such-program"))
    host.server.do(host.launch())
    exit = host.exits(1)[0]
    assert (exit.how, exit.exit_code) == ("failed", 127)
    assert exit.failure is not None
    assert "no-such-program" in exit.failure.message


def test_killed_worker_is_noticed_within_100_ms(host: AgentHost) -> None:
    """1. A worker gets SIGKILL. 2. The server has the report within 100 ms (best of three, the machine is shared)."""
    delays = []
    for epoch in (1, 2, 3):
        host.script(WAITS)
        host.server.do(host.prepare(preload=("json",)))
        host.server.do(host.launch(epoch))
        pid = host.worker_pid(epoch=epoch)
        before = time.time()
        os.kill(pid, signal.SIGKILL)
        exit = host.exits(epoch)[-1]
        delays.append(host.server.arrived[host.server.events.index(exit)] - before)
        assert (exit.how, exit.signal, exit.exit_code) == ("failed", signal.SIGKILL, None)
        assert exit.failure is not None
        assert exit.failure.exception == "SIGKILL"
    print("exit detection", [round(delay * 1000, 1) for delay in delays], "ms")
    assert min(delays) < 0.1


def test_launch_fences_earlier_epochs(host: AgentHost) -> None:
    """1. Epoch 1 runs, with a child process of its own. 2. Epoch 2 is launched. 3. All of epoch 1 is gone, as stopped,
    and epoch 2 runs. 4. A late launch of epoch 1 is not run."""
    host.run(HAS_CHILD + WAITS, ("json",))
    old, child = host.worker_pid(), int(host.said("pid ").split()[1])
    assert host.server.do(host.launch(epoch=2)).outcome == "done"
    exit = host.exits(1)[0]
    assert (exit.epoch, exit.how) == (1, "stopped")
    assert is_gone(old)
    eventually(lambda: is_gone(child))
    assert not is_gone(host.worker_pid(epoch=2))
    late = host.server.do(host.launch(epoch=1))
    assert (late.outcome, "launched" in late.detail) == ("not-run", True)


def test_stop_gives_grace_then_kills(host: AgentHost) -> None:
    """1. One worker obeys SIGTERM, one ignores it. 2. StopWorkers with grace ends both, and both are told as
    stopped."""
    ignores = "import os, signal\nif os.environ['RANK'] == '1': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    host.run(ignores + WAITS, ranks=2)
    for rank in (0, 1):
        host.worker_pid(rank)
    assert host.server.do(host.stop(grace=seconds(0.3))).outcome == "done"
    ends = {(exit.rank, exit.how, exit.signal) for exit in host.exits(2)}
    assert ends == {(0, "stopped", signal.SIGTERM), (1, "stopped", signal.SIGKILL)}
    refused = host.server.do(host.launch(epoch=1))
    assert refused.outcome == "not-run"


def test_release_leaves_nothing(host: AgentHost) -> None:
    """1. A running attempt is released. 2. Worker, keeper and memory are gone; the worker is told as stopped; logs
    stay. 3. A second release is done as well."""
    host.run(WAITS, ("json",))
    pid, keeper = host.worker_pid(), host.leftovers()[0]
    assert host.server.do(host.release()).outcome == "done"
    assert host.exits(1)[0].how == "stopped"
    assert is_gone(pid)
    assert name_of(keeper.pid) != keeper
    assert not host.paths.attempt(ATTEMPT).exists()
    assert "pid" in host.log_text()
    assert host.server.do(host.release()).outcome == "done"


def test_keeper_death_ends_workers_and_is_told(host: AgentHost) -> None:
    """1. The keeper gets SIGKILL. 2. Its workers are gone and told as failed, with the cause. 3. The next epoch starts
    under a new keeper."""
    host.run(WAITS, ("json",), ranks=2)
    pids = [host.worker_pid(rank) for rank in (0, 1)]
    keeper = host.leftovers()[0]
    os.kill(keeper.pid, signal.SIGKILL)
    exits = host.exits(2)
    assert {(exit.rank, exit.how, exit.signal) for exit in exits} == {(0, "failed", 9), (1, "failed", 9)}
    assert exits[0].failure is not None
    assert f"keeper of the attempt (process {keeper.pid}) ended" in exits[0].failure.message
    for pid in pids:
        eventually(lambda pid=pid: is_gone(pid))
    assert host.server.do(host.launch(epoch=2)).outcome == "done"
    assert not is_gone(host.worker_pid(epoch=2))


LISTENS = """
import os, socket
server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
print("up")
"""


def test_reserved_port_is_not_given_to_others_but_to_the_script(host: AgentHost) -> None:
    """1. A port is reserved. 2. The kernel gives it to nobody who asks for any port. 3. A script that knows nothing of
    the reservation listens on it."""
    host.script(LISTENS + WAITS)
    host.server.do(host.prepare())
    port = int(host.server.do(host.reserve()).numbers["port"])
    taken = []
    try:
        for _ in range(3000):
            other = socket.socket()
            taken.append(other)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            assert other.getsockname()[1] != port
    finally:
        for other in taken:
            other.close()
    host.server.do(host.launch(port=port))
    host.said("up")
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.torch
def test_what_the_script_needs_is_warm_at_its_first_line(host: AgentHost) -> None:
    """1. A script of ours with a list of its own. 2. Its worker finds both imported."""
    host.script(
        "import sys\nprint(sorted({'json', 'trainmaster.training.inplace'} & set(sys.modules)), flush=True)\n"
        "if False:\n    import trainmaster.training\n"
    )
    assert host.server.do(host.prepare(preload=("json",)).but(preload_needed=True), timeout_s=60).detail == ""
    host.server.do(host.launch())
    host.said("['json', 'trainmaster.training.inplace']")


def test_without_preloading_a_worker_is_a_fresh_process(host: AgentHost) -> None:
    host.run("import sys\nprint('torch' in sys.modules)\nif False:\n    import torch\n")
    host.said("False")


def test_preload_that_fails_is_told_and_workers_start(host: AgentHost) -> None:
    """1. A module to preload does not exist. 2. The attempt is prepared, the outcome names the module. 3. Workers
    start."""
    host.script("print('ran')")
    prepared = host.server.do(host.prepare(preload=("no_such_module",)))
    assert prepared.outcome == "done"
    assert "no_such_module: ModuleNotFoundError" in prepared.detail
    host.server.do(host.launch())
    assert host.exits(1)[0].how == "finished"


def test_checkpoints_that_cannot_be_fail_the_preparation(host: AgentHost) -> None:
    """1. The parent of the directory for checkpoints is a file. 2. The preparation fails and says so."""
    host.script("print('ran')")
    outcome = host.server.do(host.prepare().but(checkpoint_directory=f"{host.work}/script.py/c"))
    assert outcome.outcome == "failed"
    assert f"{host.work}/script.py is no directory; make it usable, or set dir in [checkpoint]" in outcome.detail
    assert host.leftovers() == []


def test_missing_workdir_fails_the_preparation(host: AgentHost) -> None:
    """1. The working directory does not exist on this host. 2. The preparation fails and says which."""
    effect = host.prepare().but(workdir="/no/such/directory")
    outcome = host.server.do(effect)
    assert outcome.outcome == "failed"
    assert "/no/such/directory" in outcome.detail


def test_log_query_gives_the_tail(host: AgentHost) -> None:
    """1. A worker printed three lines. 2. The last two can be asked for. 3. A rank that is not here has none."""
    host.run("print('one')\nprint('two')\nprint('three')\n")
    host.exits(1)
    host.said("three")
    query = Query(id="q1", kind="log", attempt=ATTEMPT, rank=0, lines=2)
    assert host.server.ask(query) == b"two\nthree\n"
    assert host.server.ask(query.but(id="q2", rank=5)) == b""


def test_exit_code_of_the_script_is_kept(host: AgentHost) -> None:
    """1. A forked script leaves with sys.exit(7) after an atexit function. 2. Both are as with a fresh interpreter."""
    host.run("import atexit, sys\natexit.register(print, 'bye')\nsys.exit(7)\n", ("json",))
    exit: WorkerExited = host.exits(1)[0]
    assert (exit.how, exit.exit_code) == ("failed", 7)
    assert host.log_text() == "bye\n"
