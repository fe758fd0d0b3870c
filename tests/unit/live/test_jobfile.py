"""Job files: what they mean, and that a bad one names everything that is wrong with it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.time import HOUR, MINUTE, SECOND, Duration, Instant
from trainmaster.core.scheduling.request import (
    CheckpointPolicy,
    ChecksPolicy,
    HangPolicy,
    JobSpec,
    MaintenanceContract,
    RestartBudget,
)
from trainmaster.live.jobfile import load
from trainmaster.live.tomlfile import FileError, line_of

FULL = """
schema = "trainmaster.job/v1"
name = "llama"
command = ["python3.11", "train.py"]
hosts = 4
ranks_per_host = 8
spares = 1
priority = -5
workdir = "code"
preload = ["torch", "torch.distributed"]
on_drain = "finish"
yield_deadline_s = 90

[env]
OMP_NUM_THREADS = "4"

[checkpoint]
dir = "ckpt"
every_steps = 100
keep = 3

[checks]
agreement_every_steps = 0

[hangs]
recover = false
bound_s = 90

[restart]
max_restarts = 5
standby = true
window_s = 1800.5
same_failure_limit = 2
"""
SMALL = 'name = "a"\ncommand = ["true"]\nhosts = 1\n'


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(FileError) as caught:
        load(file)
    return [str(problem) for problem in caught.value.problems]


def test_reads_every_key(tmp_path: Path) -> None:
    """1. A file with all keys is read. 2. Relative paths stand against its directory."""
    (tmp_path / "job.toml").write_text(FULL)
    assert load(tmp_path / "job.toml") == JobSpec(
        name="llama",
        command=("python3.11", "train.py"),
        hosts=4,
        ranks_per_host=8,
        spares=1,
        priority=-5,
        environment={"OMP_NUM_THREADS": "4"},
        workdir=str(tmp_path / "code"),
        preload=("torch", "torch.distributed"),
        checkpoint=CheckpointPolicy(directory=str(tmp_path / "ckpt"), every_steps=100, keep=3),
        checks=ChecksPolicy(agreement_every_steps=0),
        hangs=HangPolicy(recover=False, bound=Duration(90_000_000)),
        restart=RestartBudget(max_restarts=5, window=1_800_500_000, same_failure_limit=2, standby=True),
        on_drain="finish",
        yield_deadline=90 * SECOND,
    )


def test_defaults(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(SMALL)
    spec = load(tmp_path / "job.toml")
    assert spec == JobSpec(name="a", command=("true",), hosts=1, workdir=str(tmp_path))
    assert (spec.restart.window, spec.yield_deadline) == (HOUR, MINUTE)


def test_preloading_adds_to_what_is_needed_or_is_off(tmp_path: Path) -> None:
    """1. Names are added to what is needed. 2. `false` switches both off, also for what is no Python. 3. `true` says
    nothing."""
    (tmp_path / "job.toml").write_text(SMALL.replace('"true"', '"python"') + 'preload = ["json"]\n')
    spec = load(tmp_path / "job.toml")
    assert (spec.preload, spec.preload_needed) == (("json",), True)
    (tmp_path / "job.toml").write_text(f"{SMALL}preload = false\n")
    spec = load(tmp_path / "job.toml")
    assert (spec.preload, spec.preload_needed) == ((), False)
    assert "write a list of strings" in problems(tmp_path, f"{SMALL}preload = true\n")[0]


def test_how_often_to_save_may_be_left_open(tmp_path: Path) -> None:
    """1. `every = "auto"`. 2. Both ways at once, and other words, are refused."""
    (tmp_path / "job.toml").write_text(f'{SMALL}[checkpoint]\nevery = "auto"\n')
    assert load(tmp_path / "job.toml").checkpoint == CheckpointPolicy(auto=True)
    both = problems(tmp_path, f'{SMALL}[checkpoint]\nevery = "auto"\nevery_steps = 5\n')
    assert len(both) == 1
    assert "remove every_steps, or every" in both[0]
    assert "'often' is not known" in problems(tmp_path, f'{SMALL}[checkpoint]\nevery = "often"\n')[0]


def test_copies_of_no_snapshots(tmp_path: Path) -> None:
    """1. Without snapshots nothing is copied. 2. To ask for copies all the same is refused, with the way out."""
    (tmp_path / "job.toml").write_text(f"{SMALL}[checkpoint]\nsnapshot_every_steps = 0\n")
    asked = load(tmp_path / "job.toml").checkpoint
    assert (asked.snapshot_every_steps, asked.replicate_every_steps) == (0, 0)
    table = "[checkpoint]\nsnapshot_every_steps = 0\nreplicate_every_steps = 5\n"
    assert problems(tmp_path, SMALL + table) == [
        "line 6: checkpoint.replicate_every_steps: copies are made of snapshots, and there are none; "
        "remove it, or take snapshots: snapshot_every_steps = 1"
    ]


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = 'nam = "x"\ncommand = []\nhosts = 0\nranks_per_host = "8"\n[env]\nA = 1\n[checkpoint]\nkeep = 0\n'
    assert problems(tmp_path, text) == [
        "name: this key is missing; add name, a string in quotes",
        "line 1: nam: this key is not known; did you mean name?",
        'line 2: command: the command is empty; write the program and its arguments: ["python", "train.py"]',
        "line 3: hosts: 0 is out of range; use 1 to 65536",
        "line 4: ranks_per_host: this is a string; write a whole number",
        'line 6: env.A: not a string; write A = "1"',
        "line 8: checkpoint.keep: 0 is out of range; use 1 to 10000",
    ]


@pytest.mark.parametrize(
    ("command", "preload", "expected"),
    [
        ('["python", "ours.py", "--steps", "9"]', "", ("trainmaster.training",)),
        ('["python", "-u", "sub/deep.py"]', "", ("trainmaster.training",)),
        ('["python", "-m", "sub.deep"]', "", ("trainmaster.training",)),
        ('["python", "-m", "sub"]', "", ("trainmaster.training",)),
        ('["python", "-m", "trainmaster.training.reference"]', "", ("trainmaster.training",)),
        ('["python", "theirs.py"]', "", ()),
        ('["python", "-m", "nowhere"]', "", ()),
        ('["python", "-c", "import trainmaster.training"]', "", ()),
        ('["./ours.py"]', "", ()),
        ('["python", "ours.py"]', "preload = []\n", ()),
        ('["python", "ours.py"]', 'preload = ["torch"]\n', ("torch",)),
    ],
)
def test_a_script_that_uses_us_is_preloaded(
    tmp_path: Path, command: str, preload: str, expected: tuple[str, ...]
) -> None:
    """1. The job file says nothing of `preload`: a script that imports our library gets it. 2. What is said counts."""
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "ours.py").write_text("import torch\nimport trainmaster.training as tm\n")
    (tmp_path / "work" / "theirs.py").write_text("import torch  # no import trainmaster.training here\n")
    for name in ("deep.py", "__main__.py"):
        (tmp_path / "work" / "sub" / name).write_text("if True:\n    from trainmaster.training import session\n")
    file = tmp_path / "job.toml"
    file.write_text(f'name = "x"\ncommand = {command}\nhosts = 1\nworkdir = "work"\n{preload}')
    assert load(file).preload == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('schema = "trainmaster.job/v2"', "this is 'trainmaster.job/v2'; a job file has schema"),
        ("priority = 1001", "out of range; use -1000 to 1000"),
        ("priority = true", "this is true or false; write a whole number"),
        ("priority = 1.5", "this is a number; write a whole number"),
        ("spares = -1", "out of range"),
        ("spares = 2026-01-01", "this is a date or time"),
        ('on_drain = "mov"', 'did you mean "move"?'),
        ('on_drain = "zzz"', "known are move, finish"),
        ("yield_deadline_s = nan", "out of range"),
        ("yield_deadline_s = inf", "out of range"),
        ('preload = ["torch"]', "needs a Python command, this is 'true'"),
        ('preload = ["a b"]', "not the name of a module"),
        ("preload = [1]", "not all items are strings"),
        ('workdir = "\\u0000"', "NUL"),
        ("env = 3", "write a table: [env]"),
        ('env = {RANK = "1"}', "every launch sets this variable itself"),
        ('env = {TRAINMASTER_JOB = "1"}', "every launch sets this variable itself"),
        ('env = {"1A" = "1"}', "not the name of a variable"),
        ("env = {A = true}", 'write A = "true"'),
        ('checkpoint = {dir = ""}', "the path is empty"),
        ('checkpoint = {dir = "s3://bucket/x"}', "a job keeps its checkpoints in a directory, this is an address"),
        ("restart = {max_restart = 1}", "did you mean max_restarts?"),
        ("hosts = 2", "this is not TOML"),
    ],
)
def test_one_problem(tmp_path: Path, line: str, expected: str) -> None:
    (found,) = problems(tmp_path, SMALL + line + "\n")
    assert expected in found
    assert found.startswith("line 4: ")


@pytest.mark.parametrize("name", ["A", "-a", "a_b", "a" * 64, "a.b"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    (found,) = problems(tmp_path, SMALL.replace('"a"', f'"{name}"'))
    assert "is not a name" in found


def test_a_name_is_no_id(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, SMALL.replace('"a"', '"job-7"'))
    assert "looks like the id of a job" in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        load(tmp_path / "none.toml")
    with pytest.raises(FileError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(FileError, match="not UTF-8"):
        load(tmp_path / "bytes.toml")


def test_lines_of_keys() -> None:
    text = "a = 1\n[[c]]\nx = 1\n[[c.h]]\ny = 1\n[[c.h]]\ny = 2\n[[c]]\n[[c.h]]\ny = 3\n[t.u]\nz = 1\n"
    expected = {
        ("a",): 1,
        ("c", 0): 2,
        ("c", 0, "x"): 3,
        ("c", 0, "h", 0, "y"): 5,
        ("c", 0, "h", 1, "y"): 7,
        ("c", 1, "h", 0, "y"): 10,
        ("t", "u", "z"): 12,
    }
    assert {path: line_of(text, path) for path in expected} == expected
    assert line_of(text, ("c", 0, "h", 1, "missing")) == 6
    assert line_of(text, ("missing",)) is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(FileError):
        load(file)


def test_what_a_job_asks_of_maintenance(tmp_path: Path) -> None:
    """1. All keys. 2. A time without an offset, and a wait for an end that nobody knows, are refused."""
    file = tmp_path / "job.toml"
    table = "[maintenance]\nnotice_s = 60\ncheckpoint_wait_s = 5.5\nprotected_until = 2026-12-01T02:00:00+01:00\n"
    file.write_text(SMALL + table + "expected_duration_s = 3600\nwait_for_end_s = 60\n")
    assert load(file).contract == MaintenanceContract(
        notice=Duration(MINUTE),
        checkpoint_wait=Duration(5_500_000),
        protected_until=Instant(1_796_086_800_000_000),
        expected_duration=Duration(HOUR),
        wait_for_end=Duration(MINUTE),
    )
    file.write_text(SMALL)
    assert load(file).contract == MaintenanceContract()
    (problem,) = problems(tmp_path, SMALL + "[maintenance]\nprotected_until = 2026-12-01T02:00:00\n")
    assert "without an offset" in problem
    (problem,) = problems(tmp_path, SMALL + "[maintenance]\nwait_for_end_s = 5\n")
    assert "nobody knows when it ends" in problem
