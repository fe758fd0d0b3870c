"""The command line against a real server process: what it finds, asks, refuses, and how it waits."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import server_process
from tests.fakes.command import CommandLine
from tests.fakes.server_process import FakeAgent, ServerProcess, eventually, server

from trainmaster.cli.client import Client, Place, job_path
from trainmaster.cli.follow import Lines, follow
from trainmaster.live.server.resources import JobDetail, JobView

pytestmark = pytest.mark.real

JOB = 'name = "llama"\ncommand = ["python", "train.py"]\nhosts = 2\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setattr(server_process, "FLEET", server_process.FLEET.replace("h[0-3]", "gpu-[121-125]"))
    with server(tmp_path / "state") as process:
        yield process


@pytest.fixture
def line(place: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Finds the server by its state directory, as on the machine where it was started."""
    (tmp_path / "home").mkdir()
    line = CommandLine(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(place.state))
    (line.home / "job.toml").write_text(JOB)
    return line


def verified(place: ServerProcess, host: str) -> FakeAgent:
    """An agent whose host is ready."""
    agent = FakeAgent(place, host)
    agent.register()
    agent.listen()
    for effect in eventually(agent.effects, "what to verify"):
        agent.report(agent.done(effect.id))
    return agent


def test_a_flaky_host_is_not_put_back_by_a_range(
    place: ServerProcess, line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A user drains gpu-125, often flaky. 2. The admin drains gpu-[121-124]. 3. The admin resumes gpu-[121-125]:
    exit code 7, 121 to 124 are lifted, 125 is refused with the user's reason. 4. The user can lift it."""
    monkeypatch.setenv("LOGNAME", "user")
    assert line.run("host", "drain", "gpu-125", "--reason", "often flaky", "--yes").code == 0
    monkeypatch.setenv("LOGNAME", "admin")
    assert line.run("host", "drain", "gpu-[121-124]", "--reason", "morning", "--yes").code == 0
    preview = line.run("host", "resume", "gpu-[121-125]", "--dry-run")
    assert preview.code == 0
    ran = line.run("host", "resume", "gpu-[121-125]", "--reason", "all back", "--yes")
    assert ran.code == 7
    assert ran.out == preview.out
    assert "resume was refused for 1 of 5 hosts" in ran.err
    assert "gpu-125: held by person:user: often flaky" in ran.err
    held = json.loads(line.run("host", "ls", "-o", "json").out)["items"]
    assert {host["id"]: [hold["owner"] for hold in host["holds"]] for host in held} == {
        **{f"gpu-{number}": [] for number in range(121, 125)},
        "gpu-125": ["person:user"],
    }
    monkeypatch.setenv("LOGNAME", "user")
    assert line.run("host", "resume", "gpu-125", "--reason", "replaced", "--yes").code == 0
    told = [
        json.loads(row)["sentence"]
        for row in line.run("event", "tail", "--host", "gpu-125", "-o", "jsonl").out.splitlines()
    ]
    assert told[-2:] == ["user drains gpu-125: often flaky", "user resumes gpu-125: replaced"]


def test_refusals_of_a_real_server(place: ServerProcess, line: CommandLine) -> None:
    """One case an exit code."""
    index = place.index()
    assert line.run("host", "show", "gpu-7").code == 3
    assert line.run("job", "why", "nothing").code == 3
    assert line.run("host", "ls", "-w", "gpu-[1").code == 2
    drain = ("host", "drain", "gpu-121", "--reason", "x", "--yes")
    assert line.run(*drain, "--check-index", str(index)).code == 0
    moved = line.run(*drain, "--check-index", str(index))
    assert (moved.code, "the log is at" in moved.err) == (4, True)
    assert line.run(*drain).code == 0  # held by us already: as wanted
    (line.home / "job.toml").write_text(JOB.replace("hosts = 2", "hosts = 6"))
    assert line.run("job", "submit", "job.toml").code == 1
    viewer = str(place.state / "tokens" / "viewer.token")
    assert line.run("--token-file", viewer, "status").code == 0
    assert line.run("--token-file", viewer, *drain).code == 5
    assert line.run("--token-file", str(line.home / "job.toml"), "status").code == 5
    assert place.stop() == 0
    assert line.run("status").code == 6


def test_a_job_that_waits(place: ServerProcess, line: CommandLine) -> None:
    """1. One host is ready, the job wants two. 2. A dry run and the submission say that it waits, and why. 3. The name
    is taken. 4. It is cancelled, once, and requeued."""
    agent = verified(place, "gpu-121")
    try:
        eventually(lambda: place.host("gpu-121")["state"] == "ready", "gpu-121 is ready")
        assert "would wait: " in line.run("job", "submit", "job.toml", "--dry-run").err
        assert line.run("job", "submit", "job.toml").out == "job-1\n"
        assert line.run("job", "submit", "job.toml").code == 1
        answer = json.loads(line.run("job", "why", "llama", "-o", "json").out)
        assert (answer["state"], answer["hosts_free"], answer["ahead"]) == ("queued", 1, [])
        assert answer["would_help"] == ["when their agents are started: 4 hosts gpu-[122-125]"]
        assert answer["reason"]["sentence"] in line.run("job", "ls").out
        assert line.run("job", "show", "job-1").code == 0
        assert line.run("status").out.startswith("needs you  nothing")
        cancel = ("job", "cancel", "llama", "--reason", "wrong data", "--yes")
        assert [line.run(*cancel).code, line.run(*cancel).code] == [0, 1]
        assert line.run("job", "watch", "llama").code == 1
        assert line.run("job", "ls", "-o", "name").out == ""
        assert line.run("job", "requeue", "llama", "--reason", "right data", "--yes").code == 0
        assert line.run("job", "ls", "-o", "name").out == "job-1\n"
        told = line.run("event", "tail", "--job", "llama", "-o", "jsonl").out
        assert [json.loads(row)["event"]["type"] for row in told.splitlines()] == [
            "job-submitted", "job-cancelled", "job-requeued",
        ]  # fmt: skip
    finally:
        agent.close()


def test_a_watch_outlives_a_restart_of_the_server(place: ServerProcess, line: CommandLine) -> None:
    """1. Somebody follows a job that waits. 2. The server is killed and started again at the same address. 3. The job
    is cancelled. 4. The follower was told of all of it and returns."""
    assert line.run("job", "submit", "job.toml").code == 0
    found = Place(url=place.file.url, origin="test", token_file=str(place.state / "tokens" / "operator.token"))
    client = Client(found)
    told, ended = io.StringIO(), []
    gone = threading.Event()

    class Noting(Lines):
        def connection(self, lost: str) -> None:
            gone.set()

    def run() -> None:
        detail = client.get(job_path("llama"), JobDetail)
        ended.append(follow(client, detail, Noting(told), timeout_s=server_process.DEADLINE_S))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(told.getvalue, "the follower runs")
    place.kill()
    assert gone.wait(server_process.DEADLINE_S)
    port = place.file.url.rpartition(":")[2]
    with server(place.state, "--port", port):
        assert line.run("job", "cancel", "llama", "--reason", "enough", "--yes").code == 0
        thread.join(server_process.DEADLINE_S)
    assert not thread.is_alive()
    [job] = ended
    assert isinstance(job, JobView)
    assert job.state == "cancelled"
    assert "cancelled by kim: enough" in told.getvalue()
