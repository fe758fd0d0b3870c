"""Who is calling: bearer tokens and what they allow.

People have two: the viewer's reads, the operator's also acts. They are chance, kept in files that only the server's
user can read. Each host has its own, derived from a secret and the host's name, so that a fleet of thousands needs no
table of tokens and one host can't speak for another. Comparisons take the same time wherever the first difference is.

Rotation: remove a file below `tokens/` and restart; removing `secret` replaces the tokens of all hosts.
"""

import functools
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final, Literal

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value
from trainmaster.ports.errors import UserError

Role = Literal["viewer", "operator", "agent"]
_AGENT: Final = "agent."


class Principal(Value):
    role: Role
    host: HostId = HostId("")
    """Of an agent."""


def agent_token(secret: str, host: HostId) -> str:
    """The bearer token of the agent of this host."""
    assert secret
    assert host
    return f"{_AGENT}{host}.{_proof(secret, host)}"


@functools.lru_cache(maxsize=1 << 16)  # each report and heartbeat asks for it
def _proof(secret: str, host: str) -> str:
    return hmac.new(secret.encode(), f"agent:{host}".encode(), hashlib.sha256).hexdigest()


class Keys(Value):
    operator: str
    viewer: str
    secret: str

    def principal(self, authorization: str) -> Principal | None:
        """Who sends this Authorization header; None: nobody we know."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = token.strip().encode()
        if hmac.compare_digest(given, self.operator.encode()):
            return Principal(role="operator")
        if hmac.compare_digest(given, self.viewer.encode()):
            return Principal(role="viewer")
        if token.startswith(_AGENT):
            host, _, proof = token.strip().removeprefix(_AGENT).rpartition(".")
            if host and hmac.compare_digest(proof.encode(), _proof(self.secret, host).encode()):
                return Principal(role="agent", host=HostId(host))
        return None


def load_or_make(directory: Path) -> Keys:
    """The tokens in this directory; missing ones are made. Raises `UserError` if others could read them."""
    directory.mkdir(mode=0o700, exist_ok=True)
    return Keys(
        operator=_load_or_make(directory / "operator.token"),
        viewer=_load_or_make(directory / "viewer.token"),
        secret=_load_or_make(directory / "secret"),
    )


def _load_or_make(file: Path) -> str:
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(secrets.token_urlsafe(32) + "\n")
    except FileExistsError:
        mode = file.stat().st_mode & 0o777
        if mode & 0o077:
            raise UserError(
                f"{file} is not private", f"its mode is {mode:03o}, so others can read it", f"chmod 600 {file}"
            ) from None
    token = file.read_text().strip()
    if len(token) < 32:
        raise UserError(f"{file} holds no token", "it is empty or cut short", f"remove it and start again: rm {file}")
    return token
