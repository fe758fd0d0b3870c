"""What an agent costs at rest, and how fast it tells.

One host with a real agent that listens to the kernel's log and runs all probes at their own periods, registered with a
real server, without a job. `agent.idle_cpu_percent` is the processor time of the agent and of every process that it
started, ended ones included, over `WATCH_S` seconds that begin just before a round of probes; `agent.rss_mib` is the
largest sum of resident memory of all of them, seen ten times a second, rounds included. Goals: under 1 % of a core and
under 80 MiB.

`health.kmsg_to_verdict_ms` is from the write of a line until the server's state shows the verdict: into `/dev/kmsg`
where that may be written, else into a file that the agent follows (the note says which). Median of nine; goal: a
second.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure
from trainmaster.cli.client import Client, Place
from trainmaster.core.base.ids import HostId
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import ProcessName
from trainmaster.live.server.resources import Events, Hosts

WATCH_S = 65.0
"""One round of all probes, and the time up to the next."""
LINES = 9
KMSG = "/dev/kmsg"
HOST = HostId("h0")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_FLEET = """
schema = "trainmaster.fleet/v1"
name = "bench"

[[cluster]]
name = "desk"
fabric = "loopback"

[[cluster.hosts]]
list = "h0"
platform = "laptop"
"""


def figures() -> Iterator[Figure]:
    with _fleet(("all",)) as (state, client):
        percent, mib = _at_rest(state)
        yield Figure(
            bench="agent", figure="agent.idle_cpu_percent", value=percent, unit="%", better="lower", goal="1 %",
            holds=percent < 1.0, note=f"agent and probes, {WATCH_S:g} s with a round of all probes",
        )  # fmt: skip
        yield Figure(
            bench="agent", figure="agent.rss_mib", value=mib, unit="MiB", better="lower", goal="80 MiB",
            holds=mib < 80.0, note="agent and probes, the most at any time",
        )  # fmt: skip
        took_ms = statistics.median(_verdict_ms(client, number, state) for number in range(LINES))
        yield Figure(
            bench="agent", figure="health.kmsg_to_verdict_ms", value=took_ms, unit="ms", better="lower", goal="1000 ms",
            holds=took_ms < 1000.0, note="a line in /dev/kmsg" if _kmsg() else "a line in a file that is followed",
        )  # fmt: skip


def _kmsg() -> bool:
    return os.access(KMSG, os.W_OK)


@contextlib.contextmanager
def _fleet(probes: tuple[str, ...]) -> Iterator[tuple[Path, Client]]:
    """A fleet of one host, whose agent looks at everything."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
        state = Path(directory) / "state"
        state.mkdir()
        file = Path(directory) / "fleet.toml"
        file.write_text(_FLEET)
        os.environ[local.PROBES] = ",".join(probes)
        if _kmsg():
            os.environ[local.KMSG_HOST] = HOST
        try:
            local.up(state, file, lambda _: None)
            url = local.server_url(state)
            assert url is not None
            token = state / "tokens" / "operator.token"
            yield state, Client(Place(url=url, origin=str(state), token_file=str(token)), 5.0)
        finally:
            local.down(state, lambda _: None)
            os.environ.pop(local.KMSG_HOST, None)
            del os.environ[local.PROBES]


def _at_rest(state: Path) -> tuple[float, float]:
    """(percent of a core, most MiB)."""
    agent = local.process_of(state, local.agent_of(HOST))
    assert agent is not None
    _settled(agent)
    start, before = time.monotonic(), _cpu_s(agent.pid)
    most = 0.0
    while time.monotonic() < start + WATCH_S:
        most = max(most, _rss_mib(agent.pid))
        time.sleep(0.1)
    spent = _cpu_s(agent.pid) - before
    return 100.0 * spent / (time.monotonic() - start), most


def _settled(agent: ProcessName) -> None:
    """Waits until the first look at everything is over."""
    deadline = time.monotonic() + 60.0
    quiet = 0
    while quiet < 20:
        assert time.monotonic() < deadline, "the agent does not come to rest"
        quiet = 0 if _children(agent.pid) else quiet + 1
        time.sleep(0.1)


def _cpu_s(pid: int) -> float:
    """Of a process and its children that ended and were waited for; probes end long before a look is over."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_S


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return [*found, *(each for child in found for each in _children(child))]


def _rss_mib(pid: int) -> float:
    pages = 0
    for each in (pid, *_children(pid)):
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return pages * _PAGE_MIB


def _verdict_ms(client: Client, number: int, state: Path) -> float:
    """From the write of a line about a GPU of its own until the server tells of it."""
    slot = f"0000:{(os.getpid() + number) % 200 + 16:02x}:{number:02x}"
    line = f"NVRM: Xid (PCI:{slot}): 79, pid=0, GPU has fallen off the bus."
    since = client.get("/v1/hosts", Hosts).index
    start = time.perf_counter()
    if _kmsg():
        Path(KMSG).write_text(f"<0>{line}\n")
    else:
        with local.kernel_log(state, HOST).open("a") as file:
            file.write(f"{line}\n")
    _until(lambda: any(f"gpu {slot}" in item.sentence for item in client.get("/v1/events", Events, since=since).items))
    return 1000.0 * (time.perf_counter() - start)


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not look():
        if time.monotonic() > deadline:
            sys.exit("no verdict came within 30 s")
        time.sleep(0.001)
