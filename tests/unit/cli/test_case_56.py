"""A flaky host is not put back by a range: the case in `tests/cases/56-flaky-node-resumed-by-range`."""

from pathlib import Path

from trainmaster.core.base.hostlist import fold, parse
from trainmaster.core.base.ids import BootId, ClusterId, HostId, Owner, PodId, RackId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.commands import plan_resume
from trainmaster.core.engine import Engine
from trainmaster.core.fleet.events import AgentRegistered, DrainRequested, FleetDeclared, ResumeRequested
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.recovery.events import EffectEnded

CASE = Path(__file__).parents[2] / "cases" / "56-flaky-node-resumed-by-range"
ADMIN, USER = Owner("person:admin"), Owner("person:user")
FLEET = parse("gpu-[120-125]")


def ready(names: tuple[HostId, ...]) -> Engine:
    """Verified hosts."""
    engine = Engine()
    engine.handle(
        FleetDeclared(
            at=Instant(1),
            by=ADMIN,
            hosts=tuple(
                HostSpec(id=name, cluster=ClusterId("c"), pod=PodId("p"), rack=RackId("r"), platform="laptop", gpus=4)
                for name in names
            ),
        )
    )
    for name in names:
        effects = engine.handle(
            AgentRegistered(
                at=Instant(2), host=name, session=SessionId("s1"), boot=BootId("b1"), address="10.0.0.1", attempts=()
            )
        )
        for effect in effects:
            engine.handle(EffectEnded(at=Instant(3), host=name, effect=effect.id, outcome="done"))
    assert all(host.state is HostState.READY for host in engine.state.hosts.values())
    return engine


def drain(engine: Engine, hosts: str, by: Owner, reason: str) -> None:
    engine.handle(DrainRequested(at=Instant(4), hosts=parse(hosts), reason=reason, by=by))


def test_a_range_lifts_the_own_holds_only() -> None:
    """1. The user holds gpu-125, which is often flaky. 2. The admin drains gpu-[121-124]. 3. The admin resumes the
    range. 4. 121 to 124 come back through verification; 125 stays out, and the answer says who holds it and why."""
    engine = ready(FLEET)
    drain(engine, "gpu-125", USER, "often flaky: segmentation fault in task 0")
    drain(engine, "gpu-[121-124]", ADMIN, "drained this morning")
    verb, hosts = (CASE / "request.txt").read_text().split()
    assert verb == "resume"
    items = plan_resume(engine.state, parse(hosts), ADMIN)
    assert fold(item.host for item in items if item.changed) == "gpu-[121-124]"
    assert [item.host for item in items if item.refused] == ["gpu-125"]
    assert items[-1].sentence == (
        "held by person:user: often flaky: segmentation fault in task 0; only the owner lifts a hold"
    )
    touched = tuple(item.host for item in items if item.changed)
    engine.handle(ResumeRequested(at=Instant(5), hosts=touched, reason="morning is over", by=ADMIN))
    states = {name: host.state for name, host in engine.state.hosts.items()}
    assert states[HostId("gpu-125")] is HostState.OUT_PLANNED
    assert {states[name] for name in touched} == {HostState.VERIFYING}


def test_a_hold_survives_even_an_event_that_names_its_host() -> None:
    """1. The user holds gpu-125. 2. A resume by the admin reaches the engine for it, past any plan. 3. It stays out."""
    engine = ready(FLEET)
    drain(engine, "gpu-125", USER, "often flaky")
    engine.handle(ResumeRequested(at=Instant(5), hosts=parse("gpu-[121-125]"), reason="all back", by=ADMIN))
    flaky = engine.state.hosts[HostId("gpu-125")]
    assert flaky.state is HostState.OUT_PLANNED
    assert [hold.owner for hold in flaky.holds] == [USER]


def test_as_wanted_already_is_not_refused() -> None:
    engine = ready(FLEET)
    [item] = plan_resume(engine.state, (HostId("gpu-120"),), ADMIN)
    assert (item.changed, item.refused) == (False, False)
