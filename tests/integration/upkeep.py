"""A local fleet under maintenance: what tests ask of it, and what they read on the disks of its hosts.

What an agent did is read from the markers that it writes before and after each step, not from what the server says.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.house import House, wait

from trainmaster.core.base.ids import HostId, KindName, OperationId, RolloutId, TrainName
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import Value, decode
from trainmaster.core.maintenance.capacity import Share
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.plan import GangPlan
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.demo import maint_scene as scene
from trainmaster.demo.maint_scene import PARTS, Part
from trainmaster.live.adapters import local
from trainmaster.live.agent.row_file import MARKERS, Marker
from trainmaster.live.server.maintenance_resources import (
    GangReport,
    GangRequest,
    MaintenanceChange,
    MaintenanceReport,
    OperationAsk,
    OperationDetail,
    OperationsReport,
    OperationsRequest,
    OperationView,
    RolloutDetail,
    TrainDetail,
    TrainReport,
    TrainRequest,
    VersionRequest,
    Visits,
    VisitView,
)

_EXERCISE = """
[[kind]]
name = "exercise"
disturbs = "reboot"
median_s = 4
p90_s = 8
limit_s = 60

[[kind.steps]]
name = "first"
command = ["sh", "-c", "echo first >> ran; sleep {pause_s}"]
deadline_s = 20

[[kind.steps]]
name = "second"
command = ["sh", "-c", "echo second >> ran"]
deadline_s = 20

[[kind.after_reboot]]
name = "third"
command = ["sh", "-c", "echo third >> ran; sleep {pause_s}"]
deadline_s = 20
"""
"""Each step leaves a line in the host's directory; the first and the last take so long that one can act meanwhile."""
ENDED = ("done", "failed", "off-boarded", "cancelled")
LONG_S = 600.0
"""A cycle that lasts longer than any test."""
_TOP = """catalogue = "catalogue.toml"

[[capacity.book]]
name = "desk"
cluster = "desk"
maintenance_hosts = {most}
failure_hosts = 1
"""


def prepare(deadline_s: float, most: int, pause_s: float = 1.0) -> Callable[[Path, tuple[HostId, ...]], str]:
    """Hosts with version 1 of all parts. `deadline_s`: of an installer; `most`: hosts that may be out at once."""

    def put(state: Path, hosts: tuple[HostId, ...]) -> str:
        (state / "catalogue.toml").write_text(scene.catalogue(PARTS, deadline_s) + _EXERCISE.format(pause_s=pause_s))
        for part in PARTS:
            scene.make_package(state, part, "1", scene.needs_boot(part))
        scene.install_first(state, hosts, PARTS)
        return _TOP.format(most=most)

    return put


class Ran(Value):
    """A leg that an agent carried out."""

    operation: OperationId
    leg: str
    markers: tuple[Marker, ...]
    began_ns: int

    def begun(self) -> int:
        """How often a step was begun."""
        return sum(marker.begun is not None for marker in self.markers)


def legs(house: House, host: HostId) -> list[Ran]:
    """What the agent of a host wrote down, in the order in which it began."""
    found = []
    for path in (local.host_dir(house.state, host) / "operations").glob(f"*/*/{MARKERS}"):
        markers = tuple(decode(line, Marker) for line in path.read_bytes().splitlines())
        leg = path.parent.name.partition("-")[0]
        name = OperationId(path.parent.parent.name)
        began = min(one.stat().st_mtime_ns for one in (path.parent, *path.parent.iterdir()))
        found.append(Ran(operation=name, leg=leg, markers=markers, began_ns=began))
    return sorted(found, key=lambda ran: ran.began_ns)


def request(house: House, host: HostId, *wanted: tuple[Part, str]) -> list[OperationId]:
    """Asks for upgrades of one host, in one request."""
    asks = tuple(
        OperationAsk(spec=OperationSpec(scope=(f"host/{host}",), component=part.name, version=version))
        for part, version in wanted
    )
    body = OperationsRequest(operations=asks, reason="the test asks for it")
    report = house.post("/v1/operations", body, OperationsReport)
    return [item.operation for item in report.items]


def exercise(house: House, host: HostId) -> OperationId:
    """Asks for two steps, a reboot, and a step after it."""
    spec = OperationSpec(kind=KindName("exercise"), scope=(f"host/{host}",))
    body = OperationsRequest(operations=(OperationAsk(spec=spec),), reason="the test asks for it")
    return house.post("/v1/operations", body, OperationsReport).items[0].operation


def ran(house: House, host: HostId) -> list[str]:
    """The lines that steps of exercises left on a host."""
    path = local.host_dir(house.state, host) / "ran"
    return path.read_text().split() if path.exists() else []


def operation(house: House, name: OperationId) -> OperationView:
    return house.get(f"/v1/operations/{name}", OperationDetail).operation


def ended(house: House, *names: OperationId) -> list[OperationView]:
    """Waits for the ends of operations."""

    def look() -> list[OperationView] | None:
        found = [operation(house, name) for name in names]
        return found if all(one.state in ENDED for one in found) else None

    return wait(f"{', '.join(names)} end", look, every_s=0.1)


def visit(house: House, host: HostId) -> VisitView | None:
    found = house.get("/v1/visits", Visits, hosts=host).items
    return found[0] if found else None


def target(house: House, *parts: Part, version: str) -> None:
    for part in parts:
        body = VersionRequest(component=part.name, version=version, reason="proven")
        house.post("/v1/versions", body, MaintenanceReport)


def train(house: House, name: str, hosts: str, *parts: Part, cycle_s: float = LONG_S, emergency: bool = False) -> None:
    """Declares a train that takes one host a stop."""
    wish = TrainWish(
        name=TrainName(name),
        hosts=hosts,
        domain_size=Share(hosts=1),
        cycle=seconds(cycle_s),
        components=tuple(part.name for part in parts),
        emergency=emergency,
        mode="act",
    )
    report = house.post("/v1/trains", TrainRequest(train=wish, reason="the test asks for it"), TrainReport)
    assert report.changed, report


def abort(house: House, name: str) -> None:
    house.post(f"/v1/trains/{name}/abort", MaintenanceChange(reason="the test is over"), MaintenanceReport)


def gang(house: House, job: str, part: Part, version: str) -> GangPlan:
    """Plans an upgrade of all hosts of a job, and asks for just that."""
    body = GangRequest(job=job, component=part.name, version=version, reason="the test asks for it")
    plan = house.post("/v1/gang-upgrades", body.but(dry_run=True), GangReport).plan
    asked = body.but(check_index=plan.index, check_plan=plan.fingerprint)
    return house.post("/v1/gang-upgrades", asked, GangReport).plan


def train_of(house: House, name: str) -> TrainDetail:
    return house.get(f"/v1/trains/{name}", TrainDetail)


def rollout_of(house: House, name: RolloutId) -> RolloutDetail:
    return house.get(f"/v1/rollouts/{name}", RolloutDetail)


def versions(house: House, host: HostId) -> dict[str, str]:
    return {str(name): version for name, version in house.host(host).versions.items()}


def wait_long(what: str, look: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)
