"""The state of a server, for simulations: who may have it, and that it changes nothing."""

from pathlib import Path

from tests.unit.server.maintenance_house import ME, MaintenanceHouse, during

from trainmaster.core.base.ids import ComponentName
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.engine import Engine
from trainmaster.core.events import OperationRequested
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.live.server.maintenance_resources import OperationAsk, OperationsReport, OperationsRequest
from trainmaster.twin.whatif import what_if

SPEC = OperationSpec(component=ComponentName("nic"), version="2", scope=("host/h1",), reason="try")


def test_a_simulation_from_the_state_does_not_change_it(tmp_path: Path) -> None:
    """1. An operator gets the state, canonical, of this index; a viewer does not. 2. A plan is simulated from it: the
    operation would be op-1, and ends. 3. The server has the same state and the same log as before. 4. Asked for in
    earnest, the operation is op-1."""

    async def act(house: MaintenanceHouse) -> None:
        refused = await house.http.get("/v1/snapshot", headers=house.headers("viewer"))
        assert refused.status_code == 403
        answer = await house.http.get("/v1/snapshot", headers=house.headers("operator"))
        assert answer.status_code == 200
        engine = house.runtime.engine
        index, state = engine.index, engine.snapshot()
        assert answer.content == state
        assert Engine.restore(answer.content).snapshot() == state
        report = what_if(
            answer.content,
            lambda engine: iter([OperationRequested(at=engine.state.now, spec=SPEC, by=ME)]),
            Duration(2 * HOUR),
            (1, 2),
            0.0,
        )
        (planned,) = report.operations
        assert planned.operation == "op-1"
        assert planned.done + planned.ended_otherwise == 2
        assert report.index == index
        assert (engine.index, engine.snapshot()) == (index, state)
        assert len(house.runtime.read(1, 10_000)) == index
        asked = OperationsRequest(operations=(OperationAsk(spec=SPEC),))
        done = await house.post("/v1/operations", asked, OperationsReport)
        assert [item.operation for item in done.items] == ["op-1"]

    during(tmp_path, act)
