"""Maintenance on real hosts: visits, trains and rollouts over agents, installers and reboots that really run."""

from collections.abc import Iterator

import pytest
from tests.integration import upkeep
from tests.integration.house import House, job, running, wait

from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.demo import maint_scene as scene
from trainmaster.demo.maint_scene import BIOS, DRIVER, KERNEL, NIC, RUNTIME, STORAGE, Part, needs_boot
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import is_alive
from trainmaster.live.server.maintenance_resources import RolloutReport, RolloutRequest
from trainmaster.live.server.resources import Events, History

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

DEADLINE_S = 4.0
"""Of an installer."""
H1, H2, H3 = HOSTS = HostId("h1"), HostId("h2"), HostId("h3")
FIVE = (BIOS, KERNEL, NIC, DRIVER, STORAGE)
STEPS = 60


@pytest.fixture(scope="module")
def fleet() -> Iterator[House]:
    with running(hosts=3, prepare=upkeep.prepare(DEADLINE_S, most=3)) as house:
        yield house


@pytest.fixture
def house(fleet: House) -> House:
    fleet.settle()
    return fleet


def states(house: House, host: HostId, since: int) -> list[str]:
    """The states that a host entered after an event of the log."""
    at = house.get("/v1/events", Events, since=since, limit=1).items[0].event.at
    items = house.get(f"/v1/hosts/{host}/history", History).items
    return [chapter.end for chapter in items if chapter.at >= at]


def boots(house: House, host: HostId, since: int) -> set[str]:
    """Under which boot ids its agent registered after an event of the log."""
    found: set[str] = set()
    while (page := house.get("/v1/events", Events, since=since, limit=500)).items:
        events = [item.event for item in page.items]
        found |= {getattr(event, "boot", "") for event in events if getattr(event, "host", "") == host}
        since = page.next
    return found - {""}


def test_five_updates_in_one_visit(house: House) -> None:
    """1. Five updates are asked for in some order; two want a reboot, and the third by the catalogue
    fails. 2. The host is drained once and
    booted once; all is carried out in order, the third undone. 3. It was not in production in between."""
    for part in FIVE:
        scene.make_package(house.state, part, "2", "fail" if part is NIC else needs_boot(part))
    before, boot = house.index(), house.host(H1).boot
    names = upkeep.request(house, H1, *((part, "2") for part in (BIOS, *reversed(FIVE[1:]))))
    found = {one.component: one for one in upkeep.ended(house, *names)}
    told = [found[part.name] for part in FIVE]
    assert [one.state for one in told] == ["done", "done", "failed", "done", "done"], told
    assert told[2].reason is not None
    assert "the installer of nic-firmware 2 failed half way" in told[2].reason.sentence
    assert told[2].reason.sentence.endswith("and was undone")
    legs = [(ran.operation, ran.leg) for ran in upkeep.legs(house, H1)]
    applied, checked = ([(one.id, leg) for one in told] for leg in ("apply", "check"))
    assert legs == [*applied[:3], (told[2].id, "undo"), *applied[3:], *checked[:2]]
    assert {ran.begun() for ran in upkeep.legs(house, H1)} == {1}
    assert states(house, H1, before + 1) == ["draining", "out-planned", "verifying", "ready"]
    assert len(boots(house, H1, before + 1) - {boot}) == 1
    had = {"bios": "2", "kernel-image": "2", "nic-firmware": "1", "driver-stack": "2", "storage-client": "2"}
    assert upkeep.versions(house, H1) == {**had, "runtime-image": "1"}


def test_installer_that_lies(house: House) -> None:
    """1. An installer ends with 0 and changes nothing. 2. The operation failed: what is observed counts."""
    scene.make_package(house.state, NIC, "3", "lie")
    (lied,) = upkeep.ended(house, *upkeep.request(house, H2, (NIC, "3")))
    assert lied.state == "failed"
    assert lied.reason is not None
    assert "observed 1, wanted 3" in lied.reason.sentence
    assert upkeep.versions(house, H2)["nic-firmware"] == "1"
    house.wait_host(H2, "is back", lambda view: view.state == "ready")


def test_installer_that_hangs_does_not_stop_the_train(house: House) -> None:
    """1. A train brings an update whose installer hangs on h1. 2. Past its deadline its processes are ended, the
    operation failed and was undone, h1 proved that it works. 3. The train went on to the others, and its proof is
    whole. 4. A repaired package is installed by hand."""
    scene.make_package(house.state, STORAGE, "3", "hang", on=(H1,))
    upkeep.target(house, STORAGE, version="3")
    upkeep.train(house, "hangs", "h[1-3]", STORAGE, cycle_s=1.0)
    wait("the installer runs", lambda: any("storage-client 3" in line for line in installers(house, H1)))
    upkeep.wait_long("the train went round", lambda: upkeep.train_of(house, "hangs").proofs)
    pause_all(house, "hangs")
    proof = upkeep.train_of(house, "hangs").proofs[0]
    assert (proof.visited, proof.missed) == (3, ())
    assert [upkeep.versions(house, host)["storage-client"] for host in (H2, H3)] == ["3", "3"]
    assert upkeep.versions(house, H1)["storage-client"] != "3"
    last = [ran for ran in upkeep.legs(house, H1) if ran.leg == "apply"][-1]
    processes = [marker.process for marker in last.markers if marker.process is not None]
    assert processes
    assert not [process for process in processes if is_alive(process)]
    assert any(marker.end is not None and marker.end.overdue for marker in last.markers)
    scene.make_package(house.state, STORAGE, "3")
    (mended,) = upkeep.ended(house, *upkeep.request(house, H1, (STORAGE, "3")))
    assert mended.state == "done", mended


def installers(house: House, host: HostId) -> list[str]:
    """What installers said on a host."""
    folder = local.host_dir(house.state, host) / "operations"
    return [path.read_text() for path in folder.glob("*/*/*-install.log")]


def pause_all(house: House, name: str) -> None:
    """Ends a train, so that it disturbs no other test, and waits for what it began."""
    upkeep.abort(house, name)
    house.settle()


@pytest.mark.parametrize("moment", ["applying", "rebooting", "checking"])
def test_server_dies_in_a_visit(house: House, moment: str) -> None:
    """1. The server gets SIGKILL while a host applies, boots, or is checked. 2. The next server goes on with the visit:
    each step ran once, the host was booted once."""
    before, boot, had = house.index(), house.host(H2).boot, len(upkeep.ran(house, H2))
    name = upkeep.exercise(house, H2)
    wait(f"it is {moment}", lambda: (visit := upkeep.visit(house, H2)) is not None and visit.phase == moment)
    server = local.process_of(house.state, "server")
    local.kill_server(house.state)
    wait("another server", lambda: local.process_of(house.state, "server") not in (None, server))
    (done,) = upkeep.ended(house, name)
    assert done.state == "done", done
    assert upkeep.ran(house, H2)[had:] == ["first", "second", "third"]
    assert len(boots(house, H2, before + 1) - {boot}) == 1
    assert states(house, H2, before + 1) == ["draining", "out-planned", "verifying", "ready"]


def test_agent_dies_in_a_step(house: House) -> None:
    """1. The agent gets SIGKILL while the first step runs. 2. The next one ends what is left of it, and does it again;
    what follows runs once. 3. The same with a host that loses its power: it boots twice in all."""
    before, boot, had = house.index(), house.host(H3).boot, len(upkeep.ran(house, H3))
    name = upkeep.exercise(house, H3)
    wait("the first step runs", lambda: len(upkeep.ran(house, H3)) > had)
    local.kill_agent(house.state, H3)
    (done,) = upkeep.ended(house, name)
    assert done.state == "done", done
    assert upkeep.ran(house, H3)[had:] == ["first", "first", "second", "third"]
    assert len(boots(house, H3, before + 1) - {boot}) == 1
    house.settle()
    before, boot, had = house.index(), house.host(H3).boot, len(upkeep.ran(house, H3))
    name = upkeep.exercise(house, H3)
    wait("the first step runs", lambda: len(upkeep.ran(house, H3)) > had)
    local.reboot_host(house.state, H3)
    (done,) = upkeep.ended(house, name)
    assert done.state == "done", done
    assert upkeep.ran(house, H3)[had:] == ["first", "first", "second", "third"]
    assert len(boots(house, H3, before + 1) - {boot}) == 2


def roll_out(house: House, part: Part, version: str, canary: int, dry_run: bool) -> RolloutReport:
    """One failure rejects: of a version that fails on half of the hosts, the test would miss one in twenty."""
    body = RolloutRequest(
        component=ComponentName(part.name),
        version=version,
        canary=canary,
        criteria=Criteria(tolerable=0.005, unacceptable=0.5),
        soak_s=3600.0,
        seed=7,
        reason="the test asks for it",
        dry_run=dry_run,
    )
    return house.post("/v1/rollouts", body, RolloutReport)


def test_failing_version_is_off_boarded(house: House) -> None:
    """1. A version on trial works on one of its two first hosts and lies on the other. 2. It is rejected at that stop,
    and the host that has it is rolled back. 3. The train goes on: everybody got the proven update, the last host saw
    nothing of the rejected one."""
    plan = roll_out(house, NIC, "4", canary=2, dry_run=True).plan
    first, second = sorted(parse(plan.stages[0].new))
    (third,) = set(HOSTS) - {first, second}
    scene.make_package(house.state, NIC, "4", "lie", on=(second,))
    scene.make_package(house.state, DRIVER, "4")
    name = roll_out(house, NIC, "4", canary=2, dry_run=False).rollout
    upkeep.target(house, NIC, version="1")
    upkeep.target(house, DRIVER, version="4")
    upkeep.train(house, "trial", f"{first},{second},{third}", NIC, DRIVER, cycle_s=1.0)
    upkeep.wait_long("the train went round", lambda: upkeep.train_of(house, "trial").proofs)
    wait("the host is rolled back", lambda: upkeep.versions(house, first)["nic-firmware"] == "1")
    pause_all(house, "trial")
    told = upkeep.rollout_of(house, name)
    assert told.rollout.state == "off-boarded"
    assert (told.rollout.operations, told.rollout.operations_failed) == (2, 1)
    assert told.rollout.reason is not None
    assert told.rollout.reason.sentence == "nic-firmware 4 is rejected: 1 of 2 operations failed"
    assert [upkeep.versions(house, host)["driver-stack"] for host in HOSTS] == ["4"] * 3
    assert [upkeep.versions(house, host)["nic-firmware"] for host in HOSTS] == ["1"] * 3
    assert not [text for text in installers(house, third) if "nic-firmware 4" in text]


def test_job_trains_through_a_train_and_a_gang_upgrade(house: House) -> None:
    """1. A job trains while a train brings a reboot to every host, one after the other. 2. It hands over each time, and
    no step is lost. 3. All its hosts get a version that they must agree on together; it goes on behind it. 4. Its
    losses are those of an undisturbed run."""
    for part in (KERNEL, RUNTIME):
        scene.make_package(house.state, part, "5", needs_boot(part))
    name = house.submit(job("upkeep", house.slow(STEPS), spares=1, every=5))
    house.wait_step(name, 3)
    before = {host: house.host(host).boot for host in HOSTS}
    upkeep.target(house, KERNEL, version="5")
    upkeep.train(house, "kernel", "h[1-3]", KERNEL, cycle_s=1.0)
    upkeep.wait_long("the train went round", lambda: upkeep.train_of(house, "kernel").proofs)
    upkeep.abort(house, "kernel")
    proof = upkeep.train_of(house, "kernel").proofs[0]
    assert (proof.visited, proof.worked_on, proof.missed) == (3, 3, ()), proof
    assert [upkeep.versions(house, host)["kernel-image"] for host in HOSTS] == ["5"] * 3
    assert not [host for host in HOSTS if house.host(host).boot == before[host]]
    house.until(name, "it has its spare", lambda detail: len(detail.job.spares) == 1)
    members = house.until(name, "it trains", lambda detail: detail.job.attempt_state == "running").job
    plan = upkeep.gang(house, name, RUNTIME, "5")
    assert (plan.units, plan.steps_lost) == (3, 0)
    house.until(
        name,
        "it trains again",
        lambda detail: detail.job.attempt != members.attempt and detail.job.attempt_state == "running",
    )
    assert [upkeep.versions(house, host)["runtime-image"] for host in HOSTS] == ["5"] * 3
    house.open_gate()
    told = house.finish(name)
    assert told.account.steps_lost_planned == told.account.steps_lost_unplanned == 0
    assert told.account.unplanned_recoveries == 0
    assert told.account.planned_handovers >= 3
    assert house.repeated(name) == 0
    assert house.hexes(name) == house.reference(STEPS)
