"""A small simulated world around the very engine: agents, worker groups, a checkpoint store, faults; seeded.

It is not the twin (which simulates a whole fleet); it is the least that plays the other side of every effect, denser in
faults than life, so that a few hundred seeds reach the odd corners. Simulated time only; order of equal times by
sequence number, so a seed is a run.

An agent keeps a journal by effect id as the real one does, holds its reports while the server is away, and forgets
everything when its host dies. A group is the set of workers of one epoch: it restores the newest published step, steps
together, publishes, yields and finishes together, and fails together when one of its hosts or ranks dies.

With `together` the world tells of a gang as a launcher of gangs does: one event for all hosts that did as asked, one
for all whose ranks ended alike; what is kept back on a host while the server is away is told host by host.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, BootId, ComponentName, EffectId, HostId, JobId, SessionId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
    VerifyHost,
    parts,
)
from trainmaster.core.events import AgentDisconnected, AgentRegistered, AnyEvent
from trainmaster.core.recovery.events import (
    CheckpointPublished,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    Failure,
    HangFound,
    WorkerExited,
    WorkersExited,
)

STEP_S = 1.0
STALL_S = 0.3
FOUND_MAX = 10
"""How often a hang may be told before it is ended: an agent that is away for some seconds hears of nothing."""

End = tuple[int, str, Failure | None]
"""Rank, how it ended, and why."""


@dataclass
class Group:
    """Workers of one epoch, over all hosts."""

    attempt: AttemptId
    epoch: int
    world: int
    ranks: dict[int, HostId] = field(default_factory=dict)
    asked: set[HostId] = field(default_factory=set)
    save_every: dict[HostId, int] = field(default_factory=dict)
    """As told, where a job leaves it open how often it saves."""
    saved: int = 0
    step: int = 0
    phase: Phase = Phase.SPAWNED
    over: bool = False
    hung: tuple[int, ...] | None = None
    """Ranks that do not go on, so that none does; empty: a collective that does not end."""
    found: int = 0
    """How often that was told."""


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
        self,
        seed: int,
        submit: Callable[[AnyEvent], None],
        total_steps: int = 40,
        save_every: int = 10,
        together: bool = False,
    ) -> None:
        self.together = together
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

    def versions_seen(self, host: HostId) -> dict[ComponentName, str]:
        """What an agent tells of components when it registers."""
        return {}

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
                versions=self.versions_seen(agent.host),
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

    def hang(self, job: JobId) -> None:
        """Ranks of the job's running group stop, and nothing ends by itself; a diagnosis says so some time later."""
        running = [group for group in self.groups.values() if group.attempt.startswith(f"{job}.") and not group.over]
        if not running or running[-1].phase < Phase.TRAINING or running[-1].hung is not None:
            return
        group = running[-1]
        group.hung = self.chance.choice(((0,), (group.world - 1,), (0, group.world // 2), ()))
        self.at(3 + 4 * self.chance.uniform(), lambda: self._diagnosed(group))

    def _diagnosed(self, group: Group) -> None:
        """What the server's watch finds, again and again; one that is away finds it when it is back.
        What is told first may come too late."""
        if not self.server_up:
            self.at(1.0, lambda: self._diagnosed(group))
            return
        if group.over and group.found:
            return
        assert group.hung is not None
        assert group.found < FOUND_MAX, f"{group.attempt} epoch {group.epoch} hangs, and nobody ends it"
        group.found += 1
        self.submit(
            HangFound(
                at=self.now,
                attempt=group.attempt,
                epoch=group.epoch,
                kind=Kind.USER_CODE_STALL if group.hung else Kind.IN_FLIGHT_STALL,
                ranks=group.hung,
                step=group.step,
                still_s=3.5,
                bound_s=3.0,
                summary="the others wait",
            )
        )
        self.at(2.0, lambda: self._diagnosed(group))

    # --- effects

    def deliver(self, effect: AnyEffect) -> None:
        """What the server sends; lost where the agent is not there."""
        agents = {host: self.agents[host] for host in effect.hosts if host in self.agents}
        sent = [(agents[host], agents[host].boot, part) for host, part in parts(effect) if host in agents]
        sent = [row for row in sent if row[0].up and row[0].heard]
        for rows in [sent] if self.together else [[row] for row in sent]:
            self.soon(lambda rows=rows: self._act(rows))

    def _act(self, sent: list[tuple[Agent, int, AnyEffect]]) -> None:
        here = [(agent, boot, part) for agent, boot, part in sent if agent.up and agent.boot == boot]
        known = [(agent, boot, self._outcome(agent, part)) for agent, boot, part in here]
        if known:
            self.soon(lambda: self._answer(known))

    def _outcome(self, agent: Agent, effect: AnyEffect) -> EffectEnded:
        known = agent.journal.get(effect.id)
        if known is None:
            numbers: dict[str, int | float | str] = {}
            if isinstance(effect, ReserveStore):
                numbers["port"] = 20_000 + self.chance.integer(10_000)
            else:
                self._carry_out(agent, effect)
            known = EffectEnded(at=self.now, host=agent.host, effect=effect.id, outcome="done", numbers=numbers)
            agent.journal[effect.id] = known
        return known

    def _answer(self, told: list[tuple[Agent, int, EffectEnded]]) -> None:
        """The outcomes of one effect."""
        here = [(agent, known) for agent, boot, known in told if agent.up and agent.boot == boot]
        if self.together and self.server_up and here:
            hosts = tuple(agent.host for agent, _ in here if agent.heard)
            first = here[0][1]
            if hosts:
                numbers = first.numbers
                self.submit(
                    EffectsEnded(at=self.now, hosts=hosts, effect=first.effect, outcome="done", numbers=numbers)
                )
            here = [(agent, known) for agent, known in here if not agent.heard]
        for agent, known in here:
            self.report(agent, known)

    def _carry_out(self, agent: Agent, effect: AnyEffect) -> None:
        if isinstance(effect, PrepareAttempt):
            agent.attempts.setdefault(effect.attempt, 0)
        elif isinstance(effect, LaunchWorkers):
            self._launch(agent, effect)
        elif isinstance(effect, AskWorkers):
            group = self.groups.get((effect.attempt, effect.epoch))
            if group is not None and effect.request == "interval":
                group.save_every[agent.host] = effect.every_steps
            elif group is not None:
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
        group.step = group.saved = self.published.get(self._job(group), 0)
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
        if group.over or group.hung is not None:
            return
        job = self._job(group)
        group.step += 1
        self.done_steps[job] = max(self.done_steps.get(job, 0), group.step)
        if first:
            self._phase(group, Phase.TRAINING)
        leaving = len(group.asked) == len(set(group.ranks.values()))
        finished = group.step >= self.total_steps
        every = max(group.save_every.values(), default=0)
        due = group.step - group.saved >= every if every else group.step % self.save_every == 0
        if leaving or finished or due:
            self.published[job] = group.saved = group.step
            host = group.ranks[0]
            published = CheckpointPublished(
                at=self.now, host=host, attempt=group.attempt, epoch=group.epoch, step=group.step, stall_s=STALL_S
            )
            self.report(self.agents[host], published)
        if leaving or finished:
            group.over = True
            group.phase = Phase.FINISHED if finished else Phase.YIELDED
            self._exit(group, [(rank, "finished" if finished else "yielded", None) for rank in sorted(group.ranks)])
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
        echo = Failure(at=self.now, exception="RuntimeError", message="Connection closed by peer")
        own = Failure(at=self.now, exception=error, message=error) if error else None
        ends: list[End] = []
        for rank, host in sorted(group.ranks.items()):
            if host == stopped:
                ends.append((rank, "stopped", None))
            elif host != dead:
                ends.append((rank, "failed", own if rank == culprit else echo))
        self._exit(group, ends)

    def _exit(self, group: Group, ends: list[End]) -> None:
        """Tells of the ranks' ends: one by one, or together those of whole hosts that ended alike."""
        ways: dict[HostId, list[tuple[str, Failure | None]]] = {}
        for rank, how, failure in ends:
            ways.setdefault(group.ranks[rank], []).append((how, failure))
        alike: dict[tuple[str, bool], tuple[Failure | None, list[HostId]]] = {}
        for rank, how, failure in ends:
            host = group.ranks[rank]
            if not self.together or any(way != (how, failure) for way in ways[host]):
                self._exit_one(group, rank, how, failure)
            elif host not in (hosts := alike.setdefault((how, failure is None), (failure, []))[1]):
                hosts.append(host)
        for (how, _), (failure, hosts) in alike.items():
            event = self._exited_together(group, tuple(hosts), how, failure)
            boots = {host: self.agents[host].boot for host in hosts}
            self.soon(lambda event=event, boots=boots: self._answer_exits(boots, event), 0.2)

    def _exited_together(
        self, group: Group, hosts: tuple[HostId, ...], how: str, failure: Failure | None
    ) -> WorkersExited:
        return WorkersExited(
            at=self.now,
            attempt=group.attempt,
            epoch=group.epoch,
            hosts=hosts,
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

    def _answer_exits(self, boots: dict[HostId, int], event: WorkersExited) -> None:
        here = [agent for agent in map(self.agents.__getitem__, boots) if agent.up and agent.boot == boots[agent.host]]
        heard = tuple(agent.host for agent in here if agent.heard and self.server_up)
        if heard:
            self.submit(event.but(hosts=heard))
        for agent in here:
            if agent.host not in heard:
                self.report(agent, event.but(hosts=(agent.host,)))

    def _exit_one(self, group: Group, rank: int, how: str, failure: Failure | None) -> None:
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
