"""What a plan would do: both branches, their differences, and that nothing of it reaches the real fleet."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fakes.api import AT, TOKEN, FakeApi
from tests.twin.logs import hours, lived
from trainmaster import __version__
from trainmaster.cli.main import main
from trainmaster.cli.maint_ask import Made, keep_plan
from trainmaster.cli.scenariofile import load
from trainmaster.cli.twin_what_if_asks import events_of
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.value import decode, encode
from trainmaster.core.engine import Engine
from trainmaster.live.maintfile import Asked, keyed
from trainmaster.live.maintfile import load as load_plan
from trainmaster.live.server.resources import StatusView
from trainmaster.twin.paired import Compared
from trainmaster.twin.whatif import WhatIfReport, what_if

HERE = Path(__file__).parent
PLAN = HERE / "plan.toml"
STATUS = StatusView(
    index=1,
    at=AT,
    server_pid=1,
    lease=1,
    version=__version__,
    started_at=AT,
    hosts_by_state={},
    gpus=0,
    jobs_by_state={},
    needs_attention=(),
)


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    return lived(load(HERE / "small.toml").but(duration=hours(3), seed=5)).world.engine.snapshot()


@pytest.fixture
def api(snapshot: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A server that has this state; told of by the environment."""
    (tmp_path / "token").write_text(TOKEN)
    with FakeApi() as api:
        api.answer("GET", "/v1/snapshot", snapshot.decode())
        api.answer("GET", "/v1/status", STATUS)
        monkeypatch.setenv("TRAINMASTER_SERVER", api.url)
        monkeypatch.setenv("TRAINMASTER_TOKEN_FILE", str(tmp_path / "token"))
        yield api


def simulate(snapshot: bytes, asked: Asked, seeds: int = 3) -> WhatIfReport:
    return what_if(snapshot, lambda engine: events_of(engine, asked), hours(24), range(1, seeds + 1), 6.5)


def figure(report: WhatIfReport, name: str) -> Compared:
    return next(row for row in report.figures if row.figure == name)


def test_a_plan_of_everything(snapshot: bytes) -> None:
    """1. Operations one after another, on a rack, a proven version, a rollout and a train. 2. All operations are done,
    in order; the train visits its units; the rollout has a state in each seed. 3. What costs something is found to."""
    report = simulate(snapshot, keyed(load_plan(PLAN), "test"))
    assert report.simulated
    assert len(report.operations) == 9
    assert all(row.done == 3 for row in report.operations)
    by_place = {(row.component or row.kind, row.scope[0]): row for row in report.operations}
    before, after = by_place["bios", "host/a03"], by_place["nic-firmware", "host/a03"]
    assert before.done_last_at is not None
    assert after.done_at is not None
    assert before.done_at is not None
    assert report.began_at < before.done_at < after.done_at
    (train,), (rollout,) = report.trains, report.rollouts
    assert (train.units, train.visited) == (32, 32.0)
    assert rollout.pool == 16
    assert sum(rollout.states.values()) == 3
    assert figure(report, "operations done").verdict == "more"
    assert figure(report, "operations done").difference >= 9 + 31
    assert figure(report, "stops of jobs").difference > 0
    assert figure(report, "units in service, mean: a").difference < 0
    assert figure(report, "failures").verdict == "equal"
    assert report.jobs
    assert len(report.books) == 2
    assert all(len(book.with_plan) == len(report.sample_times_s) for book in report.books)


def test_no_plan_is_no_difference(snapshot: bytes) -> None:
    """1. Nothing is asked for. 2. Both branches are the same to the last figure."""
    report = simulate(snapshot, Asked(), seeds=2)
    assert {row.verdict for row in report.figures} == {"equal"}
    assert report.operations == ()


def test_the_command(api: FakeApi, snapshot: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. The command, by a file and by a plan that was kept. 2. It says that it is simulated, shows operations, trains
    and figures, and draws. 3. It asked the server for one thing: its state."""
    picture = tmp_path / "w.svg"
    assert main(["twin", "what-if", str(PLAN), "--seeds", "3", "--days", "0.5", "--out", str(picture)]) == 0
    told = capsys.readouterr()
    assert "simulated, not measured: 12 h from event" in told.err
    assert "train inforom: visits" in told.err
    assert "paired t test" in told.err
    assert "op-" in told.out
    assert "nic-firmware 1000000.9" in told.out
    root = ElementTree.fromstring(picture.read_text())
    words = "".join(root.itertext())
    assert "simulated" in words
    assert "9 of 9 operations done" in words
    kept = tmp_path / "plan.json"
    keep_plan(kept, Made(made_at=Engine.restore(snapshot).state.now, asked=keyed(load_plan(PLAN), "kept")))
    assert main(["twin", "what-if", str(kept), "--seeds", "1", "--days", "0.1", "-o", "json"]) == 0
    tree = decode(capsys.readouterr().out, dict[str, object])
    assert tree.pop("schema") == "trainmaster.twin-what-if/v1"
    report = decode(encode(tree), WhatIfReport)
    assert report.simulated
    assert len(report.operations) == 9
    assert {row.verdict for row in report.figures} <= {"unknown", "equal"}
    assert {(asked.method, asked.path) for asked in api.asked} == {("GET", "/v1/snapshot"), ("GET", "/v1/status")}


def test_what_a_server_would_refuse(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A host, a component, a job and a pool that are not there. 2. Each is refused in the server's words. 3. So is a
    state that can't be had, or read."""

    def refused(text: str) -> str:
        file = tmp_path / "plan.toml"
        file.write_text(f'schema = "trainmaster.maintenance/v1"\nreason = "x"\n{text}')
        assert main(["twin", "what-if", str(file), "--seeds", "1"]) == 1
        told = capsys.readouterr().err
        assert "Traceback" not in told
        return told

    assert "would refuse operation 1 of 1" in refused('[[operation]]\nkind = "reboot"\nhosts = "z1"\n')
    assert "no-such-component" in refused('[[target]]\ncomponent = "warp-drive"\nversion = "1"\n')
    assert "no such job" in refused('[[gang]]\njob = "none"\ncomponent = "bios"\nversion = "2"\n')
    rollout = '[[rollout]]\ncomponent = "bios"\nversion = "2"\nhosts = "z[1-3]"\n'
    assert "no-such-host" in refused(rollout)
    train = '[[train]]\nname = "t"\ncluster = "zz"\ndomain_size_hosts = 1\ncycle_days = 7\n'
    assert "the train t" in refused(train)
    api.answer("GET", "/v1/snapshot", '{"index":"one"}')
    assert "state of the server can't be read" in refused('[[operation]]\nkind = "reboot"\nhosts = "a01"\n')
    api.answer("GET", "/v1/status", STATUS.but(version="0.0.1"))
    assert "runs trainmaster 0.0.1" in refused('[[operation]]\nkind = "reboot"\nhosts = "a01"\n')
    api.answer("GET", "/v1/status", STATUS)
    api.refuse("GET", "/v1/snapshot", 403, because(Token.NOT_ALLOWED, "this needs the role operator"))
    assert main(["twin", "what-if", str(PLAN)]) == 5
    assert main(["twin", "what-if", str(PLAN), "--out", "w.png"]) == 2
