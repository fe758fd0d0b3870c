"""Hosts, events and completion against canned answers: what is asked, what is shown, which exit code."""

import json
from pathlib import Path

import pytest
from tests.fakes.api import AT, FakeApi, detail, frame, hold, host, item, job, report, saved
from tests.fakes.command import CommandLine

from trainmaster.cli.host import fold_changes, fold_hosts
from trainmaster.cli.words import DURATION
from trainmaster.core.base.ids import AttemptId, HostId, JobId
from trainmaster.core.base.value import decode, encode
from trainmaster.core.events import AnyEvent, TimePassed
from trainmaster.core.scheduling.events import JobSubmitted
from trainmaster.core.words import sentence
from trainmaster.live.server.resources import Events, HostsChange, LoggedEvent

# Words


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90.0), ("10m", 600.0), ("10min", 600.0), ("2h", 7200.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("0s", 0.0),
     ("250ms", 0.25), ("1d", 86_400.0), (" 2 H ", 7200.0)],
)  # fmt: skip
def test_durations(text: str, value: float) -> None:
    assert DURATION.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["90", "", "s", "-5m", "5 parsecs", "1e3s", "m5", "1h-30m", "400d", "٣s"])
def test_what_is_no_duration(text: str, line: CommandLine) -> None:
    ran = line.run("job", "watch", "llama", f"--timeout={text}")
    assert ran.code == 2
    assert "duration" in ran.err or "longer than a year" in ran.err


def test_a_bare_number_is_told_both_readings(line: CommandLine) -> None:
    assert "write a unit: 90s or 90m" in line.run("job", "watch", "llama", "--timeout", "90").err


# Hosts


def test_hosts_fold_by_state_and_reason() -> None:
    """1. Two hosts are held alike and one otherwise. 2. Two were lost, each with its own name in the reason. 3. Alike
    ones share a row, in the order of a host's life."""
    rows = fold_hosts(
        [
            host("h1", "out-failed", reason="host h1 was lost"),
            host("h2", "out-planned", holds=(hold("person:kim", "fan"),)),
            host("h3", "out-planned", holds=(hold("person:kim", "fan"),)),
            host("h4", "out-planned", holds=(hold("person:lee", "fan"),)),
            host("h5", "out-failed", reason="host h5 was lost"),
            host("h6"),
        ]
    )
    assert [(row.hosts, row.state, row.reason) for row in rows] == [
        ("h6", "ready", "verification passed"),
        ("h[2-3]", "out-planned", "person:kim: fan"),
        ("h4", "out-planned", "person:lee: fan"),
        ("h[1,5]", "out-failed", "host HOST was lost"),
    ]


def test_ls_asks_for_what_is_wanted(api: FakeApi, line: CommandLine) -> None:
    ran = line.run("host", "ls", "-w", "gpu-[1-8]", "-x", "gpu-[2-7]", "--state", "ready", "-o", "name")
    assert (ran.code, ran.out) == (0, "gpu-1\ngpu-8\n")
    assert api.asked[0].query == {"hosts": "gpu-[1-8]", "state": "ready"}


def test_node_is_host(line: CommandLine) -> None:
    assert line.run("node", "ls", "-o", "json").out == line.run("host", "ls", "-o", "json").out


@pytest.mark.parametrize(
    ("change", "code", "following"),
    [
        ({}, 0, "nothing"),
        ({"attempt": AttemptId("job-1.a2"), "role": "spare"}, 0, "trainmaster job show job-1"),
        ({"connected": False}, 1, "see whether the host and its agent are alive; it is lost after a short grace"),
        ({"holds": (hold("person:kim", "fan"),)}, 1, "trainmaster host resume h1, by person:kim"),
        ({"state": "expected"}, 1, "start its agent: trainmaster agent run"),
        ({"state": "draining"}, 1, "wait until its job has moved, or take the drain back: trainmaster host resume h1"),
        ({"state": "out-failed"}, 1, "repair it, then: trainmaster host resume h1"),
    ],
)
def test_why_of_a_host(change: dict[str, object], code: int, following: str, api: FakeApi, line: CommandLine) -> None:
    api.answer("GET", "/v1/hosts/h1", host("h1").but(**change))
    ran = line.run("host", "why", "h1", "-o", "json")
    assert (ran.code, json.loads(ran.out)["next"]) == (code, following)


def test_a_drain_with_yes_asks_the_server_and_nobody_else(api: FakeApi, line: CommandLine) -> None:
    """1. The plan is asked for. 2. The change is sent with all that was given. 3. The report is printed."""
    api.answer("POST", "/v1/hosts/drain", report(item("gpu-1"), item("gpu-2")))
    flags = ["--yes", "--deadline", "10m", "--evict", "--check-index", "900"]
    ran = line.run("host", "drain", "gpu-[1-2]", "--reason", " fan ", *flags)
    assert (ran.code, ran.err) == (0, "")
    assert " ".join(ran.out.splitlines()[1].split()) == "gpu-[1-2] yes 16 - is ready; no job runs on it"
    plan, change = (decode(body, HostsChange) for body in api.bodies("/v1/hosts/drain"))
    assert plan == change.but(dry_run=True)
    assert change == HostsChange(hosts="gpu-[1-2]", reason="fan", deadline_s=600.0, evict=True, check_index=900)


def test_a_dry_run_changes_nothing_and_needs_no_reason(api: FakeApi, line: CommandLine) -> None:
    api.answer("POST", "/v1/hosts/resume", report(item("gpu-1", False, "held by lee", refused=True), dry_run=True))
    ran = line.run("host", "resume", "gpu-1", "--dry-run")
    assert (ran.code, ran.err) == (0, "dry run at log index 901: nothing was changed\n")
    assert [decode(body, HostsChange).dry_run for body in api.bodies("/v1/hosts/resume")] == [True]


def test_the_blast_radius_is_shown_and_agreed_to(api: FakeApi, line: CommandLine) -> None:
    """1. The preview names hosts, GPUs, jobs and what happens. 2. Yes goes on, after a second look at the plan."""
    hit = item("gpu-1", what="llama (job-1) runs on it and moves to gpu-3 after a checkpoint", job=JobId("job-1"))
    api.answer("POST", "/v1/hosts/drain", report(hit, item("gpu-8"), item("gpu-5", False, "already held by you")))
    ran = line.run("host", "drain", "gpu-[1,5,8]", "--reason", "fan", answers="y\n")
    assert ran.code == 0
    assert ran.err.startswith(
        "gpu-8: is ready; no job runs on it\n"
        "gpu-1: llama (job-1) runs on it and moves to gpu-3 after a checkpoint\n"
        "gpu-5: unchanged: already held by you\n"
        "This will drain 2 hosts gpu-[1,8] (16 GPUs), which hits 1 job: job-1. Go on?"
    )
    assert [decode(body, HostsChange).dry_run for body in api.bodies("/v1/hosts/drain")] == [True, True, False]


def test_no_is_no(api: FakeApi, line: CommandLine) -> None:
    api.answer("POST", "/v1/hosts/drain", report(item("gpu-8")))
    ran = line.run("host", "drain", "gpu-8", "--reason", "fan", answers="n\n")
    assert (ran.code, len(api.bodies("/v1/hosts/drain"))) == (1, 1)


def test_without_a_terminal_nobody_is_asked(api: FakeApi, line: CommandLine) -> None:
    api.answer("POST", "/v1/hosts/drain", report(item("gpu-8")))
    ran = line.run("host", "drain", "gpu-8", "--reason", "fan")
    assert ran.code == 2
    assert "this would drain 1 host gpu-8 (8 GPUs); no job is hit" in ran.err
    assert len(api.bodies("/v1/hosts/drain")) == 1


def test_a_plan_that_changed_while_it_was_read_is_not_carried_out(api: FakeApi, line: CommandLine) -> None:
    """1. The plan hits no job. 2. While it is read a job starts there. 3. Nothing is done, exit code 4."""
    plans = [report(item("gpu-8")), report(item("gpu-8", what="llama runs on it", job=JobId("job-1")))]
    api.answers["POST", "/v1/hosts/drain"] = lambda asked: (200, encode(plans.pop(0)))
    ran = line.run("host", "drain", "gpu-8", "--reason", "fan", answers="y\n")
    assert (ran.code, plans) == (4, [])
    assert "the plan changed while you read it" in ran.err


def test_part_of_the_hosts_is_refused(api: FakeApi, line: CommandLine) -> None:
    """Exit code 7 with what is left and why; 1 if nothing was left to do for the others."""
    kept = item("gpu-125", False, "held by policy:health: flaky; only the owner lifts a hold", refused=True)
    api.answer("POST", "/v1/hosts/resume", report(*(item(f"gpu-{n}") for n in range(121, 125)), kept))
    ran = line.run("host", "resume", "gpu-[121-125]", "--reason", "repaired", "--yes")
    assert ran.code == 7
    assert ran.err.splitlines()[:2] == [
        "error: resume was refused for 1 of 5 hosts",
        "  why: gpu-125: held by policy:health: flaky; only the owner lifts a hold",
    ]
    assert [row.split()[:2] for row in ran.out.splitlines()[1:]] == [["gpu-[121-124]", "yes"], ["gpu-125", "refused"]]
    api.answer("POST", "/v1/hosts/resume", report(kept))
    assert line.run("host", "resume", "gpu-125", "--reason", "repaired", "--yes").code == 1
    same = item("gpu-1", False, "is ready and has no hold")
    api.answer("POST", "/v1/hosts/resume", report(same))
    assert line.run("host", "resume", "gpu-1", "--reason", "repaired", "--yes").code == 0


def test_changes_fold_by_what_happens() -> None:
    rows = fold_changes([item("h1"), item("h3", False, "kept", refused=True), item("h2"), item("h4", False, "same")])
    assert [(row.hosts, row.change, row.gpus) for row in rows] == [
        ("h[1-2]", "yes", 16),
        ("h4", "no", 0),
        ("h3", "refused", 0),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["host", "drain", "gpu-1"], "a change needs a reason"),
        (["host", "drain", "gpu-1", "--reason", "x", "--evict"], "--evict needs --deadline"),
        (["host", "ls", "-x", "gpu-[5-1]"], "cannot read the host list"),
        (["host", "ls", "--state", "broken"], "is not one of"),
        (["host", "ls", "--sort", "colour"], "no column 'colour'"),
        (["job", "submit", "none.toml"], "none.toml"),
        (["job", "submit", "none.toml", "--timeout", "5m"], "--timeout is for --wait and --watch"),
        (["job", "logs", "llama", "--rank", "-1"], "--rank"),
        (["event", "tail", "-n", "x"], "-n"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told(words: list[str], said: str, api: FakeApi, line: CommandLine) -> None:
    ran = line.run(*words)
    assert ran.code == 2
    assert said in ran.err
    assert not [asked for asked in api.asked if asked.method == "POST"]


def test_readonly_refuses_changes(api: FakeApi, line: CommandLine) -> None:
    (line.home / "job.toml").write_text('name = "llama"\ncommand = ["true"]\nhosts = 1\n')
    assert line.run("--readonly", "host", "drain", "gpu-1", "--reason", "x").code == 5
    assert line.run("--readonly", "job", "cancel", "llama", "--reason", "x").code == 5
    assert line.run("--readonly", "job", "submit", "job.toml").code == 5
    assert api.asked == []


# Events


def log(api: FakeApi, count: int) -> None:
    """A log of `count` events: each third is of job-1, each tenth of job-12; llama was submitted first."""
    spec = detail(job(1, "llama")).spec

    def event(index: int) -> AnyEvent:
        if index == 1:
            return JobSubmitted(at=detail(job(1, "llama")).submitted_at, spec=spec, by=detail(job(1, "llama")).by)
        if index % 10 == 0:
            return saved(index).but(attempt=AttemptId("job-12.a1"), host=HostId("gpu-2"))
        return saved(index) if index % 3 == 0 else TimePassed(at=AT)

    def answer(asked: object) -> tuple[int, bytes]:
        query = api.asked[-1].query
        first, limit = int(query["since"]), int(query["limit"])
        assert 1 <= limit <= 1000
        rows = [(index, event(index)) for index in range(first, min(count, first + limit - 1) + 1)]
        items = tuple(LoggedEvent(index=index, event=each, sentence=sentence(each)) for index, each in rows)
        return 200, encode(Events(items=items, next=first + len(items)))

    api.answers["GET", "/v1/events"] = answer


def indexes(text: str) -> list[int]:
    return [json.loads(row)["index"] for row in text.splitlines()]


def test_tail(api: FakeApi, line: CommandLine) -> None:
    log(api, 900)
    assert indexes(line.run("event", "tail", "-n", "3", "-o", "jsonl").out) == [898, 899, 900]
    assert indexes(line.run("event", "tail", "--host", "gpu-2", "-n", "2", "-o", "jsonl").out) == [890, 900]
    of_job = indexes(line.run("event", "tail", "--job", "llama", "-n", "500", "-o", "jsonl").out)
    assert of_job == [1, *(index for index in range(2, 901) if index % 3 == 0 and index % 10)]
    assert line.run("event", "tail", "-n", "0").out == ""
    assert line.run("event", "tail", "--job", "none").code == 3


def test_tail_follows(api: FakeApi, line: CommandLine) -> None:
    """1. The last two. 2. What comes then, filtered. 3. The server refuses: an error ends it."""
    log(api, 900)
    api.streams = [frame(901, TimePassed(at=AT)) + frame(902, saved(902))]
    api_reply = api.reply

    def reply(asked: object) -> tuple[int, bytes]:
        status, body = api_reply(asked)  # type: ignore[arg-type]
        return (403, body) if status == 503 else (status, body)

    api.reply = reply  # type: ignore[method-assign,assignment]
    ran = line.run("event", "tail", "--follow", "--job", "llama", "-n", "1", "-o", "jsonl")
    assert (ran.code, indexes(ran.out)) == (5, [899 - 899 % 3, 902])


# Completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("host show gpu-", [f"gpu-{n}" for n in range(1, 9)]),
        ("host drain gpu-1,gpu-2", ["gpu-1,gpu-2"]),
        ("host drain gpu-[1-", []),
        ("node why x", []),
        ("job show l", ["llama"]),
        ("job why job-", ["job-1", "job-2", "job-3", "job-4"]),
        ("event tail --job e", ["eval", "eval-small"]),
        ("maint cancel op-", ["op-1", "op-2", "op-3", "op-4"]),
        ("maint pause w", ["weekly"]),
        ("maint abort r", ["rollout-1"]),
        ("maint show o", ["op-1", "op-2", "op-3", "op-4"]),
    ],
)  # fmt: skip
def test_completion_asks_the_server(
    words: str, expected: list[str], line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(complete(words, line, monkeypatch)) == expected


def complete(words: str, line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    parts = words.split()
    monkeypatch.setenv("_TRAINMASTER_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "trainmaster " + words)
    monkeypatch.setenv("COMP_CWORD", parts[-1])
    ran = line.run()
    assert (ran.code, ran.err) == (0, "")
    return [row.split(",", 1)[1].split("\t")[0] for row in ran.out.splitlines() if row]


def test_completion_is_silent_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(tmp_path, monkeypatch)
    assert complete("host show gpu-", line, monkeypatch) == []
    monkeypatch.setenv("TRAINMASTER_COLOR", "blue")
    assert complete("job show l", line, monkeypatch) == []
