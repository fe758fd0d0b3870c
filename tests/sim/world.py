"""A small simulated world around the very engine: agents, worker groups, a checkpoint store, faults; seeded.

It is not the twin (which simulates a whole fleet); it is the least that plays the other side of every effect, denser in
faults than life, so that a few hundred seeds reach the odd corners. Simulated time only; order of equal times by
sequence number, so a seed is a run.

An agent keeps a journal by effect id as the real one does, holds its reports while the server is away, and forgets
everything when its host dies. A group is the set of workers of one epoch: it restores the newest published step, steps
together, publishes, yields and finishes together, and fails together when one of its hosts or ranks dies.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, BootId, EffectId, HostId, JobId, SessionId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
    VerifyHost,
)
from trainmaster.core.events import AgentDisconnected, AgentRegistered, AnyEvent
from trainmaster.core.recovery.events import CheckpointPublished, EffectEnded, EpochPhase, Failure, WorkerExited

STEP_S = 1.0


@dataclass
class Group:
    """Workers of one epoch, over all hosts."""

    attempt: AttemptId
    epoch: int
    world: int
    ranks: dict[int, HostId] = field(default_factory=dict)
    asked: set[HostId] = field(default_factory=set)
    step: int = 0
    phase: Phase = Phase.SPAWNED
    over: bool = False


@dataclass
class Agent:
    host: HostId
    boot: int = 1
    session: int = 1
    up: bool = False
    """The agent process and its host live."""
    heard: bool = False
    """Registered with the server that runs now."""
    journal: dict[EffectId, EffectEnded] = field(default_factory=dict)
    outbox: list[AnyEvent] = field(default_factory=list)
    attempts: dict[AttemptId, int] = field(default_factory=dict)


class World:
    """`submit(event) -> effects` is the core's host: the engine itself, or the server's runtime around it."""

    def __init__(
        self, seed: int, submit: Callable[[AnyEvent], None], total_steps: int = 40, save_every: int = 10
    ) -> None:
        self.now = Instant(1_000_000)
        self.chance = Stream.of(seed, "world")
        self.submit_now = submit
        self.server_up = True
        self.total_steps, self.save_every = total_steps, save_every
        self.agents: dict[HostId, Agent] = {}
        self.groups: dict[tuple[AttemptId, int], Group] = {}
        self.published: dict[JobId, int] = {}
        self.done_steps: dict[JobId, int] = {}
        self.launch_faults: dict[JobId, str] = {}
        """Jobs whose ranks fail at start with this error."""
        self.resumed_from: list[tuple[AttemptId, int, int, int]] = []
        """(attempt, epoch, step restored, newest published at that moment)."""
        self._heap: list[tuple[Instant, int, Callable[[], None]]] = []
        self._sequence = 0

    # --- time

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (Instant(self.now + seconds(delay_s)), self._sequence, act))

    def soon(self, act: Callable[[], None], longest_s: float = 0.05) -> None:
        self.at(0.001 + longest_s * self.chance.uniform(), act)

    def next_at(self) -> Instant | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        self.now, _, act = heapq.heappop(self._heap)
        act()

    # --- agents

    def power_on(self, host: HostId) -> None:
        agent = self.agents.setdefault(host, Agent(host))
        if not agent.up:
            agent.up = True
            self.register(agent)

    def register(self, agent: Agent) -> None:
        if not agent.up or not self.server_up or agent.heard:
            return
        agent.heard = True
        self.submit(
            AgentRegistered(
                at=self.now,
                host=agent.host,
                session=SessionId(f"s{agent.session}"),
                boot=BootId(f"b{agent.boot}"),
                address="127.0.0.1",
                attempts=tuple(sorted(agent.attempts.items())),
            )
        )
        waiting, agent.outbox = agent.outbox, []
        for event in waiting:
            self.report(agent, event)

    def submit(self, event: AnyEvent) -> None:
        assert self.server_up
        self.submit_now(event)

    def report(self, agent: Agent, event: AnyEvent) -> None:
        if self.server_up and agent.heard and agent.up:
            self.submit(event)
        elif agent.up:
            agent.outbox.append(event)

    def server_down(self) -> None:
        self.server_up = False
        for agent in self.agents.values():
            agent.heard = False

    def server_back(self) -> None:
        self.server_up = True
        for agent in self.agents.values():
            self.soon(lambda agent=agent: self.register(agent), 1.0)

    def kill_host(self, host: HostId) -> None:
        """Power off: everything on it is gone; peers notice, the connection closes."""
        agent = self.agents[host]
        if not agent.up:
            return
        session = SessionId(f"s{agent.session}")
        was_heard = agent.heard
        for group in list(self.groups.values()):
            if host in group.ranks.values() and not group.over:
                self._fail(group, None, dead=host)
        agent.up, agent.heard = False, False
        agent.boot, agent.session = agent.boot + 1, agent.session + 1
        agent.journal.clear()
        agent.outbox.clear()
        agent.attempts.clear()
        if was_heard:
            self.soon(lambda: self._closed(host, session))

    def restart_agent(self, host: HostId, away_s: float) -> None:
        """The agent process dies and comes back; workers and journal stay."""
        agent = self.agents[host]
        if not agent.up or not agent.heard:
            return
        session = SessionId(f"s{agent.session}")
        agent.heard = False
        agent.session += 1
        self.soon(lambda: self._closed(host, session))
        self.at(away_s, lambda: self.register(agent))

    def _closed(self, host: HostId, session: SessionId) -> None:
        if self.server_up:
            self.submit(AgentDisconnected(at=self.now, host=host, session=session))

    def kill_worker(self, job: JobId) -> None:
        """One rank of the job's running group dies of signal 9."""
        running = [group for group in self.groups.values() if group.attempt.startswith(f"{job}.") and not group.over]
        if running and running[-1].ranks:
            self._fail(running[-1], culprit=min(running[-1].ranks))

    # --- effects

    def deliver(self, effect: AnyEffect) -> None:
        """What the server sends; lost if the agent is not there."""
        agent = self.agents.get(effect.host)
        if agent is None or not agent.up or not agent.heard:
            return
        boot = agent.boot
        self.soon(lambda: self._act(agent, boot, effect))

    def _act(self, agent: Agent, boot: int, effect: AnyEffect) -> None:
        if not agent.up or agent.boot != boot:
            return
        known = agent.journal.get(effect.id)
        if known is None:
            numbers: dict[str, int | float | str] = {}
            if isinstance(effect, ReserveStore):
                numbers["port"] = 20_000 + self.chance.integer(10_000)
            else:
                self._carry_out(agent, effect)
            known = EffectEnded(at=self.now, host=agent.host, effect=effect.id, outcome="done", numbers=numbers)
            agent.journal[effect.id] = known
        self.soon(lambda: self._answer(agent, boot, known))

    def _answer(self, agent: Agent, boot: int, outcome: EffectEnded) -> None:
        if agent.up and agent.boot == boot:
            self.report(agent, outcome)

    def _carry_out(self, agent: Agent, effect: AnyEffect) -> None:
        if isinstance(effect, PrepareAttempt):
            agent.attempts.setdefault(effect.attempt, 0)
        elif isinstance(effect, LaunchWorkers):
            self._launch(agent, effect)
        elif isinstance(effect, AskWorkers):
            group = self.groups.get((effect.attempt, effect.epoch))
            if group is not None:
                group.asked.add(agent.host)
        elif isinstance(effect, StopWorkers):
            self._stop(agent, effect.attempt, effect.epoch)
        elif isinstance(effect, ReleaseAttempt):
            self._stop(agent, effect.attempt, 1_000_000)
            agent.attempts.pop(effect.attempt, None)
        else:
            assert isinstance(effect, VerifyHost)

    def _stop(self, agent: Agent, attempt: AttemptId, epoch: int) -> None:
        for group in list(self.groups.values()):
            if group.attempt != attempt or group.epoch > epoch or group.over:
                continue
            if agent.host in group.ranks.values():
                self._fail(group, None, stopped=agent.host)

    # --- worker groups

    def _launch(self, agent: Agent, effect: LaunchWorkers) -> None:
        self._stop(agent, effect.attempt, effect.epoch - 1)
        agent.attempts[effect.attempt] = effect.epoch
        key = (effect.attempt, effect.epoch)
        group = self.groups.setdefault(key, Group(effect.attempt, effect.epoch, effect.world))
        if group.over:
            return
        for rank in range(effect.first_rank, effect.first_rank + effect.ranks):
            assert rank not in group.ranks, (key, rank)
            group.ranks[rank] = agent.host
        if len(group.ranks) == group.world:
            self.soon(lambda: self._attached(group), 0.5)

    def _job(self, group: Group) -> JobId:
        return JobId(group.attempt.rpartition(".a")[0])

    def _attached(self, group: Group) -> None:
        if group.over:
            return
        error = self.launch_faults.get(self._job(group))
        if error is not None:
            culprit = self.chance.integer(group.world)
            self._fail(group, culprit, error=error)
            return
        group.step = self.published.get(self._job(group), 0)
        self.resumed_from.append((group.attempt, group.epoch, group.step, self.published.get(self._job(group), 0)))
        for phase in (Phase.ATTACHED, Phase.GROUPED, Phase.RESTORED):
            self._phase(group, phase)
        self.at(STEP_S, lambda: self._stepped(group, first=True))

    def _phase(self, group: Group, phase: Phase) -> None:
        group.phase = phase
        host = group.ranks[0]
        event = EpochPhase(
            at=self.now, host=host, attempt=group.attempt, epoch=group.epoch, phase=phase, step=group.step
        )
        self.report(self.agents[host], event)

    def _stepped(self, group: Group, first: bool = False) -> None:
        if group.over:
            return
        job = self._job(group)
        group.step += 1
        self.done_steps[job] = max(self.done_steps.get(job, 0), group.step)
        if first:
            self._phase(group, Phase.TRAINING)
        leaving = len(group.asked) == len(set(group.ranks.values()))
        finished = group.step >= self.total_steps
        if leaving or finished or group.step % self.save_every == 0:
            self.published[job] = group.step
            host = group.ranks[0]
            published = CheckpointPublished(
                at=self.now, host=host, attempt=group.attempt, epoch=group.epoch, step=group.step
            )
            self.report(self.agents[host], published)
        if leaving or finished:
            group.over = True
            group.phase = Phase.FINISHED if finished else Phase.YIELDED
            for rank in sorted(group.ranks):
                self._exit(group, rank, "finished" if finished else "yielded", None)
            return
        self.at(STEP_S, lambda: self._stepped(group))

    def _fail(
        self,
        group: Group,
        culprit: int | None,
        dead: HostId | None = None,
        stopped: HostId | None = None,
        error: str = "",
    ) -> None:
        """One part of the group goes, and with it the rest: echoes a moment later."""
        group.over = True
        for rank, host in sorted(group.ranks.items()):
            if host == dead:
                continue
            if host == stopped:
                self._exit(group, rank, "stopped", None)
            elif rank == culprit:
                self._exit(
                    group, rank, "failed", Failure(at=self.now, exception=error, message=error) if error else None
                )
            else:
                echo = Failure(at=self.now, exception="RuntimeError", message="Connection closed by peer")
                self._exit(group, rank, "failed", echo)

    def _exit(self, group: Group, rank: int, how: str, failure: Failure | None) -> None:
        host = group.ranks[rank]
        agent, boot = self.agents[host], self.agents[host].boot
        event = WorkerExited(
            at=self.now,
            host=host,
            attempt=group.attempt,
            epoch=group.epoch,
            rank=rank,
            how=how,  # type: ignore[arg-type]
            exit_code=0 if how in ("finished", "yielded") else None if failure is None else 1,
            signal=9 if how in ("failed", "stopped") and failure is None else None,
            attached=group.phase >= Phase.ATTACHED,
            phase=group.phase,
            step=group.step,
            step_at=self.now,
            save_s=0.0,
            failure=failure,
        )
        self.soon(lambda: self._answer_exit(agent, boot, event), 0.2)

    def _answer_exit(self, agent: Agent, boot: int, event: WorkerExited) -> None:
        if agent.up and agent.boot == boot:
            self.report(agent, event)
