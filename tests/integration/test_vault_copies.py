"""Copies of snapshots at a peer host, over real sockets: whole or not there, whatever happens on the way."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.vault_hosts import SHORT, Fleet, eventually, plain_shards

from trainmaster.core.agent.vault_talk import Place
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.live.agent.vault.frames import Answer, Offer, connected, receive, send
from trainmaster.storage.checksum import crc32

pytestmark = pytest.mark.real
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def fleets(root: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(*domains: str, limits: object = SHORT) -> Fleet:
        made.append(Fleet(root, list(domains), limits))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


class Proxy:
    """Stands between two vaults. `tamper` changes what goes to the second one; it is given the place in the stream."""

    def __init__(self, behind: Place, tamper: Callable[[int, bytearray], None]) -> None:
        self._behind, self._tamper = behind, tamper
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = behind.but(address="127.0.0.1", port=self._listener.getsockname()[1])
        self.connections = 0
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Proxy":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        while self._sockets or any(thread.is_alive() for thread in self._threads):
            for each in list(self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
                self._sockets.remove(each)
            for thread in list(self._threads):
                thread.join(0.1)

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                front, _ = self._listener.accept()
                self._sockets.append(front)
                self.connections += 1
                back = socket.create_connection((self._behind.address, self._behind.port))
                self._sockets.append(back)
                self._begin(self._pump, front, back, self._tamper)
                self._begin(self._pump, back, front, lambda *_: None)

    def _pump(self, source: socket.socket, target: socket.socket, tamper: Callable[[int, bytearray], None]) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                tamper(at, data)
                at += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def holds(fleet: Fleet, host: int, rank: int, data: bytes, step: int) -> bool:
    replica = fleet.hosts[host].replica(rank)
    newest = replica.newest() if replica is not None else None
    return newest is not None and newest.table.position.step == step and bytes(newest.payload) == data


def replicated(fleet: Fleet, rank: int) -> bool:
    return fleet.hosts[rank].own(rank).word("replicated_sequence") == fleet.sequence


def given_up(fleet: Fleet, rank: int) -> bool:
    return fleet.hosts[rank].own(rank).word("given_up_sequence") == fleet.sequence


def test_each_snapshot_is_whole_on_a_host_of_another_domain(fleets: Callable[..., Fleet]) -> None:
    """1. Four hosts in two racks, one rank each, take three snapshots. 2. Each is at a host of the other rack, to the
    byte, with the sums of its blocks. 3. Nobody holds a second one."""
    fleet = fleets("rack-1", "rack-1", "rack-2", "rack-2")
    fleet.meet()
    for step in (1, 2, 3):
        shards = plain_shards(4, 3 * MIB + 77, seed=step)
        fleet.take(shards, step)
        fleet.announce(step, replicate=True)
        for rank in range(4):
            eventually(lambda rank=rank: replicated(fleet, rank), f"copy of rank {rank}: {fleet.words()}")
            assert holds(fleet, (rank + 2) % 4, rank, shards[rank].data, step)
            newest = fleet.hosts[(rank + 2) % 4].replica(rank).newest()  # type: ignore[union-attr]
            assert newest is not None
            blocks = [shards[rank].data[at : at + BLOCK_BYTES] for at in range(0, 3 * MIB + 77, BLOCK_BYTES)]
            assert newest.table.sums == "".join(f"{crc32(block):08x}" for block in blocks)
    held = [sorted(path.name for path in host.directory.glob("replica-*")) for host in fleet.hosts]
    assert held == [["replica-2"], ["replica-3"], ["replica-0"], ["replica-1"]]


def test_a_bit_that_flips_on_the_way_is_found_and_the_copy_sent_again(fleets: Callable[..., Fleet]) -> None:
    """1. A bit flips in the middle of the first try. 2. The other side says so and does not hold it; what it held
    stays. 3. The second try is whole."""
    fleet = fleets("", "")
    flipped = threading.Event()
    go = threading.Event()

    def flip(at: int, data: bytearray) -> None:
        if go.is_set() and at > 5 * MIB and not flipped.is_set():
            data[len(data) // 2] ^= 4
            flipped.set()

    with Proxy(fleet.hosts[1].place, flip) as proxy:
        fleet.meet([fleet.hosts[0].place, proxy.place])
        first, second = plain_shards(2, 4 * MIB, seed=1), plain_shards(2, 4 * MIB, seed=2)
        fleet.take(first, 1)
        fleet.announce(1, replicate=True, rank=0)
        eventually(lambda: replicated(fleet, 0), fleet.words())
        go.set()
        fleet.take(second, 2)
        fleet.announce(2, replicate=True, rank=0)
        eventually(lambda: replicated(fleet, 0), fleet.words())
        assert flipped.is_set()
        assert proxy.connections == 2
        assert "arrived damaged" in fleet.hosts[0].words()
        assert holds(fleet, 1, 0, second[0].data, 2)
        replica = fleet.hosts[1].replica(0)
        assert replica is not None
        assert [each.table.position.step for each in replica.snapshots()] == [2, 1]


def test_every_bit_of_the_stream_is_guarded(fleets: Callable[..., Fleet]) -> None:
    """1. One byte of each part of the stream is changed in turn: greeting, offer, a sum, a block, the last word. 2. The
    copy is right in the end or not there."""
    fleet = fleets("", "")
    shards = plain_shards(2, 2 * MIB, seed=5)
    for place in (3, 20, 200, 700, 3000, 1 * MIB, 2 * MIB + 100):
        left = [1]

        def flip(at: int, data: bytearray, place: int = place, left: list[int] = left) -> None:
            if left and at <= place < at + len(data):
                data[place - at] ^= 64
                left.clear()

        with Proxy(fleet.hosts[1].place, flip) as proxy:
            fleet.meet([fleet.hosts[0].place, proxy.place])
            fleet.take(shards, place)
            fleet.announce(place, replicate=True, rank=0)
            eventually(lambda: replicated(fleet, 0), fleet.words())
            assert not left
            assert holds(fleet, 1, 0, shards[0].data, place)


def test_a_peer_that_died_is_given_up_and_taken_again_when_it_is_back(fleets: Callable[..., Fleet]) -> None:
    """1. The peer's host dies. 2. After a bounded time the rank is told that there is no copy, where and why. 3. The
    peer is back; the next snapshot has a copy."""
    fleet = fleets("", "")
    fleet.meet()
    shards = plain_shards(2, MIB, seed=1)
    fleet.take(shards, 1)
    fleet.hosts[1].kill()
    started = time.monotonic()
    fleet.announce(1, replicate=True, rank=0)
    eventually(lambda: given_up(fleet, 0), fleet.words())
    assert time.monotonic() - started < SHORT.copy_s + 1
    assert not replicated(fleet, 0)
    assert "no copy on h1" in fleet.hosts[0].own(0).note()
    fleet.hosts[1].start()
    fleet.meet()
    fleet.take(shards, 2)
    fleet.announce(2, replicate=True, rank=0)
    eventually(lambda: replicated(fleet, 0), fleet.words())
    assert holds(fleet, 1, 0, shards[0].data, 2)


def test_a_peer_that_hangs_is_given_up_and_one_that_is_slow_is_not(fleets: Callable[..., Fleet]) -> None:
    """1. The peer is stopped (SIGSTOP): given up within the bound. 2. It goes on, but each 64 KiB take a millisecond:
    the copy is there."""
    fleet = fleets("", "")
    fleet.meet()
    shards = plain_shards(2, 16 * MIB, seed=1)
    fleet.take(shards, 1)
    vault = fleet.hosts[1].vault()
    os.kill(vault, signal.SIGSTOP)
    try:
        started = time.monotonic()
        fleet.announce(1, replicate=True, rank=0)
        eventually(lambda: given_up(fleet, 0), fleet.words())
        assert time.monotonic() - started < 2 * SHORT.copy_s
    finally:
        os.kill(vault, signal.SIGCONT)
    with Proxy(fleet.hosts[1].place, lambda *_: time.sleep(0.001)) as proxy:
        fleet.meet([fleet.hosts[0].place, proxy.place])
        fleet.take(shards, 2)
        fleet.announce(2, replicate=True, rank=0)
        eventually(lambda: replicated(fleet, 0), fleet.words())
        assert holds(fleet, 1, 0, shards[0].data, 2)


def test_the_death_of_either_vault_in_the_middle_leaves_the_last_copy(fleets: Callable[..., Fleet]) -> None:
    """1. A copy is held. 2. While the next one is on its way the receiving vault dies, then the sending one. 3. The one
    before is still whole; ranks tell the new vault, and the copy is made."""
    fleet = fleets("", "")
    for step, dying in ((1, None), (2, 1), (3, 0)):
        shards = plain_shards(2, 8 * MIB, seed=step)
        with Proxy(fleet.hosts[1].place, lambda *_: time.sleep(0.0005)) as slow:
            fleet.meet([fleet.hosts[0].place, slow.place])
            fleet.take(shards, step)
            told = fleet.hosts[0].told()
            fleet.announce(step, replicate=True, rank=0)
            if dying is not None:
                eventually(lambda: slow.connections)
                fleet.hosts[dying].kill_vault()
                replica = fleet.hosts[1].replica(0)
                assert replica is not None
                newest = replica.newest()
                assert newest is not None
                assert newest.table.position.step in (step - 1, step)
                assert bytes(newest.payload) == plain_shards(2, 8 * MIB, seed=newest.table.position.step)[0].data
            if dying == 0:
                eventually(lambda: fleet.hosts[0].told() != told, "a new vault")  # noqa: B023
                fleet.tell_peers(0)
                fleet.announce(step, replicate=True, rank=0)
            eventually(lambda: replicated(fleet, 0), fleet.words())
            assert holds(fleet, 1, 0, shards[0].data, step)


def test_who_does_not_know_the_token_is_not_heard(fleets: Callable[..., Fleet]) -> None:
    """1. A connection with another token. 2. It is closed before its offer is read."""
    fleet = fleets("", "")
    wrong = fleet.hosts[1].place.but(token="0" * 64)
    connection = connected(wrong, "stranger", 5.0)
    with connection, pytest.raises((EOFError, ConnectionError)):
        receive(connection, Answer)
    eventually(lambda: "does not know the token" in fleet.hosts[1].words())


def test_an_older_membership_does_not_write_over_a_newer_one(fleets: Callable[..., Fleet]) -> None:
    """1. A copy of epoch 2 is held. 2. A vault that still lives in epoch 1 offers one. 3. It is refused for good."""
    fleet = fleets("", "")
    fleet.meet()
    fleet.meet()
    shards = plain_shards(2, MIB, seed=1)
    fleet.take(shards, 1)
    fleet.announce(1, replicate=True, rank=0)
    eventually(lambda: replicated(fleet, 0), fleet.words())
    newest = fleet.hosts[0].own(0).newest()
    assert newest is not None
    with connected(fleet.hosts[1].place, "h0", 5.0) as connection:
        send(connection, Offer(sequence=9, payload_bytes=MIB, table=newest.table.but(epoch=1)))
        answer = receive(connection, Answer)
    assert (answer.yes, answer.final) == (False, True)
    assert holds(fleet, 1, 0, shards[0].data, 1)


def test_a_host_alone_says_that_there_is_no_copy(fleets: Callable[..., Fleet]) -> None:
    fleet = fleets("")
    fleet.meet()
    fleet.take(plain_shards(1, MIB, seed=1), 1)
    fleet.announce(1, replicate=True)
    eventually(lambda: given_up(fleet, 0), fleet.words())
    assert "no other host" in fleet.hosts[0].own(0).note()


def test_copies_go_when_their_hosts_have_other_peers_and_newer_ones(fleets: Callable[..., Fleet]) -> None:
    """1. Three hosts in a ring: each sends to the next. 2. Two are in one rack, so the ring turns the other way. 3. The
    old copies are there still after the first ones of the new ring; after the second ones, not."""
    fleet = fleets("", "", "")
    shards = plain_shards(3, MIB, seed=1)

    def copy(step: int) -> list[list[str]]:
        fleet.take(shards, step)
        fleet.announce(step, replicate=True)
        eventually(lambda: all(replicated(fleet, rank) for rank in range(3)), fleet.words())
        return [sorted(path.name for path in host.directory.glob("replica-*")) for host in fleet.hosts]

    fleet.meet()
    assert copy(1) == [["replica-2"], ["replica-0"], ["replica-1"]]
    fleet.meet([host.place.but(domain=domain) for host, domain in zip(fleet.hosts, ("a", "a", "b"), strict=True)])
    assert copy(2) == [["replica-1", "replica-2"], ["replica-0", "replica-2"], ["replica-0", "replica-1"]]
    assert copy(3) == [["replica-1"], ["replica-2"], ["replica-0"]]
