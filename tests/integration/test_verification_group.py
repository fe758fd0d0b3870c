"""The group check over eight real ranks, each in a network namespace of its own, on shaped cables."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.real, pytest.mark.torch]

COUNT = int(os.environ.get("TRAINMASTER_GROUP_CHECKS", "2"))
"""Of each kind; `make prove NAME=group_check` runs twenty."""
RANKS = 8
TRIES = 4
_WORLD = Path(__file__).parent / "verification_world.py"
_PRIVATE = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])


def private_network() -> list[str]:
    """The words that give a process a network of its own. Skips where that, or a bridge in it, is not permitted."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "tc"))):
        pytest.skip("needs unshare, nsenter (util-linux), ip and tc (iproute2)")
    why = ""
    for words in _PRIVATE:
        command = [*words, "ip", "link", "add", "name", "trial", "type", "bridge"]
        tried = subprocess.run(command, capture_output=True, text=True)
        if tried.returncode == 0:
            return list(words)
        why = tried.stderr.strip()
    pytest.skip(f"no network of its own is permitted here: {why}")


class World:
    def __init__(self, log: Path) -> None:
        start = private_network()
        self._log = log.open("w+")
        self.process = subprocess.Popen(
            [*start, sys.executable, str(_WORLD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
        )
        assert self._line() == "ready"

    def check(self, kind: str = "", *slow: int) -> dict[str, Any]:
        """The report; like an agent it asks again if nothing can be told, since others may use the processors."""
        assert self.process.stdin is not None
        for _ in range(TRIES):
            self.process.stdin.write(json.dumps({"kind": kind, "slow": slow}) + "\n")
            self.process.stdin.flush()
            found: dict[str, Any] = json.loads(self._line())
            if found["outcome"] != "invalid":
                break
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(20) == 0
        finally:
            self.process.kill()  # the ranks end with it, and the networks with the ranks
            self.process.wait()
            self.process.stdout.close()
            self._log.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            self._log.seek(0)
            raise AssertionError(f"the ranks ended:\n{self._log.read()[-3000:]}")
        return line


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("group") / "log")
    try:
        yield made
    finally:
        made.close()


def failed(found: dict[str, Any]) -> list[str]:
    return [host for host, outcome in found["hosts"].items() if outcome == "fail"]


def test_a_clean_run_names_nobody(world: World) -> None:
    for _ in range(COUNT):
        found = world.check()
        assert (found["outcome"], found["slow"]) == ("pass", []), found["sentence"]
        assert set(found["hosts"].values()) == {"pass"}
        assert found["collective"]["outcome"] == "pass"


def test_the_host_with_a_narrow_cable_is_named(world: World) -> None:
    """1. The cable of one host carries a quarter of the others'. 2. That host, and nobody else."""
    for number in range(COUNT):
        slow = (3 * number + 3) % RANKS
        found = world.check("bandwidth", slow)
        assert (found["outcome"], found["slow"]) == ("fail", [f"h{slow}"]), found["sentence"]
        assert failed(found) == [f"h{slow}"]
        assert found["bandwidth"]["named"] == [f"h{slow}"]


def test_the_host_that_answers_late_is_named(world: World) -> None:
    """1. One rank waits eight milliseconds before it sends. 2. That host, by its latency."""
    for number in range(COUNT):
        slow = (3 * number) % RANKS
        found = world.check("late", slow)
        assert (found["outcome"], found["slow"]) == ("fail", [f"h{slow}"]), found["sentence"]
        assert failed(found) == [f"h{slow}"]
        assert found["latency"]["named"] == [f"h{slow}"]


def test_many_narrow_cables_are_a_common_cause(world: World) -> None:
    """1. Half of the hosts are slow. 2. A common cause, and no host is blamed."""
    found = world.check("bandwidth", 2, 3, 4, 5)
    assert (found["outcome"], found["bandwidth"]["cause"], found["slow"]) == ("fail", "common", [])
    assert "fail" not in found["hosts"].values()


def test_the_host_that_changes_a_bit_is_named(world: World) -> None:
    found = world.check("corrupt", 6)
    assert found["slow"] == ["h6"]
    assert "bit 17" in found["sentence"]


def test_the_host_that_hangs_is_named_and_holds_nobody_up(world: World) -> None:
    """1. One rank never answers. 2. Its partners give up in time, the others are measured, and it is named."""
    found = world.check("silent", 2)
    assert (found["slow"], failed(found)) == (["h2"], ["h2"]), found["sentence"]
    assert found["collective"]["outcome"] == "not-run"
