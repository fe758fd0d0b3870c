"""The server's process: from the log on the disk to a listening socket, and back.

Everything that can be wrong with the surroundings (a held log, a taken port, tokens that others can read, an address
that the world can reach) is found before the first request and said in words. The server listens on the loopback
interface unless it is told otherwise: its tokens cross the wire in clear.

The state directory holds the log, the tokens, the server's own log file, and while it runs `server.json`, which tells
others where it listens.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvicorn
import uvloop

import trainmaster
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value, encode
from trainmaster.core.engine import Engine
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.adapters.system_clock import SystemClock
from trainmaster.live.declaration import Declaration, events
from trainmaster.live.server.app import build
from trainmaster.live.server.diagnosis import Watch
from trainmaster.live.server.links import AgentLinks
from trainmaster.live.server.runtime import Runtime
from trainmaster.live.server.service import Service, Settings
from trainmaster.live.server.tokens import Keys, load_or_make
from trainmaster.ports.errors import UserError

LOG_FILE: Final = "log.sqlite"
BACKLOG: Final = 4096
GRACE_S: Final = 5
"""How long requests that are being answered may take when the server stops."""
SWITCH_S: Final = 0.0005
"""How long the thread that commits waits at most for the interpreter while the loop is busy. It waits at each of its
few calls of SQLite; with the default of 5 ms a commit of fifty rows took 10 ms instead of 3."""

logger = logging.getLogger(__name__)


class ServerFile(Value):
    """Content of `server.json`."""

    pid: int
    url: str
    started: Instant
    version: str
    lease: int


class _Http(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    state_dir: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    declaration: Declaration | None = None,
    settings: Settings | None = None,
    allow_remote: bool = False,
) -> None:
    """Runs a server until SIGTERM or SIGINT. `port` 0: the kernel chooses. `declaration`: what a fleet file says; what
    the log knows already keeps its state. Raises `UserError`."""
    _make_directory(state_dir)
    _log_to(state_dir / "server.log")
    if not allow_remote and not _is_loopback(host):
        raise UserError(
            f"not listening on {host}",
            "others on the network could read tokens and act on jobs",
            "listen on 127.0.0.1, or pass --allow-remote if the network is trusted",
        )
    keys = load_or_make(state_dir / "tokens")
    if settings is None:
        settings = Settings(jobs_dir=str(state_dir.absolute() / "jobs"))
    clock, links = SystemClock(), AgentLinks()
    log = SqliteLog(state_dir / LOG_FILE, clock.now())
    try:
        with _listen(host, port) as listening:
            runtime = Runtime(log, Engine, links, clock)
            _declare(runtime, declaration or Declaration())
            _allow_many_connections()
            sys.setswitchinterval(SWITCH_S)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(runtime, links, clock, settings, keys, listening, state_dir))
            runtime.save_snapshot()
            logger.info("stopped; stored %d events in %d commits", runtime.stored_events, runtime.commits)
    finally:
        log.close()


async def _run(
    runtime: Runtime,
    links: AgentLinks,
    clock: SystemClock,
    settings: Settings,
    keys: Keys,
    listening: socket.socket,
    state_dir: Path,
) -> None:
    service = Service(runtime, links, clock, settings)
    http = _Http(
        uvicorn.Config(
            build(service, keys),
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            proxy_headers=False,
            log_config=None,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = asyncio.create_task(service.run())
    watching = asyncio.create_task(Watch(service).run())
    answering = asyncio.create_task(http.serve(sockets=[listening]))
    stopped = asyncio.create_task(stop.wait())
    with _announced(runtime, listening, state_dir, service.started_at):
        await asyncio.wait((running, answering, stopped), return_when=asyncio.FIRST_COMPLETED)
        logger.info("stopping")
        service.stop()
        http.should_exit = True
        watching.cancel()
        results = await asyncio.gather(running, answering, watching, return_exceptions=True)
        stopped.cancel()
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


@contextlib.contextmanager
def _announced(runtime: Runtime, listening: socket.socket, state_dir: Path, started: Instant) -> Iterator[None]:
    """Says where we listen, in a line and in `server.json`. The socket takes connections already."""
    address, port = listening.getsockname()[:2]
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    file = state_dir / "server.json"
    content = ServerFile(
        pid=os.getpid(), url=url, started=started, version=trainmaster.__version__, lease=runtime.lease
    )
    partial = file.with_suffix(".new")
    partial.write_bytes(encode(content) + b"\n")
    partial.replace(file)
    line = f"trainmaster server listens on {url} (state in {state_dir}, event {runtime.engine.index})"
    logger.info("%s, lease %d", line, runtime.lease)
    print(line, flush=True)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _declare(runtime: Runtime, declaration: Declaration) -> None:
    """Tells the engine what it does not know yet, all or nothing. Raises `UserError`."""
    runtime.submit_all(lambda: events(runtime.engine, declaration, runtime.now()))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier server linger for a minute; they must not keep its port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(
            f"not listening on {host} port {port}",
            error.strerror or str(error),
            f"end what uses it (ss -ltnp 'sport = :{port}' names it), or choose another: --port 0 takes a free one",
        ) from error
    return listening


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _make_directory(state_dir: Path) -> None:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"no state directory {state_dir}", error.strerror or str(error), "choose another one with --state"
        ) from error


def _log_to(file: Path) -> None:
    try:
        handler = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"the log file {file} can't be written",
            error.strerror or str(error),
            f"check that {file.parent} is a directory that you may write to, or choose another one with --state",
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _allow_many_connections() -> None:
    """Each agent keeps a stream and a connection for reports."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
