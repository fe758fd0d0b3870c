"""A worker as its keeper holds it: the process, its output, its place in an epoch, and the channel to it.

One process may serve several epochs, one after the other (`core/agent/control.py` has the words). Where it stands:

    inside     started or joined for an epoch, and not out of it yet
    told       its end in this epoch was told (it lost its peers); it may still be inside
    adrift     out, waiting for another epoch; also a worker that was started ahead, once it is ready
    ended      the process is gone
"""

import contextlib
import os
import signal
import socket
import sys
from typing import Final

import msgspec

from trainmaster.core.agent import control
from trainmaster.core.base.value import encode
from trainmaster.live.agent import talk
from trainmaster.live.agent.processes import ProcessName
from trainmaster.live.agent.sink import OutputSink

STANDBY_EPOCH: Final = 0
"""Of a worker that was started ahead and has not joined an epoch."""


class Worker:
    def __init__(
        self,
        index: int,
        epoch: int,
        plan: talk.WorkerPlan,
        process: ProcessName,
        sink: OutputSink,
        channel: socket.socket,
    ) -> None:
        self.index, self.epoch, self.plan, self.process, self.sink = index, epoch, plan, process, sink
        self.channel: socket.socket | None = channel
        self.pidfd = os.pidfd_open(process.pid)
        self.listens = False
        self.adrift = False
        self.told = epoch == STANDBY_EPOCH
        self.stopped = False
        self.ended = False
        self.stayed = False
        """It has lived on from an earlier epoch into the present one."""

    def is_inside(self, epoch: int) -> bool:
        """In this epoch or an earlier one."""
        return not self.ended and not self.adrift and STANDBY_EPOCH < self.epoch <= epoch

    def may_join(self) -> bool:
        """Free for an epoch. One that was started ahead and is not ready yet finds the word when it is."""
        return not self.ended and self.listens and (self.adrift or self.epoch == STANDBY_EPOCH)

    def join(self, epoch: int, plan: talk.WorkerPlan, store: int | None) -> bool:
        """Gives it its place in an epoch; False if it can't be told (it has just died)."""
        assert self.may_join(), self.process
        word = control.Join(epoch=epoch, environment=plan.environment, has_store=store is not None)
        if not self._send(word, store):
            return False
        self.stayed = self.epoch != STANDBY_EPOCH
        self.epoch, self.plan = epoch, plan
        self.adrift = self.told = self.stopped = False
        return True

    def abandon(self) -> bool:
        """Tells it to leave its epoch; False if it can't."""
        return self.listens and self._send(control.Abandon(epoch=self.epoch), None)

    def _send(self, word: control.ToWorker, descriptor: int | None) -> bool:
        if self.channel is None:
            return False
        try:
            socket.send_fds(self.channel, [encode(word)], [] if descriptor is None else [descriptor])
        except OSError:  # it is gone, or has not read for a long time: it is of no use either way
            return False
        return True

    def hear(self) -> control.FromWorker | None:
        """The next word; None if there is none now. At the end of the channel it is closed."""
        if self.channel is None:
            return None
        try:
            data = self.channel.recv(control.PACKET_LIMIT)
            if data:
                return control.from_worker.decode(data)
        except BlockingIOError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            print(f"the channel of rank {self.plan.rank} is closed: {error}", file=sys.stderr, flush=True)
        self.close_channel()
        return None

    def close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.channel, self.listens = None, False

    def signal(self, number: int) -> None:
        """To all of its process group."""
        if not self.ended:
            self.stopped = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)


class Stopping:
    """Workers that leave or end. `kill_at` is monotonic seconds; `number` is of the Stop that asked for it."""

    def __init__(self, epoch: int, keep: bool, number: int | None, kill_at: float) -> None:
        self.epoch, self.keep, self.number, self.kill_at = epoch, keep, number, kill_at
