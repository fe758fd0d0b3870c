"""The other side of maintenance: agents that carry out steps, reboots and verifications, badly; seeded.

What is on a host's disk outlives its agent and its boot: the journal of steps and reboots, and the versions that are
installed. A row of steps has a *fate*, drawn once an effect: it succeeds, fails, lies (another version is seen),
hangs, ends as unknown, is not run, or its agent or its host dies in the middle. An agent that finds a row begun and
without an end looks at the version first and goes on, as the real one does.

The world keeps books of its own and asserts, whatever the planner believes: no two rows of conflicting scopes are at
work at once, nothing runs on a host that is worked on or booted, nothing is applied again that was applied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.sim.world import Agent, World
from trainmaster.core.base.ids import ComponentName, EffectId, HostId, OperationId
from trainmaster.core.base.time import SECOND, Duration
from trainmaster.core.effects import AnyEffect, RebootHost, RunSteps, VerifyHost
from trainmaster.core.engine import Engine
from trainmaster.core.events import AnyEvent
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Disturbs, Kind, Spread, StepSpec
from trainmaster.core.maintenance.invariants import units_of
from trainmaster.core.recovery.events import EffectEnded, Outcome

SPREAD = Spread(median=Duration(5 * SECOND), p90=Duration(10 * SECOND), limit=Duration(30 * SECOND))
STEP_DEADLINE = Duration(30 * SECOND)

Fate = Literal["done", "failed", "lie", "hang", "unknown", "not-run", "agent-dies", "host-dies", "unseen"]
STEP_FATES: tuple[tuple[Fate, int], ...] = (
    ("done", 62), ("failed", 8), ("lie", 4), ("hang", 3), ("unknown", 11), ("not-run", 3), ("agent-dies", 4),
    ("host-dies", 3), ("unseen", 2),
)  # fmt: skip
BootFate = Literal["returns", "late", "never", "same"]
BOOT_FATES: tuple[tuple[BootFate, int], ...] = (("returns", 76), ("late", 8), ("never", 8), ("same", 8))


def component(name: str, disturbs: Disturbs = "drain", after: Sequence[str] = (), **more: object) -> Component:
    return Component(
        name=name,  # type: ignore[arg-type]
        disturbs=disturbs,
        duration=SPREAD,
        steps=(StepSpec(name="install", command=("install", "{component}", "{version}"), deadline=STEP_DEADLINE),),
        observe=("show", "{component}"),
        observe_deadline=Duration(5 * SECOND),
        after=tuple(after),  # type: ignore[arg-type]
        units=("compute", "storage", "switch", "controller"),
        **more,  # type: ignore[arg-type]
    )


def kind(name: str, disturbs: Disturbs = "drain", **more: object) -> Kind:
    step = StepSpec(name="do", command=("do", name), deadline=STEP_DEADLINE)
    units = ("compute", "storage", "switch", "controller")
    return Kind(name=name, disturbs=disturbs, duration=SPREAD, steps=(step,), units=units, **more)  # type: ignore[arg-type]


UNDO = (StepSpec(name="back", command=("undo",), deadline=STEP_DEADLINE),)
CATALOGUE = Catalogue(
    name="sim",
    components=(
        component("bios", "reboot", verify=("memory-test",)),
        component("driver", "reboot", after=("bios",), job_consistent=True),
        component("nic", "drain", verify=("ports",)),
        component("fan", "drain", undo=UNDO),
        component("kernel", "reboot", undo=UNDO, verify=("boot-log",)),
        component("exporter", "nothing"),
    ),
    kinds=(
        kind("probe", "nothing"),
        kind("deep-check", verify=("burn",)),
        kind("rack-power", "power", scope="rack", verify=("power",)),
        kind("rack-look", "nothing", scope="rack"),
        kind("rack-firmware", "reboot", scope="rack", undo=UNDO),
        kind("repair", repairs=True),
        kind("reseat", "restart", undo=UNDO),
        kind("reboot", "reboot"),
    ),
)


@dataclass
class Row:
    """A row of steps on a disk."""

    fate: Fate
    applied: bool = False
    """All of its steps ended well."""
    outcome: EffectEnded | None = None
    at_work: bool = False


@dataclass
class Disk:
    rows: dict[EffectId, Row] = field(default_factory=dict)
    reboots: dict[EffectId, tuple[int, BootFate]] = field(default_factory=dict)
    """Under which boot each was asked for, and how it goes."""
    versions: dict[str, str] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    """Installed, and active after the next boot."""


class MaintenanceWorld(World):
    def __init__(self, seed: int, submit: Callable[[AnyEvent], None], engine: Engine, together: bool = False) -> None:
        super().__init__(seed, submit, total_steps=30, together=together)
        self.engine = engine
        """To look up what an operation is; never what it waits for or has."""
        self.kind = False
        """Faults have stopped: everything succeeds."""
        self.disks: dict[HostId, Disk] = {}
        self.applied: dict[OperationId, EffectId] = {}
        """Operations whose apply leg was carried out to its end, and by which effect."""
        self.at_work: dict[tuple[EffectId, HostId], frozenset[HostId]] = {}
        """Rows at work, with the units that they concern."""
        self.reboots_done = 0
        self.fates: dict[str, int] = {}

    def disk(self, host: HostId) -> Disk:
        born = Disk(versions={"driver": "1" if host in ("h0", "h1", "h2", "h3") else "2"})
        return self.disks.setdefault(host, born)

    def versions_seen(self, host: HostId) -> dict[ComponentName, str]:
        return {ComponentName("driver"): self.disk(host).versions["driver"]}

    def _draw(self, table: Sequence[tuple[str, int]]) -> str:
        ticket = self.chance.integer(sum(weight for _, weight in table))
        if self.kind:
            return table[0][0]
        for fate, weight in table:
            ticket -= weight
            if ticket < 0:
                self.fates[fate] = self.fates.get(fate, 0) + 1
                return fate
        raise AssertionError(table)

    # --- delivery

    def _act(self, sent: list[tuple[Agent, int, AnyEffect]]) -> None:
        rest = []
        for agent, boot, effect in sent:
            if not isinstance(effect, RunSteps | RebootHost | VerifyHost):
                rest.append((agent, boot, effect))
            elif agent.up and agent.boot == boot:
                self._maintain(agent, effect)
        if rest:
            super()._act(rest)

    def _maintain(self, agent: Agent, effect: RunSteps | RebootHost | VerifyHost) -> None:
        if isinstance(effect, RunSteps):
            self._row(agent, effect)
        elif isinstance(effect, RebootHost):
            self._reboot(agent, effect)
        else:
            self._verify(agent, effect)

    def tell(
        self, agent: Agent, effect: EffectId, outcome: Outcome, detail: str = "", version: str = ""
    ) -> EffectEnded:
        numbers: dict[str, int | float | str] = {"version": version} if version else {}
        event = EffectEnded(
            at=self.now, host=agent.host, effect=effect, outcome=outcome, detail=detail, numbers=numbers
        )
        self._send(agent, event)
        return event

    def _send(self, agent: Agent, event: EffectEnded) -> None:
        """Outcomes arrive late, and now and then twice."""
        boot = agent.boot
        for _ in range(1 + (self.chance.integer(8) == 0)):
            self.soon(lambda: self._report_if(agent, boot, event), 0.3)

    def _report_if(self, agent: Agent, boot: int, event: EffectEnded) -> None:
        if agent.up and agent.boot == boot:
            self.report(agent, event)

    # --- steps

    def _row(self, agent: Agent, effect: RunSteps) -> None:
        disk = self.disk(agent.host)
        row = disk.rows.get(effect.id)
        if row is None:
            row = disk.rows[effect.id] = Row(self._draw(STEP_FATES))  # type: ignore[arg-type]
        if row.outcome is not None:
            self._send(agent, row.outcome)
            return
        if row.at_work:
            return
        if row.fate == "not-run":
            self.tell(agent, effect.id, "not-run", "stale lease")
            return
        self._begin(agent, effect)
        row.at_work = True
        boot, session = agent.boot, agent.session
        self.at(0.2 + 6 * self.chance.uniform(), lambda: self._row_goes_on(agent, boot, session, effect, row))

    def _begin(self, agent: Agent, effect: RunSteps) -> None:
        """1, 3 and 10, from outside."""
        operation = self.engine.state.maintenance.operations.get(effect.operation)
        if operation is None:
            return  # it ended while the message was under way; the agent can't know
        concerns = frozenset(units_of(operation.spec.scope, (host.spec for host in self.engine.state.hosts.values())))
        for (other, host), units in self.at_work.items():
            if other not in self.engine.state.pending:
                continue  # past its deadline by a clock that jumped; the planner can't see that it goes on
            assert units.isdisjoint(concerns), f"1: {effect.id} begins on {concerns} while {other} works at {host}"
        for unit in operation.units:
            if self.engine.state.hosts[unit].state is HostState.OUT_FAILED:
                continue  # a repair of what was lost: nobody can know what still runs there
            self._nothing_runs(unit, f"{operation.id} ({effect.leg})")
        if effect.leg == "apply" and effect.observe is not None:
            before = self.applied.get(operation.id)
            assert before in (None, effect.id), f"10: {operation.id} was applied by {before}, and is again"
        self.at_work[effect.id, agent.host] = concerns

    def _nothing_runs(self, unit: HostId, what: str) -> None:
        for group in self.groups.values():
            running = not group.over and unit in group.ranks.values()
            assert not running, f"3: {what} works on {unit}, on which {group.attempt} runs"

    def _row_goes_on(self, agent: Agent, boot: int, session: int, effect: RunSteps, row: Row) -> None:
        if not agent.up or agent.boot != boot or agent.session != session:
            return  # interrupted; it goes on when it is sent again
        row.at_work = False
        self.at_work.pop((effect.id, agent.host), None)
        fate = row.fate
        if fate in ("agent-dies", "host-dies"):
            row.fate = "done"  # the next time
            self._install(agent, effect, half=self.chance.integer(2) == 0, row=row)
            if fate == "agent-dies":
                self.restart_agent(agent.host, 0.2 + 10 * self.chance.uniform())
            else:
                self.kill_host(agent.host)
                self.at(5 + 60 * self.chance.uniform(), lambda: self.power_on(agent.host))
            return
        if fate == "hang":
            row.at_work = True  # for ever; its deadline kills it, and nobody is told
            return
        if fate in ("done", "lie", "unseen") or (fate == "unknown" and self.chance.integer(4) > 0):
            self._install(agent, effect, half=fate == "lie", row=row)
        self._end_row(agent, effect, row)

    def _install(self, agent: Agent, effect: RunSteps, half: bool, row: Row) -> None:
        """Carries the steps out; `half`: not to the end, so the version is not there."""
        if half or effect.leg != "apply":
            return
        row.applied = True
        self.applied.setdefault(effect.operation, effect.id)
        operation = self.engine.state.maintenance.operations.get(effect.operation)
        if operation is None or not operation.spec.component:
            return
        disk = self.disk(agent.host)
        where = disk.versions if effect.observe is not None else disk.staged
        where[operation.spec.component] = operation.spec.version

    def _end_row(self, agent: Agent, effect: RunSteps, row: Row) -> None:
        outcome: Outcome = "unknown" if row.fate == "unknown" else "failed" if row.fate == "failed" else "done"
        version, detail = "", "" if outcome == "done" else f"by chance: {row.fate}"
        if effect.observe is not None and outcome != "unknown":
            version = self.disk(agent.host).versions.get(effect.observe.component, "1")
            if row.fate == "unseen":
                outcome, version, detail = "failed", "", "the version can't be seen"
            elif effect.observe.wanted and version != effect.observe.wanted:
                outcome, detail = "failed", f"observed {version}, wanted {effect.observe.wanted}"
            else:
                outcome = "done"
        row.outcome = self.tell(agent, effect.id, outcome, detail, version)

    # --- reboots and verifications

    def _reboot(self, agent: Agent, effect: RebootHost) -> None:
        disk = self.disk(agent.host)
        known = disk.reboots.get(effect.id)
        if known is not None:
            boot, fate = known
            if boot != agent.boot:
                self.tell(agent, effect.id, "done")
            elif fate == "same":
                self.tell(agent, effect.id, "failed", f"the host still runs under boot id b{boot}")
            return
        fate: BootFate = self._draw(BOOT_FATES)  # type: ignore[no-redef,assignment]
        disk.reboots[effect.id] = (agent.boot, fate)
        if fate == "same":
            return
        self._nothing_runs(agent.host, f"a reboot ({effect.why})")
        assert effect.id in self.engine.state.pending, f"10: {agent.host} boots for {effect.id}, which nobody wants"
        self.reboots_done += 1
        self.kill_host(agent.host)
        disk.versions |= disk.staged
        disk.staged.clear()
        waits = {"returns": 3 + 60 * self.chance.uniform(), "late": 1500 + 3000 * self.chance.uniform()}
        self.at(waits.get(fate, 3 * 3600.0), lambda: self.power_on(agent.host))

    def _verify(self, agent: Agent, effect: VerifyHost) -> None:
        known = agent.journal.get(effect.id)
        if known is not None:
            self._send(agent, known)
            return
        ticket = 99 if self.kind else self.chance.integer(100)
        if ticket < 2:
            return  # never answered
        outcome: Outcome = "failed" if ticket < 6 else "unknown" if ticket < 9 else "done"
        agent.journal[effect.id] = self.tell(agent, effect.id, outcome, "by chance" if outcome != "done" else "")

    def restart_agent(self, host: HostId, away_s: float) -> None:
        super().restart_agent(host, away_s)
        self._interrupt(host)

    def kill_host(self, host: HostId) -> None:
        super().kill_host(host)
        self._interrupt(host)

    def _interrupt(self, host: HostId) -> None:
        """Steps end with the agent that runs them."""
        for key in [key for key in self.at_work if key[1] == host]:
            del self.at_work[key]
        for row in self.disk(host).rows.values():
            row.at_work = False
