"""The server as a process: how it starts, refuses to start, dies and comes back, and what it tells whom."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.fakes.server_process import FakeAgent, Heart, ServerProcess, eventually, server

from trainmaster.core.base.ids import EffectId, HostId
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.live.server.app import ROUTES
from trainmaster.live.server.resources import HostsChange, JobChange, JobSubmission

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for tests that leave no traces that others mind."""
    with server(tmp_path_factory.mktemp("shared") / "state") as process:
        yield process


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServerProcess]:
    with server(tmp_path / "state") as process:
        yield process


@pytest.fixture
def agent(place: ServerProcess) -> Iterator[FakeAgent]:
    fake = FakeAgent(place)
    yield fake
    fake.close()


# --- starting


def test_it_says_where_it_listens_and_takes_that_back(tmp_path: Path) -> None:
    """1. One line and server.json with the address. 2. SIGTERM: exit code 0, server.json is gone, the tokens are
    private. 3. Another start goes on from the same index."""
    with server(tmp_path / "state") as process:
        assert process.file.url in process.line
        assert process.file.pid == process.process.pid
        assert httpx.get(process.file.url + "/healthz").json() == {"status": "ok"}
        index = process.index()
        assert index == 3  # lease, fleet, the usual limits of capacity
        assert process.stop() == 0
    assert not (tmp_path / "state" / "server.json").exists()
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "state" / "tokens").iterdir()}
    assert modes == {"operator.token": 0o600, "viewer.token": 0o600, "secret": 0o600}
    with server(tmp_path / "state") as process:
        assert process.index() == index + 1  # the next lease; the fleet is known
        assert process.get("/v1/status")["lease"] == 2


def test_a_second_server_on_the_same_log_is_refused(place: ServerProcess) -> None:
    code, said = ServerProcess(place.state).refusal()
    assert code == 1
    assert f"another server (pid {place.file.pid}) runs on it" in said
    assert f"kill {place.file.pid}" in said
    assert place.index() == 3


def test_a_taken_port_is_an_error_in_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = ServerProcess(tmp_path / "state", "--port", str(port)).refusal()
    assert code == 1
    assert f"not listening on 127.0.0.1 port {port}" in said
    assert "--port 0" in said
    assert "Traceback" not in said


def test_a_stale_database_is_an_error_in_words(tmp_path: Path) -> None:
    with server(tmp_path / "state"):
        pass
    with sqlite3.connect(tmp_path / "state" / "log.sqlite") as db:
        db.execute("UPDATE meta SET value = '0.0.1' WHERE key = 'product'")
    db.close()
    code, said = ServerProcess(tmp_path / "state").refusal()
    assert code == 1
    assert "stale database" in said
    assert "trainmaster 0.0.1" in said
    assert "mv " in said


def test_the_world_is_not_let_in_by_accident(tmp_path: Path) -> None:
    code, said = ServerProcess(tmp_path / "state", "--host", "0.0.0.0").refusal()
    assert code == 1
    assert "--allow-remote" in said
    assert not (tmp_path / "state" / "log.sqlite").exists()


def test_tokens_that_others_can_read_are_refused(tmp_path: Path) -> None:
    with server(tmp_path / "state"):
        pass
    (tmp_path / "state" / "tokens" / "secret").chmod(0o644)
    code, said = ServerProcess(tmp_path / "state").refusal()
    assert code == 1
    assert "chmod 600" in said


# --- who may do what


@pytest.mark.parametrize("route", [route for route in ROUTES if route.access != "anyone"], ids=lambda r: r.path)
def test_every_route_asks_for_a_token_of_its_role(shared: ServerProcess, route: object) -> None:
    """1. Without a token, with a wrong one, with another host's proof: 401. 2. With one of another role: 403, except
    that an operator may read."""
    names = {"host": "h0", "job": "job-1", "query": "q1", "operation": "op-1", "train": "t1", "rollout": "r1"} | {
        "case": "case-1",
        "pool": "p",
        "rma": "rma-1",
    }
    path = route.path.format(**names)
    proof = FakeAgent(shared, "h1").token.rpartition(".")[2]
    for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer agent.h0.{proof}"}):
        answer = httpx.request(route.method, shared.file.url + path, headers=header)
        assert answer.status_code == 401
        assert answer.json()["reason"]["token"] == "not-allowed"
        assert answer.headers["www-authenticate"] == "Bearer"
    if route.access == "agent":
        wrong = shared.client.headers["Authorization"]
    elif route.access == "operator":
        wrong = shared.viewer()["Authorization"]
    else:
        wrong = f"Bearer {FakeAgent(shared).token}"
    answer = httpx.request(route.method, shared.file.url + path, headers={"Authorization": wrong})
    assert answer.status_code == 403


def test_an_agent_speaks_for_its_own_host_only(place: ServerProcess, agent: FakeAgent) -> None:
    agent.register()
    agent.host = HostId("h1")
    for answer in (agent.beat(), agent.post("register", {**_register(agent), "host": "h1"})):
        assert answer.status_code == 403
        assert "h1" in answer.json()["reason"]["sentence"]
    assert place.host("h1")["connected"] is False


def _register(agent: FakeAgent) -> dict[str, object]:
    return {
        "host": agent.host,
        "session": agent.session,
        "boot": "b",
        "address": "::1",
        "version": "0.1.0",
        "pid": 1,
        "attempts": [],
    }


# --- bad input


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "truncated"),
        (b'{"hosts": "h0", "reason": "x", "evil": 1}', "unknown field `evil`"),
        (b'{"hosts": 5, "reason": "x"}', "Expected `str`, got `int` - at `$.hosts`"),
        (b'{"hosts": "h0"}', "missing required field `reason`"),
        (b'{"hosts": "h0", "reason": " "}', "needs a reason"),
        (b'{"hosts": "h[0-", "reason": "x"}', "host list"),
        (b'{"hosts": "h0", "reason": "x", "evict": true}', "deadline_s"),
        (b'{"hosts": "h0", "reason": "x", "deadline_s": -1}', "deadline_s"),
        (b"\xff\xfe", "no HostsChange"),
        (b"", "truncated"),
    ],
)
def test_a_bad_body_is_refused_with_its_place(shared: ServerProcess, body: bytes, said: str) -> None:
    answer = shared.client.post("/v1/hosts/drain", content=body)
    assert answer.status_code == 400
    assert said in answer.json()["reason"]["sentence"]
    assert answer.json()["reason"]["token"] == "bad-request"


@pytest.mark.parametrize("change", [{"name": "A_b"}, {"hosts": 0}, {"command": ()}, {"priority": 5000}, {"spares": -1}])
def test_a_job_out_of_bounds_is_refused(shared: ServerProcess, change: dict[str, object]) -> None:
    spec = JobSpec(name="a", command=("x",), hosts=1).but(**change)
    problem = shared.post("/v1/jobs", JobSubmission(spec=spec), status=400)
    assert next(iter(change)) in problem["reason"]["sentence"]


def test_too_much_and_what_is_not_there_are_problems_too(shared: ServerProcess) -> None:
    """1. A body over the limit: 413. 2. No such route: 404. 3. Another method: 405. 4. An unknown query parameter: 400.
    5. No such host, no such job: 404 with the name. 6. An unknown watch index: 409."""
    url = shared.client
    answers = {
        413: url.post("/v1/jobs", content=b" " * (1 << 20) + b"{}"),
        404: url.get("/v1/nothing"),
        405: url.delete("/v1/jobs"),
        400: url.get("/v1/events", params={"sine": 1}),
        409: url.get("/v1/watch", params={"since": 1_000_000}),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert answer.json()["reason"]["sentence"]
    assert "h9" in url.get("/v1/hosts/h9").json()["reason"]["sentence"]
    assert url.get("/v1/jobs/ghost/logs").json()["reason"]["token"] == "no-such-job"


def test_the_openapi_document_is_valid_and_complete(shared: ServerProcess) -> None:
    document = httpx.get(shared.file.url + "/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    for route in ROUTES:
        assert document["paths"][route.path][route.method.lower()]["summary"] == route.summary


# --- agents


def test_an_agent_gets_what_is_pending_and_its_end_is_noticed_at_once(place: ServerProcess, agent: FakeAgent) -> None:
    """1. Register: the host is verifying. 2. The stream opens with the pending effect. 3. Reported done: ready. 4. The
    connection closes: disconnected within a moment, long before a heartbeat is missed."""
    assert agent.register().heartbeat_s == 0.2
    heart = Heart(agent)
    agent.listen()
    [verify] = eventually(agent.effects, "the pending effect")
    assert place.host("h0")["state"] == "verifying"
    assert agent.report(agent.done(verify.id)) == 1
    assert place.host("h0")["state"] == "ready"
    agent.hang_up()
    eventually(lambda: place.events("agent-disconnected"), "the disconnection")
    assert place.host("h0")["connected"] is False
    assert place.events("agent-silent") == []
    heart.stop()
    assert agent.beat().status_code == 409
    assert agent.beat().json()["reason"]["token"] == "register-first"


def test_a_silent_agent_is_found_once_and_must_register_again(place: ServerProcess, agent: FakeAgent) -> None:
    """1. Registered and listening, but no heartbeat. 2. One AgentSilent; the stream is closed. 3. It comes back."""
    agent.register()
    agent.listen()
    assert agent.stream_ended.wait(10)
    [event] = place.events("agent-silent")
    assert 1.0 < event["silent_s"] < 3.0
    assert place.events("agent-disconnected") == []
    assert place.host("h0")["state"] == "out-failed"
    agent.register()
    assert place.host("h0")["state"] == "verifying"


def test_a_newer_stream_replaces_the_older_one_without_a_disconnection(place: ServerProcess, agent: FakeAgent) -> None:
    """1. A stream stands. 2. The same session registers and listens again. 3. The first stream ends; the host stays."""
    agent.register()
    heart = Heart(agent)
    agent.listen()
    again = FakeAgent(place)
    again.register()
    again.listen()
    assert agent.stream_ended.wait(10)
    eventually(again.effects, "effects on the newer stream")
    assert place.events("agent-disconnected") == []
    assert place.host("h0")["connected"] is True
    heart.stop()
    again.close()


def test_an_agent_that_never_listens_counts_as_gone(place: ServerProcess, agent: FakeAgent) -> None:
    agent.register()
    heart = Heart(agent)
    eventually(lambda: place.events("agent-disconnected"), "the disconnection")
    heart.stop()


def test_our_own_stall_makes_nobody_silent(place: ServerProcess, agent: FakeAgent) -> None:
    """1. An agent beats. 2. The server is stopped for twice the timeout, and nothing arrives. 3. It goes on; after more
    than another timeout nobody was silent."""
    agent.register()
    heart = Heart(agent)
    agent.listen()
    heart.stop()
    os.kill(place.file.pid, signal.SIGSTOP)
    with pytest.raises(httpx.TimeoutException):
        httpx.get(place.file.url + "/healthz", timeout=2.0)
    os.kill(place.file.pid, signal.SIGCONT)
    heart = Heart(agent)
    eventually(lambda: heart.heard >= 15, "heartbeats for one and a half seconds")
    heart.stop()
    assert place.events("agent-silent") == []
    assert place.host("h0")["connected"] is True


def test_a_report_counts_once_over_a_kill(tmp_path: Path) -> None:
    """1. A report is acknowledged, the server is killed, and the agent, which did not hear it, sends it again. 2. The
    number is acknowledged, the event is there once. 3. A report that was never stored counts when it comes again."""
    state = tmp_path / "state"
    with server(state) as place:
        agent = FakeAgent(place)
        agent.register()
        agent.listen()
        [verify] = eventually(agent.effects, "the effect")
        assert agent.report(agent.done(verify.id)) == 1
        index = place.index()
        place.kill()
    agent.close()
    with server(state) as place:
        assert place.index() == index + 1
        agent.move_to(place)
        report = agent.post("report", {"host": "h0", "session": "s1", "number": 1, "events": []})
        assert report.status_code == 409  # this server does not know the session yet
        assert agent.register().lease == 2
        assert agent.report(agent.done(verify.id), number=1) == 1
        assert agent.report(agent.done(EffectId("e1.1")), number=2) == 2
        assert [event["effect"] for event in place.events("effect-ended")] == [verify.id, "e1.1"]
    agent.close()


def test_an_impossible_report_is_acknowledged_and_put_aside(place: ServerProcess, agent: FakeAgent) -> None:
    """1. h0 claims an outcome of an effect of h1. 2. It is acknowledged, is not in the log, and h1 is still to be
    verified. 3. The next report counts."""
    other = FakeAgent(place, "h1")
    for each in (other, agent):
        each.register()
    before = place.index()
    other.listen()
    [verify] = eventually(other.effects, "the effect of h1")
    assert agent.report(agent.done(verify.id)) == 1
    assert place.index() == before
    assert place.host("h1")["state"] == "verifying"
    assert agent.report(agent.done(EffectId("e1.1"))) == 2
    assert place.index() == before + 1
    other.close()
    place.stop()
    with sqlite3.connect(place.state / "log.sqlite") as db:
        [(host, reason)] = db.execute("SELECT host, reason FROM rejected").fetchall()
    db.close()
    assert (host, reason) == ("h0", "h0 answers for h1")


# --- people


def test_a_plan_is_shown_then_applied_and_refused_when_the_world_moved(place: ServerProcess) -> None:
    """1. A dry run changes nothing. 2. Applied with its index: the hosts are held by the person. 3. The same index
    again: 409. 4. Somebody else's resume lifts nothing; the owner's does."""
    place.client.headers["Trainmaster-User"] = "ada"
    plan = place.post("/v1/hosts/drain", HostsChange(hosts="h[0-1]", reason="", dry_run=True))
    assert [item["changed"] for item in plan["items"]] == [True, True]
    assert place.index() == plan["index"]
    change = HostsChange(hosts="h[0-1]", reason="new fans", check_index=plan["index"])
    assert place.post("/v1/hosts/drain", change)["index"] == plan["index"] + 1
    assert place.host("h0")["holds"][0]["owner"] == "person:ada"
    problem = place.post("/v1/hosts/drain", change, status=409)
    assert problem["reason"]["token"] == "world-moved"
    place.client.headers["Trainmaster-User"] = "grace"
    assert place.post("/v1/hosts/resume", HostsChange(hosts="h[0-1]", reason="done"))["refused"] == 2
    place.client.headers["Trainmaster-User"] = "ada"
    place.post("/v1/hosts/resume", HostsChange(hosts="h[0-1]", reason="done"))
    assert place.host("h0")["holds"] == []


def test_a_job_is_submitted_found_and_cancelled(place: ServerProcess) -> None:
    """1. Dry run: why it would wait. 2. Submitted: it waits. 3. By id and by name. 4. A second of that name: 409. 5.
    Cancelled: only in the long list. 6. No output yet. 7. Requeued."""
    spec = JobSpec(name="llama", command=("true",), hosts=2)
    dry = place.post("/v1/jobs", JobSubmission(spec=spec, dry_run=True))
    assert (dry["job"], dry["waits"]["token"]) == (None, "not-enough-hosts")
    assert place.get("/v1/jobs")["items"] == []
    job = place.post("/v1/jobs", JobSubmission(spec=spec))["job"]
    assert place.get("/v1/jobs/llama")["job"]["id"] == place.get(f"/v1/jobs/{job}")["job"]["id"] == job
    assert place.get("/v1/jobs/llama")["directory"] == str(place.state / "jobs" / job)
    assert {span["phase"] for span in place.get("/v1/jobs/llama/timeline")["spans"]} == {"queue"}
    assert [line["id"] for line in place.get("/v1/account")["account"]["jobs"]] == [job]
    assert place.post("/v1/jobs", JobSubmission(spec=spec), status=409)["reason"]["token"] == "name-taken"
    place.post(f"/v1/jobs/{job}/cancel", JobChange(reason="wrong file"))
    assert place.get("/v1/jobs")["items"] == []
    assert [item["state"] for item in place.get("/v1/jobs", all=1)["items"]] == ["cancelled"]
    assert place.client.get(f"/v1/jobs/{job}/logs").status_code == 404
    for look in ("diagnosis", "stacks"):
        answer = place.client.get(f"/v1/jobs/{job}/{look}")
        told = answer.json()
        assert answer.status_code == 409
        assert (told["reason"]["token"], "has ended" in told["reason"]["sentence"]) == ("already-ended", True)
        assert told["fix"].startswith("trainmaster diagnose LOGDIR")
    place.post(f"/v1/jobs/{job}/requeue", JobChange(reason="right file"))
    assert place.get("/v1/jobs/llama")["job"]["state"] == "queued"


def test_output_is_asked_of_the_agent_of_the_rank(place: ServerProcess) -> None:
    """1. A job runs on two hosts. 2. The output of rank 1 is asked of the second host, and comes back as it is. 3. The
    agent does not answer: 504 that names the host."""
    agents = [FakeAgent(place, name) for name in ("h0", "h1")]
    hearts = []
    for agent in agents:
        agent.register()
        agent.listen()
        hearts.append(Heart(agent))
        [verify] = eventually(agent.effects, "the effect")
        agent.report(agent.done(verify.id))
    assert place.post("/v1/jobs", JobSubmission(spec=JobSpec(name="a", command=("x",), hosts=2)))["would_start_on"]
    with _Background(place, "/v1/jobs/a/logs?rank=1&lines=7") as asked:
        [query] = eventually(lambda: [line.query for line in agents[1].instructions if line.query], "the query")
        assert (query.kind, query.rank, query.lines) == ("log", 1, 7)
        stranger = agents[0].client.post(f"/v1/agent/answer/{query.id}", content=b"lies")
        assert stranger.status_code == 404
        assert agents[1].client.post(f"/v1/agent/answer/{query.id}", content=b"loss 1.5\n").status_code == 204
        assert asked.text() == "loss 1.5\n"
    agents[1].hang_up()
    eventually(lambda: not place.host("h1")["connected"], "the disconnection")
    answer = place.client.get("/v1/jobs/a/logs", params={"rank": 1})
    assert answer.status_code == 504
    assert "h1" in answer.json()["reason"]["sentence"]
    for heart, agent in zip(hearts, agents, strict=True):
        heart.stop()
        agent.close()


class _Background:
    """A request of another process, so that the test can play the agent meanwhile."""

    def __init__(self, place: ServerProcess, path: str) -> None:
        token = place.client.headers["Authorization"]
        self._process = subprocess.Popen(
            ["curl", "-sS", "-H", f"Authorization: {token}", place.file.url + path], stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "_Background":
        return self

    def text(self) -> str:
        return self._process.communicate(timeout=20)[0]

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


# --- watching


def _watch_lines(
    place: ServerProcess, since: int | None, count: int, timeout: float = 20.0, last: int | None = None
) -> Iterator[int]:
    """The indices of `count` frames of the log."""
    query = {} if since is None else {"since": since}
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with place.client.stream("GET", "/v1/watch", params=query, headers=headers, timeout=timeout) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            found = re.fullmatch(r"id: (\d+)", line)
            if found:
                yield int(found[1])
                count -= 1
                if count == 0:
                    return


def test_a_watcher_resumes_where_it_was(place: ServerProcess, agent: FakeAgent) -> None:
    """1. From index 1: everything from the beginning. 2. Cut off; more happens. 3. With Last-Event-ID: the rest, once,
    in order; then live."""
    assert list(_watch_lines(place, 1, 2)) == [1, 2]
    agent.register()
    for number in range(3):
        agent.report(agent.done(EffectId(f"e9.{number + 1}")))
    assert list(_watch_lines(place, None, 4, last=2)) == [3, 4, 5, 6]
    live = _watch_lines(place, 6, 2)
    assert next(live) == 6
    agent.report(agent.done(EffectId("e9.4")))
    assert next(live) == 7
    live.close()


def test_a_watcher_that_does_not_read_stops_nobody(place: ServerProcess, agent: FakeAgent) -> None:
    """1. A connection asks to watch from the beginning and never reads. 2. Reports larger than its buffers go on."""
    host, port = place.file.url.removeprefix("http://").split(":")
    token = place.client.headers["Authorization"]
    agent.register()
    agent.listen()  # or it would be taken for one that never opened its stream, where this takes long
    with socket.create_connection((host, int(port))) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET /v1/watch?since=1 HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode())
        for _ in range(20):
            events = [agent.done(EffectId("e9.1")).but(detail="x" * 1000) for _ in range(300)]
            agent.report(*events)
    assert place.index() == 4 + 20 * 300


# --- the disk


def test_a_full_disk_refuses_and_heals(tmp_path: Path) -> None:
    """1. The state lies on a small file system that fills up. 2. Reports are refused with 507 and are in the log not at
    all; the server still answers, and its status says what is wrong before anything else. 3. Space comes back: the
    same report counts, once, and the status is quiet. 4. A restart reads it all."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {made.stderr.strip()}")
    try:
        with server(mount / "state") as place:
            agent = FakeAgent(place)
            agent.register()
            ballast = mount / "ballast"
            with pytest.raises(OSError, match="No space"):
                ballast.write_bytes(b"x" * (16 << 20))
            events = [agent.done(EffectId("e9.1")).but(detail="x" * 1000) for _ in range(500)]
            body = {"host": "h0", "session": "s1", "number": 1, "events": events}
            answer = agent.post("report", body)
            assert answer.status_code == 507
            assert answer.json()["reason"]["token"] == "disk-full"
            assert place.index() == 4
            first = place.get("/v1/status")["needs_attention"][0]
            assert (first["token"], first["numbers"]["refused"]) == ("disk-full", 1)
            ballast.unlink()
            assert agent.post("register", {**_register(agent)}).status_code in (200, 409)
            agent.register()
            before = place.index()
            assert agent.report(*events) == 1
            assert place.index() == before + 500
            wanted = [reason["token"] for reason in place.get("/v1/status")["needs_attention"]]
            assert "disk-full" not in wanted
            place.stop()
            agent.close()
        with server(mount / "state") as place:
            assert len(place.events("effect-ended")) == 500
    finally:
        subprocess.run(["umount", str(mount)], check=True)
