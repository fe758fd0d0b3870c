"""Operations on a real local fleet, from the API to an installer that really runs on a host, and back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.house import House, running, wait

from trainmaster.core.base.ids import ComponentName, HostId, KindName, OperationId
from trainmaster.core.base.reasons import Token
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.live.adapters import local
from trainmaster.live.agent.packages import Behaviour, pack
from trainmaster.live.server.maintenance_resources import (
    MaintenanceView,
    OperationAsk,
    OperationDetail,
    OperationsReport,
    OperationsRequest,
)
from trainmaster.live.server.resources import ChangeReport, History, HostsChange, StatusView

pytestmark = [pytest.mark.real, pytest.mark.slow]

CATALOGUE = Path(__file__).parents[2] / "scenarios" / "local-catalogue.toml"
H1, H2 = HostId("h1"), HostId("h2")
KERNEL, CLIENT = ComponentName("kernel-image"), ComponentName("storage-client")
DRIVER = ComponentName("driver-stack")


@pytest.fixture(scope="module")
def fleet() -> Iterator[House]:
    with running(hosts=2, prepare=lambda state, hosts: f'catalogue = "{CATALOGUE}"') as house:
        yield house


@pytest.fixture
def house(fleet: House) -> House:
    fleet.settle()
    return fleet


def packed(house: House, component: ComponentName, version: str, behaviour: Behaviour = "") -> None:
    source = house.state / "source"
    source.mkdir(exist_ok=True)
    (source / "files.txt").write_text("a\n")
    pack(source, house.state / "packages", component, version, behaviour, 0.0)


def upgrade(host: HostId, component: ComponentName, version: str, **more: object) -> OperationSpec:
    return OperationSpec(scope=(f"host/{host}",), component=component, version=version, **more)  # type: ignore[arg-type]


def ask(house: House, *specs: OperationSpec) -> tuple[OperationId, ...]:
    body = OperationsRequest(operations=tuple(OperationAsk(spec=spec) for spec in specs), reason="a test")
    report = house.post("/v1/operations", body, OperationsReport)
    return tuple(item.operation for item in report.items)


def ended(house: House, name: OperationId) -> OperationDetail:
    def look() -> OperationDetail | None:
        detail = house.get(f"/v1/operations/{name}", OperationDetail)
        return detail if detail.operation.ended_at is not None else None

    return wait(f"{name} ends", look)


def test_an_upgrade_with_a_reboot(house: House) -> None:
    """1. A kernel that takes effect with the next boot, and a client, for one host in one request. 2. The host is
    drained, both are installed in order, it boots once, is verified and back. 3. Both versions were observed. 4. The
    other host was never touched, and nothing is left."""
    packed(house, KERNEL, "2.0", "needs-reboot")
    packed(house, CLIENT, "1.0")
    before, other = house.host(H1), house.host(H2)
    since = house.index()
    client, kernel = ask(house, upgrade(H1, CLIENT, "1.0"), upgrade(H1, KERNEL, "2.0"))
    for name, version in ((kernel, "2.0"), (client, "1.0")):
        detail = ended(house, name)
        assert (detail.operation.state, detail.observed, detail.operation.reason) == ("done", version, None)
    after = house.wait_host(H1, "is ready", lambda view: view.state == "ready")
    assert after.boot != before.boot
    assert (after.versions, after.visit, after.holds) == ({KERNEL: "2.0", CLIENT: "1.0"}, None, ())
    edges = [
        chapter.end for chapter in house.get(f"/v1/hosts/{H1}/history", History).items if chapter.at > before.since
    ]
    assert edges.count("out-planned") == 1
    assert edges[-2:] == ["verifying", "ready"]
    assert sum("its agent registered" in sentence for sentence in house.sentences(since + 1)) == 1
    assert (house.host(H2).boot, house.host(H2).since) == (other.boot, other.since)
    summary = house.get("/v1/maintenance", MaintenanceView)
    assert (summary.live, summary.visits, summary.ended["done"]) == ({}, {}, 2)


def test_an_installer_that_lies(house: House) -> None:
    """1. A sound version. 2. The installer of the next one says that all is well, and does nothing. 3. The operation
    ends as failed, with what was observed; it was undone. 4. The host is back with the old version."""
    packed(house, CLIENT, "3.0")
    packed(house, CLIENT, "4.0", "lie")
    (sound,) = ask(house, upgrade(H2, CLIENT, "3.0"))
    assert ended(house, sound).operation.state == "done"
    (lie,) = ask(house, upgrade(H2, CLIENT, "4.0"))
    detail = ended(house, lie)
    assert detail.operation.state == "failed"
    reason = detail.operation.reason
    assert reason is not None
    assert reason.token is Token.STEPS_FAILED
    assert "observed 3.0, wanted 4.0" in reason.sentence
    assert reason.sentence.endswith("and was undone")
    view = house.wait_host(H2, "is ready", lambda view: view.state == "ready")
    assert view.versions[CLIENT] == "3.0"


def test_an_undo_that_fails(house: House) -> None:
    """1. A sound version; then its package and its files are gone. 2. The installer of the next one fails, and there is
    nothing to go back to. 3. The operation says both; the host passes its verification and is held, and the status says
    so. 4. A person lifts the hold by the name of its owner, and the host returns."""
    packed(house, CLIENT, "5.0")
    packed(house, CLIENT, "6.0", "fail")
    (sound,) = ask(house, upgrade(H2, CLIENT, "5.0"))
    assert ended(house, sound).operation.state == "done"
    shutil.rmtree(house.state / "packages" / CLIENT / "5.0")
    for path in (local.host_dir(house.state, H2) / "components" / CLIENT / "5.0").iterdir():
        path.unlink() if path.is_file() else shutil.rmtree(path)
    (bad,) = ask(house, upgrade(H2, CLIENT, "6.0"))
    reason = ended(house, bad).operation.reason
    assert reason is not None
    assert reason.token is Token.UNDO_FAILED
    owner = f"policy:undo/{bad}"
    held = house.wait_host(H2, "is held", lambda view: view.visit is None and view.state == "out-planned")
    assert [str(hold.owner) for hold in held.holds] == [owner]
    wanted = [one for one in house.get("/v1/status", StatusView).needs_attention if one.token is Token.UNDO_FAILED]
    assert [one.sentence.startswith(f"{H2} is held by {owner}: {bad} could not be undone") for one in wanted] == [True]
    body = HostsChange(hosts=H2, reason="looked at", owner=owner)
    house.post("/v1/hosts/resume", body, ChangeReport)
    house.wait_host(H2, "is ready", lambda view: view.state == "ready")


def test_an_undo_where_nothing_was_before(house: House) -> None:
    """1. The installer of a component that the host never had fails. 2. The undo takes away what it left, and says so;
    the host has no version of it."""
    packed(house, DRIVER, "1.0", "fail")
    (bad,) = ask(house, upgrade(H1, DRIVER, "1.0"))
    reason = ended(house, bad).operation.reason
    assert reason is not None
    assert reason.sentence.endswith("and was undone: no version was known before, so none is there now")
    view = house.wait_host(H1, "is ready", lambda view: view.state == "ready")
    assert DRIVER not in view.versions
    assert not (local.host_dir(house.state, H1) / "components" / DRIVER).exists()


def test_what_comes_after_waits_for_it(house: House) -> None:
    """1. A check of one host, then of the other, in one request; the second names the key of the first. 2. They ran one
    after the other."""
    check = KindName("deep-check")
    first = OperationAsk(spec=OperationSpec(kind=check, scope=(f"host/{H1}",)), key="first")
    second = OperationAsk(spec=OperationSpec(kind=check, scope=(f"host/{H2}",), after=(OperationId("first"),)))
    body = OperationsRequest(operations=(first, second), reason="a test")
    report = house.post("/v1/operations", body, OperationsReport)
    earlier, later = (ended(house, item.operation).operation for item in report.items)
    assert (earlier.state, later.state) == ("done", "done")
    assert earlier.ended_at is not None
    assert later.started_at is not None
    assert later.started_at >= earlier.ended_at
