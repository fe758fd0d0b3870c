"""What workers start outside of their process groups ends with them, and nothing else does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.agent_host import ATTEMPT, AgentHost, eventually, is_gone

from trainmaster.live.agent.processes import descendants_of, environment_of

pytestmark = pytest.mark.real

LEAVES = """
import os, subprocess, time
def tell(pid):
    print("stray", pid, flush=True)
tell(subprocess.Popen(["setsid", "sleep", "601"]).pid)  # a session of its own
subprocess.Popen(["env", "-i", "setsid", "--fork", "sh", "-c", "sh -c 'sleep 602' & sleep 603"])  # found by descent
if os.fork() == 0:  # a daemon by fork alone
    os.setsid()
    if os.fork() == 0:
        tell(os.getpid())
        time.sleep(600)
    os._exit(0)
print("pid", os.getpid(), flush=True)
while not os.path.exists("go-" + os.environ["RANK"]):
    time.sleep(0.005)
"""


def strays(host: AgentHost, rank: int) -> set[int]:
    """What runs below the keeper and is not its vault, its workers, or what they wait for."""
    eventually(lambda: host.log_text(rank).count("stray ") == 2)
    keeper = host.leftovers()[0]
    workers = {host.worker_pid(each) for each in (0, 1)}

    def look() -> set[int] | None:
        found = {name.pid for name in descendants_of([keeper])} - workers - {keeper.pid}
        found = {pid for pid in found if command(pid) and b"vault" not in command(pid)}
        return found if sum(b"sleep 60" in command(pid).replace(b"\0", b" ") for pid in found) >= 6 else None

    return eventually(look)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def told(host: AgentHost, rank: int) -> list[int]:
    return [int(line.split()[1]) for line in host.log_text(rank).splitlines() if line.startswith("stray ")]


@pytest.mark.parametrize("preload", [(), ("json",)])
def test_strays_end_with_the_job(host: AgentHost, preload: tuple[str, ...]) -> None:
    """1. Two ranks start a session, a daemon, and a tree without an environment. 2. One ends: what is known to be its
    own ends, the other's stays. 3. Both have ended: nothing is left. 4. What is not of the job lives."""
    with subprocess.Popen(["setsid", "sleep", "604"]) as other:
        host.run(LEAVES, preload, ranks=2)
        found = strays(host, 0) | strays(host, 1)
        (host.work / "go-1").touch()
        host.exits(1)
        eventually(lambda: is_gone(told(host, 1)[0]))
        assert not is_gone(told(host, 0)[0])
        assert not is_gone(told(host, 0)[1])
        (host.work / "go-0").touch()
        assert {exit.how for exit in host.exits(2)} == {"finished"}
        eventually(lambda: all(is_gone(pid) for pid in found))
        assert other.poll() is None
        other.kill()


def test_processes_tell_who_they_are(host: AgentHost) -> None:
    """1. Two ranks are forked from a warm keeper, whose vault is a fork as well. 2. `ps` and `top` show rank, job and
    host, and the command behind; the variables of the process are still its own."""
    host.run(LEAVES, ("json",), ranks=2)
    for rank in (0, 1):
        pid = host.worker_pid(rank)
        assert command(pid).rstrip(b"\0").decode() == f"trainmaster: rank {rank} of job-1 on h1: python script.py"
        assert Path(f"/proc/{pid}/comm").read_text() == f"tm:job-1/{rank}\n"
        assert environment_of(pid) == environment_of(host.leftovers()[0].pid)
    shown = [command(name.pid) for name in descendants_of(host.leftovers())]
    assert [text for text in shown if text.startswith(b"trainmaster: vault on h1")]


def test_strays_end_with_a_release(host: AgentHost) -> None:
    """1. Ranks run and have strays. 2. The attempt is released: when that is done, they are gone."""
    host.run(LEAVES, ("json",), ranks=2)
    found = strays(host, 0) | strays(host, 1)
    assert host.server.do(host.release()).outcome == "done"
    assert all(is_gone(pid) for pid in found)


def test_marked_strays_end_with_a_killed_keeper(host: AgentHost) -> None:
    """1. The keeper is killed, and its tie to the strays with it. 2. Those that have kept their environment are found
    by their mark. 3. The next epoch, under a new keeper, is not touched."""
    host.run(LEAVES, ("json",), ranks=2)
    found = strays(host, 0) | strays(host, 1)
    os.kill(host.leftovers()[0].pid, signal.SIGKILL)
    host.exits(2)
    assert host.server.do(host.launch(epoch=2)).outcome == "done"
    for pid in (*told(host, 0), *told(host, 1)):
        eventually(lambda pid=pid: is_gone(pid))
    assert not is_gone(host.worker_pid(epoch=2))
    assert host.server.do(host.release()).outcome == "done"
    for pid in found:  # those that no mark tells are this test's to end
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)
    assert not host.paths.attempt(ATTEMPT).exists()
