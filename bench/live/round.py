"""One round: a fresh server, agents and a client, for some seconds; what it took, and what it left on the disk."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx

from bench.live import agents, client
from trainmaster.core.base.ids import ComponentName, HostId, KindName, Owner
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.engine import Engine
from trainmaster.core.events import CatalogueDeclared
from trainmaster.core.maintenance.catalogue import UPGRADE, Catalogue, takes_capacity
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.adapters.system_clock import SystemClock
from trainmaster.live.cataloguefile import load
from trainmaster.live.server.links import AgentLinks
from trainmaster.live.server.main import LOG_FILE, ServerFile
from trainmaster.live.server.runtime import Runtime

HOSTS: Final = 128
HOST_NAMES: Final = tuple(HostId(f"h{number}") for number in range(HOSTS))
AGENT_PROCESSES: Final = 2
DEADLINE_S: Final = 90.0
CATALOGUE: Final = Path(__file__).parents[2] / "scenarios" / "catalogue.toml"
FLEET: Final = f"""\
schema = "trainmaster.fleet/v1"
name = "bench"
[[cluster]]
name = "bench"
fabric = "loopback"
[[cluster.hosts]]
list = "h[0-{HOSTS - 1}]"
platform = "grand-teton"
[agents]
heartbeat_s = 10
"""
"""The agents of the bench send heartbeats each second, as by default; but a machine with no time for them, so that they
fall silent for seconds, shall give a bad figure and not none."""
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Round(Value):
    operations: int
    """Requested and done."""
    per_s: float
    """Done within the time in which requests were sent, a second of it."""
    first_effect_ms: tuple[float, ...]
    """From the request to the first effect at the agent, sorted."""
    done_ms: tuple[float, ...]
    """From the request to the acknowledgement of the outcome, sorted."""
    cpu_us: dict[str, float]
    """Processor time of each kind of process an operation, in microseconds."""
    rows: tuple[tuple[int, int], ...]
    """Sizes of the events and the effects of the rows that the round wrote."""
    rows_a_commit: float
    """By the server's own count, from its start."""
    log_bytes: int
    """Size of all files of the log at the end."""
    peak_mib: float
    """Resident memory of the server."""
    reports: int


def works() -> tuple[tuple[KindName, ComponentName], ...]:
    """What the shipped catalogue can do to a host beside its jobs."""
    catalogue = load(CATALOGUE)
    done = [(UPGRADE, each.name) for each in catalogue.components if _fits(catalogue, each.name)]
    kinds = [each for each in catalogue.kinds if "compute" in each.units and each.scope == "host"]
    done += [(each.name, ComponentName("")) for each in kinds if not takes_capacity(each) and not each.repairs]
    return tuple(done)


def _fits(catalogue: Catalogue, name: ComponentName) -> bool:
    component = catalogue.component(name)
    assert component is not None
    return component.scope == "host" and "compute" in component.units and not takes_capacity(component)


def run(folder: Path, *, rate: float = 0.0, window: int = 0, duration_s: float) -> Round:
    """A round in this folder, which must be new. Exactly one of `rate` and `window` is above 0."""
    assert (rate > 0) != (window > 0)
    folder.mkdir()
    state = folder / "state"
    _declare(state)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_process("trainmaster", "server", "run", *_server_words(folder, state)))
        _wait_until(lambda: (state / "server.json").exists(), "the server listens")
        url = decode((state / "server.json").read_bytes(), ServerFile).url
        token = (state / "tokens" / "operator.token").read_text().strip()
        told, tell = os.pipe()
        stack.callback(os.close, told)
        stack.callback(os.close, tell)
        fleet = [stack.enter_context(each) for each in _agents(folder, state, url, tell)]
        first_row = _wait_for_hosts(url, token) + 1
        before = _cpu_s(server, *fleet)
        asked, client_s = _ask(folder, client.Spec(
            url=url, token=token, hosts=HOST_NAMES, works=works(), rate=rate, window=window, duration_s=duration_s,
            done=told, result=str(folder / "client.json"),
        ), (server, *fleet))  # fmt: skip
        after = _cpu_s(server, *fleet)
        peak = _peak_mib(server)
        for process in (*fleet, server):
            _end(process)
    answers = [decode((folder / f"agents-{n}.json").read_bytes(), agents.Result) for n in range(AGENT_PROCESSES)]
    spent = {"server": after[0] - before[0], "agents": sum(after[1:]) - sum(before[1:]), "client": client_s}
    return _judged(folder, asked, answers, spent, first_row, peak)


def _judged(
    folder: Path,
    asked: client.Result,
    answers: Sequence[agents.Result],
    cpu_s: dict[str, float],
    first_row: int,
    peak_mib: float,
) -> Round:
    first = {name: at for answer in answers for name, at in answer.first.items()}
    done = {name: at for answer in answers for name, at in answer.done.items()}
    assert asked.asked.keys() == first.keys() == done.keys(), (len(asked.asked), len(first), len(done))
    within = sum(at <= asked.ended for at in done.values())
    database = sqlite3.connect(folder / "state" / LOG_FILE)
    rows = database.execute("SELECT length(event), length(effects) FROM log WHERE idx >= ?", (first_row,)).fetchall()
    database.close()
    return Round(
        operations=len(done),
        per_s=within / (asked.ended - asked.began) * 1e9,
        first_effect_ms=tuple(sorted((first[name] - at) / 1e6 for name, at in asked.asked.items())),
        done_ms=tuple(sorted((done[name] - at) / 1e6 for name, at in asked.asked.items())),
        cpu_us={what: spent * 1e6 / len(done) for what, spent in cpu_s.items()},
        rows=tuple(rows),
        rows_a_commit=_rows_a_commit(folder / "state" / "server.log"),
        log_bytes=sum(file.stat().st_size for file in (folder / "state").glob(f"{LOG_FILE}*")),
        peak_mib=peak_mib,
        reports=sum(answer.reports for answer in answers),
    )


def _declare(state: Path) -> None:
    """The catalogue, in the log before the server starts."""
    state.mkdir()
    clock = SystemClock()
    runtime = Runtime(SqliteLog(state / LOG_FILE, clock.now()), Engine, AgentLinks(), clock)
    runtime.submit((CatalogueDeclared(at=runtime.now(), catalogue=load(CATALOGUE), by=Owner("person:bench")),))
    runtime.close()


def _server_words(folder: Path, state: Path) -> tuple[str, ...]:
    fleet = folder / "fleet.toml"
    fleet.write_text(FLEET)
    return ("--fleet", str(fleet), "--state", str(state), "--port", "0")


def _agents(
    folder: Path, state: Path, url: str, tell: int
) -> Iterator[contextlib.AbstractContextManager["subprocess.Popen[bytes]"]]:
    secret = (state / "tokens" / "secret").read_text().strip()
    for number in range(AGENT_PROCESSES):
        file, result = folder / f"agents-{number}.spec", folder / f"agents-{number}.json"
        hosts = HOST_NAMES[number::AGENT_PROCESSES]
        file.write_bytes(encode(agents.Spec(url=url, secret=secret, hosts=hosts, told=tell, result=str(result))))
        yield _process("bench.live.agents", str(file), descriptor=tell)


def _ask(folder: Path, spec: client.Spec, beside: Sequence["subprocess.Popen[bytes]"]) -> tuple[client.Result, float]:
    """What the client has to tell, and the processor time that it took, its start included."""
    file = folder / "client.spec"
    file.write_bytes(encode(spec))
    before = os.times()
    with _process("bench.live.client", str(file), descriptor=spec.done) as process:
        _wait_until(lambda: process.poll() is not None or any(each.poll() is not None for each in beside), "it is over")
        assert process.poll() == 0, "the client, an agent or the server failed"
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return decode(Path(spec.result).read_bytes(), client.Result), spent


@contextlib.contextmanager
def _process(module: str, *words: str, descriptor: int | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    keep = (descriptor,) if descriptor is not None else ()
    process = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.DEVNULL, pass_fds=keep)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0, process.args


def _wait_for_hosts(url: str, token: str) -> int:
    """Until all hosts are ready; the index of the log then."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as api:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            status = api.get("/v1/status").json()
            if status["hosts_by_state"] == {"ready": HOSTS}:
                return int(status["index"])
            time.sleep(0.05)
    raise TimeoutError("the hosts do not become ready")


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {DEADLINE_S:g} s: {what}")
        time.sleep(0.02)


def _cpu_s(*processes: "subprocess.Popen[bytes]") -> list[float]:
    """Processor time of each so far."""
    spent = []
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        spent.append((int(fields[11]) + int(fields[12])) / TICKS_PER_S)
    return spent


def _peak_mib(process: "subprocess.Popen[bytes]") -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _rows_a_commit(file: Path) -> float:
    found = re.findall(r"stored (\d+) events in (\d+) commits", file.read_text())
    assert found, f"{file} does not say how many commits there were"
    return int(found[-1][0]) / int(found[-1][1])
