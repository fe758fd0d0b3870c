"""Reading commands, and the environment of workers."""

import pytest

from trainmaster.core.agent.command import PythonCommand, interpreter, parse
from trainmaster.core.agent.contract import base_environment, worker_environment
from trainmaster.core.base.ids import AttemptId, EffectId, HostId, JobId
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt


@pytest.mark.parametrize(
    ("command", "kind", "target", "arguments"),
    [
        ("python train.py --x 1", "script", "train.py", ("--x", "1")),
        ("python3 -u train.py", "script", "train.py", ()),
        ("/opt/py/bin/python3.11 -uB -m pkg.train a -m b", "module", "pkg.train", ("a", "-m", "b")),
    ],
)
def test_python_commands_are_read(command: str, kind: str, target: str, arguments: tuple[str, ...]) -> None:
    """1. A command. 2. What a warm process has to run."""
    assert parse(tuple(command.split())) == PythonCommand(kind=kind, target=target, arguments=arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "bash run.sh",
        "python",
        "python -m",
        "python -c pass",
        "python -O a.py",
        "python -X dev a.py",
        "pythonic a.py",
    ],
)
def test_other_commands_need_a_fresh_process(command: str) -> None:
    """1. A command that an interpreter that runs already can't run. 2. It is left alone."""
    assert parse(tuple(command.split())) is None


def test_interpreter_of_a_bare_name_is_the_agents_own() -> None:
    """1. A bare python name, a path, another program. 2. Only the first is replaced."""
    assert [interpreter(name, "/own") for name in ("python3", "/x/python", "bash")] == ["/own", "/x/python", "bash"]


PREPARE = PrepareAttempt(
    id=EffectId("e1.1"),
    hosts=(HostId("h1"),),
    attempt=AttemptId("job-1.a2"),
    job=JobId("job-1"),
    job_name="n",
    command=("python", "t.py"),
    environment={"PYTHONPATH": "/job", "OMP_NUM_THREADS": "4"},
    workdir="/w",
    preload=(),
    checkpoint_directory="",
    checkpoint_every_steps=5,
    checkpoint_keep=2,
    max_restarts=3,
)


def test_base_environment_hides_the_agent_and_keeps_the_job() -> None:
    """1. The agent has a secret and a relative module path. 2. The job's own variables win, the secret is gone, the
    module path is absolute and behind the job's."""
    own = {"TRAINMASTER_SECRET": "x", "PATH": "/bin", "PYTHONPATH": "src", "OMP_NUM_THREADS": "9"}
    made = base_environment(own, PREPARE, "/repo")
    assert made == {"PATH": "/bin", "PYTHONPATH": "/job:/repo/src", "OMP_NUM_THREADS": "4"}
    assert base_environment({}, PREPARE.but(environment={}), "/repo") == {"OMP_NUM_THREADS": "1"}


def test_ranks_of_the_second_host() -> None:
    """1. Host 1 of 2 has ranks 2 and 3. 2. Its second worker sees itself in the right place."""
    launch = LaunchWorkers(
        id=EffectId("e2.1"),
        hosts=(HostId("h2"),),
        attempt=PREPARE.attempt,
        epoch=4,
        node_rank=1,
        ranks=2,
        world=4,
        master_address="10.0.0.1",
        master_port=5000,
        restart_count=3,
    )
    seen = worker_environment(PREPARE, launch, 1, "/board", "/error", "/jobs/job-1", "/shm/memory")
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    expected |= {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5000", "TORCHELASTIC_RESTART_COUNT": "3"}
    expected |= {"TRAINMASTER_ARENA": "/shm/memory/arena-3", "TRAINMASTER_SNAPSHOT_EVERY_STEPS": "0"}
    expected |= {"TRAINMASTER_EPOCH": "4", "TRAINMASTER_CHECKPOINT_DIR": "/jobs/job-1/checkpoints"}
    assert {name: seen[name] for name in expected} == expected
    assert (seen["TRAINMASTER_JOB"], seen["TRAINMASTER_OWNER"]) == ("job-1", "job-1")
    other = worker_environment(
        PREPARE.but(fleet="f3a9c2d1"), launch, 1, "/board", "/error", "/jobs/job-1", "/shm/memory"
    )
    assert (other["TRAINMASTER_JOB"], other["TRAINMASTER_OWNER"]) == ("job-1", "job-1@f3a9c2d1")
