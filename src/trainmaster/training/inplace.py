"""`tm.run`: a script whose processes outlive a membership.

    prepare()                     once a process: imports, model, data
    rehearse(prepared)            only in a process that stands by, and has the time
    train(session, prepared)      once a membership; the session's `restore` finds the state

When a peer is lost, or the keeper says that an epoch is over, the rank leaves `train` by the exception of its blocked
collective, drops the group, tells its keeper that it is adrift, and waits. With the next membership `train` is entered
again, in the same process: memory is mapped, devices are open, nothing is imported or read again. Any other exception
of the script ends the process as it always did.

One thread watches while `train` runs: the keeper's channel, and the far ends of the group's connections. A peer that is
gone is so noticed in the middle of a forward pass, and the group's connections are cut at once (`links`), which is what
frees the script's thread. Outside of Trainmaster, and for a keeper that does not speak, `run` enters `train` once.

Rejected: to raise in the script's thread from outside (it may be anywhere, C++ does not look), and to keep the group
and repair it (gloo has no way to replace a peer). Limit: what `train` leaves behind in globals, it meets again.
"""

import gc
import os
import queue
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import torch.distributed as dist

from trainmaster.core.agent import control, environment, failure
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.recovery.cause import ECHO
from trainmaster.core.recovery.events import Failure
from trainmaster.telemetry.title import rank_title, set_title
from trainmaster.training.links import Links
from trainmaster.training.runtime import Session, open_board, open_session

P = TypeVar("P")
LOST: Final = "lost its peers: a connection of the process group was closed"


Options = tuple[Path | None, int | None, int | None, int | None]
"""Checkpoint directory, steps between saves, how many are kept, steps between checks of agreement."""


def run(
    train: Callable[[Session, P], None],
    prepare: Callable[[], P] | None,
    rehearse: Callable[[P], None] | None,
    options: Options,
) -> NoReturn:
    """See `trainmaster.training.run`."""
    keeper = Keeper.of_environment()
    if keeper is not None:
        keeper.start()
    prepared: Any = prepare() if prepare is not None else None
    standby = keeper is not None and environment.STANDBY in os.environ
    if standby and rehearse is not None:
        _rehearse(lambda: rehearse(prepared))
    gc.freeze()  # what stays need not be looked at again each time that an epoch is swept away
    epoch = int(os.environ.get(environment.EPOCH, "1"))
    if keeper is not None and standby:
        print("trainmaster: prepared; waits for a rank", file=sys.stderr, flush=True)
        epoch = keeper.wait(control.Adrift(epoch=0))
    while True:
        told = _enter(train, prepared, options, keeper, epoch)
        assert keeper is not None
        gc.collect()
        epoch = keeper.wait(told)


def take_rank() -> None:
    """In a process that was started ahead: waits for the rank. For scripts that open their session themselves."""
    if environment.STANDBY not in os.environ:
        return
    keeper = Keeper.of_environment()
    if keeper is not None:
        keeper.start()
        keeper.wait(control.Adrift(epoch=0))
        keeper.close()


def _enter(
    train: Callable[[Session, P], None], prepared: P, options: Options, keeper: "Keeper | None", epoch: int
) -> control.Adrift:
    """One membership, from its forming to the rank's leave. Returns only if the process can go on."""
    session: Session | None = None
    try:
        if keeper is not None:
            keeper.begin(epoch)
        with open_session(*options, stays=keeper is not None) as session:
            if keeper is not None:
                keeper.formed(session)
            try:
                train(session, prepared)
            except Exception as error:
                if keeper is not None:
                    keeper.fail(error)
                raise
        told = control.Adrift(epoch=epoch, yielded=True)
    except Exception as error:
        cause = told_by(error)
        if keeper is not None:
            keeper.fail(error)
        if keeper is None or cause is None:
            raise
        print(f"trainmaster: left epoch {epoch}: {cause.exception}: {cause.message}", file=sys.stderr, flush=True)
        traceback.clear_frames(error.__traceback__)
        told = control.Adrift(epoch=epoch, failure=cause)
    assert keeper is not None, "a session that ends without an exception, and does not stay, ends the process"
    keeper.leave()
    if session is not None:
        session.abandon()
    _drop_group()
    return told


def _rehearse(play: Callable[[], None]) -> None:
    """In a process group of this process only. One that fails is told; the rank that is to come may do better."""
    known = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        play()
    except Exception as error:  # noqa: BLE001  (a script's own)
        print(f"trainmaster: the rehearsal failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    _drop_group()
    del os.environ["GLOO_SOCKET_IFNAME"]
    if known is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = known
    gc.collect()


def _drop_group() -> None:
    """Also one that did not form: PyTorch numbers groups, and ranks that count otherwise do not find each other."""
    if dist.is_initialized():
        dist.destroy_process_group()
    else:
        dist.distributed_c10d._world.group_count = 0


def told_by(error: BaseException) -> Failure | None:
    """What an exception tells of lost peers; None if it, and what caused it, tells of something else."""
    each: BaseException | None = error
    while each is not None:
        if ECHO.search(f"{type(each).__name__} {each}"):
            return _failure(each)
        each = each.__cause__ or each.__context__
    return None


def _failure(error: BaseException) -> Failure:
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    return Failure(
        at=_now(),
        exception=type(error).__name__,
        message=failure.first_line(str(error)),
        location=failure.location(frames),
    )


class Keeper:
    """The rank's end of the channel. The script's thread begins, leaves and waits; one thread watches meanwhile."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)
        self._lock = threading.Lock()
        self._links = Links()
        self._epoch = 0
        self._inside = False
        self._abandoned = 0
        """The newest epoch that we were told to leave, or lost our peers in."""
        self._session: Session | None = None
        self._joins: queue.SimpleQueue[tuple[control.Join, list[int]]] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False

    @staticmethod
    def of_environment() -> "Keeper | None":
        number = os.environ.pop(environment.CONTROL, "")
        return Keeper(int(number)) if number else None

    def start(self) -> None:
        self._say(control.Listens())
        threading.Thread(target=self._watch, name="trainmaster-control", daemon=True).start()

    # --- the script's thread ---

    def begin(self, epoch: int) -> None:
        """An epoch begins; its group will form now. Raises `ConnectionError` if it is over already."""
        with self._lock:
            self._links.begin()
            self._epoch, self._inside = epoch, True
            if self._abandoned >= epoch:
                raise ConnectionError(LOST)

    def formed(self, session: Session) -> None:
        """The group stands: from now on its connections are watched."""
        with self._lock:
            self._links.hold()
            self._session = session
            session.speaks_by(self.fail)
            if self._abandoned >= self._epoch:
                self._links.cut()
        self._look_again()

    def fail(self, error: BaseException) -> None:
        """The script fails by an error of its own. It is told at once: the process may take long to end, and what is
        told when its peers are seen to leave would be an echo of it. Nothing, if the error speaks of lost peers."""
        if told_by(error) is not None:
            return
        with self._lock:
            silent, self._abandoned = self._abandoned >= self._epoch, max(self._abandoned, self._epoch)
        if not silent:
            self._say(control.Lost(epoch=self._epoch, failure=_failure(error)))

    def leave(self) -> None:
        """The rank is out of the epoch, whatever its group still does."""
        with self._lock:
            self._inside = False
            self._links.cut()
            self._links.release()
            self._session = None
        self._look_again()

    def wait(self, told: control.Adrift) -> int:
        """Says that we are adrift and waits for a place, which goes into the environment; its epoch."""
        self._say(told)
        join, descriptors = self._joins.get()
        for name in (environment.STANDBY, environment.STORE_FD):
            os.environ.pop(name, None)
        os.environ.update(join.environment)
        if join.has_store and descriptors:
            os.environ[environment.STORE_FD] = str(descriptors[0])
        _announce(Path(os.environ[environment.BOARD]))
        set_title(*rank_title(*(os.environ.get(name, "") for name in (environment.JOB, "RANK", environment.HOST))))
        return join.epoch

    def close(self) -> None:
        self._closing = True
        self._look_again()

    # --- the watching thread ---

    def _watch(self) -> None:
        while not self._closing:
            poller = select.poll()
            poller.register(self._socket, select.POLLIN)
            poller.register(self._wake, select.POLLIN)
            with self._lock:
                for connection in self._links.held if self._abandoned < self._epoch else ():
                    poller.register(connection, select.POLLRDHUP)
            for number, _ in poller.poll():
                if number == self._socket.fileno():
                    self._receive()
                elif number == self._wake:
                    os.eventfd_read(self._wake)
                else:
                    self._lose()
        self._socket.close()

    def _receive(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._socket, control.PACKET_LIMIT, 1)
        if not data:
            os._exit(1)  # no keeper, no job
        word = control.to_worker.decode(data)
        if isinstance(word, control.Join):
            self._joins.put((word, descriptors))
            return
        with self._lock:
            self._abandoned = max(self._abandoned, word.epoch)
            if self._inside and word.epoch >= self._epoch:
                self._links.cut()

    def _lose(self) -> None:
        """A far end is closed. While ranks part in order that is no loss; else nothing of this group will complete."""
        with self._lock:
            session, epoch = self._session, self._epoch
            if not self._inside or session is None or self._abandoned >= epoch:
                return
            if session.phase_reached >= Phase.YIELDED:
                self._links.release()
                return
            self._abandoned = epoch
            self._links.cut()
        self._say(control.Lost(epoch=epoch, failure=Failure(at=_now(), exception="ConnectionError", message=LOST)))

    def _say(self, word: control.FromWorker) -> None:
        try:
            self._socket.send(encode(word))
        except OSError:
            os._exit(1)  # no keeper, no job

    def _look_again(self) -> None:
        os.eventfd_write(self._wake, 1)


def _announce(path: Path) -> None:
    """On the board of the new place: who is here, and since when."""
    board = open_board(path)
    board.put("pid", os.getpid())
    board.put("spawned_at", _now())
    board.put("phase", Phase.SPAWNED)
    board.publish()


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)
