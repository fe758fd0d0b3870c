"""Job files: TOML that says what a job asks for.

    schema = "trainmaster.job/v1"            # optional
    name = "llama"
    command = ["python", "train.py", "--steps", "1000"]
    hosts = 4
    ranks_per_host = 8                       # default 1
    spares = 1                               # default 0
    priority = 0                             # -1000 to 1000
    workdir = "."                            # default: the directory of this file
    preload = ["transformers"]               # imported ahead besides what the command needs; false: nothing is
    on_drain = "move"                        # or "finish"
    yield_deadline_s = 60

    [env]
    OMP_NUM_THREADS = "4"

    [checkpoint]
    dir = "checkpoints"                      # default: a directory below the job's own
    every_steps = 100                        # default 0: when asked for and at the end
    # every = "auto"                         # instead: as often as wastes least, chosen while the job runs
    keep = 2
    snapshot_every_steps = 1                 # the default: into the memory of the hosts, at every step; 0: never
    replicate_every_steps = 1                # the default: and from there to another host; 0: never
    room_wait_s = 600                        # the default: how long the last save waits for space on a full disk

    [restart]
    max_restarts = 3
    window_s = 3600
    same_failure_limit = 3
    standby = false                          # true: start workers ahead, on spares too; the script uses tm.run

    [checks]
    agreement_every_steps = 100              # compare data-parallel replicas; the default; 0: never

    [hangs]
    recover = true                           # the default: end ranks that hang, and go on; false: only name them
    bound_s = 120                            # a step that takes longer is a hang; default: by the job's own steps

    [maintenance]                            # what the job asks of planned maintenance; emergencies do not read it
    notice_s = 600                           # from being told until its hosts may leave; default 0
    checkpoint_wait_s = 1800                 # then its next checkpoint is waited for so long; default 0
    protected_until = 2026-12-01T02:00:00Z   # its hosts are not touched before
    expected_duration_s = 86400              # from its start to its end, as far as you know
    wait_for_end_s = 3600                    # it is let to its end if that is no farther away; default 0

Relative paths are resolved against the directory of the file, so that a job means the same from wherever it is
submitted. Defaults and their meaning are those of `core/scheduling/request.py`.
"""

import re
from pathlib import Path
from typing import Final, get_args

from trainmaster.core.agent.command import parse
from trainmaster.core.base.ids import NAME_PATTERN, looks_like_job_id
from trainmaster.core.base.time import in_seconds, seconds
from trainmaster.core.scheduling.request import (
    CheckpointPolicy,
    ChecksPolicy,
    HangPolicy,
    JobSpec,
    MaintenanceContract,
    OnDrain,
    RestartBudget,
)
from trainmaster.live.tomlfile import Document, Table

SCHEMA: Final = "trainmaster.job/v1"
HOSTS_LIMIT: Final = 65_536
RANKS_LIMIT: Final = 1024
_DAY_S: Final = 86_400.0

OURS: Final = "trainmaster.training"
"""In `preload`: all that `trainmaster.training.PRELOAD` names."""
_IMPORT: Final = re.compile(r"^\s*(?:import|from)\s+trainmaster\.training\b", re.MULTILINE)
_HEAD_BYTES: Final = 1 << 20
_OURS: Final = frozenset(
    {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    }
)  # fmt: skip
"""Variables that a launch sets itself, with those that begin with TORCHELASTIC_ or TRAINMASTER_."""


def load(file: Path) -> JobSpec:
    """Reads a job file. Raises `trainmaster.live.tomlfile.FileError` with all problems."""
    document = Document(file, "job file")
    root, base = document.root, file.resolve().parent
    document.check_schema(SCHEMA)
    defaults = JobSpec(name="defaults", command=("true",), hosts=1)
    spec = JobSpec(
        name=_name(root),
        command=_command(root),
        hosts=root.integer("hosts", None, 1, HOSTS_LIMIT),
        ranks_per_host=root.integer("ranks_per_host", defaults.ranks_per_host, 1, RANKS_LIMIT),
        spares=root.integer("spares", defaults.spares, 0, HOSTS_LIMIT),
        priority=root.integer("priority", defaults.priority, -1000, 1000),
        environment=_environment(root),
        workdir=str(base / _path(root, "workdir", ".")),
        preload=_preload(root, base),
        preload_needed=not root.is_off("preload"),
        checkpoint=_checkpoint(root.table("checkpoint"), base),
        restart=_restart(root.table("restart")),
        checks=_checks(root.table("checks")),
        hangs=_hangs(root.table("hangs")),
        contract=_contract(root.table("maintenance")),
        on_drain=_on_drain(root, defaults.on_drain),
        yield_deadline=seconds(root.number("yield_deadline_s", in_seconds(defaults.yield_deadline), 1.0, _DAY_S)),
    )
    root.finish()
    document.finish()
    return spec


def _name(root: Table) -> str:
    name = root.text("name", may_be_empty=False)
    if name and not NAME_PATTERN.fullmatch(name):
        fix = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
        root.note("name", f"{name!r} is not a name", fix)
    elif looks_like_job_id(name):
        root.note("name", f"{name!r} looks like the id of a job", "choose a name that is not job-NUMBER")
    return name


def _command(root: Table) -> tuple[str, ...]:
    command = root.texts("command")
    if not command or not command[0]:
        root.note("command", "the command is empty", 'write the program and its arguments: ["python", "train.py"]')
    if any("\0" in part for part in command):
        root.note("command", "an argument holds a NUL character", "remove it")
    return command


def _preload(root: Table, base: Path) -> tuple[str, ...]:
    """A warm process is a Python interpreter, so what is forked from it must be one too. What the script needs is added
    on the hosts (`live/agent/imports.py`); a job file that says nothing gets ours here already, if its script uses us,
    because that holds for an interpreter of its own as well."""
    if root.is_off("preload"):
        return ()
    if not root.has("preload"):
        return (OURS,) if _uses_us(root.texts("command", ()), base / root.text("workdir", ".")) else ()
    modules = root.texts("preload", ())
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            root.note("preload", f"{module!r} is not the name of a module", 'write it as in an import: "torch.nn"')
    command = root.texts("command", ())
    if modules and command and not re.fullmatch(r"python[0-9.]*", Path(command[0]).name):
        root.note("preload", f"preload needs a Python command, this is {command[0]!r}", "remove preload")
    return modules


def _uses_us(command: tuple[str, ...], workdir: Path) -> bool:
    """Whether the script of a Python command imports our library by itself, as far as can be seen from here: a file
    that can't be read here says no."""
    python = parse(command)
    if python is None:
        return False
    if python.kind == "script":
        files = [workdir / python.target]
    else:
        inner = workdir.joinpath(*python.target.split("."))
        files = [inner.with_suffix(".py"), inner / "__main__.py"]
    if f"{python.target}.".startswith(f"{OURS}."):
        return True
    return any(_IMPORT.search(_head(file)) for file in files if file.is_file())


def _head(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_HEAD_BYTES).decode("utf-8", "replace")
    except PermissionError:
        return ""


def _environment(root: Table) -> dict[str, str]:
    variables = root.mapping("env")
    table = root.table("env")
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            table.note(name, "not the name of a variable", "use letters, digits and '_', no digit first")
        elif "\0" in value:
            table.note(name, "the value holds a NUL character", "remove it")
        elif name in _OURS or name.startswith(("TORCHELASTIC_", "TRAINMASTER_")):
            table.note(name, "every launch sets this variable itself", "remove it")
    return variables


def _path(table: Table, key: str, default: str) -> str:
    """A path that may begin with `~`."""
    path = table.text(key, default)
    if "\0" in path:
        table.note(key, "the path holds a NUL character", "remove it")
        return default
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        table.note(key, f"no home directory for {path!r}", "write the whole path")
        return default


def _checkpoint(table: Table, base: Path) -> CheckpointPolicy:
    defaults = CheckpointPolicy()
    directory = _path(table, "dir", defaults.directory)
    policy = CheckpointPolicy(
        directory=str(base / directory) if table.has("dir") else "",
        every_steps=table.integer("every_steps", defaults.every_steps, 0, 10**9),
        keep=table.integer("keep", defaults.keep, 1, 10_000),
        snapshot_every_steps=table.integer("snapshot_every_steps", defaults.snapshot_every_steps, 0, 10**9),
        replicate_every_steps=table.integer("replicate_every_steps", _copies(table, defaults), 0, 10**9),
        room_wait_s=table.integer("room_wait_s", defaults.room_wait_s, 0, 7 * int(_DAY_S)),
    )
    if policy.replicate_every_steps and not policy.snapshot_every_steps:
        fix = "remove it, or take snapshots: snapshot_every_steps = 1"
        table.note("replicate_every_steps", "copies are made of snapshots, and there are none", fix)
    if table.has("every"):
        policy = policy.but(auto=table.choice("every", "", ("auto",)) == "auto", every_steps=0)
        if table.has("every_steps"):
            table.note("every", 'every = "auto" chooses the number of steps itself', "remove every_steps, or every")
    if "://" in table.text("dir", ""):
        fix = "write a path that all hosts share; a script of its own writes to a bucket (CheckpointWriter)"
        table.note("dir", "a job keeps its checkpoints in a directory, this is an address", fix)
    if table.has("dir") and not table.text("dir", ""):
        table.note("dir", "the path is empty", "write a path, or remove the key for a directory below the job's own")
    table.finish()
    return policy


def _copies(table: Table, defaults: CheckpointPolicy) -> int:
    """Without snapshots there is nothing to copy, unless somebody says so."""
    without = table.has("snapshot_every_steps") and table.integer("snapshot_every_steps", 1, 0, 10**9) == 0
    return 0 if without else defaults.replicate_every_steps


def _restart(table: Table) -> RestartBudget:
    defaults = RestartBudget()
    budget = RestartBudget(
        max_restarts=table.integer("max_restarts", defaults.max_restarts, 0, 10_000),
        window=seconds(table.number("window_s", in_seconds(defaults.window), 1.0, 30 * _DAY_S)),
        same_failure_limit=table.integer("same_failure_limit", defaults.same_failure_limit, 1, 1000),
        standby=table.flag("standby"),
    )
    table.finish()
    return budget


def _checks(table: Table) -> ChecksPolicy:
    key = "agreement_every_steps"
    policy = ChecksPolicy(agreement_every_steps=table.integer(key, 0, 0, 10**9) if table.has(key) else None)
    table.finish()
    return policy


def _hangs(table: Table) -> HangPolicy:
    bound_s = table.number("bound_s", 0.0, 1.0, _DAY_S)
    recover = table.flag("recover", HangPolicy().recover)
    policy = HangPolicy(recover=recover, bound=seconds(bound_s) if table.has("bound_s") else None)
    table.finish()
    return policy


def _contract(table: Table) -> MaintenanceContract:
    far_s = 366 * _DAY_S
    expected_s = table.number("expected_duration_s", 0.0, 1.0, far_s)
    contract = MaintenanceContract(
        notice=seconds(table.number("notice_s", 0.0, 0.0, far_s)),
        checkpoint_wait=seconds(table.number("checkpoint_wait_s", 0.0, 0.0, far_s)),
        protected_until=table.instant("protected_until"),
        expected_duration=seconds(expected_s) if table.has("expected_duration_s") else None,
        wait_for_end=seconds(table.number("wait_for_end_s", 0.0, 0.0, far_s)),
    )
    if contract.wait_for_end and contract.expected_duration is None:
        table.note("wait_for_end_s", "nobody knows when it ends", "add expected_duration_s, or remove this")
    table.finish()
    return contract


def _on_drain(root: Table, default: OnDrain) -> OnDrain:
    choice = root.choice("on_drain", default, get_args(OnDrain))
    return "finish" if choice == "finish" else "move"
