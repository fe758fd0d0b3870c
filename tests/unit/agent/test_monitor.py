"""The part of the agent that looks: it ends when it is told to, and says so when it can't look."""

import asyncio
from pathlib import Path

import pytest

from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.events import AgentReport
from trainmaster.core.health.events import HealthReported
from trainmaster.live.agent.health import monitor as module
from trainmaster.live.agent.health.monitor import HealthSettings, Monitor
from trainmaster.live.agent.health.round import Rounds
from trainmaster.live.agent.paths import HostPaths


class Looked(Rounds):
    """Rounds in which nothing is there to look at."""

    count = 0

    async def run(self, names, finished=lambda name, seen: None):  # type: ignore[no-untyped-def]
        Looked.count += 1
        return {}


def made(tmp_path: Path, events: list[AgentReport], **settings: object) -> Monitor:
    for name in ("host", "memory"):
        (tmp_path / name).mkdir(exist_ok=True)
    paths = HostPaths(host_dir=str(tmp_path / "host"), memory_dir=str(tmp_path / "memory"), jobs_dir=str(tmp_path))
    chosen = HealthSettings(kernel_log="", probes=("memory",), **settings)  # type: ignore[arg-type]
    return Monitor(chosen, HostId("h1"), BootId("b1"), paths, events.append)


def test_it_ends_although_an_operation_ends_in_the_same_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. It rests between two looks. 2. An operation ends and the agent is told to end, in one turn of its loop. 3. It
    ends, and does not look once more and for ever."""
    monkeypatch.setattr(module, "Rounds", Looked)
    monitor = made(tmp_path, [])

    async def run() -> None:
        task = asyncio.create_task(monitor.run())
        before = Looked.count
        async with asyncio.timeout(20):
            while Looked.count == before:
                await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0)  # turns in which it comes to rest
        monitor.operated()
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=5.0)
        assert done, "it took the end for an answer"
        assert task.cancelled()

    asyncio.run(run())


def test_a_defect_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody looks any more, the host is unknown, and the log of the agent has the cause."""

    class Broken(Looked):
        async def run(self, names, finished=lambda name, seen: None):  # type: ignore[no-untyped-def]
            raise ValueError("the probe is wrong")

    monkeypatch.setattr(module, "Rounds", Broken)
    events: list[AgentReport] = []
    with pytest.raises(ExceptionGroup):
        asyncio.run(made(tmp_path, events).run())
    told = [finding for event in events if isinstance(event, HealthReported) for finding in event.findings]
    assert [(str(each.answer), each.rule) for each in told] == [("unknown, none", "health-defect")]
    assert "ValueError: the probe is wrong" in told[0].summary
