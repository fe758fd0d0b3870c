"""History as the engine writes it: what it sees of hosts and jobs, and what agents tell of parts."""

from tests.unit.core.health.offender.offender_world import gpu, slot
from tests.unit.fixtures import OPS, Stage, failure, host_spec, job_spec, stage

from trainmaster.core.base.ids import BootId, HostId, Owner
from trainmaster.core.base.value import decode, encode
from trainmaster.core.engine import Engine
from trainmaster.core.events import FleetDeclared, LeaseTaken, PartsSeen
from trainmaster.core.health.offender.identity import part_in
from trainmaster.core.health.offender.notes import of_host
from trainmaster.core.health.offender.place import height_of, place_of
from trainmaster.core.health.part import Part

H1, H2, H9 = HostId("h1"), HostId("h2"), HostId("h9")


def look(play: Stage, name: str, chassis: str, *parts: Part, boot: str = "b1") -> None:
    play.tell(PartsSeen(at=play.now, host=HostId(name), boot=BootId(boot), chassis=chassis, parts=parts))


def test_a_loss_and_the_job_that_it_cost() -> None:
    """1. A job runs on two hosts; one dies. 2. Both are written down against the host that died, with its place; the
    other one has nothing."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.lose("h2")
    history = play.engine.state.health.history
    told = [(each.kind, each.nodes, each.job, each.place) for each in of_host(history, H2).incidents]
    assert told == [("job-failed", 2, attempt.job, "c-r1/2"), ("lost", 0, None, "c-r1/2")]
    assert of_host(history, H1).first is None
    assert set(history.first_seen) == {"h1", "h2", "h3"}


def test_a_job_that_fails_by_itself_is_no_offence_of_its_host() -> None:
    """1. A script fails on one host. 2. It is noted, since several scripts that fail on one host tell something, but
    not against it. 3. What ran there alone is counted."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.exit(attempt, 0, "failed", failure("ValueError", "nan"))
    history = play.engine.state.health.history
    (told,) = of_host(history, H1).incidents
    assert (told.kind, told.nodes, told.offence) == ("job-failed", 1, False)
    assert history.alone == {H1: [(0, 1)]}


def test_planned_work_is_no_offence() -> None:
    """1. A person drains a host; it goes out, is rebooted, and comes back. 2. Nothing stands against it."""
    play = stage(1)
    play.drain("h1")
    play.register("h1", boot="b2", session="s2")
    play.resume("h1")
    play.settle()
    assert play.states("h1") == ["ready"]
    assert of_host(play.engine.state.health.history, H1).first is None


def test_a_rename_through_the_engine() -> None:
    """1. h1 is lost twice. 2. It is declared under another name and its agent registers. 3. The history went along."""
    play = stage(2)
    look(play, "h1", "C1", gpu(1, "GP"))
    play.lose("h1")
    play.tell(FleetDeclared(at=play.now, hosts=(host_spec("h9"),), by=OPS))
    play.ready("h9")
    look(play, "h9", "C1", gpu(1, "GP"))
    history = play.engine.state.health.history
    assert [each.host for each in of_host(history, H9).incidents] == [H1]
    assert history.formerly == {H9: [H1]}
    assert decode(encode(history), type(history)) == history
    assert Engine.restore(play.engine.snapshot()).snapshot() == play.engine.snapshot()


def test_clones_are_told_by_who_is_there() -> None:
    """1. Two agents that are both up tell one chassis and one GPU. 2. Neither identifies anything. 3. Just after a
    restart of the server, when nobody is heard yet, the same holds."""
    play = stage(2)
    look(play, "h1", "C1", gpu(1, "GP"))
    play.tell(LeaseTaken(at=play.now, lease=2, by=Owner("policy:server")))
    play.register("h2", session="s2")
    look(play, "h2", "C1", gpu(1, "GP"))
    history = play.engine.state.health.history
    assert history.chassis == {H1: "", H2: ""}
    assert part_in(history, H1, slot(1)) == part_in(history, H2, slot(1)) == gpu(1)


def test_places() -> None:
    """The n-th host of a rack has the n-th place, whatever other racks have."""
    play = Stage(host_spec("h1"), host_spec("h5", rack="r2"), host_spec("h2"), host_spec("h6", rack="r2"))
    hosts = play.engine.state.hosts
    places = [place_of(hosts, HostId(name)) for name in ("h1", "h2", "h5", "h6", "gone")]
    assert places == ["c-r1/1", "c-r1/2", "c-r2/1", "c-r2/2", ""]
    assert [height_of(place) for place in places] == ["1", "2", "1", "2", ""]
