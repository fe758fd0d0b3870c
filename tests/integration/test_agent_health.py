"""A real agent that watches a kernel log: a line is a report in under a second, and nothing is told twice."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import nvml
from tests.fakes.agent_server import FakeServer
from tests.fakes.nvml import SLOTS, Gpus
from tests.integration.agent_host import HOST, AgentHost, eventually

from trainmaster.core.base.ids import OperationId
from trainmaster.core.base.time import seconds
from trainmaster.core.effects import RunSteps, StepCommand
from trainmaster.core.health.events import HealthReported, PartsSeen
from trainmaster.core.health.words import Remedy, Verdict

pytestmark = pytest.mark.real
LOST = "[  100.000001] NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus.\n"
QUIET = "[  100.000002] usb 1-1: new high-speed USB device number 4 using xhci_hcd\n"


@pytest.fixture
def host(tmp_path: Path, server: FakeServer) -> Iterator[AgentHost]:
    """Its kernel log is a file of old lines."""
    made = AgentHost(tmp_path, server)
    log = tmp_path / "kernel.log"
    log.write_text(LOST.replace("1b:00", "99:00"))
    made.flags = ("--kernel-log", str(log), "--probes", "none")
    made.start_agent()
    eventually(lambda: made.paths.log_place.exists())
    yield made
    made.close()


def append(host: AgentHost, text: str) -> None:
    with open(host.flags[1], "a") as log:
        log.write(text)


def units(server: FakeServer) -> list[str]:
    """Units in the order in which they were told; an event that was sent again, since its acknowledgement was lost
    with the agent, is the same event."""
    told = {event.at: event for event in server.of(HealthReported)}
    return [finding.unit for event in told.values() for finding in event.findings]


def test_a_line_is_a_report(host: AgentHost, server: FakeServer) -> None:
    """1. A log with an old fault in it: nothing is told of that. 2. A line is written: it is reported within a second,
    by slot, with the line. 3. The agent gets SIGKILL and starts: nothing is told again. 4. What was written while it
    was away is told."""
    append(host, QUIET)
    start = time.monotonic()
    append(host, LOST)
    server.wait(lambda: "gpu 0000:1b:00" in units(server))
    assert time.monotonic() - start < 1.0
    first, event = server.of(HealthReported)
    assert (first.probe, first.findings) == ("kernel-log", ()), "the first look says that somebody looks"
    found = event.findings[0]
    assert (event.probe, found.verdict, found.remedy) == ("kernel-log", Verdict.BAD, Remedy.REBOOT)
    assert found.evidence == (LOST.strip(),)
    host.kill_agent()
    append(host, LOST.replace("1b:00", "2c:00"))
    host.start_agent()
    server.wait(lambda: "gpu 0000:2c:00" in units(server))
    append(host, LOST.replace("1b:00", "3d:00"))
    server.wait(lambda: "gpu 0000:3d:00" in units(server))
    assert units(server) == ["gpu 0000:1b:00", "gpu 0000:2c:00", "gpu 0000:3d:00"]


def test_rotation_and_truncation_lose_nothing(host: AgentHost, server: FakeServer) -> None:
    """1. The file is moved away and a new one begins. 2. It is emptied. 3. It is moved while no agent runs: the end of
    the old file and the new one are told."""
    log = Path(host.flags[1])
    os.rename(log, log.with_name("kernel.log.1"))
    log.write_text(LOST.replace("1b:00", "01:00"))
    server.wait(lambda: "gpu 0000:01:00" in units(server))
    log.write_text("")
    time.sleep(0.3)  # a follower can only notice that a file became shorter before it is longer again
    append(host, LOST.replace("1b:00", "02:00"))
    server.wait(lambda: "gpu 0000:02:00" in units(server))
    host.kill_agent()
    append(host, LOST.replace("1b:00", "03:00"))
    os.rename(log, log.with_name("kernel.log.2"))
    log.write_text(LOST.replace("1b:00", "04:00"))
    host.start_agent()
    server.wait(lambda: {"gpu 0000:03:00", "gpu 0000:04:00"} <= set(units(server)))
    assert len(units(server)) == len(set(units(server)))


def test_probes_report_at_once_and_after_each_operation(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. An agent starts on a host where a GPU waits for a reset: it is reported by slot, and the parts with their
    serial numbers. 2. An operation resets it: the agent looks again at once, and it is gone. 3. Another agent tells
    nothing again."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    gpus = Gpus(tmp_path / "root", tmp_path / "play")
    gpus.say(f"{SLOTS[3]} remap 0 1 1 0")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.library(tmp_path).parent))
    monkeypatch.setenv("NVML_PLAY", str(gpus.path))
    host = AgentHost(tmp_path, server)
    host.flags = ("--kernel-log", "none", "--probes", "nvml,parts", "--probe-root", str(gpus.root))
    host.start_agent()
    try:
        server.wait(lambda: server.of(PartsSeen))
        server.wait(lambda: f"gpu {SLOTS[3]}" in units(server))
        assert [part.serial for part in server.of(PartsSeen)[0].parts] == [f"GPU-{number}" for number in range(8)]
        well = gpus.path.read_text().replace("remap 0 1 1 0", "remap 0 0 0 0")
        operate(host, well, gpus.path)
        server.wait(lambda: [each for event in server.of(HealthReported) for each in event.gone])
        host.kill_agent()
        host.start_agent()
        operate(host, f"{SLOTS[5]} action 2\n{well}", gpus.path)
        server.wait(lambda: f"gpu {SLOTS[5]}" in units(server))
        assert units(server) == [f"gpu {SLOTS[3]}", f"gpu {SLOTS[5]}"]
        assert len({event.at for event in server.of(PartsSeen)}) == 1
    finally:
        host.close()


def operate(host: AgentHost, text: str, path: Path) -> None:
    """An operation of one step, which writes a file."""
    step = StepCommand(
        name="write", command=("sh", "-c", 'printf %s "$0" > "$1"', text, str(path)), deadline=seconds(20)
    )
    effect = RunSteps(
        id=host.next_id(), host=HOST, operation=OperationId("op-1"), leg="apply", steps=(step,), observe=None
    )
    assert host.server.do(effect).outcome == "done"
