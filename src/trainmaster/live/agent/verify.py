"""Verification of the host: runs probes in a process of their own, each under a deadline.

A probe that hangs, dies or can't be read has failed: a host is ready only if it was seen to be. The process of its own
is what makes a deadline possible, since a thread that waits for a dead disk can't be ended from within.
"""

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from trainmaster.core.base.value import Value
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes import deadline_of, split
from trainmaster.live.verification.devices import count


class ProbeResult(Value):
    task: str
    failure: str
    """A sentence, or empty for a pass."""


_decoder = msgspec.json.Decoder(ProbeResult)


async def verify(tasks: tuple[str, ...], paths: HostPaths, deadline_s: float | None = None) -> str:
    """Runs the tasks in order up to the first that fails; its name and sentence, or empty if all passed.

    `deadline_s` is for each, in place of its own."""
    unknown = [task for task in tasks if split(task) is None]
    if unknown:
        return f"{unknown[0]}: there is no such verification task here"
    arguments = ("-m", "trainmaster.live.agent.probes", paths.host_dir, paths.memory_dir, paths.jobs_dir, *tasks)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        devices = count()
        for task in tasks:
            limit_s = deadline_of(task, devices) if deadline_s is None else deadline_s
            failure = await _one(process.stdout, task, limit_s)
            if failure:
                return f"{task}: {failure}"
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the ranks of a group, where it has some
        # A process that the kernel does not let go (a dead mount) must not hang the agent as well.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)


async def _one(output: asyncio.StreamReader, task: str, deadline_s: float) -> str:
    try:
        line = await asyncio.wait_for(output.readline(), deadline_s)
    except TimeoutError:
        return f"no answer within {deadline_s:.0f} s"
    try:
        result = _decoder.decode(line)
    except msgspec.DecodeError:
        return "the probe ended without an answer"
    if result.task != task:
        return f"the probe answered for {result.task}"
    return result.failure
