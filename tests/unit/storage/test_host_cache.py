"""One read a host, whoever asks and whoever dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.storage.checksum import crc32
from trainmaster.storage.host_cache import ALIVE, Corrupt, HostCache

DATA = bytes(range(256)) * 4096
CRC = crc32(DATA)
DEADLINE_S = 60.0
RANK = """
import sys
from pathlib import Path
from trainmaster.storage.host_cache import HostCache
from tests.unit.storage.test_host_cache import CRC, DATA, told
parent, attempt, log, slow = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4] == "slow"
cache = HostCache(parent, attempt)
page = cache.get("shard", len(DATA), CRC, told(log, slow))
assert bytes(page) == DATA
print(cache.fetched, flush=True)
sys.stdin.read()
"""


def told(log: Path, slow: bool = False) -> Callable[[memoryview, int], None]:
    """Reads of the data, each a line in the log; a slow one stands in the middle of the first read."""

    def read(piece: memoryview, offset: int) -> None:
        with log.open("a") as lines:
            lines.write(f"{os.getpid()} {offset}\n")
        if slow:
            piece[: len(piece) // 2] = DATA[offset : offset + len(piece) // 2]
            while True:
                time.sleep(1)
        piece[:] = DATA[offset : offset + len(piece)]

    return read


def rank(parent: Path, attempt: str, log: Path, kind: str = "quick") -> "subprocess.Popen[str]":
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", RANK, str(parent), attempt, str(log), kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
    )  # fmt: skip


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.005)


def end(*processes: "subprocess.Popen[str]") -> list[str]:
    return [process.communicate(timeout=DEADLINE_S)[0].strip() for process in processes]


@pytest.mark.real
def test_four_ranks_read_once(tmp_path: Path) -> None:
    """1. Four processes want a shard at the same moment. 2. The store is read once; all have the bytes."""
    log = tmp_path / "log"
    fetched = end(*[rank(tmp_path / "memory", "job-1.a1", log) for _ in range(4)])
    assert sorted(fetched) == ["0", "0", "0", "1"]
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.real
def test_a_rank_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    """1. A rank has half of the shard and is killed; another waits for it. 2. That one reads it, whole, without a wait
    for a time-out, and nothing half stays."""
    log, memory = tmp_path / "log", tmp_path / "memory"
    first = rank(memory, "job-1.a1", log, "slow")
    until(lambda: log.exists() and bool(log.read_text()))
    second = rank(memory, "job-1.a1", log)
    until(lambda: (memory / "data-job-1.a1" / "shard.half").exists())
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=DEADLINE_S)
    assert end(second) == ["1"]
    assert not list(memory.glob("**/*.half"))
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.real
def test_leftovers_of_dead_attempts_go_and_living_ones_stay(tmp_path: Path) -> None:
    """1. One attempt is killed, another lives. 2. The next one removes what the first left, and only that."""
    log, memory = tmp_path / "log", tmp_path / "memory"
    dead, alive = rank(memory, "job-1.a1", log), rank(memory, "job-2.a1", log)
    for process in (dead, alive):
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
    dead.send_signal(signal.SIGKILL)
    dead.communicate(timeout=DEADLINE_S)
    cache = HostCache(memory, "job-1.a2")
    assert cache.removed == ("data-job-1.a1",)
    assert (memory / "data-job-2.a1" / "shard").read_bytes() == DATA
    end(alive)
    cache.close()


def test_the_next_epoch_finds_what_is_there(tmp_path: Path) -> None:
    """1. The ranks of an attempt end and start anew. 2. Nothing is read again."""
    log = tmp_path / "log"
    for turn in range(3):
        cache = HostCache(tmp_path / "memory", "job-1.a1")
        assert bytes(cache.get("shard", len(DATA), CRC, told(log))) == DATA
        assert cache.fetched == (turn == 0)
        cache.close()
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_file_is_fetched_anew(tmp_path: Path, damage: str) -> None:
    cache = HostCache(tmp_path, "a")
    cache.get("shard", len(DATA), CRC, told(tmp_path / "log"))
    file = tmp_path / "data-a" / "shard"
    file.write_bytes(DATA[:-1] + b"?" if damage == "flip" else DATA[:100])
    assert bytes(cache.get("shard", len(DATA), CRC, told(tmp_path / "log"))) == DATA
    assert cache.fetched == 2
    cache.close()


def test_a_store_that_holds_something_else(tmp_path: Path) -> None:
    """1. The store gives other bytes than its index says. 2. After two reads it is told with both sums; nothing stays
    that somebody could take for the shard."""
    cache = HostCache(tmp_path, "a")
    with pytest.raises(Corrupt, match=f"expected {CRC ^ 1:08x}, in each of 2 reads"):
        cache.get("shard", len(DATA), CRC ^ 1, told(tmp_path / "log"))
    assert sorted(path.name for path in (tmp_path / "data-a").iterdir()) == [ALIVE, "shard.lock"]
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    cache.close()


def test_a_read_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """1. The store fails in the middle. 2. The error comes through, nothing half stays, the next try succeeds."""
    cache = HostCache(tmp_path, "a")

    def fail(piece: memoryview, offset: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        cache.get("shard", len(DATA), CRC, fail)
    assert sorted(path.name for path in (tmp_path / "data-a").iterdir()) == [ALIVE, "shard.lock"]
    assert bytes(cache.get("shard", len(DATA), CRC, told(tmp_path / "log"))) == DATA
    cache.close()


def test_writes_to_a_mapped_shard_are_private(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "a")
    one = cache.get("shard", len(DATA), CRC, told(tmp_path / "log"))
    one[:4] = b"????"
    assert bytes(cache.get("shard", len(DATA), CRC, told(tmp_path / "log"))) == DATA
    assert cache.fetched == 1
    cache.close()


def test_names_that_differ_stay_different(tmp_path: Path) -> None:
    """1. Names with slashes, dots and signs of any kind. 2. Each has a file of its own, inside of the directory."""
    cache = HostCache(tmp_path / "memory", "../job/1")
    names = ["a/b", "a_b", "a?b", "..", "."]
    for name in names:
        cache.get(name, len(DATA), CRC, told(tmp_path / "log"))
    assert cache.fetched == len(names)
    assert [path.name for path in tmp_path.iterdir() if path.name != "log"] == ["memory"]
    cache.close()
