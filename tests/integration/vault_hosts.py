"""Hosts on loopback that have a vault each and no ranks: the test plays the ranks, the keeper is a few lines.

python -m tests.integration.vault_hosts DIRECTORY HOST DOMAIN LIMITS_JSON     (a keeper)
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainmaster.core.agent.vault_talk import (
    ARENA_PREFIX,
    PLACE_NAME,
    REPLICA_PREFIX,
    SOCKET_NAME,
    Announce,
    Peers,
    Place,
)
from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.index import Form, Outline, Stored
from trainmaster.core.checkpoint.position import Position
from trainmaster.live.agent.processes import is_alive, name_of
from trainmaster.live.agent.vault.sending import Limits
from trainmaster.live.agent.vault.tending import VaultTending
from trainmaster.storage import arena as arenas
from trainmaster.storage.arena import Arena, Table
from trainmaster.storage.pieces import Memory, Pieces

T = TypeVar("T")
JOB = JobId("job-1")
ATTEMPT = AttemptId("job-1.a1")
SHORT = Limits(silent_s=0.5, copy_s=3.0, store_s=20.0)


class Shard(Value):
    """What a rank of a test holds."""

    items: tuple[Stored, ...]
    outline: Outline
    data: bytes


def keep(directory: Path, host: str, domain: str, limits: Limits) -> None:
    """A keeper that does nothing but tend a vault, until its directory is gone."""
    tending = VaultTending(directory, host, domain, "127.0.0.1", limits)
    while directory.exists():
        tending.start_if_due(lambda: None)
        with selectors.DefaultSelector() as selector:
            if tending.pidfd is not None:
                selector.register(tending.pidfd, selectors.EVENT_READ)
            selector.select(0.05)
        if tending.has_ended():
            tending.reap()


def eventually(look: Callable[[], T | None], what: str = "it", timeout_s: float = 30.0) -> T:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come true in time"
        time.sleep(0.002)
    return found


class VaultHost:
    def __init__(self, root: Path, name: str, domain: str, limits: Limits) -> None:
        self.name, self.directory = name, root / name
        self.log = root / f"{name}.log"
        self._command = [sys.executable, "-m", "tests.integration.vault_hosts", str(self.directory), name, domain]
        self._command.append(encode(limits).decode())
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.start()

    def start(self) -> None:
        (self.directory / PLACE_NAME).unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.keeper = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        self.place = eventually(self._place, f"the vault of {self.name}")

    def _place(self) -> Place | None:
        path = self.directory / PLACE_NAME
        return decode(path.read_bytes(), Place) if path.exists() else None

    def vault(self) -> int:
        """Process id of the vault."""
        children = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children")
        return eventually(lambda: next(iter(map(int, children.read_text().split())), 0), f"a vault on {self.name}")

    def kill_vault(self) -> None:
        os.kill(self.vault(), signal.SIGKILL)

    def kill(self) -> None:
        """The host is gone, its vault with it."""
        name = name_of(self.vault())
        self.keeper.kill()
        self.keeper.wait(20)
        eventually(lambda: name is None or not is_alive(name), "the end of the vault")

    def told(self) -> int:
        """A number that changes when the vault is started anew."""
        return (self.directory / PLACE_NAME).stat().st_ino

    def tell(self, message: Peers | Announce) -> None:
        eventually(lambda: self._sent(encode(message)), "a message to the vault")

    def _sent(self, data: bytes) -> bool:
        self._inbox.sendto(data, str(self.directory / SOCKET_NAME))
        return True

    def arena(self, rank: int) -> Path:
        return self.directory / f"{ARENA_PREFIX}{rank}"

    def own(self, rank: int) -> Arena:
        arena = arenas.map_file(self.arena(rank))
        assert arena is not None
        return arena

    def replica(self, rank: int) -> Arena | None:
        return arenas.map_file(self.directory / f"{REPLICA_PREFIX}{rank}")

    def words(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        if self.keeper.poll() is None:
            self.kill()
        self._inbox.close()


class Fleet:
    """Hosts with one rank each."""

    def __init__(self, root: Path, domains: list[str], limits: Limits = SHORT) -> None:
        self.root, self.checkpoints = root, root / "checkpoints"
        self.hosts = [VaultHost(root, f"h{rank}", domain, limits) for rank, domain in enumerate(domains)]
        self.epoch = 0
        self.sequence = 0

    def meet(self, places: list[Place] | None = None, keep: int = 3) -> None:
        """An epoch begins. `places`: where they believe each other."""
        self.epoch += 1
        self._peers = tuple(places or [host.place for host in self.hosts])
        self._keep = keep
        for rank in range(len(self.hosts)):
            self.tell_peers(rank)

    def tell_peers(self, rank: int) -> None:
        host = self.hosts[rank]
        host.tell(
            Peers(
                rank=rank,
                world=len(self.hosts),
                epoch=self.epoch,
                job=JOB,
                attempt=ATTEMPT,
                arena=str(host.arena(rank)),
                directory=str(self.checkpoints),
                keep=self._keep,
                places=self._peers,
                place_of=tuple(range(len(self.hosts))),
            )
        )

    def take(self, shards: list[Shard], step: int) -> int:
        """All ranks take a snapshot; its number."""
        for rank, shard in enumerate(shards):
            taken = self.take_one(rank, shard, step)
        self.sequence = taken
        return taken

    def take_one(self, rank: int, shard: Shard, step: int) -> int:
        arena = arenas.open_file(self.hosts[rank].arena(rank), 1 << 20, len(shard.data) + 1)
        part = arena.begin()
        assert part is not None
        part.payload[: len(shard.data)] = shard.data
        position = Position(samples=8 * step, global_batch=8, step=step)
        part.commit(
            Table(
                rank=rank,
                world=len(self.hosts),
                epoch=self.epoch,
                position=position,
                items=shard.items,
                outline=shard.outline,
                job=JOB,
                attempt=ATTEMPT,
            ),
            len(shard.data),
        )
        return part.sequence

    def announce(self, step: int, *, replicate: bool = False, store: bool = False, rank: int | None = None) -> None:
        for each in range(len(self.hosts)) if rank is None else (rank,):
            host = self.hosts[each]
            host.tell(
                Announce(
                    rank=each,
                    world=len(self.hosts),
                    epoch=self.epoch,
                    arena=str(host.arena(each)),
                    sequence=self.sequence,
                    step=step,
                    replicate=replicate,
                    store=store,
                )
            )

    def words(self) -> str:
        return "".join(f"--- {host.name}\n{host.words()}" for host in self.hosts)

    def close(self) -> None:
        for host in self.hosts:
            host.close()


def plain_shards(world: int, size_bytes: int, seed: int) -> list[Shard]:
    """A state of one flat tensor a rank, whose bytes nobody can load: enough to copy and to store."""
    boxes = tuple(((rank * size_bytes,), (size_bytes,)) for rank in range(world))
    outline = Outline(
        tensors={"state": Form(dtype="uint8", shape=(world * size_bytes,), boxes=boxes)}, paths={"state": ("state",)}
    )
    made = []
    for rank in range(world):
        name = f"__{rank}_0.distcp"
        item = Stored(name="state", offsets=(rank * size_bytes,), file=name, offset=0, length=size_bytes, payload=0)
        block = bytes((seed * 31 + rank * 7 + at) % 251 for at in range(4099))
        data = (block * (size_bytes // len(block) + 1))[:size_bytes]
        made.append(Shard(items=(item,), outline=outline, data=data))
    return made


def bytes_of(parts: list[bytes | Memory]) -> bytes:
    pieces = Pieces(parts)
    into = bytearray(pieces.size_bytes)
    pieces.copy(0, memoryview(into))
    return bytes(into)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3], decode(sys.argv[4], Limits))
