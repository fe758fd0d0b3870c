"""A local fleet with the real server: up, a job, chaos, down."""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.fakes.agent_server import FakeServer
from tests.integration.agent_host import eventually, is_gone

from trainmaster.cli.main import main
from trainmaster.core.base.ids import EffectId, HostId, OperationId
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import RebootHost, RunSteps, StepCommand
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.live.adapters import local
from trainmaster.live.agent.files import read_or_none
from trainmaster.live.agent.processes import is_alive, send, wait_gone
from trainmaster.live.server.resources import HostsChange, HostView, Jobs, JobSubmission
from trainmaster.ports.errors import UserError

pytestmark = pytest.mark.real

FLEET = """
schema = "trainmaster.fleet/v1"
name = "test"

[[cluster]]
name = "desk"
fabric = "loopback"

[[cluster.hosts]]
list = "h[1-2]"
platform = "laptop"

[agents]
heartbeat_s = 0.2
silent_s = 1.0
reboot_s = 0.3
"""
HOST = HostId("h1")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A fleet that is up. After the test nothing of it is left."""
    directory = Path(tempfile.mkdtemp(prefix="trainmaster-test-"))
    (tmp_path / "fleet.toml").write_text(FLEET)
    plan = local.up(directory, tmp_path / "fleet.toml", lambda _: None)
    yield directory
    names = ("nanny", "server", *map(local.agent_of, plan.hosts))
    running = [process for name in names if (process := local.process_of(directory, name)) is not None]
    assert local.down(directory, lambda _: None)
    assert not local.down(directory, lambda _: None)
    assert not [process for process in running if is_alive(process)]
    assert not os.path.exists(plan.memory_root)
    assert (directory / "run" / "nanny.log").exists()
    shutil.rmtree(directory)


def call(state: Path, method: str, path: str, body: bytes | None = None) -> bytes:
    """A request to the present server; waits while it is away."""
    deadline = time.monotonic() + 20
    token = (state / "tokens" / "operator.token").read_text().strip()
    while True:
        try:
            url = eventually(lambda: local.server_url(state))
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            answer = httpx.request(method, url + path, content=body, headers=headers, timeout=5, trust_env=False)
            assert answer.status_code < 300, answer.text
            return answer.content
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the server stays away"
            time.sleep(0.05)


def host_view(state: Path, host: HostId = HOST) -> HostView:
    return decode(call(state, "GET", f"/v1/hosts/{host}"), HostView)


def boot(state: Path) -> bytes | None:
    plan = local.plan_of(state)
    assert plan is not None
    return read_or_none(local.memory_dir(plan, HOST) / "boot")


def chaos(state: Path, *words: str) -> None:
    assert main(["chaos", *words, "--state", str(state)]) == 0


def test_killed_host_reboots_and_returns(state: Path) -> None:
    """1. A host loses its power. 2. After its reboot time it has another boot id and is verified and ready again."""
    first = host_view(state)
    chaos(state, "host", HOST)
    eventually(lambda: boot(state) not in (None, first.boot.encode()))
    again = eventually(
        lambda: view if (view := host_view(state)).state == "ready" and view.boot != first.boot else None
    )
    assert again.connected


def test_crashed_agent_returns_in_the_same_boot(state: Path) -> None:
    """1. The agent alone is killed. 2. The nanny starts it again and the host keeps its boot."""
    before = local.process_of(state, "agent-h1")
    first = host_view(state)
    chaos(state, "agent", HOST)
    eventually(lambda: local.process_of(state, "agent-h1") not in (None, before))
    eventually(lambda: host_view(state).connected)
    assert host_view(state).boot == first.boot


def test_crashed_server_returns_with_its_fleet(state: Path) -> None:
    """1. The server is killed. 2. The nanny starts it again; the hosts come back by themselves."""
    before = local.process_of(state, "server")
    chaos(state, "server")
    eventually(lambda: local.process_of(state, "server") not in (None, before))
    eventually(lambda: host_view(state).connected)


def test_paused_agent_is_noticed_and_comes_back(state: Path) -> None:
    """1. The agent is stopped in its tracks. 2. The host is seen as silent or gone. 3. It goes on, and the host is
    ready again in the same boot."""
    first = host_view(state)
    chaos(state, "silence", HOST)
    eventually(lambda: (view := host_view(state)).state != "ready" or not view.connected)
    chaos(state, "resume", HOST)
    eventually(lambda: (view := host_view(state)).state == "ready" and view.connected)
    assert host_view(state).boot == first.boot


def test_job_runs_on_two_hosts(state: Path) -> None:
    """1. A job of two hosts is submitted. 2. Its ranks run with the right environment, and it finishes."""
    spec = JobSpec(
        name="hello",
        command=("python", "-c", "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"),
        hosts=2,
        workdir=str(state),
    )
    call(state, "POST", "/v1/jobs", encode(JobSubmission(spec=spec)))
    job = eventually(lambda: next(iter(finished_jobs(state)), None))
    assert job == "finished"
    assert call(state, "GET", "/v1/jobs/hello/logs?rank=1") == b"rank 1 of 2\n"


def finished_jobs(state: Path) -> list[str]:
    jobs = decode(call(state, "GET", "/v1/jobs?all=1"), Jobs).items
    return [job.state for job in jobs if job.state in ("finished", "failed", "cancelled")]


def test_up_twice_and_chaos_without_a_fleet(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A second `up` says that it is up. 2. A host that is not in the plan, and a directory without a fleet, are
    refused in words."""
    with pytest.raises(local.AlreadyUp):
        local.up(state, tmp_path / "fleet.toml", lambda _: None)
    with pytest.raises(UserError, match="h9 is no host of test"):
        local.kill_host(state, HostId("h9"))
    with pytest.raises(UserError, match="no fleet runs"):
        local.kill_host(tmp_path, HOST)
    for words, code, told in (
        (["host", "h9"], 1, "h9 is no host of test"),
        (["host"], 2, "chaos host needs a host"),
        (["server", "h1"], 2, "the server is no host"),
        (["meteor", "h1"], 2, "'meteor' is not one of"),
        (["reboot", "h1", "--readonly"], 5, "this command changes things"),
    ):
        assert main(["chaos", *words, "--state", str(state)]) == code
        assert told in capsys.readouterr().err


def test_a_held_host_counts_as_up(state: Path, tmp_path: Path) -> None:
    """1. A host is drained. 2. Down and up again: the fleet is up, and says which host is held."""
    call(state, "POST", "/v1/hosts/drain", encode(HostsChange(hosts=HOST, reason="fan")))
    local.down(state, lambda _: None)
    said: list[str] = []
    local.up(state, tmp_path / "fleet.toml", said.append)
    assert any("held" in line and HOST in line for line in said), said


def test_a_server_that_cannot_start_says_why_at_once(tmp_path: Path) -> None:
    """1. The port of the fleet file is taken. 2. `up` fails within seconds, with the server's own reason, and nothing
    stays behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "fleet.toml"
        file.write_text(f"{FLEET}\n[server]\nport = {taken.getsockname()[1]}\n")
        before = time.monotonic()
        with pytest.raises(UserError, match="the server does not start") as refused:
            local.up(tmp_path / "state", file, lambda _: None)
        assert "port" in refused.value.why
        assert time.monotonic() - before < 30
    assert local.plan_of(tmp_path / "state") is None
    assert not local.down(tmp_path / "state", lambda _: None)


def test_a_fleet_too_large_for_a_machine_is_refused(tmp_path: Path) -> None:
    """Nothing is written, nothing starts."""
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET.replace("h[1-2]", "h[1-500]"))
    with pytest.raises(UserError, match="names 500 hosts"):
        local.up(tmp_path / "state", file, lambda _: None)
    assert not (tmp_path / "state").exists()


def test_another_fleet_is_not_taken_for_this_one(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text(FLEET.replace("h[1-2]", "k[1-2]"))
    with pytest.raises(UserError, match="another fleet is up"):
        local.up(state, file, lambda _: None)


def test_a_new_nanny_takes_over(state: Path, tmp_path: Path) -> None:
    """1. The nanny is killed. 2. `up` starts another one; server and agents run on as they were."""
    names = ("server", local.agent_of(HOST))
    before = [local.process_of(state, name) for name in names]
    nanny = local.process_of(state, "nanny")
    assert nanny is not None
    send(nanny, signal.SIGKILL)
    assert wait_gone((nanny,), 5.0) == ()
    local.up(state, tmp_path / "fleet.toml", lambda _: None)
    assert [local.process_of(state, name) for name in names] == before


@pytest.fixture
def other_server(state: Path) -> Iterator[FakeServer]:
    """A server that does what the test says, in the place of the fleet's own, which is stopped in its tracks."""
    real = local.process_of(state, "server")
    assert real is not None
    send(real, signal.SIGSTOP)
    fake = FakeServer()
    fake.token = (state / "run" / f"{local.agent_of(HOST)}.token").read_text()
    fake.start()
    (state / "server.json").write_text(f'{{"url": "{fake.url}"}}')
    local.kill_agent(state, HOST)  # the next one goes to the new place
    fake.wait(lambda: fake.registers)
    yield fake
    fake.stop()


def test_reboot_as_an_effect(state: Path, other_server: FakeServer) -> None:
    """1. A reboot is refused while a step runs. 2. The host is booted from outside: the step is gone, and runs again
    after it. 3. Now the reboot is done: another boot id, not before the fleet's `reboot_s`, and the disk stayed. (The
    effects have numbers that the real server did not use.)"""
    operation = OperationId("op-1")
    text = "echo $$ >> pids; test -e $0/go || sleep 1000"
    step = StepCommand(name="s", command=("sh", "-c", text, str(state)), deadline=seconds(60))
    row = RunSteps(id=EffectId("e9001.1"), host=HOST, operation=operation, leg="apply", steps=(step,), observe=None)
    other_server.send(row)
    pids = local.host_dir(state, HOST) / "pids"
    eventually(lambda: pids.exists() and pids.read_text())
    reboot = RebootHost(id=EffectId("e9002.1"), host=HOST, operation=operation, why="new kernel")
    refused = other_server.do(reboot)
    assert (refused.outcome, refused.detail) == ("not-run", "not rebooted: steps of op-1 run on h1")
    local.reboot_host(state, HOST)
    assert is_gone(int(pids.read_text()))
    (state / "go").touch()
    assert other_server.outcome(row).outcome == "done"
    assert len(pids.read_text().split()) == 2
    done = other_server.do(reboot.but(id=EffectId("e9003.1")))
    boots = [register.boot for register in other_server.registers]
    assert len(set(boots)) == 3
    assert (done.outcome, done.numbers["boot"], done.numbers["boot_before"]) == ("done", boots[-1], boots[-2])
    assert float(done.numbers["reboot_s"]) >= 0.3
    assert pids.exists()
