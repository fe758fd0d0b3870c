"""`trainmaster job` against canned answers: what is asked, what is told, which exit code."""

import json

import pytest
from tests.fakes.api import AT, WAITS, Asked, FakeApi, detail, frame, hold, host, job, progress, saved
from tests.fakes.command import CommandLine

from trainmaster.cli import client as client_module
from trainmaster.cli.follow import status_line
from trainmaster.cli.job import ahead_of, would_help
from trainmaster.core.base.ids import AttemptId, EffectId, HostId, JobId
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.value import decode, encode
from trainmaster.core.events import TimePassed
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.server.resources import ChangeReport, JobChange, JobDetail, JobSubmission, Problem, SubmitReport


def submit(api: FakeApi, line: CommandLine, answer: SubmitReport, *words: str) -> tuple[int, str, str]:
    (line.home / "job.toml").write_text('name = "llama"\ncommand = ["python", "train.py"]\nhosts = 2\n')
    api.answer("POST", "/v1/jobs", answer)
    return line.run("job", "submit", "job.toml", *words)


STARTS = SubmitReport(
    index=901, dry_run=False, job=JobId("job-1"), would_start_on=(HostId("gpu-1"), HostId("gpu-2")), waits=None
)


def test_submit_prints_the_id_alone(api: FakeApi, line: CommandLine) -> None:
    ran = submit(api, line, STARTS)
    assert ran == (0, "job-1\n", "llama starts on 2 hosts gpu-[1-2]\n")
    body = decode(api.bodies("/v1/jobs")[0], JobSubmission)
    assert (body.spec.name, body.spec.hosts, body.spec.workdir, body.dry_run) == ("llama", 2, str(line.home), False)


def test_submit_says_what_it_would_do(api: FakeApi, line: CommandLine) -> None:
    plan = STARTS.but(dry_run=True, job=None, would_start_on=(), waits=WAITS)
    ran = submit(api, line, plan, "--dry-run")
    assert ran[:2] == (0, "")
    assert ran[2].startswith("llama would wait: not-enough-hosts: wants 2 hosts and 1 spare, 1 is free\n")
    assert decode(api.bodies("/v1/jobs")[0], JobSubmission).dry_run


def test_a_job_file_with_problems_is_not_sent(api: FakeApi, line: CommandLine) -> None:
    (line.home / "job.toml").write_text('name = "Llama"\ncommand = []\nhosts = 0\n')
    ran = line.run("job", "submit", "job.toml")
    assert ran.code == 2
    assert "problems" in ran.err
    assert api.asked == []


def test_a_directory_for_checkpoints_that_cannot_be(api: FakeApi, line: CommandLine) -> None:
    """1. Its parent is a file: refused with the way out, and nothing is sent. 2. One that is missing can be made.
    3. One that only this machine may lack is for the hosts to judge."""
    text = 'name = "llama"\ncommand = ["true"]\nhosts = 2\n[checkpoint]\ndir = "{}"\n'
    (line.home / "job.toml").write_text(text.format("job.toml/c"))
    ran = line.run("job", "submit", "job.toml")
    assert (ran.code, api.asked) == (2, [])
    assert f"{line.home}/job.toml is no directory" in ran.err
    assert "name another dir under [checkpoint]" in ran.err
    api.answer("POST", "/v1/jobs", STARTS)
    for there in ("new/c", "/no-mount-of-this-machine"):
        (line.home / "job.toml").write_text(text.format(there))
        assert line.run("job", "submit", "job.toml").code == 0


def test_a_name_that_is_taken(api: FakeApi, line: CommandLine) -> None:
    (line.home / "job.toml").write_text('name = "llama"\ncommand = ["true"]\nhosts = 2\n')
    api.refuse("POST", "/v1/jobs", 409, because(Token.NAME_TAKEN, "a job named llama is active already (job-1)"))
    ran = line.run("job", "submit", "job.toml")
    assert ran.code == 1
    assert "a job named llama is active already (job-1)" in ran.err


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower asks for the job after every message."""
    monkeypatch.setattr("trainmaster.cli.follow.ASK_EVERY_S", 0.0)
    monkeypatch.setattr("trainmaster.cli.follow.ASK_AT_MOST_EVERY_S", 0.0)


def details(api: FakeApi, *views: JobDetail) -> None:
    """What is answered about job-1, in turn; the last one for ever."""
    left = list(views)
    api.answers["GET", "/v1/jobs/job-1"] = lambda asked: (200, encode(left.pop(0) if len(left) > 1 else left[0]))


REFORMING = {"attempt_state": "re-forming", "reason": because(Token.HOST_LOST, "host gpu-2 was lost")}


def ended(state: str, **more: object) -> JobDetail:
    return detail(job(1, "llama", state, **more))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_wait_ends_with_the_job(state: str, code: int, api: FakeApi, line: CommandLine) -> None:
    """1. Submitted. 2. It re-forms and ends. 3. The exit code tells how; stdout holds the id alone."""
    details(api, detail(job(1, "llama")), detail(job(1, "llama", **REFORMING)), ended(state))
    api.streams = [frame(901, saved(1300)) + frame(902, TimePassed(at=AT)) + b": still here\n\n"]
    ran = submit(api, line, STARTS, "--wait")
    assert ran[:2] == (code, "job-1\n")
    told = ran[2].splitlines()
    assert told[1] == "08:00:00Z  job-1 llama is running on 2 hosts gpu-[1-2]"
    assert told[2] == "08:00:00Z  job-1.a1 epoch 1: checkpoint of step 1,300 published"
    assert told[3] == "08:00:00Z  job-1 llama is re-forming on 2 hosts gpu-[1-2]: host-lost: host gpu-2 was lost"
    assert told[5] == f"08:00:00Z  job-1 llama is {state}"
    assert api.asked[2].query == {"since": "901", "job": "job-1"}


def test_wait_no_longer_than_that(api: FakeApi, line: CommandLine) -> None:
    details(api, detail(job(1, "llama")))
    api.streams = [b": still here\n\n"] * 50
    ran = submit(api, line, STARTS, "--wait", "--timeout", "1ms")
    assert ran[0] == 6
    assert "llama (job-1) did not end within 1 ms" in ran[2]
    assert "trainmaster job watch job-1" in ran[2]


def test_watching_a_job_that_has_ended(api: FakeApi, line: CommandLine) -> None:
    details(api, ended("failed", reason=because(Token.WORKER_EXITED, "rank 3 failed: ValueError")))
    ran = line.run("job", "watch", "job-1")
    assert ran.code == 1
    assert ran.out.endswith("llama is failed: worker-exited: rank 3 failed: ValueError\n")
    assert "llama (job-1) failed" in ran.err


@pytest.mark.usefixtures("at_once")
def test_watch_for_programs(api: FakeApi, line: CommandLine) -> None:
    details(api, detail(job(1, "llama")), ended("finished"))
    figures = progress(job(1, "llama"), 1250)
    api.streams = [b"event: progress\ndata: %s\n\n" % encode(figures) + frame(901, saved(1300))]
    ran = line.run("job", "watch", "job-1", "-o", "jsonl")
    rows = [json.loads(text) for text in ran.out.splitlines()]
    assert ran.code == 0
    assert [row["schema"] for row in rows] == [f"trainmaster.{kind}/v1" for kind in ("job", "progress", "job")]
    assert rows[1]["step"] == 1250


@pytest.mark.usefixtures("at_once")
def test_watch_on_a_terminal_redraws_one_line(api: FakeApi, line: CommandLine) -> None:
    """1. Figures come: the last line tells step, loss, speed, hosts. 2. The server goes away and comes back: the line
    says so. 3. At the end the line is wiped."""
    details(api, *[detail(job(1, "llama"))] * 3, ended("finished"))
    figures = progress(job(1, "llama"), 1250)
    api.streams = [b"event: progress\ndata: %s\n\n" % encode(figures), frame(901, saved(1300)) + b": x\n\n"]
    ran = line.run("job", "watch", "job-1", terminal=True)
    drawn = ran.out.split("\r\033[K")
    assert ran.code == 0
    assert "llama running  step 1,250  loss 2.3125  0.250 s/step  saved 1,200  2 hosts" in ran.out
    assert any(text.startswith("no server (the server closed the stream)  llama running") for text in drawn)
    assert "08:00:00Z  job-1.a1 epoch 1: checkpoint of step 1,300 published\n" in drawn
    assert drawn[-1] == ""


def test_the_status_line_shows_what_is_current_and_known() -> None:
    """1. Figures of this epoch are shown. 2. Those of an earlier attempt, and of a script that reports no steps, are
    not. 3. A reason whose token only repeats the state is told once."""
    view = job(1, "llama")
    figures = progress(view, 1250)
    assert "step 1,250  loss 2.3125" in status_line(view, figures, "")
    for stale in (figures.but(attempt=AttemptId("job-1.a0")), figures.but(epoch=0), figures.but(step=-1)):
        assert status_line(view, stale, "") == "llama running  2 hosts gpu-[1-2] +1 spare"
    finished = job(1, "llama", "finished", reason=because(Token.FINISHED, "all ranks ended with success"))
    assert status_line(finished, figures, "") == "llama finished  all ranks ended with success"


def test_goodput_is_unknown_without_steps(api: FakeApi, line: CommandLine) -> None:
    api.answer("GET", "/v1/jobs/llama", detail(job(1, "llama", step=-1), progress=None))
    ran = line.run("job", "show", "llama", "--columns", "goodput,progress")
    assert ran.out == "goodput:   unknown, no step was reported in 2 min\nprogress:  -\n"


@pytest.mark.usefixtures("at_once")
def test_what_agents_did_as_asked_is_left_out(api: FakeApi, line: CommandLine) -> None:
    """1. An effect was done, another failed. 2. A reader is told of the failure, a program of both."""
    done = EffectEnded(at=AT, host=HostId("gpu-1"), effect=EffectId("e9.1"), outcome="done")
    failed = done.but(effect=EffectId("e9.2"), outcome="failed", detail="disk full")
    for form, expected in (("table", ["e9.2"]), ("jsonl", ["e9.1", "e9.2"])):
        details(api, *[detail(job(1, "llama"))] * 3, ended("finished"))
        api.streams = [frame(901, done) + frame(902, failed) + b": x\n\n"]
        told = line.run("job", "watch", "job-1", "-o", form).out
        assert [name for name in ("e9.1", "e9.2") if name in told] == expected


def test_ctrl_c_ends_the_watching_only(api: FakeApi, line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client_module.Client, "watch", interrupted)
    assert line.run("job", "watch", "llama").code == 130


def test_cancel_shows_what_is_lost(api: FakeApi, line: CommandLine) -> None:
    api.answer("POST", "/v1/jobs/job-1/cancel", ChangeReport(index=901, dry_run=True, sentence="llama is cancelled"))
    ran = line.run("job", "cancel", "llama", "--dry-run")
    assert ran.code == 0
    assert "would cancel llama (job-1, running) on 2 hosts gpu-[1-2]; 34 steps since the last checkpoint" in ran.out
    ran = line.run("job", "cancel", "llama", "--reason", "wrong data", answers="y\n")
    assert (ran.code, ran.out) == (0, "llama is cancelled\n")
    assert [decode(body, JobChange).dry_run for body in api.bodies("/v1/jobs/job-1/cancel")] == [True, True, False]


def test_what_cannot_be_cancelled(api: FakeApi, line: CommandLine) -> None:
    api.refuse("POST", "/v1/jobs/job-2/cancel", 409, because(Token.ALREADY_ENDED, "broken (job-2) is failed already"))
    ran = line.run("job", "cancel", "broken", "--reason", "x", "--yes")
    assert ran.code == 1
    assert "trainmaster job requeue" in ran.err
    assert line.run("job", "cancel", "nothing", "--reason", "x", "--yes").code == 3


def test_logs(api: FakeApi, line: CommandLine) -> None:
    api.answer("GET", "/v1/jobs/llama/logs", "step 1\nstep 2")
    assert line.run("job", "logs", "llama", "--rank", "3", "--epoch", "2", "-n", "5").out == "step 1\nstep 2\n"
    assert api.asked[0].query == {"rank": "3", "epoch": "2", "lines": "5"}
    api.answer("GET", "/v1/jobs/llama/logs", "")
    api.answer("GET", "/v1/jobs/llama", detail(job(1, "llama")))
    assert line.run("job", "logs", "llama") == (0, "", "rank 0 has written nothing\n")


def test_logs_of_a_job_that_was_re_formed(api: FakeApi, line: CommandLine) -> None:
    """1. Epoch 4 is the newest and empty, the host of epoch 3 is gone, epoch 2 has output, epoch 1 as well. 2. That of
    epoch 2 is printed, and it is said where it is from. 3. Asked for epoch 4, there is none. 4. Nothing anywhere."""
    written = {"1": b"first\n", "2": b"second\n"}

    def answer(asked: Asked) -> tuple[int, bytes]:
        if asked.query["epoch"] == "3":
            return 504, encode(Problem(reason=because(Token.HOST_SILENT, "the output lies on gpu-9"), fix=""))
        return 200, written.get(asked.query["epoch"], b"")

    api.answers["GET", "/v1/jobs/llama/logs"] = answer
    api.answer("GET", "/v1/jobs/llama", detail(job(1, "llama", epoch=4)))
    ran = line.run("job", "logs", "llama")
    assert (ran.code, ran.out) == (0, "second\n")
    assert ran.err == (
        "epoch 3 is unknown: the output lies on gpu-9\n"
        "rank 0 has written nothing in epoch 4, the newest; this is from epoch 2\n"
    )
    assert line.run("job", "logs", "llama", "--epoch", "4") == (0, "", "rank 0 has written nothing in epoch 4\n")
    written.clear()
    assert line.run("job", "logs", "llama").err.endswith("rank 0 has written nothing\n")


def test_who_is_ahead() -> None:
    """Higher priority first, then who waits longer; jobs that run are not in the queue."""
    mine = job(5, "mine", "queued")
    others = [
        job(4, "before", "queued"),
        job(6, "after", "queued"),
        job(7, "urgent", "queued", priority=5),
        job(1, "runs"),
    ]
    assert [each.name for each in ahead_of(mine, [*others, mine])] == ["urgent", "before"]


def test_what_would_help() -> None:
    rows = would_help(
        [
            host("h1", attempt=AttemptId("job-1.a2")),
            host("h2", connected=False),
            host("h3", holds=(hold("person:kim", "x"),)),
            host("h4", "verifying"),
            host("h5"),
        ]
    )
    assert rows == (
        "if jobs ended: 1 host h1 run job-1",
        "if their holds were lifted: 1 host h3",
        "when they pass verification: 1 host h4",
        "when their agents answer again: 1 host h2",
    )
