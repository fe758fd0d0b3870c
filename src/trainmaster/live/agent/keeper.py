"""The keeper: the parent of an attempt's workers on one host. It outlives the agent, and no worker outlives it.

    python -m trainmaster.live.agent.keeper SPEC.json

A keeper imports what the job asked to preload, once, and then forks each worker from that warm state: a restart pays
for a fork (milliseconds) instead of for `import torch` (a second and more). It has one thread and no event loop of a
library, since a fork copies only the calling thread and whatever locks the others held. It collects exits at once by
pidfds, writes an exit record for each (in memory, so that a full disk loses none) and tells the agent if one is
connected. An agent that crashed connects again and finds everything as it was. It tends the vault as well, which copies
and stores snapshots (`vault/`).

Workers write into pipes, and the keeper copies to the log files. Were the files the workers' own stdout, a full disk
would raise in every `print` of the training script. The last part of the output is also kept in memory: it names the
first error even if the log could not be written.

A keeper whose socket file is gone has been disowned (its host "rebooted", or was removed), so it ends its workers and
itself. The agent may also just kill it: the kernel then kills the workers (PR_SET_PDEATHSIG).
"""

import array
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from trainmaster.core.agent import failure
from trainmaster.core.agent.command import parse
from trainmaster.core.agent.watch import WorkerExit
from trainmaster.core.base.value import decode, encode
from trainmaster.live.agent import child, talk
from trainmaster.live.agent.child import ChildTask
from trainmaster.live.agent.files import now, write_whole
from trainmaster.live.agent.processes import ProcessName, name_of
from trainmaster.live.agent.sink import OutputSink
from trainmaster.live.agent.vault.tending import VaultTending

TICK_S: Final = 1.0
"""How often the keeper looks whether it was disowned. Nothing else waits for a tick."""
SEND_LIMIT: Final = 1 << 20
"""Bytes that may wait for an agent that does not read; beyond, the connection is closed (the records stay)."""


class Worker:
    def __init__(self, epoch: int, plan: talk.WorkerPlan, process: ProcessName, sink: OutputSink) -> None:
        self.epoch, self.plan, self.process, self.sink = epoch, plan, process, sink
        self.pidfd = os.pidfd_open(process.pid)
        self.stopped = False
        self.ended = False


class Stopping:
    """A Stop in progress. `kill_at` is monotonic seconds."""

    def __init__(self, request: talk.Stop, kill_at: float) -> None:
        self.request, self.kill_at = request, kill_at


class Keeper:
    def __init__(
        self, spec: talk.KeeperSpec, listener: socket.socket, vault: VaultTending | None, preload_failure: str
    ) -> None:
        self.spec, self.listener, self.vault, self.preload_failure = spec, listener, vault, preload_failure
        self.python = parse(spec.command) if spec.preload else None
        self.workers: list[Worker] = []
        self.stores: dict[int, int] = {}
        self.stoppings: list[Stopping] = []
        self.fence = 0
        self.waiting_launch: tuple[talk.Launch, list[talk.WorkerPlan]] | None = None
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
            for key, _ in self.selector.select(self._timeout_s()):
                key.data()
            self._kill_overdue()
            self._start_vault()
            task = self._go_on_launching()
            if task is not None:
                return task
        self._signal(self.workers, signal.SIGKILL)
        return None

    def _timeout_s(self) -> float:
        dues = [stopping.kill_at - time.monotonic() for stopping in self.stoppings]
        return max(0.0, min([TICK_S, *dues]))

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
        self._send(talk.Status(preload_failure=self.preload_failure, groups=self._groups()))

    def _groups(self) -> tuple[talk.RunningGroup, ...]:
        return tuple(self._group(epoch) for epoch in sorted({worker.epoch for worker in self.workers}))

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
            data, descriptors = _receive_with_descriptors(self.connection)
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
                self.stores[message.epoch] = self.descriptors.pop(0)
            case talk.Stop():
                self._stop(message)
            case talk.Launch():
                self._launch(message)

    def _drop_store(self, epoch: int) -> None:
        descriptor = self.stores.pop(epoch, None)
        if descriptor is not None:
            os.close(descriptor)

    # --- stop ---

    def _alive(self, epoch: int) -> list[Worker]:
        return [worker for worker in self.workers if worker.epoch <= epoch and not worker.ended]

    def _stop(self, message: talk.Stop) -> None:
        for worker in self._alive(message.epoch):
            self._reap(worker)  # what ended by itself before now was not stopped by us
        self.fence = max(self.fence, message.epoch)
        waiting = self.waiting_launch
        if waiting is not None and waiting[0].epoch <= self.fence:
            self.waiting_launch = None
            self._send(talk.Refused(number=waiting[0].number, why="stopped before it started"))
        kill_at = time.monotonic() + message.grace_us / 1e6
        self.stoppings.append(Stopping(message, kill_at))
        if message.grace_us > 0:
            self._signal(self._alive(message.epoch), signal.SIGTERM)
        self._kill_overdue()

    def _kill_overdue(self) -> None:
        for stopping in list(self.stoppings):
            alive = self._alive(stopping.request.epoch)
            if not alive:
                self.stoppings.remove(stopping)
                self._send(talk.Stopped(number=stopping.request.number))
            elif time.monotonic() >= stopping.kill_at:
                self._signal(alive, signal.SIGKILL)
                stopping.kill_at = time.monotonic() + TICK_S

    def _signal(self, workers: list[Worker], number: int) -> None:
        for worker in workers:
            if not worker.ended:
                worker.stopped = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.process.pid, number)

    # --- launch ---

    def _launch(self, message: talk.Launch) -> None:
        if message.epoch <= self.fence:
            self._send(talk.Refused(number=message.number, why=f"epochs up to {self.fence} were stopped or launched"))
            return
        self.fence = message.epoch
        for worker in self._alive(message.epoch):
            self._reap(worker)
        self._signal(self._alive(message.epoch), signal.SIGKILL)
        self.waiting_launch = (message, list(message.workers))

    def _go_on_launching(self) -> ChildTask | None:
        """Forks the workers of a waiting launch once nothing of earlier epochs is left."""
        if self.waiting_launch is None or self._alive(self.waiting_launch[0].epoch - 1):
            return None
        message, left = self.waiting_launch
        for epoch in [epoch for epoch in self.stores if epoch < message.epoch]:
            self._drop_store(epoch)
        while left:
            task = self._fork(message, left.pop(0))
            if task is not None:
                return task
        self.waiting_launch = None
        self._send(talk.Launched(number=message.number, group=self._group(message.epoch)))
        return None

    def _fork(self, message: talk.Launch, plan: talk.WorkerPlan) -> ChildTask | None:
        reading, writing = os.pipe()
        store = self._store_for(message, plan)
        keeper_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
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
                store=store,
            )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # the child does it as well; whoever comes first
        os.close(writing)
        os.set_blocking(reading, False)
        process = name_of(pid)
        assert process is not None, "a child that nobody reaped has gone"
        worker = Worker(message.epoch, plan, process, OutputSink(reading, Path(plan.log)))
        self.workers.append(worker)
        self.selector.register(worker.pidfd, selectors.EVENT_READ, lambda: self._reap(worker))
        self.selector.register(reading, selectors.EVENT_READ, lambda: self._copy_output(worker))
        return None

    def _store_for(self, message: talk.Launch, plan: talk.WorkerPlan) -> int | None:
        """The reserved socket for rank 0. It is bound but does not listen, so a script that knows nothing of it can
        bind the same port itself (both with SO_REUSEADDR), while the kernel gives the port to nobody by chance. With
        our library preloaded the script takes the descriptor, and listening already now spares others a refused
        connect."""
        store = self.stores.get(message.epoch)
        if store is None or not message.has_store or plan is not message.workers[0]:
            return None
        if "trainmaster.training" in sys.modules:
            with socket.socket(fileno=os.dup(store)) as copy:
                copy.listen(4096)
        return store

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
        for descriptor in self.stores.values():
            if descriptor != store:
                os.close(descriptor)

    # --- output and exits ---

    def _copy_output(self, worker: Worker) -> None:
        descriptor = worker.sink.descriptor
        if descriptor is None:  # its exit was handled in the same round
            return
        if not worker.sink.copy():
            self.selector.unregister(descriptor)
            worker.sink.close()

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
        worker.ended = True
        self.selector.unregister(worker.pidfd)
        os.close(worker.pidfd)
        if worker.sink.descriptor is not None:
            self._copy_output(worker)
        killed = os.WIFSIGNALED(status)
        fact = WorkerExit(
            rank=worker.plan.rank,
            exit_code=None if killed else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if killed else None,
            stopped=worker.stopped,
            at=at,
            output=worker.sink.tail(),
        )
        try:
            write_whole(Path(worker.plan.exit_record), encode(fact))
        except OSError as error:  # the memory file system is full; the connected agent is told all the same
            print(f"no exit record of rank {fact.rank}: {error}", file=sys.stderr, flush=True)
        self._send(talk.Exited(epoch=worker.epoch, fact=fact))


def _receive_with_descriptors(connection: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    data, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(8 * size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % size])
    return data, list(descriptors)


def _preload(spec: talk.KeeperSpec) -> str:
    """Imports the modules; what went wrong in one line, or nothing. Workers then fail on their own import, with the
    line of the script, which says more than a keeper that does not start."""
    python = parse(spec.command)
    if python is not None and python.kind == "script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(python.target)))
    else:
        sys.path.insert(0, os.getcwd())
    trouble = ""
    for name in spec.preload:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  any error of a foreign module; it is reported
            trouble = trouble or f"preload of {name}: {type(error).__name__}: {failure.first_line(str(error))}"
            print(trouble, flush=True)
    if len(os.listdir("/proc/self/task")) > 1:
        trouble = trouble or "a preloaded module started a thread, which forked workers will not have"
    return trouble


def _vault(spec: talk.KeeperSpec, listener: socket.socket) -> VaultTending | None:
    """A vault, before any worker and before what they need is imported, which it does not need. A job trains without
    one as well, so what keeps it from being is told and no more."""
    try:
        vault = VaultTending(Path(spec.memory), spec.host, spec.domain, spec.address)
        vault.start_if_due(listener.close)
    except OSError as error:
        print(f"there will be no vault, so no snapshot leaves this host: {error}", flush=True)
        return None
    return vault


def main(path: str) -> int:
    spec = decode(Path(path).read_bytes(), talk.KeeperSpec)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(spec.socket)
    listener.listen(8)
    vault = _vault(spec, listener)
    preload_failure = _preload(spec)
    gc.collect()
    gc.disable()
    gc.freeze()
    task = Keeper(spec, listener, vault, preload_failure).run()
    return child.run(task) if task is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
