"""An attempt on this host: its keeper, its worker groups, and the effects on them.

Handlers look at the world before they act, so that an effect which was interrupted by a crash of the agent can simply
be carried out again: a keeper that runs is connected to, an epoch that the keeper launched is launched.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainmaster.core.agent import contract
from trainmaster.core.agent.board import Phase, Request
from trainmaster.core.agent.command import interpreter, is_python
from trainmaster.core.agent.environment import KEEPER
from trainmaster.core.agent.watch import WorkerExit
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.time import Duration
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import AskWorkers, LaunchWorkers, PrepareAttempt, ReserveStore
from trainmaster.core.events import AgentReport
from trainmaster.live.agent import talk
from trainmaster.live.agent.files import now, read_or_none, tail, write_whole
from trainmaster.live.agent.group import Group
from trainmaster.live.agent.link import KeeperGone, KeeperLink
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.processes import ProcessName, end_tree, group_is_empty, is_alive, kill_group, name_of
from trainmaster.storage.directory import unusable

LEFT_LOOK_S = 0.02
"""How often it is looked whether the workers have left."""
_log = logging.getLogger(__name__)
CONNECT_S = 30.0
"""A keeper listens after an interpreter start; on a host that swaps this may take seconds, more is a failure."""
GONE_S = 10.0
"""After SIGKILL a process is gone at once unless the kernel holds it (a dead network mount); then the host is bad."""


class NotRun(Exception):
    """The effect can't apply here; nothing was done."""


class EffectFailed(Exception):
    """The effect was tried and failed."""

    def __init__(self, detail: str, numbers: dict[str, int | float | str] | None = None) -> None:
        super().__init__(detail)
        self.numbers = numbers or {}


class HostAttempt:
    def __init__(
        self,
        host: HostId,
        address: str,
        prepared: PrepareAttempt,
        paths: HostPaths,
        report: Callable[[AgentReport], None],
    ) -> None:
        self.host, self.id, self.prepared, self.paths, self._report = host, prepared.attempt, prepared, paths, report
        self._address = address
        self.groups: dict[int, Group] = {}
        self.keeper: ProcessName | None = None
        self._mark = ""
        """Of all that comes of the keeper."""
        self._child: subprocess.Popen[bytes] | None = None
        self._link: KeeperLink | None = None
        self._starting = asyncio.Lock()
        self._releasing = False
        self._background: asyncio.Future[None] | None = None
        """Keeps a task alive that nobody awaits."""

    # --- the keeper ---

    async def prepare(self) -> str:
        """Starts the keeper unless it runs, and waits until it is warm; what its preload complained of.
        Raises `EffectFailed`."""
        try:
            link = await self._connected()
            complaint = (await link.warm).preload_failure
            if self.prepared.standby > 0:
                await link.send(talk.Standby(workers=tuple(map(self._standby, range(self.prepared.standby)))))
            return complaint
        except KeeperGone as error:
            raise EffectFailed(f"{error}: {self._keeper_words()}") from error

    async def _connected(self) -> KeeperLink:
        """The link to a keeper that runs. Raises `EffectFailed` or `KeeperGone`."""
        async with self._starting:
            if self._link is None:
                if self._releasing:
                    raise KeeperGone("the attempt is being released")
                if self.keeper is None or not is_alive(self.keeper):
                    self._start_keeper()
                await self._connect()
            assert self._link is not None
            return self._link

    def _start_keeper(self) -> None:
        asked = self.prepared.checkpoint_directory
        if asked and (why := unusable(Path(asked))):
            raise EffectFailed(
                f"no checkpoint can be kept in {asked}: {why}; make it usable, or set dir in [checkpoint]"
            )
        job_dir = self.paths.job_dir(self.prepared.job)
        workdir = Path(self.prepared.workdir or job_dir)
        try:
            for directory in (self.paths.memory(self.id), job_dir):
                directory.mkdir(parents=True, exist_ok=True)
            write_whole(self.paths.prepared(self.id), encode(self.prepared))
            self.paths.socket(self.id).unlink(missing_ok=True)
            spec = talk.KeeperSpec(
                socket=str(self.paths.socket(self.id)),
                workdir=str(workdir),
                command=self.prepared.command,
                preload=self.prepared.preload,
                memory=str(self.paths.memory(self.id)),
                host=self.host,
                domain="".join(self.prepared.domains),
                address=self._address,
                mark=secrets.token_hex(16),
                preload_needed=self.prepared.preload_needed,
            )
            spec_path = self.paths.keeper_spec(self.id)
            write_whole(spec_path, encode(spec))
            self._mark = spec.mark
            self._child = self._spawn(spec_path, workdir)
        except OSError as error:
            raise EffectFailed(f"can't start the keeper in {workdir}: {error}") from error
        self.keeper = name_of(self._child.pid)
        assert self.keeper is not None, "a child that nobody reaped has gone"
        write_whole(self.paths.keeper(self.id), encode(self.keeper))

    def _spawn(self, spec_path: Path, workdir: Path) -> subprocess.Popen[bytes]:
        program = sys.executable
        if self.prepared.preload and is_python(self.prepared.command[0]):
            program = interpreter(self.prepared.command[0], sys.executable)
        arguments = [program, "-P", "-m", "trainmaster.live.agent.keeper", str(spec_path)]
        environment = contract.base_environment(dict(os.environ), self.prepared, os.getcwd())
        environment[KEEPER] = self._mark
        with contextlib.ExitStack() as stack:
            output: int = subprocess.DEVNULL
            try:  # a full disk must not keep a job from starting
                self.paths.logs(self.id).mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(self.paths.keeper_log(self.id).open("ab")).fileno()
            except OSError as error:
                _log.error("%s: no log of the keeper: %s", self.id, error)
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=workdir,
                env=environment,
                start_new_session=True,
            )

    async def _connect(self) -> None:
        assert self.keeper is not None
        link = KeeperLink(self._on_exit, self._on_gone)
        deadline = time.monotonic() + CONNECT_S
        while True:
            try:
                await link.connect(self.paths.socket(self.id))
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:
                if not self._keeper_runs():
                    raise KeeperGone("the keeper ended at its start") from error
                if time.monotonic() > deadline:
                    raise EffectFailed(f"the keeper does not listen after {CONNECT_S:.0f} s") from error
            await asyncio.sleep(0.005)
        self._link = link

    def _keeper_runs(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            return False
        return self.keeper is not None and is_alive(self.keeper)

    def _keeper_words(self) -> str:
        try:
            return tail(self.paths.keeper_log(self.id), 1).decode(errors="replace").strip() or "it said nothing"
        except OSError as error:
            return f"its log can't be read: {error.strerror}"

    def _on_exit(self, message: talk.Exited) -> None:
        group = self.groups.get(message.epoch)
        if group is not None:  # else it is being adopted, which reads the records
            group.exited(message.fact)

    def _on_gone(self) -> None:
        """The connection closed and we did not close it."""
        self._link = None
        if self._releasing:
            return
        if self._keeper_runs():  # it takes a moment from the closing of its sockets to the end of a process
            asyncio.get_running_loop().call_later(0.02, self._on_gone_later)
        else:
            self._keeper_died()

    def _on_gone_later(self) -> None:
        if self._releasing or self._link is not None:
            return
        if self._keeper_runs():
            self._background = asyncio.ensure_future(self._reconnect())
        else:
            self._keeper_died()

    async def _reconnect(self) -> None:
        try:
            await self._connected()
        except (KeeperGone, EffectFailed) as error:
            _log.error("%s: %s", self.id, error)
            self._keeper_died()

    def _keeper_died(self) -> None:
        """The kernel has killed the workers; what they left behind is swept, and those without a record are told."""
        assert self.keeper is not None
        note = f"the keeper of the attempt (process {self.keeper.pid}) ended, and its workers with it"
        _log.error("%s: %s", self.id, note)
        self._tell_killed(stopped=False, note=note)
        self._background = asyncio.ensure_future(self._sweep_after(self._mark))

    async def _sweep_after(self, mark: str) -> None:
        left = await _sweep(mark)
        if left:
            _log.error("%s: what workers have started does not end: %s", self.id, left)

    def _tell_killed(self, stopped: bool, note: str) -> None:
        for group in self.groups.values():
            group.collect_records()
            for rank in group.living():
                process = group.processes.get(rank)
                if process is not None:
                    kill_group(process)
                fact = WorkerExit(
                    rank=rank, exit_code=None, signal=signal.SIGKILL, stopped=stopped, at=now(), note=note, warm=False
                )
                group.exited(fact)

    # --- effects ---

    async def reserve(self, effect: ReserveStore, address: str) -> int:
        """Binds a port for the store of an epoch and gives it to the keeper; the port.
        Raises `EffectFailed`."""
        try:
            link = await self._connected()
            with _bound(address) as bound:
                await link.send(talk.Reserve(epoch=effect.epoch), bound.fileno())
                port: int = bound.getsockname()[1]
                return port
        except (OSError, KeeperGone) as error:
            raise EffectFailed(f"can't reserve a port on {address}: {error}") from error

    async def launch(self, effect: LaunchWorkers, has_boards: Callable[[], None]) -> int | None:
        """Starts an epoch; calls `has_boards` as soon as there are boards to look at. Returns how many of its workers
        have lived on from an earlier one; None: it was launched before the agent was started anew.
        Raises `NotRun` or `EffectFailed`."""
        try:
            link = await self._connected()
            status = await link.warm
            if effect.epoch in self.groups and any(group.epoch == effect.epoch for group in status.groups):
                return None
            if any(epoch > effect.epoch for epoch in self.groups):
                raise NotRun(f"epoch {max(self.groups)} was launched already")
            group = Group(self.host, self.id, effect.epoch, self.paths, self._report)
            group.make_boards(range(effect.first_rank, effect.first_rank + effect.ranks))
            self.paths.logs(self.id).mkdir(parents=True, exist_ok=True)
            self.groups[effect.epoch] = group
            has_boards()
            return await self._launch_group(link, group, effect)
        except (OSError, KeeperGone) as error:
            raise EffectFailed(f"can't launch: {error}") from error

    async def _launch_group(self, link: KeeperLink, group: Group, effect: LaunchWorkers) -> int:
        request = talk.Launch(
            number=link.number(),
            epoch=effect.epoch,
            workers=tuple(self._plan(effect, index) for index in range(effect.ranks)),
            has_store=effect.first_rank == 0,
        )
        answer = await link.ask(request)
        if isinstance(answer, talk.Refused):
            group.close()
            del self.groups[effect.epoch]
            shutil.rmtree(self.paths.epoch(self.id, effect.epoch))
            raise NotRun(answer.why)
        assert isinstance(answer, talk.Launched), answer
        self._remember_processes(answer.group)
        self._record_processes(answer.group)
        return answer.stayed

    def _record_processes(self, running: talk.RunningGroup) -> None:
        write_whole(self.paths.epoch(self.id, running.epoch) / "group.json", encode(running))

    def _record_late(self, running: talk.RunningGroup) -> None:
        try:
            self._record_processes(running)
        except OSError as error:
            _log.error("%s: who runs in epoch %d is not recorded: %s", self.id, running.epoch, error)

    def _remember_processes(self, running: talk.RunningGroup) -> None:
        self.groups[running.epoch].processes = {worker.rank: worker.process for worker in running.workers}

    def _plan(self, effect: LaunchWorkers, index: int) -> talk.WorkerPlan:
        rank = effect.first_rank + index
        place = (self.id, effect.epoch, rank)
        board, error = str(self.paths.board(*place)), str(self.paths.error_record(*place))
        job_dir, memory = str(self.paths.job_dir(self.prepared.job)), str(self.paths.memory(self.id))
        return talk.WorkerPlan(
            rank=rank,
            environment=contract.worker_environment(self.prepared, effect, index, board, error, job_dir, memory),
            board=board,
            exit_record=str(self.paths.exit_record(*place)),
            error_record=error,
            log=str(self.paths.log(*place)),
        )

    def _standby(self, index: int) -> talk.WorkerPlan:
        job_dir = str(self.paths.job_dir(self.prepared.job))
        return talk.WorkerPlan(
            rank=-1,
            environment=contract.standby_environment(self.prepared, index, self.host, job_dir),
            board="",
            exit_record="",
            error_record="",
            log=str(self.paths.standby_log(self.id, index)),
        )

    def ask(self, effect: AskWorkers) -> None:
        """Raises `NotRun`."""
        group = self.groups.get(effect.epoch)
        living = group.living() if group is not None else []
        if group is None or not living:
            raise NotRun(f"no worker of epoch {effect.epoch} runs here")
        request = Request.CHECKPOINT if effect.request == "checkpoint" else Request.YIELD
        for rank in living:
            if effect.request == "interval":
                group.boards[rank].put("every_steps", effect.every_steps)
            else:
                group.boards[rank].ask(request)

    async def let_save(self, grace_s: float) -> None:
        """Asks the workers to save and leave, and waits until they have, or for `grace_s`. All ranks of a job agree on
        a request that one of them sees, so the whole job leaves with a checkpoint when a host of it is shut down."""
        group = self.groups.get(max(self.groups, default=0))
        if group is None:
            return
        able = [rank for rank in group.living() if Phase.RESTORED <= group.reading(rank).phase <= Phase.SAVING]
        for rank in able:
            group.boards[rank].ask(Request.YIELD)
        deadline = asyncio.get_running_loop().time() + grace_s
        while able and group.living() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LEFT_LOOK_S)

    async def stop_up_to(self, epoch: int, grace: Duration, keep: bool = False, kill: tuple[int, ...] = ()) -> None:
        """Ends the workers of this epoch and earlier ones; with `keep`, those that can leave it live on, except for the
        ranks `kill`. Raises `EffectFailed`."""
        if not self._keeper_runs():
            return  # the workers went with it
        try:
            link = await self._connected()
            await link.ask(talk.Stop(number=link.number(), epoch=epoch, grace_us=grace, keep=keep, kill=kill))
        except KeeperGone:
            if self._keeper_runs():
                raise EffectFailed("the keeper runs but does not answer") from None

    async def release(self) -> None:
        """Ends everything of the attempt and removes its memory. Raises `EffectFailed` if something will not end."""
        self._releasing = True
        link = self._link
        if link is not None and link.warm.done() and self._keeper_runs():
            newest = max(self.groups, default=1)
            with contextlib.suppress(KeeperGone, TimeoutError):
                await asyncio.wait_for(
                    link.ask(talk.Stop(number=link.number(), epoch=newest, grace_us=0, keep=False)), 2.0
                )
        if link is not None:
            await link.close()
        self._link = None
        await self._end_processes()
        self._tell_killed(stopped=True, note="")
        for group in self.groups.values():
            group.close()
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.paths.attempt(self.id))
        except OSError as error:
            raise EffectFailed(f"can't remove {self.paths.attempt(self.id)}: {error}") from error

    async def _end_processes(self) -> None:
        leaders = [process for group in self.groups.values() for process in group.processes.values()]
        if self.keeper is not None:
            leaders.insert(0, self.keeper)  # and its vault
        for leader in leaders:
            kill_group(leader)
        deadline = time.monotonic() + GONE_S
        while self._keeper_runs() or not all(group_is_empty(leader) for leader in leaders):
            if time.monotonic() > deadline:
                raise EffectFailed(f"processes of {self.id} do not end after SIGKILL")
            await asyncio.sleep(0.005)
        left = await _sweep(self._mark)
        if left:
            pids = ", ".join(str(name.pid) for name in left)
            raise EffectFailed(f"processes {pids}, which workers of {self.id} have started, do not end after SIGKILL")

    def living_epoch(self) -> int:
        """The newest epoch whose workers live; 0 if none do (the keeper may still run)."""
        return max((epoch for epoch, group in self.groups.items() if group.living()), default=0)

    async def leave(self) -> None:
        """Lets go of everything without ending anything (the agent ends, the workers stay)."""
        self._releasing = True
        if self._link is not None:
            await self._link.close()
        for group in self.groups.values():
            group.close()

    # --- what a new agent process finds ---

    async def adopt(self, told: list[AgentReport]) -> None:
        """Takes over from an earlier agent process: maps boards, tells what was not told, connects to the keeper."""
        for directory in self.paths.attempt(self.id).glob("epoch-*"):
            epoch = int(directory.name.removeprefix("epoch-"))
            group = Group(self.host, self.id, epoch, self.paths, self._report)
            for event in told:
                if getattr(event, "attempt", None) == self.id and getattr(event, "epoch", None) == epoch:
                    group.told.remember(event)
            group.adopt_boards()
            self.groups[epoch] = group
            launched = read_or_none(directory / "group.json")
            if launched is not None:
                self._remember_processes(decode(launched, talk.RunningGroup))
            group.collect_records()
        keeper = read_or_none(self.paths.keeper(self.id))
        if keeper is None:
            return  # the agent died before the keeper was started; its effect is carried out again
        self.keeper = decode(keeper, ProcessName)
        spec = read_or_none(self.paths.keeper_spec(self.id))
        self._mark = decode(spec, talk.KeeperSpec).mark if spec is not None else ""
        if not self._keeper_runs():
            self._keeper_died()
            return
        link = await self._connected()
        self._background = asyncio.ensure_future(self._adopt_groups(link))

    async def _adopt_groups(self, link: KeeperLink) -> None:
        """Once the keeper speaks: learns the processes, and forgets boards for which no worker was started."""
        try:
            status = await link.warm
        except KeeperGone:
            return  # `_on_gone` deals with it
        launched = {running.epoch: running for running in status.groups}
        for epoch, group in list(self.groups.items()):
            if epoch in launched:
                if not group.processes:  # the agent died between the launch and its record
                    self._record_late(launched[epoch])
                self._remember_processes(launched[epoch])
                group.collect_records()
            elif not group.processes and epoch == max(self.groups):
                group.close()
                del self.groups[epoch]


async def _sweep(mark: str) -> tuple[ProcessName, ...]:
    """Ends what workers of a keeper have started and left behind; what will not end."""
    return await asyncio.to_thread(end_tree, None, frozenset({f"{KEEPER}={mark}".encode()}), GONE_S)


def _bound(address: str) -> socket.socket:
    """A socket that is bound to a free port but does not listen; see `Keeper._store_for`. Raises `OSError`."""
    family, kind, protocol, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
    except OSError:
        bound.close()
        raise
    return bound


def load_prepared(paths: HostPaths, attempt: AttemptId) -> PrepareAttempt | None:
    """What an attempt of an earlier agent process was prepared with; None if that process died before it was
    written."""
    data = read_or_none(paths.prepared(attempt))
    return None if data is None else decode(data, PrepareAttempt)
