"""A real server in its own process, and an agent that says what a test tells it to say."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

import trainmaster
from trainmaster.core.agent.wire import Acknowledged, Heartbeat, Instruction, Register, Registered, Report
from trainmaster.core.base.ids import BootId, EffectId, HostId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.server.main import ServerFile
from trainmaster.live.server.tokens import agent_token

SOURCE = Path(trainmaster.__file__).parents[1]
DEADLINE_S = 20.0
FLEET = """\
schema = "trainmaster.fleet/v1"
name = "test"
[[cluster]]
name = "desk"
fabric = "loopback"
[[cluster.hosts]]
list = "h[0-3]"
platform = "laptop"
[agents]
heartbeat_s = 0.2
silent_s = 1.0
"""


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition. Fails after a deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


class ServerProcess:
    """`trainmaster server run` on a state directory."""

    def __init__(self, state: Path, *arguments: str) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self.state = state
        fleet = state.parent / f"{state.name}.toml"
        fleet.write_text(FLEET)
        words = ["server", "run", "--state", str(state), "--fleet", str(fleet), *arguments]
        program = "import sys; from trainmaster.cli.main import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def ready(self) -> "ServerProcess":
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert self.line, self.process.communicate()[1]
        self.file = decode((self.state / "server.json").read_bytes(), ServerFile)
        self.client = httpx.Client(base_url=self.file.url, headers=self._bearer("operator.token"), timeout=DEADLINE_S)
        return self

    def _bearer(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.state / 'tokens' / name).read_text().strip()}"}

    def viewer(self) -> dict[str, str]:
        return self._bearer("viewer.token")

    def secret(self) -> str:
        return (self.state / "tokens" / "secret").read_text().strip()

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: object, status: int = 200) -> Any:
        answer = self.client.post(path, content=encode(body))
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def index(self) -> int:
        return int(self.get("/v1/status")["index"])

    def events(self, kind: str = "") -> list[Any]:
        items = self.get("/v1/events", limit=1000)["items"]
        return [item["event"] for item in items if kind in ("", item["event"]["type"])]

    def host(self, host: str) -> Any:
        return self.get(f"/v1/hosts/{host}")

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.close()

    def close(self) -> int:
        code = self.process.wait(DEADLINE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        if hasattr(self, "client"):
            self.client.close()
        return code

    def refusal(self) -> tuple[int, str]:
        """Exit code and stderr of a server that does not start."""
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said


@contextlib.contextmanager
def server(state: Path, *arguments: str) -> Iterator[ServerProcess]:
    process = ServerProcess(state, *arguments)
    try:
        yield process.ready()
    finally:
        if process.process.poll() is None:
            process.stop()
        else:
            process.close()


class FakeAgent:
    """Speaks for a host. Thread-safe as far as the tests go."""

    def __init__(self, place: ServerProcess, host: str = "h0", session: str = "s1") -> None:
        self.host, self.session = HostId(host), SessionId(session)
        self.token = agent_token(place.secret(), self.host)
        self.number = 0
        self.instructions: list[Instruction] = []
        self.stream_ended = threading.Event()
        self.move_to(place)

    def move_to(self, place: ServerProcess) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        self.client = httpx.Client(base_url=place.file.url, headers=headers, timeout=DEADLINE_S)

    def post(self, what: str, value: object) -> httpx.Response:
        return self.client.post(f"/v1/agent/{what}", content=encode(value))

    def register(self) -> Registered:
        body = Register(
            host=self.host,
            session=self.session,
            boot=BootId("boot"),
            address="127.0.0.1",
            version=trainmaster.__version__,
            pid=1,
            attempts=(),
        )
        answer = self.post("register", body)
        assert answer.status_code == 200, answer.text
        return decode(answer.content, Registered)

    def listen(self) -> None:
        """Opens the stream in a thread and returns when it stands."""
        stands = threading.Event()
        self.stream_ended.clear()
        self._listener = threading.Thread(target=self._listen, args=(stands,))
        self._listener.start()
        assert stands.wait(DEADLINE_S)

    def _listen(self, stands: threading.Event) -> None:
        query = {"host": self.host, "session": self.session}
        with (
            contextlib.suppress(httpx.HTTPError, httpx.StreamError, OSError, ValueError),
            httpx.Client(base_url=self.client.base_url, headers=self.client.headers, timeout=DEADLINE_S) as client,
            client.stream("GET", "/v1/agent/stream", params=query) as answer,
        ):
            self._socket = answer.extensions["network_stream"].get_extra_info("socket")
            for line in answer.iter_lines():
                self.instructions.append(msgspec.json.decode(line, type=Instruction))
                stands.set()
        stands.set()
        self.stream_ended.set()

    def hang_up(self) -> None:
        """What the kernel does when the agent's process ends."""
        import socket

        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._listener.join(DEADLINE_S)

    def effects(self) -> list[Any]:
        return [line.effect for line in self.instructions if line.effect is not None]

    def report(self, *events: AgentReport, number: int | None = None) -> int:
        if number is None:
            self.number += 1
            number = self.number
        answer = self.post("report", Report(host=self.host, session=self.session, number=number, events=events))
        assert answer.status_code == 200, answer.text
        return decode(answer.content, Acknowledged).number

    def done(self, effect: EffectId) -> EffectEnded:
        return EffectEnded(at=Instant(time.time_ns() // 1000), host=self.host, effect=effect, outcome="done")

    def beat(self) -> httpx.Response:
        now = Instant(time.time_ns() // 1000)
        return self.post("heartbeat", Heartbeat(host=self.host, session=self.session, at=now, groups=()))

    def close(self) -> None:
        if hasattr(self, "_listener"):
            self.hang_up()
        self.client.close()


class Heart:
    """Beats for an agent until it is stopped."""

    def __init__(self, agent: FakeAgent) -> None:
        self._agent, self._stopped = agent, threading.Event()
        self.heard = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            with contextlib.suppress(httpx.HTTPError):
                self.heard += self._agent.beat().status_code == 204

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(DEADLINE_S)
