"""`trainmaster maint` against canned answers: what is asked, what is bound to what was read, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.api import AT, FakeApi, frame, host
from tests.fakes.command import CommandLine
from tests.fakes.maintenance import (
    BUSY,
    DRIVER,
    HIT,
    OPERATIONS,
    REFUSED,
    ROLLOUT,
    SPENT,
    TRAIN,
    asked,
    detail,
    operation,
    operations_plan,
    planned,
    rollout_detail,
    train_detail,
    train_plan,
    visit,
    whole,
)

from trainmaster.cli.maint_words import BAR, bar, scope_text, short_reason
from trainmaster.core.base.ids import OperationId, Owner, TrainName
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.value import decode, encode
from trainmaster.core.events import TimePassed
from trainmaster.core.maintenance.capacity import Share
from trainmaster.core.maintenance.events import TrainPaused
from trainmaster.core.maintenance.plan import OperationsPlan
from trainmaster.live.server.maintenance_resources import (
    MaintenanceChange,
    OperationsRequest,
    PlanRequest,
    RolloutRequest,
    TrainReport,
    TrainRequest,
)

WORDS = ("--component", "gpu-driver", "--version", "560.28", "-w", "gpu-[1,5,8]")
REASON = ("--reason", "security fix", "--yes")
FILES = Path(__file__).parents[2] / "transcripts" / "files"


def plans(api: FakeApi, *each: OperationsPlan) -> None:
    """Dry runs are answered by these, the last one again and again; other requests are accepted."""
    rest = list(each)

    def answer(question: Any) -> tuple[int, bytes]:
        if decode(question.body, OperationsRequest).dry_run:
            return 200, encode(planned(rest.pop(0) if len(rest) > 1 else rest[0]))
        return 200, encode(asked(7, 8, 9))

    api.answers["POST", "/v1/operations"] = answer


def requests(api: FakeApi) -> list[OperationsRequest]:
    return [decode(body, OperationsRequest) for body in api.bodies("/v1/operations")]


# Words


def test_scopes_fold_by_kind() -> None:
    assert scope_text(["host/h2", "host/h1", "rack/r1"]) == "host/h[1-2], rack/r1"


def test_a_long_reason_is_cut_at_a_word() -> None:
    assert short_reason(BUSY) == "resource-busy: op-1 works on rack/r1"
    short = short_reason(SPENT)
    assert short.startswith("maintenance-buffer-spent: c1-compute: planned work has 2 of its 2 units")
    assert short.endswith(" ...")
    assert short_reason(None) == ""


@pytest.mark.parametrize(
    ("total", "parts", "counts"),
    [
        (64, [("=", 64)], {"=": BAR}),
        (6144, [("=", 6143), ("m", 1)], {"=": BAR - 1, "m": 1}),
        (4, [("=", 2), ("m", 1), ("x", 1)], {"=": BAR // 2, "m": BAR // 4, "x": BAR // 4}),
        (4, [("=", 0), ("m", 4)], {"m": BAR}),
        (0, [("=", 0)], {}),
    ],
)  # fmt: skip
def test_bars_show_every_part(total: int, parts: list[tuple[str, int]], counts: dict[str, int]) -> None:
    text = bar(total, parts)
    assert len(text) == BAR
    assert {letter: text.count(letter) for letter in text if letter != " "} == counts


# Plans


def test_a_plan_changes_nothing(api: FakeApi, line: CommandLine) -> None:
    """1. An operation a host is asked for, as a dry run, each with a key of its own. 2. Nothing else is sent."""
    ran = line.run("maint", "plan", *WORDS, "--deadline", "2h", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["schema"] == "trainmaster.maintenance-plan/v1"
    [sent] = requests(api)
    assert sent.dry_run
    assert [ask.spec.scope for ask in sent.operations] == [("host/gpu-1",), ("host/gpu-5",), ("host/gpu-8",)]
    assert len({ask.key for ask in sent.operations}) == 3
    assert all(ask.spec.deadline is not None and ask.key for ask in sent.operations)
    assert len([each for each in api.asked if each.method == "POST"]) == 1


def test_a_kept_plan_is_applied_as_it_was_read(api: FakeApi, line: CommandLine) -> None:
    """1. A plan is kept. 2. Applied, it is planned again and is the same, though the log went on. 3. What is sent is
    what was planned, bound to the fingerprint, with the reason; the ids are printed."""
    plans(api, operations_plan(), operations_plan(950))
    assert line.run("maint", "plan", *WORDS, "--out", "plan.json").code == 0
    ran = line.run("maint", "apply", "plan.json", *REASON)
    assert (ran.code, ran.out) == (0, "op-7\nop-8\nop-9\n")
    first, again, sent = requests(api)
    assert first.operations == again.operations
    assert [ask.key for ask in sent.operations] == [ask.key for ask in first.operations]
    wanted = [ask.spec.but(reason="security fix") for ask in first.operations]
    assert [ask.spec for ask in sent.operations] == wanted
    assert (sent.check_index, sent.check_plan, sent.reason) == (950, "0123456789abcdef", "security fix")
    assert not sent.dry_run


def test_a_plan_of_another_world_is_refused(api: FakeApi, line: CommandLine) -> None:
    """1. A plan is kept. 2. A job starts on a host of it, and an operation would have to wait. 3. Plan and apply refuse
    it, exit code 4, and say just that. 4. Nothing was sent."""
    free = operations_plan(jobs=(), fingerprint="aa")
    busy = free.but(index=950, jobs=(HIT,), fingerprint="bb", items=(free.items[0].but(waits=BUSY), *free.items[1:]))
    plans(api, free, busy)
    assert line.run("maint", "plan", *WORDS, "--out", "plan.json").code == 0
    for words in (("plan", "plan.json"), ("apply", "plan.json", *REASON), ("apply", "plan.json", "--dry-run")):
        ran = line.run("maint", *words)
        assert (ran.code, ran.out) == (4, "")
        assert "operations.items[host/gpu-1].waits: none, now resource-busy" in ran.err
        assert "operations.jobs: none, now job-1" in ran.err
    assert all(sent.dry_run for sent in requests(api))


def test_the_server_has_the_last_word(api: FakeApi, line: CommandLine) -> None:
    """The world moves between the last look and the request: the server's refusal is exit code 4 as well."""

    def answer(question: Any) -> tuple[int, bytes]:
        if decode(question.body, OperationsRequest).dry_run:
            return 200, encode(planned(operations_plan()))
        refused = because(Token.WORLD_MOVED, "the plan is of index 900, the log is at 950", planned=900, index=950)
        return 409, encode({"reason": refused, "fix": ""})

    api.answers["POST", "/v1/operations"] = answer
    assert line.run("maint", "apply", *WORDS, *REASON).code == 4


def test_consent(api: FakeApi, line: CommandLine) -> None:
    """1. No is no. 2. Yes goes on after a second look. 3. A plan that changed meanwhile is not carried out."""
    plans(api, operations_plan())
    ran = line.run("maint", "apply", *WORDS, "--reason", "fix", answers="n\n")
    assert (ran.code, [sent.dry_run for sent in requests(api)]) == (1, [True])
    leave = "3 units gpu-[1,5,8] (24 GPUs) leave (gpu-[1,8] at once, the others in turn)"
    assert f"ask for 3 operations: {leave}, which hits llama (job-1)" in ran.err
    assert line.run("maint", "apply", *WORDS, "--reason", "fix", answers="y\n").code == 0
    assert [sent.dry_run for sent in requests(api)][1:] == [True, True, False]
    plans(api, operations_plan(), operations_plan(fingerprint="ee", waiting=2))
    ran = line.run("maint", "apply", *WORDS, "--reason", "fix", answers="y\n")
    assert (ran.code, "operations.waiting: 1, now 2" in ran.err) == (4, True)


def test_a_dry_run_is_the_plan(api: FakeApi, line: CommandLine) -> None:
    ran = line.run("maint", "apply", *WORDS, "--dry-run")
    assert (ran.code, ran.out) == (0, line.run("maint", "plan", *WORDS).out)
    assert line.run("--readonly", "maint", "apply", *WORDS, *REASON).code == 5
    assert all(sent.dry_run for sent in requests(api))


def test_what_is_refused_is_not_sent(api: FakeApi, line: CommandLine) -> None:
    """1. A plan shows the refusal, ends as applying it would, and is not kept. 2. So does a dry run. 3. Applied, it
    fails, names the near word, and sends nothing."""
    plans(api, REFUSED)
    for words in (("plan", *WORDS, "--out", "plan.json"), ("apply", *WORDS, "--dry-run")):
        ran = line.run("maint", *words)
        assert (ran.code, "refused, no-such-component: no component is named" in ran.out) == (3, True)
    assert not Path("plan.json").exists()
    ran = line.run("maint", "apply", *WORDS, *REASON)
    assert ran.code == 3
    assert (
        "host/gpu-1: no-such-component: no component is named 'gpu-drivr'; the nearest name is 'gpu-driver'" in ran.err
    )
    assert all(sent.dry_run for sent in requests(api))


def test_a_file_of_many_parts(api: FakeApi, line: CommandLine) -> None:
    """1. All parts are planned together before the first is sent, since the later ones build on those before. 2. The
    first is bound to the plan that was read; each later one to a plan made after those before it. 3. The rollout is
    drawn by the seed that was shown."""
    ran = line.run("maint", "apply", str(FILES / "maintenance.toml"), *REASON)
    assert ran.code == 0, ran.err
    posts = [(each.path, json.loads(each.body).get("dry_run", False)) for each in api.asked if each.method == "POST"]
    [whole] = [decode(body, PlanRequest) for body in api.bodies("/v1/plans")]
    parts = (whole.operations, whole.gangs, whole.versions, whole.rollouts, whole.trains)
    assert [len(part) for part in parts] == [3, 1, 1, 1, 1]
    assert posts == [
        ("/v1/plans", False),
        ("/v1/operations", False), ("/v1/gang-upgrades", True), ("/v1/gang-upgrades", False), ("/v1/versions", False),
        ("/v1/rollouts", True), ("/v1/rollouts", False), ("/v1/trains", True), ("/v1/trains", False),
    ]  # fmt: skip
    drawn = [decode(body, RolloutRequest) for body in api.bodies("/v1/rollouts")]
    assert [each.seed for each in (*whole.rollouts, *drawn)] == [None, 7, 7]
    assert drawn[-1].check_plan == "00000000000000bb"


def test_a_part_that_fails_leaves_the_rest_told(api: FakeApi, line: CommandLine) -> None:
    """1. Operations are accepted. 2. The job of the gang upgrade ended meanwhile. 3. Exit code 7: what is done, what
    is not and why; later parts were not sent."""
    refused = encode({"reason": because(Token.JOB_NOT_RUNNING, "llama (job-1) has no hosts"), "fix": ""})
    api.answers["POST", "/v1/gang-upgrades"] = lambda question: (409, refused)
    ran = line.run("maint", "apply", str(FILES / "maintenance.toml"), *REASON)
    assert ran.code == 7
    assert ran.err.startswith("error: 1 of 5 parts is done: 3 operations are asked for\n  why: then: llama (job-1)")
    assert api.bodies("/v1/trains") == []


def test_a_plan_that_was_carried_out_before(api: FakeApi, line: CommandLine) -> None:
    """1. A plan is kept and applied; its answer is lost, say. 2. Planned again, the server knows all of it, though the
    world is another one by now. 3. Applied again, it is sent with the same keys, so nothing is asked for twice, and
    the ids are told."""
    items = enumerate(operations_plan().items, 7)
    done = tuple(item.but(known=OperationId(f"op-{number}"), waits=None) for number, item in items)
    known = operations_plan(items=done, units=0, hosts="", at_once="", waiting=0, fingerprint="cc")
    plans(api, operations_plan(), operations_plan(), known)
    assert line.run("maint", "plan", *WORDS, "--out", "plan.json").code == 0
    assert line.run("maint", "apply", "plan.json", *REASON).code == 0
    ran = line.run("maint", "plan", "plan.json")
    assert (ran.code, "asked for before: op-7, op-8, op-9" in ran.out) == (0, True)
    ran = line.run("maint", "apply", "plan.json", *REASON)
    assert (ran.code, ran.out) == (0, "op-7\nop-8\nop-9\n")
    first, second = (sent for sent in requests(api) if not sent.dry_run)
    assert [ask.key for ask in first.operations] == [ask.key for ask in second.operations]


def test_the_reason_of_the_flag_wins(api: FakeApi, line: CommandLine) -> None:
    """1. Without the flag the file's reason holds. 2. With it, it holds for every part. 3. Neither: refused."""
    file = str(FILES / "maintenance.toml")
    for words, wanted in ((("--yes",), "spring"), (REASON, "security fix")):
        assert line.run("maint", "apply", file, *words).code == 0
        [*_, sent] = requests(api)
        assert {ask.spec.reason for ask in sent.operations} == {wanted}
        for path in ("/v1/gang-upgrades", "/v1/versions", "/v1/rollouts", "/v1/trains"):
            assert json.loads(api.bodies(path)[-1])["reason"] == wanted
    Path("bare.toml").write_text('[[operation]]\nkind = "reboot"\nhosts = "gpu-1"\n')
    ran = line.run("maint", "apply", "bare.toml", "--yes")
    assert (ran.code, "a change needs a reason" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--scope", "foo", "--kind", "reboot"), 2, "--scope 'foo' names no resource"),
        (("--scope", "rack/", "--kind", "reboot"), 2, "--scope 'rack/' names no resource"),
        (("deep.toml",), 2, "its brackets are nested too deeply"),
        (("deep.json",), 2, "this is no plan"),
        ((*WORDS, "--out", "nowhere/plan.json"), 1, "there is no directory nowhere"),
    ],
    ids=["scope", "half a scope", "deep file", "deep plan", "no directory"],
)
def test_bad_input_is_the_users_to_mend(words: tuple[str, ...], code: int, told: str, line: CommandLine) -> None:
    """What is wrong is said before anything is shown or asked, but for a plan that can't be kept."""
    Path("deep.toml").write_text("a = " + "[" * 10_000 + "]" * 10_000)
    Path("deep.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    ran = line.run("maint", "plan", *words)
    assert (ran.code, told in ran.err, "Traceback" in ran.err) == (code, True, False)
    assert bool(ran.out) == (code == 1)


# Waiting and watching


def views(api: FakeApi, name: str, *states: str) -> None:
    """What the operation is at each look, the last one again and again."""
    rest = list(states)

    def answer(question: Any) -> tuple[int, bytes]:
        state = rest.pop(0) if len(rest) > 1 else rest[0]
        reason = because(Token.STEPS_FAILED, "install ended with 1") if state == "failed" else None
        return 200, encode(detail(operation(int(name[3:]), state, reason=reason)))

    api.answers["GET", f"/v1/operations/{name}"] = answer


def news(*times: int) -> bytes:
    return b"".join(frame(index, TimePassed(at=AT)) for index in times)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks after every event."""
    monkeypatch.setattr("trainmaster.cli.maint_follow.ASK_AT_MOST_EVERY_S", 0.0)
    monkeypatch.setattr("trainmaster.cli.maint_follow.ASK_EVERY_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_waiting_for_what_was_asked(api: FakeApi, line: CommandLine) -> None:
    """1. Three operations are asked for. 2. A change is told once on stderr, those alike together. 3. All done: 0."""
    for name in ("op-7", "op-8", "op-9"):
        views(api, name, "draining", "running", "done")
    api.streams = [news(901, 902, 903)]
    ran = line.run("maint", "apply", *WORDS, *REASON, "--wait", "--timeout", "1m")
    assert (ran.code, ran.out) == (0, "op-7\nop-8\nop-9\n")
    told = [row.split("  ", 1)[1] for row in ran.err.splitlines() if "  " in row]
    what = "3 operations, upgrade gpu-driver 560.28 on host/gpu-[7-9], are"
    assert told == [f"{what} draining", f"{what} running", f"{what} done"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("ends", "code"), [(("done", "failed", "done"), 7), (("failed",) * 3, 1)])
def test_waiting_for_what_fails(ends: tuple[str, ...], code: int, api: FakeApi, line: CommandLine) -> None:
    for name, end in zip(("op-7", "op-8", "op-9"), ends, strict=True):
        views(api, name, "running", end)
    api.streams = [news(901)]
    ran = line.run("maint", "apply", *WORDS, *REASON, "--wait")
    assert ran.code == code
    assert "op-8 failed: steps-failed: install ended with 1" in ran.err


@pytest.mark.usefixtures("impatient")
def test_waiting_no_longer_than_that(api: FakeApi, line: CommandLine) -> None:
    for name in ("op-7", "op-8", "op-9"):
        views(api, name, "requested")
    api.streams = [news(901)]
    ran = line.run("maint", "apply", *WORDS, *REASON, "--wait", "--timeout", "0s")
    assert (ran.code, "it goes on; trainmaster maint watch" in ran.err) == (6, True)


@pytest.mark.usefixtures("impatient")
def test_many_are_looked_up_in_the_list(api: FakeApi, line: CommandLine) -> None:
    """1. Nine operations are asked for. 2. They are not asked for one by one while the list has them."""
    numbers = range(11, 20)
    api.answers["POST", "/v1/operations"] = lambda question: (
        200,
        encode(planned(operations_plan()) if b'"dry_run":true' in question.body else asked(*numbers)),
    )
    found = tuple(operation(number, "done") for number in numbers)
    listing = encode({"index": 905, "at": AT, "items": found, "total": 9})
    api.answers["GET", "/v1/operations"] = lambda question: (200, listing)
    assert line.run("maint", "apply", *WORDS, *REASON, "--wait").code == 0
    assert [each.path for each in api.asked if each.method == "GET"] == ["/v1/operations"]


@pytest.mark.usefixtures("impatient")
def test_watching_all_of_it(api: FakeApi, line: CommandLine) -> None:
    """1. What has not ended is told first. 2. A pause of a train is told as it is, then what became of the train. 3.
    The server goes away for good: exit code 6."""
    now = [whole(), whole(trains=(TRAIN.but(stop=None, state="resting"),))]
    api.answers["GET", "/v1/maintenance"] = lambda question: (200, encode(now.pop(0) if len(now) > 1 else now[0]))
    event = TrainPaused(at=AT, train=TrainName("weekly"), by=Owner("person:kim"), reason="launch")
    api.streams = [frame(901, event)]
    ran = line.run("maint", "watch", "--timeout", "1s")
    assert ran.code == 6
    rows = [row.split("  ", 1)[1] for row in ran.out.splitlines()]
    assert rows[:2] == [
        "op-1, upgrade gpu-driver 560.28 on host/gpu-1, is running",
        "op-2, upgrade gpu-driver 560.28 on host/gpu-2, rack/r2, is admitted: resource-busy: op-1 works on rack/r1",
    ]
    assert "train weekly stopping at domain 1 of 4, 1 of 2 units" in rows
    assert rows[-2:] == ["train weekly: paused by kim: launch", "train weekly resting before domain 2 of 4"]


@pytest.mark.usefixtures("impatient")
def test_watching_one_operation_for_programs(api: FakeApi, line: CommandLine) -> None:
    views(api, "op-3", "requested", "running", "done")
    api.streams = [news(901, 902)]
    ran = line.run("maint", "watch", "op-3", "-o", "jsonl")
    assert ran.code == 0
    rows = [json.loads(row) for row in ran.out.splitlines()]
    assert [(row["schema"], row["state"]) for row in rows] == [
        ("trainmaster.operation/v1", state) for state in ("requested", "running", "done")
    ]


def test_a_screen_has_a_live_line(api: FakeApi, line: CommandLine) -> None:
    views(api, "op-3", "done")
    ran = line.run("maint", "watch", "op-3", terminal=True)
    assert ran.code == 0
    assert "\r\033[Koperations: none under way  1 ended" in ran.out
    assert ran.out.endswith("\r\033[K")


@pytest.mark.parametrize(("state", "code"), [("complete", 0), ("stopped", 1), ("off-boarded", 1)])
def test_watching_a_rollout_to_its_end(state: str, code: int, api: FakeApi, line: CommandLine) -> None:
    api.answer("GET", "/v1/rollouts/rollout-1", rollout_detail(ROLLOUT.but(state=state)))
    assert line.run("maint", "watch", "rollout-1").code == code


# Steering


@pytest.mark.parametrize(
    ("verb", "name", "path"),
    [
        ("pause", "weekly", "/v1/trains/weekly/pause"),
        ("resume", "weekly", "/v1/trains/weekly/resume"),
        ("abort", "weekly", "/v1/trains/weekly/abort"),
        ("pause", "rollout-1", "/v1/rollouts/rollout-1/pause"),
        ("abort", "rollout-1", "/v1/rollouts/rollout-1/stop"),
        ("promote", "rollout-1", "/v1/rollouts/rollout-1/pass"),
        ("cancel", "op-3", "/v1/operations/op-3/cancel"),
    ],
)
def test_steering(verb: str, name: str, path: str, api: FakeApi, line: CommandLine) -> None:
    """1. Without a reason nothing is asked. 2. No is no. 3. A dry run sends none but dry runs. 4. Yes sends it once."""
    assert line.run("maint", verb, name).code == 2
    assert api.asked == []
    assert line.run("maint", verb, name, "--reason", "odd", answers="n\n").code == 1
    assert line.run("maint", verb, name, "--dry-run").code == 0
    assert {decode(body, MaintenanceChange).dry_run for body in api.bodies(path)} == {True}
    assert line.run("maint", verb, name, "--reason", " odd ", "--yes").code == 0
    assert decode(api.bodies(path)[-1], MaintenanceChange) == MaintenanceChange(reason="odd")
    assert line.run("--readonly", "maint", verb, name, "--reason", "odd", "--yes").code == 5


def test_cancelling_several_of_which_one_is_refused(api: FakeApi, line: CommandLine) -> None:
    """1. All are looked at before the first is sent. 2. The second ended meanwhile. 3. Exit code 7 names it."""

    def answer(question: Any) -> tuple[int, bytes]:
        if decode(question.body, MaintenanceChange).dry_run:
            return 200, encode({"index": 900, "dry_run": True, "changed": True, "sentence": "op-4 is cancelled"})
        return 409, encode({"reason": because(Token.MAINTENANCE_ENDED, "op-4 is done already"), "fix": ""})

    api.answers["POST", "/v1/operations/op-4/cancel"] = answer
    ran = line.run("maint", "cancel", "op-3", "op-4", "--reason", "odd", "--yes")
    assert (ran.code, ran.out) == (7, "op-3 is cancelled\n")
    assert "1 of 2 operations taken back; op-4 is not" in ran.err
    ran = line.run("maint", "cancel", "op-3", "op-99", "--reason", "odd", "--yes")
    assert (ran.code, len(api.bodies("/v1/operations/op-3/cancel"))) == (3, 2)


def test_a_train_that_has_ended_is_not_promoted(api: FakeApi, line: CommandLine) -> None:
    """It is said how it ended, and that it has to be declared again; nothing is planned."""
    reason = because(Token.CANCELLED_BY_REQUEST, "weekly was aborted by kim: wrong")
    api.answer("GET", "/v1/trains/weekly", train_detail(TRAIN.but(state="ended", reason=reason), mode="observe"))
    ran = line.run("maint", "promote", "weekly", "--reason", "right", "--yes")
    assert ran.code == 1
    assert "train weekly has ended\n  why: weekly was aborted by kim: wrong\n  try: declare it again" in ran.err
    assert [each for each in api.asked if each.method == "POST"] == []


def test_promotion(api: FakeApi, line: CommandLine) -> None:
    """1. A train observes. 2. A dry run shows its stops. 3. It is declared with the same units, size and cycle, and
    acts, bound to the plan that was shown."""
    api.answer("GET", "/v1/trains/weekly", train_detail(mode="observe"))
    report = TrainReport(index=900, dry_run=True, changed=True, plan=train_plan("act"), sentence="train weekly acts")
    api.answer("POST", "/v1/trains", report)
    assert "weekly, act: is there, and begins a new cycle" in line.run("maint", "promote", "weekly", "--dry-run").out
    ran = line.run("maint", "promote", "weekly", "--reason", "right", "--yes")
    assert (ran.code, ran.out) == (0, "train weekly acts\n")
    *_, plan, sent = (decode(body, TrainRequest) for body in api.bodies("/v1/trains") if body)
    assert (plan.dry_run, sent.dry_run, sent.check_plan, sent.reason) == (True, False, "00000000000000aa", "right")
    wish = sent.train
    assert (wish.mode, wish.hosts, wish.domain_size, wish.domains) == ("act", "gpu-[1-8]", Share(hosts=2), ())


# Looking


@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("ls", "trains"), ("ls", "rollouts"), ("ls", "visits"), ("ls", "versions"), ("ls", "gangs"),
        ("capacity",), ("show",), ("show", "op-1"), ("show", "weekly"), ("show", "rollout-1"), ("plan", *WORDS),
    ],
    ids=" ".join,
)  # fmt: skip
def test_everything_is_there_for_programs(words: tuple[str, ...], line: CommandLine) -> None:
    ran = line.run("maint", *words, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["schema"].startswith("trainmaster.")
    assert line.run("maint", *words, "-o", "wide").code == 0


def test_ls_filters_at_the_server(api: FakeApi, line: CommandLine) -> None:
    line.run("maint", "ls", "--state", "done", "--host", "gpu-1", "--train", "weekly", "--rollout", "r", "-n", "5")
    assert api.asked[0].query == {"state": "done", "host": "gpu-1", "train": "weekly", "rollout": "r", "limit": "5"}
    assert line.run("maint", "ls", "-o", "name").out.split() == [view.id for view in OPERATIONS]


@pytest.mark.parametrize(
    "verb",
    [
        ("show", "none"), ("show", "op-77"), ("watch", "none"), ("pause", "none", "--reason", "x", "--yes"),
        ("cancel", "op-77", "--reason", "x", "--yes"), ("promote", "none", "--reason", "x", "--yes"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_not_there(verb: tuple[str, ...], line: CommandLine) -> None:
    ran = line.run("maint", *verb)
    assert (ran.code, ran.out) == (3, "")
    assert "Traceback" not in ran.err


# Hosts and status


def test_a_host_says_what_maintenance_does_with_it(api: FakeApi, line: CommandLine) -> None:
    """1. A visit is shown with what is current, pending and to come; so are versions and what it must pass. 2. Why: it
    comes back by itself. 3. If a person holds it too, that person has to act."""
    view = host("gpu-1", "out-planned", visit=visit(1), demands=("gpu-burn",), versions={DRIVER: "550.90"})
    api.answer("GET", "/v1/hosts/gpu-1", view)
    shown = line.run("host", "show", "gpu-1", "--columns", "maintenance,must pass,versions").out.splitlines()
    assert [row.split(":", 1)[1].strip() for row in shown] == [
        "applying op-1, then op-7, one reboot to come (train weekly)",
        "gpu-burn",
        "gpu-driver 550.90",
    ]
    answer = json.loads(line.run("host", "why", "gpu-1", "-o", "json").out)
    assert answer["why"] == ["maintenance: applying op-1, then op-7, one reboot to come (train weekly)"]
    assert answer["next"] == "wait, or see: trainmaster maint ls --host gpu-1"


def test_status_has_maintenance(api: FakeApi, line: CommandLine) -> None:
    out = line.run("status").out
    assert "maint      operations: requested 2, admitted 1, running 1; units out: applying 1\n" in out
    paused = TRAIN.but(paused=because(Token.TRAIN_PAUSED, "kim: launch week"))
    api.answer("GET", "/v1/maintenance", whole(trains=(paused,), live={}, visits={}, waits={}, rollouts=()))
    out = line.run("status").out
    assert "maint      operations: none under way\n" in out
    assert "  paused       train weekly, 1 of 8 units visited, train-paused: kim: launch week\n" in out
    api.answer("GET", "/v1/maintenance", whole(catalogue=""))
    assert "maint      no catalogue is declared\n" in line.run("status").out
