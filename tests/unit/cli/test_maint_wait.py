"""`maint apply --wait` for what is no operation: gang upgrades, rollouts and trains; and how it ends."""

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.api import AT, FakeApi, frame
from tests.fakes.command import CommandLine
from tests.fakes.maintenance import GANG_PLAN, ROLLOUT, SPENT, TRAIN, operation, rollout_detail, train_detail, whole

from trainmaster.core.base.ids import OperationId, Owner
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.value import encode
from trainmaster.core.events import TimePassed
from trainmaster.live.server.maintenance_resources import GangView, OperationView, RolloutView, TrainView

WAIT = ("--reason", "spring", "--yes", "--wait", "--timeout", "1m")
ROLLED_BACK = because(Token.STEPS_FAILED, "3 of 4 operations failed")
ABORTED = because(Token.CANCELLED_BY_REQUEST, "weekly was aborted by kim: wrong")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, api: FakeApi) -> None:
    """Looks after every event, of which there are some."""
    monkeypatch.setattr("trainmaster.cli.maint_follow.ASK_AT_MOST_EVERY_S", 0.0)
    monkeypatch.setattr("trainmaster.cli.maint_follow.ASK_EVERY_S", 0.0)
    api.streams = [b"".join(frame(index, TimePassed(at=AT)) for index in range(901, 906))]


def in_turn(api: FakeApi, path: str, *values: Any) -> None:
    """An answer after the other, the last one again and again."""
    rest = list(values)
    api.answers["GET", path] = lambda question: (200, encode(rest.pop(0) if len(rest) > 1 else rest[0]))


def write(text: str) -> str:
    Path("asked.toml").write_text(text)
    return "asked.toml"


GANG = '[[gang]]\njob = "llama"\ncomponent = "collectives"\nversion = "2.24"\n'


def gang(began: bool, left: tuple[str, ...] = (), reason: Reason | None = None) -> GangView:
    return GangView(
        job=GANG_PLAN.job,
        component=GANG_PLAN.component,
        version=GANG_PLAN.version,
        by=Owner("person:kim"),
        why="spring",
        asked_at=AT,
        began_at=AT if began else None,
        hosts="gpu-[1-2]",
        operations=tuple(OperationId(name) for name in left),
        reason=reason,
    )


def of_gang(number: int, state: str) -> OperationView:
    reason = because(Token.STEPS_FAILED, "install ended with 1") if state == "failed" else None
    scope = (f"host/gpu-{number - 20}",)
    view = operation(
        number, state, component=GANG_PLAN.component, version=GANG_PLAN.version, requested_at=AT, scope=scope
    )
    return view.but(reason=reason)


@pytest.mark.parametrize(
    ("ends", "code", "told"),
    [
        (("done", "done"), 0, "under way"),
        (("done", "failed"), 7, "op-22 failed: steps-failed: install ended with 1"),
        (("failed", "failed"), 1, "2 of 2 ended otherwise than done"),
        ((), 1, "the gang upgrade collectives 2.24 of llama was dropped"),
    ],
    ids=["done", "one failed", "all failed", "dropped"],
)
def test_a_gang_upgrade(ends: tuple[str, ...], code: int, told: str, api: FakeApi, line: CommandLine) -> None:
    """1. It waits for capacity, and says for what. 2. Its operations are under way. 3. The server has it no longer:
    its operations say how it ended; none: it was dropped. Older ones, and those of other hosts, are not counted."""
    in_turn(
        api,
        "/v1/maintenance",
        whole(),
        whole(gangs=(gang(False, reason=SPENT),)),
        whole(gangs=(gang(True, ("op-21", "op-22")),)),
        whole(),
    )
    others = (of_gang(21, "failed").but(id="op-20", requested_at=AT - 1), of_gang(24, "failed"))
    found = (*(of_gang(number, state) for number, state in enumerate(ends, 21)), *others)
    listing = encode({"index": 905, "at": AT, "items": found, "total": len(found)})
    api.answers["GET", "/v1/operations"] = lambda question: (200, listing)
    ran = line.run("maint", "apply", write(GANG), *WAIT)
    assert ran.code == code
    assert "waiting for the gang upgrade of llama (job-1) to collectives 2.24" in ran.err
    assert "waits: maintenance-buffer-spent" in ran.err
    assert "is under way, 2 operations left" in ran.err
    assert told in ran.err


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (ROLLOUT.but(state="complete", reason=None), 0),
        (ROLLOUT.but(state="off-boarded", reason=ROLLED_BACK), 1),
        (ROLLOUT.but(state="stopped", reason=None), 1),
    ],
    ids=lambda value: getattr(value, "state", str(value)),
)
def test_a_rollout(end: RolloutView, code: int, api: FakeApi, line: CommandLine) -> None:
    """1. A stage is held: a person has to act, so one goes on waiting. 2. It ends."""
    held = ROLLOUT.but(state="held")
    steps = [rollout_detail(view.but(id="rollout-2")) for view in (ROLLOUT, held, end)]
    in_turn(api, "/v1/rollouts/rollout-2", *steps)
    asked = write('[[rollout]]\ncomponent = "gpu-driver"\nversion = "560.28"\n')
    ran = line.run("maint", "apply", asked, *WAIT)
    assert ran.code == code
    assert "waiting for rollout-2" in ran.err
    assert "rollout rollout-2 held" in ran.err
    assert ("ended otherwise than done" in ran.err) == (code == 1)


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        (TRAIN.but(state="resting", stop=None, cycle=4, missed_before=0), 0, "weekly resting"),
        (TRAIN.but(state="resting", stop=None, cycle=4), 1, "train weekly: its cycle missed 1 of 8 units"),
        (TRAIN.but(state="ended", stop=None, reason=ABORTED), 1, "train weekly has ended: cancelled-by-request"),
    ],
    ids=["visited", "missed", "aborted"],
)
def test_the_first_cycle_of_a_train(end: TrainView, code: int, told: str, api: FakeApi, line: CommandLine) -> None:
    """1. It stops at a domain. 2. Its cycle ends, with a proof; or it is aborted."""
    in_turn(api, "/v1/trains/weekly", train_detail(TRAIN), train_detail(end))
    asked = write('[[train]]\nname = "weekly"\ncluster = "c1"\ndomain_size_hosts = 2\ncycle_days = 7\n')
    ran = line.run("maint", "apply", asked, *WAIT)
    assert ran.code == code
    assert "waiting for the first cycle of train weekly" in ran.err
    assert told in ran.err


def test_a_version_alone_is_not_waited_for(line: CommandLine) -> None:
    asked = write('[[target]]\ncomponent = "storage-client"\nversion = "2.0"\n')
    ran = line.run("maint", "apply", asked, *WAIT)
    assert (ran.code, "there is nothing to wait for" in ran.err) == (0, True)


@pytest.mark.parametrize("reason", [because(Token.FINISHED, "everywhere"), ABORTED])
def test_watching_a_train_that_has_ended(reason: Reason, api: FakeApi, line: CommandLine) -> None:
    """It ends at once, and says how the train did."""
    api.answer("GET", "/v1/trains/weekly", train_detail(TRAIN.but(state="ended", stop=None, reason=reason)))
    ran = line.run("maint", "watch", "weekly")
    assert ran.code == 0
    assert f"train weekly has ended: {reason.token}" in ran.out
