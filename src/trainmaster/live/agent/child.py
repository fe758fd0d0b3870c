"""The worker's side of a launch: from the fork to the first line of the script.

The keeper forks; the child gets its own process group, asks the kernel to be killed when the keeper dies, connects its
output to the keeper's pipe, and then either becomes another program (exec) or runs the script in the interpreter that
is already warm. A script runs as `__main__` in a module of its own, as `python script.py` would run it: same
`sys.argv`, `sys.path[0]`, exit codes and tracebacks. What ends it is written to an error record, because the type and
the line of the first error are worth more to its owner than an exit code.

Limit: what the interpreter fixes at its start stays as in the keeper: hash seed, -O, -X and -W. `core.agent.command`
leaves commands that need those to a fresh interpreter.
"""

import builtins
import ctypes
import gc
import importlib.machinery
import mmap
import os
import random
import runpy
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import Final

from trainmaster.core.agent import environment, failure
from trainmaster.core.agent.board import SIZE, Board, Phase
from trainmaster.core.agent.command import PythonCommand, interpreter
from trainmaster.core.base.value import Value, encode
from trainmaster.core.recovery.events import Failure
from trainmaster.live.agent.files import now, write_whole
from trainmaster.live.agent.talk import WorkerPlan
from trainmaster.telemetry.title import rank_title, set_title

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)
EXEC_FAILED: Final = 127


class ChildTask(Value):
    """What a forked child has to do; the keeper's loop returns it, so that no frame of the loop lives on in a
    worker."""

    plan: WorkerPlan
    command: tuple[str, ...]
    workdir: str
    python: PythonCommand | None
    """Set: run it here. None: exec."""
    keeper_pid: int
    output: int
    """Writing end of the pipe for stdout and stderr."""
    control: int
    """Our end of the channel to the keeper."""
    store: int | None


def enter(task: ChildTask) -> None:
    """Makes the fresh fork a process of its own: group, death signal, signals, descriptors, environment, directory.
    Raises `OSError` if the working directory can't be entered."""
    os.setpgid(0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != task.keeper_pid:
        os._exit(1)  # the keeper died in between; the signal will not come
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(task.output, 1)
    os.dup2(task.output, 2)
    for descriptor in (null, task.output):
        os.close(descriptor)
    os.environ.update(task.plan.environment)
    os.environ[environment.WORKER] = str(os.getpid())
    _name(task)
    os.set_inheritable(task.control, True)
    os.environ[environment.CONTROL] = str(task.control)
    if task.store is not None:
        os.set_inheritable(task.store, True)
        os.environ[environment.STORE_FD] = str(task.store)
    if task.plan.board:  # else it is started ahead, and has no place yet
        _announce(task.plan.board)
    os.chdir(task.workdir)


def _name(task: ChildTask) -> None:
    given, command = task.plan.environment, " ".join(task.command)
    job, host = given.get(environment.JOB, ""), given.get(environment.HOST, "")
    if task.plan.board:
        short, text = rank_title(job, str(task.plan.rank), host)
    else:
        short, text = f"tm:{job}/standby", f"trainmaster: stands by for {job} on {host}"
    set_title(short, f"{text}: {command}")


def _announce(path: str) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), SIZE) as page:
        view = memoryview(page)
        board = Board(view)
        board.put("pid", os.getpid())
        board.put("spawned_at", now())
        board.put("phase", Phase.SPAWNED)
        board.publish()
        view.release()


def run(task: ChildTask) -> int:
    """Runs the task; the exit code. Returns only for commands that run in this interpreter or could not be started."""
    try:
        enter(task)
        if task.python is None:
            _become(task.command)
    except OSError as error:
        print(f"trainmaster: can't start {task.command[0]}: {error}", file=sys.stderr, flush=True)
        _record(task.plan.error_record, error, "")
        return EXEC_FAILED
    assert task.python is not None
    _reseed()
    gc.enable()
    return _run_python(task.python, task.plan.error_record)


def _become(command: tuple[str, ...]) -> None:
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; other programs rely on them
        signal.signal(number, signal.SIG_DFL)
    program = interpreter(command[0], sys.executable)
    try:
        os.execvpe(program, (program, *command[1:]), os.environ)
    except FileNotFoundError as error:  # it names the last place of PATH that was tried
        raise FileNotFoundError(error.errno, error.strerror, command[0]) from error


def _reseed() -> None:
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _run_python(command: PythonCommand, error_record: str) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        if command.kind == "module":
            _run_module(command)
        else:
            _run_script(command)
    except SystemExit as leaving:
        return _exit_code(leaving)
    except BaseException as error:  # noqa: BLE001  the script's error of whatever kind ends the worker, with a record
        _tell(error, error_record)
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _run_script(command: PythonCommand) -> None:
    path = os.path.abspath(command.target)
    sys.argv = [command.target, *command.arguments]
    sys.path[0] = os.path.dirname(path)
    code = compile(Path(path).read_bytes(), path, "exec")
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __spec__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __cached__=None,
    )
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _run_module(command: PythonCommand) -> None:
    sys.argv = [command.target, *command.arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(command.target, run_name="__main__", alter_sys=True)


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr, flush=True)
    return 1


def _tell(error: BaseException, error_record: str) -> None:
    told = error.__traceback__
    while told is not None and _is_ours(told.tb_frame.f_code.co_filename):
        told = told.tb_next
    traceback.print_exception(type(error), error, told)
    sys.stderr.flush()
    _record(error_record, error, _location(error, told))


def _is_ours(path: str) -> bool:
    return path == __file__ or path.startswith("<frozen ")


def _location(error: BaseException, told: types.TracebackType | None) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return failure.location([(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(told)])


def _record(path: str, error: BaseException, where: str) -> None:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE", path)  # of the epoch that it is in now
    if not path:
        return
    told = Failure(at=now(), exception=type(error).__name__, message=failure.first_line(str(error)), location=where)
    try:
        write_whole(Path(path), encode(told))
    except OSError as trouble:  # the output still tells it
        print(f"trainmaster: no error record: {trouble}", file=sys.stderr, flush=True)
