"""The way to the server: find it, ask it, and turn every way in which that can fail into a user error.

It is the standard library's HTTP, one connection a request: a command asks two or three times and ends, so a pool or an
asynchronous client would cost more to import than it saves. The token is read from a file and never sent in the clear
to another machine unless the settings say so (`insecure`).

A server that is away for a moment must not end a `watch` that ran for hours, so the stream reconnects by itself and
asks for what it missed; what it yields is each event of the log once, in order. A request that changes something is
never repeated by itself: if its answer is lost, its outcome is unknown, and the message says so.
"""

import getpass
import http.client
import ipaddress
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec

from trainmaster import __version__
from trainmaster.cli.errors import Failed, NoSuchThing, NotAllowed, Unreachable, UserError, WorldMoved, WrongUsage
from trainmaster.cli.options import resolved
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.live.server.maintenance_resources import Operations, Rollouts, Trains
from trainmaster.live.server.resources import Hosts, JobProgress, Jobs, LoggedEvent, Problem

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from trainmaster.live.config import Resolved

TIMEOUT_S: Final = 15.0
SILENCE_S: Final = 15.0
"""A stream that says nothing for this long, not even that it lives, is taken for broken."""
PATIENCE_S: Final = 60.0
"""How long a watch goes on asking for a server that went away."""
COMPLETION_TIMEOUT_S: Final = 0.5
COMPLETIONS_MAX: Final = 200

T = TypeVar("T", bound=Value)


class _Written(msgspec.Struct):
    """`server.json` as the server writes it into its state directory; we need one field of it."""

    url: str


class Place(Value):
    """Where the server is and who said so."""

    url: str
    origin: str
    token_file: str
    insecure: bool = False


class Pause(Value):
    """Nothing to tell right now. `lost`: why there is no connection; empty while there is one."""

    lost: str = ""


def find_server(found: "Resolved") -> Place:
    """From the settings, else from what a server wrote into the state directory. Raises `Unreachable`."""
    config = found.config
    common = {"token_file": config.token_file, "insecure": config.insecure}
    if config.server:
        return Place(url=config.server, origin=found.origins["server"], **common)  # type: ignore[arg-type]
    file = Path(config.run_dir) / "server.json"
    try:
        written = msgspec.json.decode(file.read_bytes(), type=_Written)
    except FileNotFoundError:
        why = f"there is no --server, no TRAINMASTER_SERVER, no `server` in a config file, and no {file}"
        raise Unreachable("no server is known", why, "trainmaster up FLEET") from None
    except (OSError, msgspec.DecodeError) as error:
        raise Unreachable("no server is known", f"{file} can't be read: {error}", "give --server URL") from error
    return Place(url=written.url, origin=str(file), **common)  # type: ignore[arg-type]


def connect(timeout_s: float = TIMEOUT_S) -> "Client":
    """The client of this command. Raises `UserError`; asks nothing yet."""
    return Client(find_server(resolved()), timeout_s)


class Client:
    """Asks one server. All methods raise `UserError`s only."""

    def __init__(self, place: Place, timeout_s: float = TIMEOUT_S) -> None:
        self.place, self._timeout_s = place, timeout_s
        try:
            parts = urlsplit(place.url)
            self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path.rstrip("/")
        except ValueError as error:
            raise self._bad_address(str(error)) from error
        if parts.scheme not in ("http", "https") or not self._host or parts.username is not None:
            raise self._bad_address("an address is http://HOST:PORT or https://HOST[:PORT]")
        self._secure = parts.scheme == "https"
        if not self._secure and not place.insecure and not _is_loopback(self._host):
            raise NotAllowed(
                f"the token is not sent to {place.url}",
                "plain http to another machine shows it to everyone on the way",
                "use https, or a tunnel to this machine; or set insecure = true in the config file",
            )
        self._token = _read_token(place.token_file)

    def get(self, path: str, kind: type[T], **query: str | int) -> T:
        """Asks for a value."""
        return self._decoded(self._ask("GET", _with_query(path, query)), kind)

    def text(self, path: str, **query: str | int) -> str:
        return self._ask("GET", _with_query(path, query)).decode(errors="replace")

    def raw(self, path: str) -> bytes:
        """The bytes of an answer."""
        return self._ask("GET", path)

    def post(self, path: str, body: Value, kind: type[T]) -> T:
        """Asks for a change, once."""
        return self._decoded(self._ask("POST", path, encode(body)), kind)

    def watch(
        self, since: int, job: str = "", patience_s: float = PATIENCE_S
    ) -> Iterator[LoggedEvent | JobProgress | Pause]:
        """The log from index `since` on, with live figures between, without end. Pauses come about once a second, so
        that the caller can look at its clock; raises `Unreachable` when the server stays away."""
        last, lost_at, tries = since - 1, 0.0, 0
        while True:
            try:
                for heard in self._stream(last, job):
                    lost_at, tries = 0.0, 0
                    if isinstance(heard, LoggedEvent):
                        if heard.index <= last:
                            continue
                        last = heard.index
                    yield heard
                why = "the server closed the stream"
            except _Broken as broken:
                why = str(broken)
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > patience_s:
                raise self._unreachable(why)
            yield Pause(lost=why)
            time.sleep(min(2.0, 0.1 * 2**tries))
            tries += 1

    def _stream(self, last: int, job: str) -> Iterator[LoggedEvent | JobProgress | Pause]:
        """One connection's worth. Raises `_Broken` if it can't be had or breaks."""
        path = _with_query("/v1/watch", {"since": last + 1, **({"job": job} if job else {})})
        connection = self._connection(SILENCE_S)
        try:
            connection.request("GET", self._prefix + path, headers={**self._headers(), "Last-Event-ID": str(last)})
            response = connection.getresponse()
            if response.status >= 500:
                raise _Broken(f"the server answers {response.status}")
            if response.status != 200:
                raise _refusal(response.status, response.read(), path)
            for name, data in _sse(response):
                if name == "log":
                    yield self._decoded(data, LoggedEvent)
                elif name == "progress":
                    yield self._decoded(data, JobProgress)
                else:
                    yield Pause()
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(_why(error, SILENCE_S)) from error
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = self._connection(self._timeout_s)
        sent = False
        try:
            connection.connect()
            sent = True
            connection.request(method, self._prefix + path, body, self._headers())
            response = connection.getresponse()
            status, data = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(_why(error, self._timeout_s), unknown=sent and method == "POST") from error
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise _refusal(status, data, path)
        return data

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=timeout_s)

    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": f"trainmaster/{__version__}",
            **_user(),
        }

    def _decoded(self, data: bytes, kind: type[T]) -> T:
        try:
            return decode(data, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Failed(
                f"the answer of {self.place.url} can't be read",
                f"it is no {kind.__name__} as version {__version__} knows it: {error}",
                "use the server's version of trainmaster (trainmaster version)",
            ) from error

    def _unreachable(self, why: str, unknown: bool = False) -> Unreachable:
        if unknown:
            return Unreachable(
                f"no answer from the server at {self.place.url}",
                f"{why}; the request was sent, so its outcome is unknown",
                "look first (trainmaster status), then repeat it if needed",
            )
        return Unreachable(
            f"no server answers at {self.place.url}",
            f"{why}; the address comes from {self.place.origin}",
            "trainmaster up FLEET, or give another --server",
        )

    def _bad_address(self, why: str) -> WrongUsage:
        return WrongUsage(
            f"{self.place.url!r} is not the address of a server",
            f"{why}; it comes from {self.place.origin}",
            "for example --server http://127.0.0.1:8080",
        )


class _Broken(Exception):
    """The stream can't be had right now."""


def _user() -> dict[str, str]:
    """The name that goes with a change: a note for others, not a proof. What may be done is the token's matter."""
    try:
        return {"Trainmaster-User": re.sub(r"[^A-Za-z0-9._@-]", "-", getpass.getuser())[:64]}
    except OSError:
        return {}  # A container without a name for its user: the server then notes the role.


def job_path(job: str, verb: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}" + (f"/{verb}" if verb else "")


def host_path(host: str, verb: str = "") -> str:
    return f"/v1/hosts/{quote(host, safe='')}" + (f"/{verb}" if verb else "")


def _with_query(path: str, query: dict[str, str | int]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_token(file: str) -> str:
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text"
        fix = "trainmaster up FLEET makes one; or give --token-file FILE"
        raise NotAllowed(f"no token can be read from {file}", why, fix) from error
    if not token or not token.isprintable() or " " in token:
        raise NotAllowed(f"{file} holds no token", "it must be one word", "give --token-file FILE")
    return token


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, http.client.BadStatusLine):
        return "what answers there does not speak HTTP, or went away"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


_KINDS: Final[dict[int, type[UserError]]] = {
    400: WrongUsage, 401: NotAllowed, 403: NotAllowed, 404: NoSuchThing, 409: Failed, 413: WrongUsage,
    503: Unreachable, 504: Unreachable,
}  # fmt: skip


def _refusal(status: int, data: bytes, path: str) -> UserError:
    """The user error that an answer stands for."""
    kind = _KINDS.get(status, Failed)
    try:
        problem = decode(data, Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = " ".join(data[:300].decode(errors="replace").split()) or "no reason was given"
        return kind(f"the server answers {status} to {path}", body, "see the server's log; trainmaster version")
    token = problem.reason.token
    if token is Token.WORLD_MOVED:
        kind = WorldMoved  # any other conflict is one with what is there, not with a plan made earlier
    return kind(problem.reason.sentence, f"{token}: {token.meaning}", problem.fix or token.advice)


def _sse(response: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """(event, data) of each message; ("", b"") for a comment, which says that the stream lives."""
    name = ""
    data: list[bytes] = []
    while line := response.readline():
        line = line.rstrip(b"\r\n")
        if not line:
            if data:
                yield name, b"\n".join(data)
            name, data = "", []
        elif line.startswith(b":"):
            yield "", b""
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))


# Completion. Whatever goes wrong there, a shell prompt is no place for a message.


def complete_jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names and ids of jobs."""
    from click.shell_completion import CompletionItem

    jobs = _asked(ctx, "/v1/jobs", Jobs, {"all": 1})
    if jobs is None:
        return []
    items = [CompletionItem(word, help=job.state) for job in jobs.items for word in (job.name, job.id)]
    found = {str(item.value): item for item in items if str(item.value).startswith(incomplete)}
    return list(found.values())[:COMPLETIONS_MAX]


def complete_hosts(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names of hosts, for the last name of a host list."""
    from click.shell_completion import CompletionItem

    at = max(incomplete.rfind(mark) for mark in ",!&^ ") + 1
    head, tail = incomplete[:at], incomplete[at:]
    hosts = None if "[" in tail else _asked(ctx, "/v1/hosts", Hosts, {})
    if hosts is None:
        return []
    found = [host for host in hosts.items if host.id.startswith(tail)]
    return [CompletionItem(head + host.id, help=host.state) for host in found[:COMPLETIONS_MAX]]


def complete_operations(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Ids of operations that have not ended."""
    from click.shell_completion import CompletionItem

    found = _asked(ctx, "/v1/operations", Operations, {"state": "live", "limit": COMPLETIONS_MAX})
    items = found.items if found is not None else ()
    return [CompletionItem(view.id, help=view.state) for view in items if view.id.startswith(incomplete)]


def complete_trains(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names of trains and ids of rollouts."""
    from click.shell_completion import CompletionItem

    trains, rollouts = _asked(ctx, "/v1/trains", Trains, {}), _asked(ctx, "/v1/rollouts", Rollouts, {})
    words = {str(train.name): train.state for train in (trains.items if trains else ())}
    words |= {str(one.id): f"{one.component} {one.version}" for one in (rollouts.items if rollouts else ())}
    found = [CompletionItem(word, help=text) for word, text in words.items() if word.startswith(incomplete)]
    return found[:COMPLETIONS_MAX]


def complete_maintenance(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """All of these."""
    return [*complete_trains(ctx, parameter, incomplete), *complete_operations(ctx, parameter, incomplete)][
        :COMPLETIONS_MAX
    ]


def _asked(ctx: click.Context, path: str, kind: type[T], query: dict[str, str | int]) -> T | None:
    from trainmaster.live.config import SettingError
    from trainmaster.live.tomlfile import FileError

    try:
        with ctx.scope(cleanup=False):
            return connect(COMPLETION_TIMEOUT_S).get(path, kind, **query)
    except (UserError, SettingError, FileError):
        return None
