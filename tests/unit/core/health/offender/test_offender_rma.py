"""Parts that go back to their vendor, told through the engine."""

import pytest
from tests.unit.core.health.offender.offender_world import gpu, slot
from tests.unit.fixtures import OPS, Stage, host_spec, stage

from trainmaster.core.base.ids import BootId, HostId, RmaId
from trainmaster.core.base.machine import IllegalTransition
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import encode
from trainmaster.core.engine import Engine
from trainmaster.core.events import FleetDeclared, HealthReported, PartsSeen, RmaClosed, RmaOpened
from trainmaster.core.health.book import Health, Rma
from trainmaster.core.health.events import RmaOutcome
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import rma as module
from trainmaster.core.health.offender.advice import advice
from trainmaster.core.health.offender.notes import of_slot
from trainmaster.core.health.offender.rma import RETURNED_PART, RMA_MACHINE, RmaState, advice_of, bundle, state_of
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict

H1, H2 = HostId("h1"), HostId("h2")
SLOT = slot(1)


def look(play: Stage, name: str, *parts: Part, chassis: str = "") -> None:
    chassis = chassis or f"C{name}"
    play.tell(PartsSeen(at=play.now, host=HostId(name), boot=BootId("b1"), chassis=chassis, parts=parts))


def report(play: Stage, name: str, unit: str, rule: str = "xid-64") -> None:
    finding = Finding(
        unit=unit, verdict=Verdict.WATCH, remedy=Remedy.RESET_GPU_LATER, rule=rule, summary="remap failed",
        evidence=("NVRM: Xid (PCI:0000:01:00): 64, pid=1",), lines=(7,),
    )  # fmt: skip
    play.tell(
        HealthReported(at=play.now, host=HostId(name), boot=BootId("b1"), probe="kernel-log", findings=(finding,))
    )


def send(play: Stage, name: str = "h1", unit: str = SLOT) -> Rma:
    play.tell(RmaOpened(at=play.now, host=HostId(name), unit=unit, by=OPS, reason="third remap failure"))
    return health(play).rmas[RmaId(f"rma-{health(play).returned}")]


def close(play: Stage, rma: Rma, outcome: RmaOutcome) -> None:
    play.tell(RmaClosed(at=play.now, rma=rma.id, outcome=outcome, by=OPS, reason="letter of the vendor"))


def health(play: Stage) -> Health:
    return play.engine.state.health


def told(play: Stage, name: str) -> list[str]:
    its = health(play).standings.get(HostId(name), ())
    return [each.finding.summary for each in its if each.finding.rule == RETURNED_PART]


def pair() -> Stage:
    play = stage(2)
    look(play, "h1", gpu(1, "GP"), gpu(2, "GQ"))
    look(play, "h2", gpu(1, "GR"), gpu(2, "GS"))
    return play


def test_from_the_fault_to_the_successor() -> None:
    """1. A GPU is sent back: the return has its serial and the proof of the slot, not of its neighbour. 2. Another one
    is put in: it is the successor, and closing is advised. 3. It is closed; the new part has a clean book, the slot has
    not."""
    play = pair()
    report(play, "h1", SLOT)
    report(play, "h1", slot(2), "xid-63")
    rma = send(play)
    assert (rma.serial, rma.model, state_of(rma)) == ("GP", "H100", RmaState.OPEN)
    assert [each.rule for each in rma.evidence] == ["xid-64"]
    assert rma.evidence[0].evidence
    assert advice_of(rma).startswith("exchange GP")
    look(play, "h1", gpu(1, "GN"), gpu(2, "GQ"))
    assert (rma.successor, state_of(rma)) == ("GN", RmaState.SUCCEEDED)
    assert "GN is in" in advice_of(rma)
    close(play, rma, "replaced")
    assert (state_of(rma), rma.outcome, advice_of(rma)) == (RmaState.CLOSED, "replaced", "")
    assert told(play, "h1") == []
    assert Engine.restore(play.engine.snapshot()).snapshot() == play.engine.snapshot()


def test_one_return_at_a_time_for_a_slot() -> None:
    """1. It is opened twice: one return. 2. Closed twice: a defect, and it is named."""
    play = pair()
    rma = send(play)
    assert send(play) is rma
    assert len(health(play).history.returns) == 1
    close(play, rma, "withdrawn")
    with pytest.raises(IllegalTransition):
        close(play, rma, "replaced")


def test_the_part_that_comes_back_to_its_slot_has_no_successor() -> None:
    play = pair()
    rma = send(play)
    look(play, "h1", gpu(1, "GN"), gpu(2, "GQ"))
    look(play, "h1", gpu(1, "GP"), gpu(2, "GQ"))
    assert (rma.successor, state_of(rma)) == ("", RmaState.OPEN)


def test_a_part_without_a_serial() -> None:
    """1. Its swap shows only by another model; then it is known that somebody put another one in. 2. Of a return of the
    host as a whole nothing is known but its name."""
    play = stage(1)
    look(play, "h1", gpu(1))
    rma = send(play)
    look(play, "h1", gpu(1))
    assert rma.successor == ""
    look(play, "h1", gpu(1, "", "H200"))
    assert rma.successor == "unknown"
    whole = send(play, unit="host")
    assert (whole.serial, whole.unit) == ("", "host")


def test_a_return_follows_its_host_to_another_name() -> None:
    play = pair()
    rma = send(play)
    play.lose("h1")
    play.tell(FleetDeclared(at=play.now, hosts=(host_spec("h9"),), by=OPS))
    play.ready("h9")
    look(play, "h9", gpu(1, "GN"), gpu(2, "GQ"), chassis="Ch1")
    assert (rma.host, rma.successor) == ("h9", "GN")


def test_found_without_fault() -> None:
    """1. A part was sent back and found without fault; it is back in its slot, and named. 2. The slot fails again: not
    another part is asked for, but another look. 3. The part shows up in another host, where it is named too."""
    play = pair()
    rma = send(play)
    look(play, "h1", gpu(1, "GN"), gpu(2, "GQ"))
    close(play, rma, "no-fault-found")
    found = advice(health(play).history, H1, SLOT, "GN", play.now, health(play).conduct.limits)
    assert found is not None
    assert (found.remedy, found.reason.token) == (Remedy.TRIAGE, Token.NO_FAULT_FOUND)
    assert found.reason.numbers["returned"] == 1
    assert told(play, "h2") == []
    look(play, "h2", gpu(1, "GP"), gpu(2, "GS"))
    (sentence,) = told(play, "h2")
    assert "GP was found without fault as rma-1, sent from " + SLOT + " of h1" in sentence
    look(play, "h2", gpu(1, "GR"), gpu(2, "GS"))
    assert told(play, "h2") == []


@pytest.mark.parametrize("outcome", ["replaced", "repaired", "no-fault-found", "withdrawn"])
def test_a_part_that_was_sent_back_is_named_where_it_shows_up(outcome: RmaOutcome) -> None:
    play = pair()
    rma = send(play)
    close(play, rma, outcome)
    play.lose("h1")
    look(play, "h2", gpu(1, "GP"), gpu(2, "GS"))
    (standing,) = health(play).standings[H2]
    assert (standing.finding.unit, standing.finding.verdict, standing.finding.offence) == (SLOT, Verdict.WATCH, False)


def test_a_part_that_should_be_on_its_way() -> None:
    """It waits in its slot: nothing to say. It runs in another host: said."""
    play = pair()
    send(play)
    look(play, "h1", gpu(1, "GP"), gpu(2, "GQ"))
    assert told(play, "h1") == []
    play.lose("h1")
    look(play, "h2", gpu(1, "GP"), gpu(2, "GS"))
    assert "is on its way back" in told(play, "h2")[0]


def test_the_bundle() -> None:
    """1. A part failed in two hosts and was sent back once before. 2. The bundle has all of that, and of the slot what
    was there with other parts. 3. The same bytes each time, also after a restart."""
    play = pair()
    report(play, "h2", SLOT)
    first = send(play, "h2")
    close(play, first, "repaired")
    play.lose("h2")
    look(play, "h1", gpu(1, "GR"), gpu(2, "GQ"))
    rma = send(play, "h1")
    made = bundle(health(play), rma.id)
    assert (made.serial, made.unit, made.host) == ("GR", SLOT, "h1")
    assert [each.rma for each in made.former_returns] == ["rma-1"]
    assert {(each.host, each.part.serial) for each in made.tenancies} == {("h1", "GP"), ("h1", "GR"), ("h2", "GR")}
    assert made.slot_incidents == of_slot(health(play).history, H1, SLOT).incidents
    again = bundle(Engine.restore(play.engine.snapshot()).state.health, rma.id)
    assert encode(made) == encode(again)


def test_closed_returns_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. More returns are closed than are kept. 2. The oldest are gone, with their proof; that the part was sent back
    is still known, and numbers go on."""
    monkeypatch.setattr(module, "CLOSED_KEPT", 3)
    play = pair()
    for _ in range(5):
        close(play, send(play), "repaired")
    send(play)
    assert list(health(play).rmas) == ["rma-3", "rma-4", "rma-5", "rma-6"]
    assert [each.rma for each in health(play).history.returns] == [f"rma-{number}" for number in range(1, 7)]


def test_the_table_has_one_end() -> None:
    assert RMA_MACHINE.final_states() == {RmaState.CLOSED}
