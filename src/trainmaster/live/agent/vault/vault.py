"""The vault as a process: hears the ranks of this host, and hands on what they say.

    keeper --fork--> vault      (and again, if it dies; both sockets are the keeper's, so they outlive it)
    rank --datagram--> vault    Peers at the start of an epoch, Announce after a snapshot

It holds no state that matters. Started again it clears the words that say what it is reading, and writes its address
anew, by which the ranks know that they have to tell it again.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.agent.vault_talk import ARENA_PREFIX, PLACE_NAME, Announce, Peers, Place, to_vault
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.parts import Order
from trainmaster.core.checkpoint.peers import Member, peers
from trainmaster.live.agent.files import write_whole
from trainmaster.live.agent.vault.arenas import OwnArena, OwnArenas
from trainmaster.live.agent.vault.receiving import Receiver
from trainmaster.live.agent.vault.sending import Limits, Sender, Wish
from trainmaster.live.agent.vault.storing import Round, Storer

_DATAGRAM_BYTES: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_NICE: Final = 5
"""It gives way to training, whose steps it must not lengthen."""


class Vault:
    """`place` is who it is; `inbox` a bound datagram socket, `listener` a bound TCP socket."""

    def __init__(
        self, directory: Path, place: Place, inbox: socket.socket, listener: socket.socket, limits: Limits
    ) -> None:
        self._directory, self._place, self._inbox, self._limits = directory, place, inbox, limits
        self._arenas = OwnArenas()
        self._senders: dict[int, Sender] = {}
        self._storer = Storer(place, limits)
        self._receiver = Receiver(listener, place.token, directory, self._storer.told, limits.silent_s)
        self._known: Peers | None = None
        self._copied_steps: set[int] = set()
        """Of this membership."""

    def run(self) -> None:
        """Never returns. Raises `OSError` if its directory can't be used."""
        for path in self._directory.glob(f"{ARENA_PREFIX}*"):
            own = self._arenas.get(str(path))
            if own is not None:
                own.busy(0)  # whoever was at it is dead
        self._receiver.start()
        write_whole(self._directory / PLACE_NAME, encode(self._place))
        while True:
            data = self._inbox.recv(_DATAGRAM_BYTES)
            try:
                message = to_vault.decode(data)
            except msgspec.MsgspecError as error:
                _say(f"a rank of another version: {error}")
                continue
            match message:
                case Peers():
                    self._meet(message)
                case Announce():
                    self._take(message)

    def _meet(self, message: Peers) -> None:
        """A membership begins, or a vault of it was started anew; each rank says so."""
        known, self._known = self._known, message
        if known is None or message.epoch == known.epoch:
            return
        if message.epoch < known.epoch:
            self._known = known
            return
        self._copied_steps.clear()
        for sender in self._senders.values():
            sender.drop_before(message.epoch)
        self._storer.drop_before(message.epoch)

    def _take(self, message: Announce) -> None:
        known = self._known
        if known is None or message.epoch != known.epoch:
            _say(f"rank {message.rank} speaks of epoch {message.epoch}, which is not under way here")
            return
        try:
            own = self._arenas.get(message.arena)
        except OSError as error:
            _say(f"the arena of rank {message.rank} can't be read: {error}")
            return
        if own is None:
            _say(f"rank {message.rank} has no arena at {message.arena}")
            return
        if message.replicate:
            self._replicate(known, message, own)
        if message.store:
            self._store(known, message, own)

    def _replicate(self, known: Peers, message: Announce, own: OwnArena) -> None:
        sender = self._senders.get(message.rank)
        if sender is None:
            sender = self._senders[message.rank] = Sender(message.rank, self._place.host, self._limits)
        sender.want(Wish(own, message.sequence, message.epoch, peer_of(known, self._place)))
        self._copied_steps.add(message.step)
        if len(self._copied_steps) == 2:  # a second one is begun when the first has its copies, all of them
            self._receiver.keep_only(senders_to(known, self._place))

    def _store(self, known: Peers, message: Announce, own: OwnArena) -> None:
        if not known.directory:
            own.not_stored("the job has no checkpoint directory, so nothing is stored")
            return
        order = Order(
            directory=known.directory,
            job=known.job,
            attempt=known.attempt,
            epoch=known.epoch,
            step=message.step,
            world=known.world,
            keep=known.keep,
        )
        place_of = dict(enumerate(known.place_of))
        hosts = {rank: known.places[at].host for rank, at in place_of.items() if at >= 0}
        publishes = place_of.get(0, -1) >= 0 and known.places[place_of[0]] == self._place
        self._storer.store(Round(order, publishes, known.places, hosts), message.rank, own, message.sequence)


def peer_of(known: Peers, own: Place) -> Place | None:
    """The vault that keeps our copies; None if there is no other host."""
    peer = _peers(known).get(own.host)
    return next((place for place in known.places if place.host == peer), None)


def senders_to(known: Peers, own: Place) -> frozenset[int]:
    """The ranks whose copies we keep."""
    senders = {host for host, peer in _peers(known).items() if peer == own.host}
    return frozenset(rank for rank, at in enumerate(known.place_of) if at >= 0 and known.places[at].host in senders)


def _peers(known: Peers) -> dict[str, str]:
    first_rank: dict[int, int] = {}
    for rank, at in enumerate(known.place_of):
        if at >= 0:
            first_rank.setdefault(at, rank)
    places = {at: known.places[at] for at in first_rank}
    return peers(Member(host=places[at].host, place=rank, domain=places[at].domain) for at, rank in first_rank.items())


def run(
    directory: Path, place: Place, inbox: socket.socket, listener: socket.socket, keeper_pid: int, limits: Limits
) -> int:
    """Runs a vault in a fresh child of the keeper, until it is killed or the keeper ends; the exit code."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper_pid:
        return 1  # the keeper died in between; the signal will not come
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICE)
    threading.excepthook = _end  # a thread that is missing would look like a slow disk or a slow peer
    gc.enable()
    try:
        Vault(directory, place, inbox, listener, limits).run()
    except OSError as error:
        _say(f"ends: {error}")
    return 1


def _end(told: threading.ExceptHookArgs) -> None:
    """A defect in a thread ends the vault; the keeper starts another one."""
    threading.__excepthook__(told)
    sys.stderr.flush()
    os._exit(1)


def _say(sentence: str) -> None:
    print(f"vault: {sentence}", file=sys.stderr, flush=True)
