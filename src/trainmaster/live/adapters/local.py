"""Local fleets: hosts that are processes of one machine.

`up` starts a *nanny*, and the nanny starts a server and an agent for each host and starts again what ends. What a host
has is a directory (its disk), a directory on the memory file system (its memory: gone means rebooted) and the processes
that are named in the latter. So a host can be killed as by a power cut (`kill_host`) and comes back as after a boot.

Every process is recorded by id and start time, so that `down` ends exactly what was started, whatever happened since.

    STATE/run/plan.json        what was asked for
    STATE/run/NAME.json        a process: nanny, server, agent-HOST
    STATE/run/NAME.log         what it said
    STATE/hosts/HOST           the disk of a host; `kernel.log` in it is what its kernel says
    STATE/jobs                 what all hosts share
    STATE/packages             packages of components, for `live.agent.component`
    /dev/shm/trainmaster-FLEET-HASH/HOST     the memory of a host
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainmaster.core.agent.environment import KEEPER
from trainmaster.core.agent.steps import HOST_DIR
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Duration
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.live.adapters.local_ready import Say, size_of, wait_ready
from trainmaster.live.adapters.local_ready import server_url as server_url
from trainmaster.live.agent.files import read_or_none, write_whole
from trainmaster.live.agent.processes import ProcessName, end_tree, is_alive, kill_group, name_of, send, wait_gone
from trainmaster.live.agent.talk import KeeperSpec, RunningGroup
from trainmaster.live.declaration import load
from trainmaster.ports.errors import UserError

MEMORY: Final = Path("/dev/shm")
HOSTS_LIMIT: Final = 64
"""Local hosts are for trying things out; an agent alone takes 40 MB."""
KMSG_HOST: Final = "TRAINMASTER_LOCAL_KMSG"
PROBES: Final = "TRAINMASTER_LOCAL_PROBES"
AGENT_GRACE_S: Final = 22.0
"""An agent gives workers fifteen seconds to save, two more to end, and its last reports one."""
SERVER_GRACE_S: Final = 8.0


class LocalPlan(Value):
    """What a nanny keeps running."""

    fleet: str
    fleet_file: str
    hosts: tuple[HostId, ...]
    memory_root: str
    reboot: Duration


class AlreadyUp(Exception):
    """A nanny runs for this state directory."""


def _run_dir(state: Path) -> Path:
    return state / "run"


def record(state: Path, name: str) -> Path:
    return _run_dir(state) / f"{name}.json"


def log_of(state: Path, name: str) -> Path:
    return _run_dir(state) / f"{name}.log"


def agent_of(host: HostId) -> str:
    return f"agent-{host}"


def host_dir(state: Path, host: HostId) -> Path:
    return state / "hosts" / host


def kernel_log(state: Path, host: HostId) -> Path:
    """The kernel's log of a local host: a file of its own, since all of them share one kernel, and what it says is
    about the machine. A line that is appended here is a line of that host's kernel."""
    return host_dir(state, host) / "kernel.log"


def health_flags(state: Path, host: HostId) -> list[str]:
    """How the agent of a local host looks at its health. The host that `TRAINMASTER_LOCAL_KMSG` names has the machine's
    kernel log, lines of programs included: for tests of the real thing. Probes are off unless
    `TRAINMASTER_LOCAL_PROBES` names some: a machine that is full or hot would drain all its local hosts at once."""
    flags = ["--probes", os.environ.get(PROBES, "none")]
    if os.environ.get(KMSG_HOST) == host:
        return [*flags, "--kernel-log", "/dev/kmsg", "--kmsg-facility", "user"]
    return [*flags, "--kernel-log", str(kernel_log(state, host))]


def memory_dir(plan: LocalPlan, host: HostId) -> Path:
    return Path(plan.memory_root, host)


def process_of(state: Path, name: str) -> ProcessName | None:
    """The recorded process of this name, if it still runs."""
    data = read_or_none(record(state, name))
    if data is None:
        return None
    found = decode(data, ProcessName)
    return found if is_alive(found) else None


def plan_of(state: Path) -> LocalPlan | None:
    data = read_or_none(record(state, "plan"))
    return None if data is None else decode(data, LocalPlan)


def make_plan(state: Path, fleet_file: Path) -> LocalPlan:
    """Raises `UserError` or `trainmaster.live.tomlfile.FileError`."""
    file, _ = load(fleet_file)
    count = len(file.fleet.hosts)
    if count > HOSTS_LIMIT:
        why = f"each is an agent with processes of its own; this machine carries {HOSTS_LIMIT} at most"
        raise UserError(f"{fleet_file} names {count} hosts", why, "bring up a smaller fleet: scenarios/local.toml")
    mark = hashlib.sha256(str(state).encode()).hexdigest()[:8]
    return LocalPlan(
        fleet=file.fleet.name,
        fleet_file=str(fleet_file.absolute()),
        hosts=tuple(host.id for host in file.fleet.hosts),
        memory_root=str(MEMORY / f"trainmaster-{file.fleet.name}-{mark}"),
        reboot=file.reboot,
    )


def spawn(state: Path, name: str, arguments: list[str]) -> ProcessName:
    """Starts one of our own processes in a session of its own, and records it. It may outlive us, so no object of
    ours stands for it (a `Popen` would complain)."""
    log = (str(log_of(state, name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, *log),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    started = name_of(pid)
    assert started is not None, "a child that nobody reaped has gone"
    write_whole(record(state, name), encode(started))
    return started


def runs(process: ProcessName) -> bool:
    """Whether a process runs; collects it if it was our child and has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return is_alive(process)


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One `up` or `down` at a time. Raises `UserError`."""
    try:
        _run_dir(state).mkdir(mode=0o700, parents=True, exist_ok=True)
        with (_run_dir(state) / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise UserError(f"can't use {state}", str(error), "choose another directory with --state") from error


def prepare(state: Path, fleet_file: Path, say: Say) -> LocalPlan:
    """Makes the directories and the plan. Raises `AlreadyUp`, or `UserError` if another fleet is up here or leftovers
    of a crash are in the way."""
    plan = make_plan(state, fleet_file)
    old = plan_of(state)
    if process_of(state, "nanny") is not None:
        if old is not None and old.hosts != plan.hosts:
            why = f"it has {len(old.hosts)} hosts ({old.fleet_file}), the file names {len(plan.hosts)}"
            raise UserError(f"another fleet is up in {state}: {old.fleet}", why, "end it, or give another --state")
        raise AlreadyUp
    if old is not None and not (old == plan and _is_alive(state, old)):
        say(f"ending what an earlier fleet left in {state}")
        _end_everything(state, old)
    write_whole(record(state, "plan"), encode(plan))
    return plan


def _is_alive(state: Path, plan: LocalPlan) -> bool:
    """Server and agents run and only their nanny is missing: a new one looks after them, and no job is disturbed."""
    names = ("server", *map(agent_of, plan.hosts))
    return all(process_of(state, name) is not None for name in names)


def up(state: Path, fleet_file: Path, say: Say) -> LocalPlan:
    """Starts a fleet and returns when all its hosts are there. `say` gets one line for each change. If it does not come
    up, nothing of it stays. Raises `AlreadyUp`, `UserError` or `trainmaster.live.tomlfile.FileError`."""
    state = state.absolute()
    make_plan(state, fleet_file)  # refuses a bad file before anything is written
    with _locked(state):
        plan = prepare(state, fleet_file, say)
        said = size_of(log_of(state, "server"))
        nanny = spawn(state, "nanny", ["trainmaster.live.adapters.nanny", str(state)])
        try:
            wait_ready(state, plan.hosts, said, say, lambda: runs(nanny))
        except BaseException:
            _end_everything(state, plan)
            raise
    return plan


def down(state: Path, say: Say) -> bool:
    """Ends everything that `up` started and removes its memory; logs stay. False if nothing ran. Raises `UserError`."""
    state = state.absolute()
    if plan_of(state) is None:
        return False
    with _locked(state):
        plan = plan_of(state)
        if plan is None:
            return False
        say(f"ending {len(plan.hosts)} hosts")
        _end_everything(state, plan)
    return True


def _end_everything(state: Path, plan: LocalPlan) -> None:
    """The nanny first, so that nothing is started again; then agents with their workers, then the server."""
    _end(state, ("nanny",), signal.SIGKILL, 5.0)
    _end(state, tuple(agent_of(host) for host in plan.hosts), signal.SIGTERM, AGENT_GRACE_S)
    for host in plan.hosts:
        for name in _end_workers(memory_dir(plan, host)):
            wait_gone((name,), 5.0)
        _end_strays(memory_dir(plan, host))
        _end_steps(state, host)
    _end(state, ("server",), signal.SIGTERM, SERVER_GRACE_S)
    shutil.rmtree(plan.memory_root, ignore_errors=True)
    if os.path.exists(plan.memory_root):
        raise UserError(f"{plan.memory_root} can't be removed", "something still writes there", "try again")
    record(state, "plan").unlink(missing_ok=True)


def _end(state: Path, names: tuple[str, ...], number: int, grace_s: float) -> None:
    running = tuple(process for name in names if (process := process_of(state, name)) is not None)
    for process in running:
        send(process, number)
        send(process, signal.SIGCONT)  # a paused one must be able to obey
    for process in wait_gone(running, grace_s):
        send(process, signal.SIGKILL)
    left = wait_gone(running, 5.0)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise UserError(f"processes {pids} do not end", "they were sent SIGKILL", "try again later")
    for process in running:
        runs(process)
    for name in names:
        record(state, name).unlink(missing_ok=True)


def _workers_in(memory: Path) -> tuple[list[ProcessName], list[ProcessName]]:
    """(keepers, leaders of worker groups) that the memory of a host names."""
    keepers = [decode(path.read_bytes(), ProcessName) for path in memory.glob("attempts/*/keeper.json")]
    groups = [decode(path.read_bytes(), RunningGroup) for path in memory.glob("attempts/*/epoch-*/group.json")]
    return keepers, [worker.process for group in groups for worker in group.workers]


def _end_workers(memory: Path) -> list[ProcessName]:
    """SIGKILL for keepers and workers; who was sent it."""
    keepers, leaders = _workers_in(memory)
    for keeper in keepers:
        send(keeper, signal.SIGKILL)
    for leader in leaders:
        kill_group(leader)
    return [*keepers, *leaders]


def _end_strays(memory: Path) -> None:
    """SIGKILL for what workers have started outside of their groups."""
    for path in memory.glob("attempts/*/spec.json"):
        end_tree(None, frozenset({f"{KEEPER}={decode(path.read_bytes(), KeeperSpec).mark}".encode()}), 5.0)


# --- chaos: what demonstrations and tests do to local hosts ---


def _plan_for(state: Path, host: HostId) -> LocalPlan:
    plan = plan_of(state)
    if plan is None:
        raise UserError(f"no fleet runs in {state}", "there is no plan", "start one: trainmaster up FLEET")
    if host not in plan.hosts:
        raise UserError(
            f"{host} is no host of {plan.fleet}", "it is not in the plan", "look at: trainmaster fleet show"
        )
    return plan


def kill_host(state: Path, *names: HostId) -> None:
    """Cuts the power: agent, keepers and workers of the host die at once, its memory and its disk are gone. The nanny
    boots it again after the fleet's `reboot_s`. Several hosts hang on one switch: none can tell that another one is
    gone. Raises `UserError`."""
    _cut_power(state, *names)
    for host in names:
        shutil.rmtree(host_dir(state, host), ignore_errors=True)


def reboot_host(state: Path, host: HostId) -> None:
    """As `kill_host`, but the disk stays. Raises `UserError`."""
    _cut_power(state, host)


def _cut_power(state: Path, *names: HostId) -> None:
    plans = {host: _plan_for(state, host) for host in names}
    dark = [_silence(state, plan, host) for host, plan in plans.items()]
    killed = [process for memory, _ in dark for process in _end_workers(memory)]
    for host in names:
        _end_steps(state, host)
    wait_gone((*killed, *(agent for _, agent in dark if agent is not None)), 5.0)
    for memory, _ in dark:
        _end_strays(memory)
        shutil.rmtree(memory, ignore_errors=True)


def _silence(state: Path, plan: LocalPlan, host: HostId) -> tuple[Path, ProcessName | None]:
    """Kills the agent, which is all that speaks for a host. Where its memory is now, and who the agent was."""
    memory = memory_dir(plan, host)
    gone = memory.with_name(f".{host}-{os.getpid()}-{time.monotonic_ns()}")
    with contextlib.suppress(FileNotFoundError):
        memory.rename(gone)  # first, so that the nanny sees a host without memory, not an agent that crashed
    agent = process_of(state, agent_of(host))
    if agent is not None:
        send(agent, signal.SIGKILL)
    return gone, agent


def _end_steps(state: Path, host: HostId) -> None:
    """SIGKILL for what steps of operations run on a host."""
    end_tree(None, frozenset({f"{HOST_DIR}={host_dir(state.absolute(), host)}".encode()}), 5.0)


def workers_of(state: Path, host: HostId) -> tuple[ProcessName, ...]:
    """The workers that run on a host, by rank of the newest epoch. Raises `UserError`."""
    _, leaders = _workers_in(memory_dir(_plan_for(state, host), host))
    return tuple(leader for leader in leaders if is_alive(leader))


def pause_host(state: Path, host: HostId) -> None:
    """Stops the agent in its tracks (SIGSTOP): connected and silent. Workers run on. Raises `UserError`."""
    _signal_agent(state, host, signal.SIGSTOP)


def resume_host(state: Path, host: HostId) -> None:
    """Lets a paused agent go on. Raises `UserError`."""
    _signal_agent(state, host, signal.SIGCONT)


def kill_agent(state: Path, host: HostId) -> None:
    """Crashes the agent alone; workers run on and the nanny starts it again at once. Raises `UserError`."""
    _signal_agent(state, host, signal.SIGKILL)


def _signal_agent(state: Path, host: HostId, number: int) -> None:
    _plan_for(state, host)
    agent = process_of(state, agent_of(host))
    if agent is None or not send(agent, number):
        raise UserError(f"the agent of {host} does not run", "the host may be rebooting", "try again in a moment")


def kill_server(state: Path) -> None:
    """Crashes the server; the nanny starts it again at once. Raises `UserError`."""
    server = process_of(state, "server")
    if server is None or not send(server, signal.SIGKILL):
        raise UserError(f"no server runs in {state}", "it may be restarting", "try again in a moment")
