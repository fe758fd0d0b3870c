"""The keeper's side of the vault: its sockets, its start, its new start.

Both sockets are bound here and live as long as the keeper, so ranks and other vaults meet the same address after a
vault has died, and what they say in between waits in the kernel. The token is of the keeper's life as well: others keep
it. A vault that dies again and again (no memory, a broken directory) is started no more than once a second.
"""

import contextlib
import os
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.core.agent.vault_talk import SOCKET_NAME, Place
from trainmaster.live.agent.vault import vault
from trainmaster.live.agent.vault.sending import Limits
from trainmaster.telemetry.title import set_title

_PAUSE_S: Final = 1.0
_INBOX_BYTES: Final = 1 << 22


class VaultTending:
    """Starts a vault in `directory`, and again after each end."""

    def __init__(self, directory: Path, host: str, domain: str, address: str, limits: Limits | None = None) -> None:
        """Raises `OSError` if the sockets can't be made."""
        self._directory, self._limits = directory, limits or Limits()
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (directory / SOCKET_NAME).unlink()
        family, kind, protocol, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        self._listener = socket.socket(family, kind, protocol)
        self._listener.bind(where)
        self._listener.listen()
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inbox.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _INBOX_BYTES)
        self._inbox.bind(str(directory / SOCKET_NAME))
        port = self._listener.getsockname()[1]
        self._place = Place(host=host, domain=domain, address=address, port=port, token=secrets.token_hex(32))
        self._pid = 0
        self._started_s = -_PAUSE_S
        self.pidfd: int | None = None

    def start_if_due(self, let_go: Callable[[], None]) -> bool:
        """Forks a vault unless one runs or the last one began less than a second ago; whether it did. `let_go` is
        called in the fresh child: it closes what is the keeper's."""
        if self.pidfd is not None or time.monotonic() < self._started_s + _PAUSE_S:
            return False
        self._started_s = time.monotonic()
        keeper_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become_vault(keeper_pid, let_go)
        self._pid = pid
        self.pidfd = os.pidfd_open(pid)
        return True

    def _become_vault(self, keeper_pid: int, let_go: Callable[[], None]) -> None:
        code = 1
        try:
            let_go()
            set_title("tm:vault", f"trainmaster: vault on {self._place.host}, {self._directory}")
            code = vault.run(self._directory, self._place, self._inbox, self._listener, keeper_pid, self._limits)
        except BaseException:  # noqa: BLE001  (told; there is nobody above)
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)  # no frame of the keeper below may go on in this process

    @property
    def pid(self) -> int:
        """Of the vault that runs or waits to be collected; 0: there is none."""
        return self._pid if self.pidfd is not None else 0

    def has_ended(self) -> bool:
        return (
            self.pidfd is not None and os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def reap(self) -> None:
        """Collects a vault that has ended."""
        assert self.pidfd is not None
        os.waitpid(self._pid, 0)
        os.close(self.pidfd)
        self.pidfd = None
        print("the vault ended and is started again", file=sys.stderr, flush=True)

    def let_go(self) -> None:
        """In another child of the keeper: closes what is the vault's."""
        self._inbox.close()
        self._listener.close()
        if self.pidfd is not None:
            os.close(self.pidfd)


def begun(directory: Path, host: str, domain: str, address: str, let_go: Callable[[], None]) -> VaultTending | None:
    """A vault, before any worker and before what they need is imported, which it does not need. A job trains without
    one as well, so what keeps it from being is told and no more."""
    try:
        vault = VaultTending(directory, host, domain, address)
        vault.start_if_due(let_go)
    except OSError as error:
        print(f"there will be no vault, so no snapshot leaves this host: {error}", flush=True)
        return None
    return vault
