"""The way to the server: where it is found, what may be sent to it, and what becomes of each failure."""

import socket
from pathlib import Path

import pytest
from tests.fakes.api import AT, TOKEN, FakeApi, job, progress
from tests.fakes.command import CommandLine

from trainmaster.cli.client import Client, Pause, Place, find_server
from trainmaster.cli.errors import Failed, NoSuchThing, NotAllowed, Unreachable, UserError, WorldMoved, WrongUsage
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.value import encode
from trainmaster.core.events import TimePassed
from trainmaster.core.words import sentence
from trainmaster.live.config import resolve
from trainmaster.live.server.resources import Hosts, JobProgress, LoggedEvent


@pytest.fixture
def api() -> "FakeApi":
    return FakeApi()


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return str(tmp_path / "token")


def client(api: FakeApi, token_file: str, timeout_s: float = 5.0) -> Client:
    return Client(Place(url=api.url, origin="the test", token_file=token_file), timeout_s)


def place(url: str, token_file: str, insecure: bool = False) -> Place:
    return Place(url=url, origin="the test", token_file=token_file, insecure=insecure)


def logged(index: int) -> LoggedEvent:
    event = TimePassed(at=AT)
    return LoggedEvent(index=index, event=event, sentence=sentence(event))


def frame(index: int) -> bytes:
    return b"event: log\nid: %d\ndata: %s\n\n" % (index, encode(logged(index)))


# Finding it


def test_the_setting_outranks_what_a_server_wrote(tmp_path: Path) -> None:
    """1. A server wrote its address. 2. It is used, with its operator's token. 3. A setting outranks it."""
    (tmp_path / "server.json").write_text('{"pid": 1, "url": "http://127.0.0.1:7", "lease": 3}')
    environ = {"HOME": "/h", "TRAINMASTER_RUN_DIR": str(tmp_path)}
    found = find_server(resolve({}, environ, tmp_path / "none"))
    assert (found.url, found.origin) == ("http://127.0.0.1:7", str(tmp_path / "server.json"))
    assert found.token_file == str(tmp_path / "tokens" / "operator.token")
    given = find_server(resolve({}, {**environ, "TRAINMASTER_SERVER": "http://[::1]:8"}, tmp_path / "none"))
    assert (given.url, given.origin) == ("http://[::1]:8", "environment TRAINMASTER_SERVER")


def test_no_server_says_what_was_tried(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "TRAINMASTER_RUN_DIR": str(tmp_path)}
    with pytest.raises(Unreachable) as caught:
        find_server(resolve({}, environ, tmp_path / "none"))
    assert str(tmp_path / "server.json") in caught.value.why
    assert "TRAINMASTER_SERVER" in caught.value.why
    assert caught.value.fix == "trainmaster up FLEET"
    (tmp_path / "server.json").write_text('{"pid": ')
    with pytest.raises(Unreachable, match="no server is known") as caught:
        find_server(resolve({}, environ, tmp_path / "none"))
    assert "can't be read" in caught.value.why


# What may be sent


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "http://example.org", "http://[2001:db8::1]:80"])
def test_the_token_does_not_travel_in_the_clear(url: str, token_file: str) -> None:
    with pytest.raises(NotAllowed, match="the token is not sent"):
        Client(place(url, token_file))
    Client(place(url, token_file, insecure=True))
    Client(place(url.replace("http:", "https:"), token_file))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:80", "http://127.9.9.9:80", "http://[::1]:80", "http://localhost:80"]
)
def test_the_own_machine_may_have_it(url: str, token_file: str) -> None:
    Client(place(url, token_file))


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://u:p@localhost", "localhost"]
)
def test_addresses_that_are_none(url: str, token_file: str) -> None:
    with pytest.raises(WrongUsage, match="is not the address of a server") as caught:
        Client(place(url, token_file))
    assert "the test" in caught.value.why


@pytest.mark.parametrize("text", ["", "two words", "a\nb", "t\x01"])
def test_files_that_hold_no_token(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(NotAllowed, match="holds no token"):
        Client(place("http://127.0.0.1:80", str(tmp_path / "token")))


def test_a_token_file_that_is_missing_or_binary(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="no token can be read") as caught:
        Client(place("http://127.0.0.1:80", str(tmp_path / "none")))
    assert caught.value.why == "No such file or directory"
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(NotAllowed, match="no token can be read"):
        Client(place("http://127.0.0.1:80", str(tmp_path / "token")))


# Failures


def test_only_a_plan_that_is_out_of_date_says_that_the_world_moved(api: FakeApi, token_file: str) -> None:
    with api:
        api.refuse("GET", "/v1/hosts", 409, because(Token.WORLD_MOVED, "the log is at 9"), "plan again")
        with pytest.raises(WorldMoved):
            client(api, token_file).get("/v1/hosts", Hosts)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, WrongUsage), (401, NotAllowed), (403, NotAllowed), (404, NoSuchThing), (409, Failed),
        (413, WrongUsage), (500, Failed), (503, Unreachable), (507, Failed), (302, Failed),
    ],
)  # fmt: skip
def test_refusals_become_user_errors(api: FakeApi, token_file: str, status: int, kind: type[UserError]) -> None:
    """The sentence is what, the token's meaning is why, and the fix is the server's or the token's advice."""
    with api:
        api.refuse("GET", "/v1/hosts", status, because(Token.HELD, "held by kim"), "ask kim")
        with pytest.raises(kind) as caught:
            client(api, token_file).get("/v1/hosts", Hosts)
        assert (caught.value.what, caught.value.fix) == ("held by kim", "ask kim")
        assert caught.value.why.startswith("held: ")
        api.refuse("GET", "/v1/hosts", status, because(Token.HELD, "held by kim"))
        with pytest.raises(kind) as caught:
            client(api, token_file).get("/v1/hosts", Hosts)
        assert caught.value.fix == Token.HELD.advice
        api.answer("GET", "/v1/hosts", "<html>proxy\nerror</html>", status)
        with pytest.raises(kind, match=f"answers {status}") as caught:
            client(api, token_file).get("/v1/hosts", Hosts)
        assert caught.value.why == "<html>proxy error</html>"


def test_answers_of_another_version(api: FakeApi, token_file: str) -> None:
    with api:
        for text in ('{"index": 1, "at": 2, "items": [], "new": 1}', "[]", "", "\udc80".encode("utf-8", "replace")):
            api.answers["GET", "/v1/hosts"] = lambda asked, text=text: (  # type: ignore[misc]
                200,
                text if isinstance(text, bytes) else text.encode(),
            )
            with pytest.raises(Failed, match="can't be read") as caught:
                client(api, token_file).get("/v1/hosts", Hosts)
            assert "version" in caught.value.fix


def test_nobody_listens(token_file: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable) as caught:
        Client(place(url, token_file)).get("/v1/hosts", Hosts)
    assert caught.value.why == "the connection was refused; the address comes from the test"
    assert "trainmaster up FLEET" in caught.value.fix


def test_no_answer_in_time(token_file: str) -> None:
    """1. Somebody listens and says nothing. 2. A question gives up. 3. A change says that its outcome is unknown."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asking = Client(place(url, token_file), timeout_s=0.05)
        with pytest.raises(Unreachable) as caught:
            asking.get("/v1/hosts", Hosts)
        assert caught.value.why.startswith("no answer within 0.05 s")
        with pytest.raises(Unreachable) as caught:
            asking.post("/v1/jobs", Place(url="", origin="", token_file=""), Hosts)
        assert "its outcome is unknown" in caught.value.why


def test_names_are_escaped_and_the_user_is_named(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_file: str
) -> None:
    line = CommandLine(tmp_path, monkeypatch, api.url, TOKEN)
    monkeypatch.setenv("LOGNAME", "DOM\\kim b")
    with api:
        assert line.run("job", "show", "../hosts?x").code == 3
    assert api.asked[0].path == "/v1/jobs/..%2Fhosts%3Fx"
    assert api.asked[0].headers["trainmaster-user"] == "DOM-kim-b"


# Watching


def test_a_broken_stream_is_taken_up_again(api: FakeApi, token_file: str) -> None:
    """1. Two events, a figure, then the connection ends. 2. The second one repeats the last event and goes on. 3. Each
    event comes once, in order, and the server was told the last one seen."""
    figures = progress(job(1, "llama"), 5)
    api.streams = [
        b": watching\n\n" + frame(4) + frame(5) + b"event: progress\ndata: %s\n\n" % encode(figures),
        frame(5) + b": still here\n\n" + frame(6) + b"event: log\nid: 7\ndata: {",
    ]
    with api:
        heard = []
        for item in client(api, token_file).watch(4, "job-1"):
            heard.append(item)
            if isinstance(item, LoggedEvent) and item.index == 6:
                break
    assert [item.index for item in heard if isinstance(item, LoggedEvent)] == [4, 5, 6]
    assert [item.step for item in heard if isinstance(item, JobProgress)] == [5]
    assert Pause(lost="the server closed the stream") in heard
    assert [asked.headers["last-event-id"] for asked in api.asked] == ["3", "5"]
    assert [asked.query for asked in api.asked] == [{"since": "4", "job": "job-1"}, {"since": "6", "job": "job-1"}]


def test_a_server_that_stays_away_ends_the_watch(api: FakeApi, token_file: str) -> None:
    with api:
        heard: list[object] = []
        with pytest.raises(Unreachable, match="no server answers"):
            heard.extend(client(api, token_file).watch(1, patience_s=0.2))
        assert heard[0] == Pause(lost="the server answers 503")


def test_a_refused_watch_ends_at_once(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    with api, pytest.raises(NotAllowed):
        next(iter(client(api, str(tmp_path / "wrong")).watch(1)))
    assert len(api.asked) == 1
