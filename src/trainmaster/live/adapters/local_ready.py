"""Waiting for a local fleet to come up.

A host is there when its agent is connected and it is ready, or when somebody keeps it out: a hold outlives a restart,
and a fleet with a held host is up. A server that cannot start says why in its log; that is what the user has to read,
at once, and not a list of hosts that are missing a minute later.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import decode
from trainmaster.live.agent.files import read_or_none
from trainmaster.ports.errors import UserError

UP_TIMEOUT_S: Final = 60.0
FAILED_STARTS: Final = 2
"""A server that failed so often says the same for ever; the first time may be another server's last moment."""
THERE: Final = ("ready", "out-planned")

Say = Callable[[str], None]


class _ServerFile(msgspec.Struct):
    """The part of the server's own file that is needed here."""

    url: str
    pid: int


def server_url(state: Path) -> str | None:
    """Where the server of this state directory listens; None while it does not."""
    data = read_or_none(state / "server.json")
    return None if data is None else msgspec.json.decode(data, type=_ServerFile).url


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def wait_ready(state: Path, hosts: Sequence[HostId], said: int, say: Say, goes_on: Callable[[], bool]) -> None:
    """Waits until the server answers and every host is there. `said`: size of the server's log before the start.
    Raises `UserError`."""
    deadline = time.monotonic() + UP_TIMEOUT_S
    told = ""
    while True:
        found = _states(state)
        there = [host for host in hosts if found is not None and found.get(host) in THERE]
        now = "waiting for the server" if found is None else f"{len(there)} of {len(hosts)} hosts ready"
        if now != told:
            say(now)
            told = now
        if len(there) == len(hosts):
            _tell_held(found or {}, say)
            return
        failure = _failure(state / "run" / "server.log", said) if found is None else ""
        if failure:
            raise UserError("the server does not start", failure, "see the reason; nothing was left running")
        if not goes_on() or time.monotonic() > deadline:
            missing = fold([host for host in hosts if host not in there])
            fix = f"look into {state}/run/*.log; nothing was left running"
            raise UserError("the fleet did not come up", f"{now}; missing: {missing}", fix)
        time.sleep(0.05)


def _tell_held(states: dict[HostId, str], say: Say) -> None:
    held = [host for host, state in states.items() if state != "ready"]
    if held:
        say(f"held, and so out of work: {fold(held)} (trainmaster host why {held[0]})")


def _failure(log: Path, said: int) -> str:
    """What the server said the last time, if it failed to start again and again; empty if it did not."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(said, os.SEEK_SET)
        text = file.read().decode(errors="replace")
    starts = text.split("error: ")[1:]
    return starts[-1].strip() if len(starts) >= FAILED_STARTS else ""


def _states(state: Path) -> dict[HostId, str] | None:
    """The states of the connected hosts; None while no server answers."""
    import httpx

    from trainmaster.live.server.resources import Hosts

    url = server_url(state)
    token = read_or_none(state / "tokens" / "viewer.token")
    if url is None or token is None:
        return None
    headers = {"Authorization": f"Bearer {token.decode().strip()}"}
    try:
        answer = httpx.get(f"{url}/v1/hosts", headers=headers, timeout=2.0, trust_env=False)
        answer.raise_for_status()
    except httpx.HTTPError:
        return None  # not yet; the deadline of the caller decides when that is a failure
    return {host.id: host.state for host in decode(answer.content, Hosts).items if host.connected}
