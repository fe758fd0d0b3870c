"""The keeper: the parent of an attempt's workers on one host. It outlives the agent, and no worker outlives it.

    python -m trainmaster.live.agent.keeper SPEC.json

A keeper imports what the job needs and names, once, and then forks each worker from that warm state: a restart pays for
a fork (milliseconds) instead of for `import torch` (a second and more). It has one thread and no event loop of a
library, since a fork copies only the calling thread and whatever locks the others held. It collects exits at once by
pidfds, writes an exit record for each (in memory, so that a full disk loses none) and tells the agent if one is
connected. An agent that crashed connects again and finds everything as it was. It tends the vault as well, which copies
and stores snapshots (`vault/`).

Workers write into pipes, and the keeper copies to the log files. Were the files the workers' own stdout, a full disk
would raise in every `print` of the training script. The last part of the output is also kept in memory: it names the
first error even if the log could not be written.

A worker that can leave an epoch without ending (`tm.run`) is told to, and takes the same place in the next one: the
keeper speaks with it over a socket pair. One that does not come out soon is killed, and the place is filled by a fork.
Which of the two happens is decided here, for each process, and nobody else has to know.

A keeper whose socket file is gone has been disowned (its host "rebooted", or was removed), so it ends its workers and
itself. The agent may also just kill it: the kernel then kills the workers (PR_SET_PDEATHSIG). What workers started in
sessions of their own goes with them (`kin`).
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from trainmaster.core.agent import control
from trainmaster.core.agent.command import parse
from trainmaster.core.agent.watch import WorkerExit
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.recovery.events import Failure
from trainmaster.live.agent import child, talk
from trainmaster.live.agent.child import ChildTask
from trainmaster.live.agent.files import now, write_whole
from trainmaster.live.agent.kin import Kin
from trainmaster.live.agent.preload import Warmth, preload
from trainmaster.live.agent.processes import name_of
from trainmaster.live.agent.sink import OutputSink
from trainmaster.live.agent.vault.tending import VaultTending, begun
from trainmaster.live.agent.worker import STANDBY_EPOCH, Stopping, Worker

TICK_S: Final = 1.0
"""How often the keeper looks whether it was disowned. Nothing else waits for a tick."""
ABANDON_GRACE_S: Final = 1.5
"""From being told to leave an epoch to being killed. A rank in a collective leaves in milliseconds; one that is in code
of its own, or on a busy machine, may need a moment more; a process anew has to prepare, which takes about as long."""
SEND_LIMIT: Final = 1 << 20
"""Bytes that may wait for an agent that does not read; beyond, the connection is closed (the records stay)."""


class Keeper:
    def __init__(
        self, spec: talk.KeeperSpec, listener: socket.socket, vault: VaultTending | None, warmth: Warmth
    ) -> None:
        self.spec, self.listener, self.vault, self.preload_failure = spec, listener, vault, warmth.trouble
        self.python = parse(spec.command) if warmth.modules else None
        self.kin = Kin()
        self.workers: list[Worker] = []
        self.stores: dict[int, int] = {}
        self.stoppings: list[Stopping] = []
        self.fence = 0
        self.launched: dict[int, talk.RunningGroup] = {}
        self.waiting_launch: tuple[talk.Launch, list[tuple[int, talk.WorkerPlan]]] | None = None
        self.waiting_standby: list[tuple[int, talk.WorkerPlan]] = []
        self.connection: socket.socket | None = None
        self.received = bytearray()
        self.descriptors: list[int] = []
        self.outgoing = bytearray()
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        if vault is not None and vault.pidfd is not None:
            self.selector.register(vault.pidfd, selectors.EVENT_READ, self._reap_vault)

    # --- the loop ---

    def run(self) -> ChildTask | None:
        """Runs until disowned (None), or in a forked child returns what the child has to do."""
        while os.path.exists(self.spec.socket):
            came = self.selector.select(self._timeout_s())
            for key, _ in came:
                key.data()
            if not came:
                self._sweep()
            self._kill_overdue()
            self._start_vault()
            task = self._go_on_launching() or self._go_on_standby()
            if task is not None:
                return task
        for worker in self.workers:
            worker.kill()
        self.kin.end()
        return None

    def _timeout_s(self) -> float:
        dues = [stopping.kill_at - time.monotonic() for stopping in self.stoppings]
        return max(0.0, min([TICK_S, *dues]))

    def _sweep(self) -> None:
        """Ends what dead workers have left behind."""
        living = [worker.process for worker in self.workers if not worker.ended]
        self.kin.sweep(living, self.vault.pid if self.vault is not None else 0)

    # --- the vault ---

    def _start_vault(self) -> None:
        """Again, if it has ended."""
        vault = self.vault
        if vault is not None and vault.start_if_due(self._let_go):
            assert vault.pidfd is not None
            self.selector.register(vault.pidfd, selectors.EVENT_READ, self._reap_vault)

    def _reap_vault(self) -> None:
        assert self.vault is not None
        assert self.vault.pidfd is not None
        pidfd = self.vault.pidfd
        if self.vault.has_ended():
            self.selector.unregister(pidfd)
            self.vault.reap()

    # --- the agent's side ---

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        self._hang_up()
        connection.setblocking(False)
        self.connection = connection
        self.selector.register(connection, selectors.EVENT_READ, self._receive)
        self._send(talk.Status(preload_failure=self.preload_failure, groups=tuple(self.launched.values())))

    def _group(self, epoch: int) -> talk.RunningGroup:
        members = [worker for worker in self.workers if worker.epoch == epoch]
        return talk.RunningGroup(
            epoch=epoch,
            workers=tuple(talk.RunningWorker(rank=worker.plan.rank, process=worker.process) for worker in members),
        )

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.selector.unregister(self.connection)
            self.connection.close()
            self.connection = None
        self.received.clear()
        self.outgoing.clear()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _send(self, message: talk.FromKeeper) -> None:
        if self.connection is not None:
            self.outgoing += encode(message) + b"\n"
            self._flush()

    def _flush(self) -> None:
        assert self.connection is not None
        try:
            while self.outgoing:
                del self.outgoing[: self.connection.send(self.outgoing)]
        except BlockingIOError:
            if len(self.outgoing) > SEND_LIMIT:
                self._hang_up()
                return
        except OSError:
            self._hang_up()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outgoing else 0)
        self.selector.modify(self.connection, events, self._receive)

    def _receive(self) -> None:
        if self.connection is None:  # it was closed in the same round
            return
        try:
            data, descriptors = talk.receive(self.connection)
        except BlockingIOError:
            self._flush()
            return
        except OSError:
            self._hang_up()
            return
        if not data:
            self._hang_up()
            return
        self.received += data
        self.descriptors += descriptors
        while b"\n" in self.received:
            line, _, rest = bytes(self.received).partition(b"\n")
            self.received[:] = rest
            self._obey(talk.to_keeper.decode(line))

    def _obey(self, message: talk.ToKeeper) -> None:
        match message:
            case talk.Reserve():
                self._drop_store(message.epoch)
                self.stores[message.epoch] = _listening(self.descriptors.pop(0))
            case talk.Stop():
                self._stop(message)
            case talk.Launch():
                self._launch(message)
            case talk.Standby():
                if self.fence == 0 and not self.workers:
                    self.waiting_standby = list(enumerate(message.workers))

    def _drop_store(self, epoch: int) -> None:
        descriptor = self.stores.pop(epoch, None)
        if descriptor is not None:
            os.close(descriptor)

    # --- stop ---

    def _concerned(self, epoch: int, keep: bool) -> list[Worker]:
        """Who has to leave or end: with `keep` only who is inside one of these epochs."""
        if keep:
            return [worker for worker in self.workers if worker.is_inside(epoch)]
        return [worker for worker in self.workers if worker.epoch <= epoch and not worker.ended]

    def _stop(self, message: talk.Stop) -> None:
        self._catch_up(message.epoch)
        self.fence = max(self.fence, message.epoch)
        if self.waiting_launch is not None and self.waiting_launch[0].epoch <= self.fence:
            self._refuse_waiting("stopped before it started")
        kill_at = time.monotonic() + message.grace_us / 1e6
        if message.keep:
            self._abandon(message.epoch, message.number, message.kill)
        else:
            self.waiting_standby.clear()
            self.stoppings.append(Stopping(message.epoch, False, message.number, kill_at))
            if message.grace_us > 0:
                for worker in self._concerned(message.epoch, keep=False):
                    worker.signal(signal.SIGTERM)
        self._kill_overdue()

    def _catch_up(self, epoch: int) -> None:
        """What ended, or left, by itself before now was not stopped by us."""
        for worker in self._concerned(epoch, keep=False):
            self._hear(worker)
            self._reap(worker)

    def _refuse_waiting(self, why: str) -> None:
        if self.waiting_launch is not None:
            self._send(talk.Refused(number=self.waiting_launch[0].number, why=why))
            self.waiting_launch = None

    def _abandon(self, epoch: int, number: int | None, kill: tuple[int, ...] = ()) -> None:
        """Gets everybody out of the epochs up to this one: who listens is told, the others are killed at once, and so
        are the ranks `kill` of this epoch."""
        for worker in self._concerned(epoch, keep=True):
            if not (worker.epoch == epoch and worker.plan.rank in kill) and worker.abandon():
                worker.stopped = True
            else:
                worker.kill()
        self.stoppings.append(Stopping(epoch, True, number, time.monotonic() + ABANDON_GRACE_S))

    def _kill_overdue(self) -> None:
        for stopping in list(self.stoppings):
            left = self._concerned(stopping.epoch, stopping.keep)
            if not left:
                self.stoppings.remove(stopping)
                if stopping.number is not None:
                    self._send(talk.Stopped(number=stopping.number))
            elif time.monotonic() >= stopping.kill_at:
                for worker in left:
                    worker.kill()
                stopping.kill_at = time.monotonic() + TICK_S

    # --- launch ---

    def _launch(self, message: talk.Launch) -> None:
        if self.waiting_launch is not None and self.waiting_launch[0].epoch == message.epoch:
            self.waiting_launch = (message, list(enumerate(message.workers)))  # of an agent that started anew
            return
        if message.epoch <= self.fence:
            self._send(talk.Refused(number=message.number, why=f"epochs up to {self.fence} were stopped or launched"))
            return
        self._refuse_waiting(f"epoch {message.epoch} was launched before it started")
        self.fence = message.epoch
        self.waiting_standby.clear()
        self._catch_up(message.epoch)
        if self._concerned(message.epoch, keep=True):
            self._abandon(message.epoch, None)
        self.waiting_launch = (message, list(enumerate(message.workers)))

    def _go_on_launching(self) -> ChildTask | None:
        """Fills the places of a waiting launch once nobody is inside an earlier epoch: with who is adrift at the same
        place, which keeps its device and its memory, else with a fork. Who is left over then is of no use."""
        if self.waiting_launch is None or self._concerned(self.waiting_launch[0].epoch - 1, keep=True):
            return None
        message, left = self.waiting_launch
        for epoch in [epoch for epoch in self.stores if epoch < message.epoch]:
            self._drop_store(epoch)
        while left:
            index, plan = left.pop(0)
            store = self._store_for(message, plan)
            if not any(self._join(worker, index, message.epoch, plan, store) for worker in self.workers):
                task = self._fork(index, message.epoch, plan, store)
                if task is not None:
                    return task
        for worker in self._concerned(message.epoch - 1, keep=False):
            worker.kill()
        self.waiting_launch = None
        group = self.launched[message.epoch] = self._group(message.epoch)
        stayed = sum(worker.stayed for worker in self.workers if worker.epoch == message.epoch)
        self._send(talk.Launched(number=message.number, group=group, stayed=stayed))
        return None

    def _go_on_standby(self) -> ChildTask | None:
        while self.waiting_standby:
            index, plan = self.waiting_standby.pop(0)
            task = self._fork(index, STANDBY_EPOCH, plan, None)
            if task is not None:
                return task
        return None

    def _join(self, worker: Worker, index: int, epoch: int, plan: talk.WorkerPlan, store: int | None) -> bool:
        """Lets a worker that is adrift take a place; False if it is not the one, or can't."""
        if worker.index != index or not worker.may_join():
            return False
        worker.sink.turn_to(Path(plan.log))
        return worker.join(epoch, plan, store)

    def _fork(self, index: int, epoch: int, plan: talk.WorkerPlan, store: int | None) -> ChildTask | None:
        reading, writing = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keeper_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            ours.close()
            self._let_go(store)
            if self.vault is not None:
                self.vault.let_go()
            return ChildTask(
                plan=plan,
                command=self.spec.command,
                workdir=self.spec.workdir,
                python=self.python,
                keeper_pid=keeper_pid,
                output=writing,
                control=theirs.detach(),
                store=store,
            )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # the child does it as well; whoever comes first
        os.close(writing)
        theirs.close()
        os.set_blocking(reading, False)
        ours.setblocking(False)
        process = name_of(pid)
        assert process is not None, "a child that nobody reaped has gone"
        worker = Worker(index, epoch, plan, process, OutputSink(reading, Path(plan.log)), ours)
        self.workers.append(worker)
        self.selector.register(worker.pidfd, selectors.EVENT_READ, lambda: self._reap(worker))
        self.selector.register(ours, selectors.EVENT_READ, lambda: self._hear(worker))
        self.selector.register(reading, selectors.EVENT_READ, lambda: self._copy_output(worker))
        return None

    def _store_for(self, message: talk.Launch, plan: talk.WorkerPlan) -> int | None:
        """The reserved socket, for rank 0."""
        store = self.stores.get(message.epoch)
        return store if message.has_store and plan is message.workers[0] else None

    def _let_go(self, store: int | None = None) -> None:
        """In a child: closes what is the keeper's. Objects are closed as objects, since one that is collected later
        would close its number again, which is somebody else's by then. (The selector's registrations are the parent's:
        closing leaves them, unregistering would not.)"""
        self.selector.close()
        self.listener.close()
        if self.connection is not None:
            self.connection.close()
        for worker in self.workers:
            if not worker.ended:
                os.close(worker.pidfd)
            worker.sink.close()
            worker.close_channel()
        for descriptor in self.stores.values():
            if descriptor != store:
                os.close(descriptor)

    # --- output, words and exits ---

    def _copy_output(self, worker: Worker) -> None:
        descriptor = worker.sink.descriptor
        if descriptor is None:  # its exit was handled in the same round
            return
        if not worker.sink.copy():
            self.selector.unregister(descriptor)
            worker.sink.close()

    def _hear(self, worker: Worker) -> None:
        """Takes what a worker says, as long as it says something."""
        channel = worker.channel
        while (word := worker.hear()) is not None:
            match word:
                case control.Listens():
                    worker.listens = True
                case control.Lost() if word.epoch == worker.epoch and not worker.stopped:  # else they leave as told
                    self._left(worker, 1, word.failure)
                case control.Adrift() if word.epoch == worker.epoch:
                    self._left(worker, 0 if word.yielded else 1, word.failure)
                    worker.adrift = True
                case _:
                    pass  # of an epoch that is over
        if worker.channel is None and channel is not None:
            self.selector.unregister(channel)

    def _left(self, worker: Worker, code: int, cause: Failure | None) -> None:
        """Tells the end of a worker's part in its epoch, as an exit is told."""
        if worker.told:
            return
        if worker.sink.descriptor is not None:
            self._copy_output(worker)
        if cause is not None:
            self._keep_record(Path(worker.plan.error_record), encode(cause))
        self._tell_end(worker, code, None, now())

    def _tell_end(self, worker: Worker, code: int | None, number: int | None, at: Instant) -> None:
        worker.told = True
        fact = WorkerExit(
            rank=worker.plan.rank,
            exit_code=code,
            signal=number,
            stopped=worker.stopped,
            at=at,
            output=worker.sink.tail(),
        )
        self._keep_record(Path(worker.plan.exit_record), encode(fact))
        self._send(talk.Exited(epoch=worker.epoch, fact=fact))

    def _keep_record(self, path: Path, data: bytes) -> None:
        try:
            write_whole(path, data)
        except OSError as error:  # the memory file system is full; the connected agent is told all the same
            print(f"no record {path.name}: {error}", file=sys.stderr, flush=True)

    def _reap(self, worker: Worker) -> None:
        """Collects a worker if it has ended: first what is left of its group, while its id can't be given away."""
        if worker.ended:
            return
        if os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        at = now()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        _, status = os.waitpid(worker.process.pid, 0)
        self._hear(worker)  # its last words
        worker.ended = True
        self.selector.unregister(worker.pidfd)
        os.close(worker.pidfd)
        if worker.channel is not None:
            self.selector.unregister(worker.channel)
            worker.close_channel()
        if worker.sink.descriptor is not None:
            self._copy_output(worker)
        self._sweep()
        killed = os.WIFSIGNALED(status)
        if not worker.told:
            code, number = (None, os.WTERMSIG(status)) if killed else (os.WEXITSTATUS(status), None)
            self._tell_end(worker, code, number, at)
        if killed and not worker.stopped and worker.epoch == STANDBY_EPOCH and self.fence == 0:
            self.waiting_standby.append((worker.index, worker.plan))  # one that ended by itself would do so again


def _listening(store: int) -> int:
    """A reserved socket. It is bound but does not listen, so a script that knows nothing of it can bind the same port
    itself (both with SO_REUSEADDR), while the kernel gives the port to nobody by chance. With our library preloaded the
    script takes the descriptor, and then it listens from now on: ranks of other hosts may be there first, and after a
    refused connect PyTorch waits for up to 0.75 s."""
    if "trainmaster.training" in sys.modules:
        with socket.socket(fileno=os.dup(store)) as copy:
            copy.listen(4096)
    return store


def main(path: str) -> int:
    spec = decode(Path(path).read_bytes(), talk.KeeperSpec)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(spec.socket)
    listener.listen(8)
    vault = begun(Path(spec.memory), spec.host, spec.domain, spec.address, listener.close)
    warmth = preload(spec)
    gc.collect()
    gc.disable()
    gc.freeze()
    task = Keeper(spec, listener, vault, warmth).run()
    return child.run(task) if task is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
