"""The agent: owns one host, carries out the server's effects there, and reports what happens.

It holds nothing that its host does not hold as well: a new process of the same boot finds boards, exit records,
keepers, waiting reports and the journal, and goes on (`_adopt`). SIGKILL is a crash: the workers stay and are adopted.
SIGTERM is an orderly end of the host: workers are asked to save and leave (`SAVE_GRACE_S`), what is left of them gets
SIGTERM and `LAST_GRACE_S`, and nothing stays. What the server asks from then on is not answered: a host that goes is
no host that fails.
"""

import asyncio
import logging
import os
import signal
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from trainmaster import __version__
from trainmaster.core.agent.journal import Entry, Line
from trainmaster.core.agent.ring import Rings
from trainmaster.core.agent.steps import does_nothing
from trainmaster.core.agent.wire import Heartbeat, Instruction, Query, Register, Registered
from trainmaster.core.base.ids import AttemptId, BootId, ComponentName, HostId, SessionId
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import Value, encode
from trainmaster.core.diagnosis.stacks import HostStacks
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    RebootHost,
    ReleaseAttempt,
    ReserveStore,
    RunSteps,
    StopWorkers,
    VerifyHost,
)
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import EffectEnded, Outcome
from trainmaster.live.agent import verify
from trainmaster.live.agent.attempt import EffectFailed, HostAttempt, NotRun, load_prepared
from trainmaster.live.agent.files import now, read_or_none, tail, write_whole
from trainmaster.live.agent.group import Group
from trainmaster.live.agent.health.monitor import HealthSettings, Monitor
from trainmaster.live.agent.journal_file import JournalFile
from trainmaster.live.agent.operation import Operations
from trainmaster.live.agent.outbox import Outbox
from trainmaster.live.agent.packages import Components
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.reboot import Rebooter
from trainmaster.live.agent.session import Session
from trainmaster.live.diagnosis.ranks import stacks, state

_log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 0.02
"""How late a phase is told at most. Fifty looks a second at eight bytes of memory cost well under 1 % of a core."""
SAVE_GRACE_S: Final = 15.0
LAST_GRACE_S: Final = 2.0
FLUSH_S: Final = 1.0
"""How long an orderly end waits for the server to take the last reports; the next process sends what is left."""

Numbers = dict[str, int | float | str]


class _ServerFile(msgspec.Struct):
    """The part of `server.json` that an agent needs."""

    url: str


class AgentSettings(Value):
    host: HostId
    server: str
    """URL; or `@` and the path of the server's own `server.json`, which is read at each connect."""
    token: str
    address: str
    host_dir: str
    memory_dir: str
    jobs_dir: str
    reboot_command: tuple[str, ...] = ()
    """Boots the host anew; empty: this agent can't."""
    health: HealthSettings = HealthSettings()

    def url(self) -> str:
        """Raises `OSError` if the server's file is not there, which it is only while the server runs."""
        if not self.server.startswith("@"):
            return self.server
        with open(self.server[1:], "rb") as file:
            return msgspec.json.decode(file.read(), type=_ServerFile).url


class Agent:
    def __init__(self, settings: AgentSettings) -> None:
        """Raises `OSError` if its directories can't be used."""
        self.settings = settings
        self.host = settings.host
        self.paths = HostPaths(host_dir=settings.host_dir, memory_dir=settings.memory_dir, jobs_dir=settings.jobs_dir)
        for directory in (settings.host_dir, settings.jobs_dir, self.paths.attempts):
            os.makedirs(directory, exist_ok=True)
        self.boot = self._boot()
        self.outbox = Outbox(self.paths.outbox, self._still_matters)
        self.journal_file = JournalFile(self.paths.journal, self.boot)
        self.journal = self.journal_file.journal
        self.attempts: dict[AttemptId, HostAttempt] = {}
        self.operations = Operations(self.paths, self.boot)
        self.components = Components(Path(settings.host_dir))
        self._versions: dict[ComponentName, str] = {}
        self.rebooter = Rebooter(self.paths, self.boot, settings.reboot_command)
        self.monitor = Monitor(settings.health, self.host, self.boot, self.paths, self.outbox.add)
        self.session = Session(settings.url, settings.token, self.host, SessionId(uuid.uuid4().hex), self.outbox, self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._launching = asyncio.Event()
        """There may be a board to look at."""

    def _boot(self) -> BootId:
        """The boot id. It lies in memory that a reboot clears, so it is new exactly after one."""
        known = read_or_none(self.paths.boot)
        if known is None:
            self._activate()
            known = uuid.uuid4().hex.encode()
            write_whole(self.paths.boot, known)
        return BootId(known.decode().strip())

    def _activate(self) -> None:
        """First thing after a boot, before the boot id exists: a crash in between repeats it. Trouble leaves the old
        versions, which whoever observes them sees."""
        try:
            for sentence in Components(Path(self.settings.host_dir)).activate():
                _log.info("%s", sentence)
        except OSError as error:
            _log.error("a component that waited for this boot can't be made current: %s", error)

    def _look_at_components(self) -> None:
        """Blocks: it reads all their files. Trouble is told as versions that are not known."""
        try:
            self._versions = self.components.versions()
        except OSError as error:
            _log.error("the components of this host can't be read: %s", error)
            self._versions = dict.fromkeys(self._versions, "")

    def _still_matters(self, event: AgentReport) -> bool:
        attempt: AttemptId | None = getattr(event, "attempt", None)
        return attempt is not None and self.paths.attempt(attempt).exists()

    # --- life ---

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises `session.NotAdmitted`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        await asyncio.to_thread(self.operations.adopt)
        await asyncio.to_thread(self._look_at_components)
        await self._adopt()
        self._start(self.monitor.run())
        conversation = asyncio.create_task(self.session.run(), name="session")
        watching = asyncio.create_task(self._watch(), name="watch")
        tasks: set[asyncio.Task[Any]] = {conversation, watching}
        ending = asyncio.create_task(self._ending.wait(), name="ending")
        try:
            await asyncio.wait({*tasks, ending}, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.is_set():
                await self._end_host()
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            tasks |= {ending, *self._tasks}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for attempt in self.attempts.values():
                await attempt.leave()
            self.outbox.close()
            self.journal_file.close()

    async def _end_host(self) -> None:
        _log.info("ending: %d attempts", len(self.attempts))
        stop = [self._end_attempt(attempt) for attempt in self.attempts.values()]
        for outcome in await asyncio.gather(*stop, return_exceptions=True):
            if isinstance(outcome, BaseException):
                _log.error("while ending: %s", outcome)
        self.attempts.clear()
        deadline = asyncio.get_running_loop().time() + FLUSH_S
        while not self.outbox.is_empty() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)

    async def _end_attempt(self, attempt: HostAttempt) -> None:
        await attempt.let_save(SAVE_GRACE_S)
        if attempt.groups:
            await attempt.stop_up_to(max(attempt.groups), seconds(LAST_GRACE_S))
        await attempt.release()

    async def _adopt(self) -> None:
        told = [*self.outbox.told, *self.outbox.waiting()]
        for directory in sorted(self.paths.attempts.iterdir()):
            prepared = load_prepared(self.paths, AttemptId(directory.name))
            if prepared is None:
                continue
            attempt = HostAttempt(self.host, self.settings.address, prepared, self.paths, self.outbox.add)
            self.attempts[attempt.id] = attempt
            try:
                await attempt.adopt(told)
            except (EffectFailed, OSError) as error:
                _log.error("%s can't be adopted: %s", attempt.id, error)

    async def _watch(self) -> None:
        while True:
            speaking = [group for group in self._groups() if group.speaks()]
            for group in speaking:
                group.look()
            if speaking:
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                self._launching.clear()
                await self._launching.wait()

    def _groups(self) -> list[Group]:
        return [group for attempt in self.attempts.values() for group in attempt.groups.values()]

    # --- what the session asks ---

    def registration(self) -> Register:
        return Register(
            host=self.host,
            session=self.session.id,
            boot=self.boot,
            address=self.settings.address,
            version=__version__,
            pid=os.getpid(),
            attempts=tuple((attempt.id, attempt.living_epoch()) for attempt in self.attempts.values()),
            versions=self._versions,
        )

    def welcomed(self, registered: Registered) -> None:
        self._start(self.journal_file.store(self.journal.see_lease(registered.lease), sync=True))

    def heartbeat(self) -> Heartbeat:
        groups = [group for group in self._groups() if group.living()]
        return Heartbeat(
            host=self.host, session=self.session.id, at=now(), groups=tuple(group.progress() for group in groups)
        )

    def acknowledged(self, events: tuple[AgentReport, ...]) -> None:
        lines = [
            line
            for event in events
            if isinstance(event, EffectEnded)
            for line in self.journal.acknowledged(event.effect)
        ]
        self._start(self.journal_file.store(tuple(lines), sync=False))

    def instructed(self, instruction: Instruction) -> None:
        if instruction.query is not None:
            self._start(self._answer(instruction.query))
        if instruction.effect is None or self._ending.is_set():
            return
        effect = instruction.effect
        answer = self.journal.offer(effect, instruction.lease)
        if answer.verdict == "start":
            self._start(self._carry_out(effect, answer.lines))
        elif answer.verdict == "ended" and not self.outbox.waits(effect.id):
            self._tell_outcome(answer.entry)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.critical("a defect in the agent", exc_info=task.exception())

    async def _answer(self, query: Query) -> None:
        if query.kind in ("rings", "stacks"):
            await self.session.answer(query, await self._looked(query))
        else:
            await self.session.answer(query, self._log_tail(query))

    async def _looked(self, query: Query) -> bytes:
        """What can be seen of the ranks of an epoch from outside; empty if none ran here."""
        attempt = self.attempts.get(query.attempt)
        epoch = query.epoch or max(attempt.groups if attempt is not None else (), default=0)
        group = attempt.groups.get(epoch) if attempt is not None else None
        if group is None:
            return b""
        seen = group.seen()
        if query.kind == "stacks":
            taken = await asyncio.to_thread(stacks, self.host, seen)
            return encode(HostStacks(host=self.host, stacks=taken))
        looked = await asyncio.to_thread(lambda: tuple(state(seen[rank], query.lines) for rank in sorted(seen)))
        return encode(Rings(host=self.host, attempt=query.attempt, epoch=epoch, at=now(), ranks=looked))

    def _log_tail(self, query: Query) -> bytes:
        if query.kind != "log":
            return f"no such question: {query.kind}\n".encode()
        epoch = query.epoch or self._newest_logged(query.attempt, query.rank)
        try:
            return tail(self.paths.log(query.attempt, epoch, query.rank), query.lines)
        except FileNotFoundError:
            return b""
        except OSError as error:
            return f"the log can't be read on {self.host}: {error.strerror}\n".encode()

    def _newest_logged(self, attempt: AttemptId, rank: int) -> int:
        names = [path.name.split("-") for path in self.paths.logs(attempt).glob(f"epoch-*-rank-{rank}.log")]
        return max((int(name[1]) for name in names), default=0)

    # --- effects ---

    async def _carry_out(self, effect: AnyEffect, lines: tuple[Line, ...]) -> None:
        await self.journal_file.store(lines, sync=isinstance(effect, RebootHost))
        outcome: Outcome = "done"
        detail, numbers = "", Numbers()
        try:
            detail, numbers = await self._do(effect)
        except NotRun as error:
            outcome, detail = "not-run", str(error)
        except EffectFailed as error:
            outcome, detail, numbers = "failed", str(error), error.numbers
        except Exception as error:  # noqa: BLE001  a defect of ours must not leave the server waiting for ever
            _log.critical("a defect in the agent, at %s", effect, exc_info=True)
            outcome, detail = "failed", f"defect of the agent: {type(error).__name__}: {error}"
        if self._ending.is_set() and outcome != "done":
            return  # it was cut short by our own end
        await self.journal_file.store(self.journal.ended(effect.id, outcome, detail, numbers), sync=True)
        entry = self.journal.entry(effect.id)
        assert entry is not None, effect.id
        self._tell_outcome(entry)

    def _tell_outcome(self, entry: Entry) -> None:
        assert entry.outcome is not None, entry
        self.outbox.add(
            EffectEnded(
                at=now(),
                host=self.host,
                effect=entry.effect,
                outcome=entry.outcome,
                detail=entry.detail,
                numbers=entry.numbers,
            )
        )

    async def _do(self, effect: AnyEffect) -> tuple[str, Numbers]:
        """(detail, numbers) of an effect that was done. Raises `NotRun` or `EffectFailed`."""
        match effect:
            case PrepareAttempt():
                return await self._prepare(effect), {}
            case ReserveStore():
                port = await self._attempt(effect.attempt).reserve(effect, self.settings.address)
                return "", {"port": port}
            case LaunchWorkers():
                stayed = await self._attempt(effect.attempt).launch(effect, self._launching.set)
                return "", {"stayed": stayed} if stayed is not None else {}
            case AskWorkers():
                self._attempt(effect.attempt).ask(effect)
            case StopWorkers():
                if effect.attempt in self.attempts:
                    attempt = self.attempts[effect.attempt]
                    await attempt.stop_up_to(effect.epoch, effect.grace, effect.keep, effect.kill)
            case ReleaseAttempt():
                if effect.attempt in self.attempts:
                    await self.attempts[effect.attempt].release()
                    del self.attempts[effect.attempt]
            case VerifyHost():
                failure = await verify.verify(effect.tasks, self.paths)
                if failure:
                    raise EffectFailed(failure)
            case RunSteps():
                return await self._run_steps(effect)
            case RebootHost():
                return await self.rebooter.reboot(effect, self._who_is_busy)
        return "", {}

    async def _run_steps(self, effect: RunSteps) -> tuple[str, Numbers]:
        try:
            return await self.operations.run(effect)
        finally:
            if not does_nothing(effect):
                await asyncio.to_thread(self._look_at_components)
                self.monitor.operated()

    def _who_is_busy(self) -> str:
        """What runs here and would not survive a reboot; empty: nothing."""
        living = [f"workers of {group.attempt} epoch {group.epoch}" for group in self._groups() if group.living()]
        rows = [f"steps of {operation}" for operation in self.operations.running()]
        return f"{', '.join((*living, *rows))} run on {self.host}" if living or rows else ""

    async def _prepare(self, effect: PrepareAttempt) -> str:
        attempt = self.attempts.get(effect.attempt)
        if attempt is None:
            attempt = self.attempts[effect.attempt] = HostAttempt(
                self.host, self.settings.address, effect, self.paths, self.outbox.add
            )
        return await attempt.prepare()

    def _attempt(self, name: AttemptId) -> HostAttempt:
        attempt = self.attempts.get(name)
        if attempt is None:
            raise NotRun(f"{name} is not prepared on this host")
        return attempt
