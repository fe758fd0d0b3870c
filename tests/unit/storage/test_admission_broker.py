"""A broker and those who ask it, over a real socket: in one process, with threads."""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.core.base.value import encode
from trainmaster.core.storage.classes import Policy
from trainmaster.core.storage.turns import SaveReport
from trainmaster.storage.admission.broker import Broker
from trainmaster.storage.admission.client import AdmittedSink, AdmittedSource, Asking, NotAdmitted
from trainmaster.storage.admission.talk import Open, Refused, Want, address, to_writer
from trainmaster.storage.directory_store import DirectoryStore

POLICY = Policy(window_bytes=20, quantum_bytes=10)


class Told:
    """Reports of a broker."""

    def __init__(self) -> None:
        self.reports: queue.SimpleQueue[SaveReport] = queue.SimpleQueue()

    def __call__(self, report: SaveReport) -> None:
        self.reports.put(report)


@contextlib.contextmanager
def serving(root: Path, told: Told | None = None, policy: Policy = POLICY) -> Iterator[Broker]:
    broker = Broker.first(root, policy, told or Told())
    assert broker is not None
    try:
        yield broker
    finally:
        broker.end()


def rank(number: int, size_bytes: int = 30, writers: int = 3) -> Open:
    return Open(writer=f"rank {number}", kind="checkpoint", size_bytes=size_bytes, save="step 1", writers=writers)


def test_a_save_of_three(tmp_path: Path) -> None:
    """1. Three writers come, and each moves its pieces when it may. 2. All bytes are counted. 3. When the last has
    gone, the report names it."""
    told = Told()
    with serving(tmp_path, told) as broker:

        def write(number: int) -> None:
            with Asking.of(tmp_path, rank(number)) as asking:
                for _ in range(3):
                    with asking.turn(10):
                        assert asking.free == ""

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        report = told.reports.get(timeout=30)
        for thread in threads:
            thread.join()
        assert (report.writers, report.moved_bytes, report.unfinished) == (3, 90, ())
        assert report.slowest in {"rank 0", "rank 1", "rank 2"}
        assert broker.moved() == {"checkpoint": 90, "data": 0, "code": 0}


def test_nobody_is_let_in_before_there_is_room(tmp_path: Path) -> None:
    """1. One writer holds the window. 2. Another one waits. 3. The first dies: the second is let in."""
    with serving(tmp_path):
        first = Asking.of(tmp_path, rank(0))
        held = [first.turn(10) for _ in range(2)]
        for turn in held:
            turn.__enter__()
        let_in = threading.Event()

        def write() -> None:
            with Asking.of(tmp_path, rank(1)) as second, second.turn(10):
                let_in.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert not let_in.wait(0.7)  # longer than the broker's sign of life: it is read over
        first.close()
        assert let_in.wait(30)
        thread.join()
        for turn in held:
            turn.__exit__(None, None, None)
        assert "answers no more" in first.free


def test_without_a_broker_everything_goes_on(tmp_path: Path) -> None:
    """1. There is none: a turn waits for nothing, and it is said why. 2. There is one, and it ends in between."""
    with Asking.of(tmp_path, rank(0)) as asking, asking.turn(10):
        assert asking.free.startswith("no broker answers")
    with serving(tmp_path):
        asking = Asking.of(tmp_path, rank(0))
        with asking.turn(10):
            assert asking.free == ""
    with asking.turn(10), asking.turn(10):
        assert asking.free.startswith("the broker answers no more")


def test_a_hung_broker_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """1. Somebody has the name and never answers. 2. After the time that was given the writer goes on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung:
        hung.bind(address(tmp_path))
        hung.listen()
        with Asking.of(tmp_path, rank(0), silent_s=0.2) as asking, asking.turn(10):
            assert asking.free == "no broker answers: timed out"


def test_one_broker_a_store(tmp_path: Path) -> None:
    """1. A second one for the same store is not begun; for another store it is. 2. When the first has ended, another
    takes its place: nothing is left of it, not even a file."""
    (tmp_path / "other").mkdir()
    with serving(tmp_path):
        assert Broker.first(tmp_path, POLICY) is None
        assert Broker.first(tmp_path / "other" / "..", POLICY) is None
        with serving(tmp_path / "other"):
            pass
    with serving(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_is_refused(tmp_path: Path) -> None:
    """1. A second writer of one name. 2. More than was said. 3. What is no message. Each is told why, and others do
    not notice."""
    with serving(tmp_path):
        with Asking.of(tmp_path, rank(0)) as asking:
            with pytest.raises(NotAdmitted) as caught:
                Asking.of(tmp_path, rank(0))
            assert caught.value.token == "writer-twice"
            with asking.turn(10):
                pass
        with Asking.of(tmp_path, rank(1, size_bytes=5)) as greedy, pytest.raises(NotAdmitted) as caught:
            greedy.turn(10).__enter__()
        assert caught.value.token == "more-than-said"
        for words in (b"?", encode(Want(size_bytes=1))):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.settimeout(30)
                stranger.connect(address(tmp_path))
                stranger.send(words)
                answer = to_writer.decode(stranger.recv(1 << 16))
                assert isinstance(answer, Refused)
                assert stranger.recv(1 << 16) == b""
        with Asking.of(tmp_path, rank(2)) as asking, asking.turn(10):
            assert asking.free == ""


def test_blobs_are_written_and_read_in_turns(tmp_path: Path) -> None:
    """1. A blob is written and read through admission. 2. It has its content, and the bytes are counted by class."""
    store = DirectoryStore(tmp_path)
    (tmp_path / "step 1").mkdir()
    with serving(tmp_path) as broker:
        sink = AdmittedSink(store.create("step 1", "blob", 7), Asking.of(tmp_path, rank(0, size_bytes=7)))
        sink.write([memoryview(b"content")], 0)
        sink.close()
        source = AdmittedSource(store.open("step 1", "blob"), Asking.of(tmp_path, Open(writer="reader", kind="data")))
        into = memoryview(bytearray(7))
        source.read_into([into], 0)
        assert bytes(into) == b"content"
        assert source.size_bytes == 7
        source.close()
        given_up = AdmittedSink(store.create("step 1", "other", 7), Asking.of(tmp_path, rank(1, size_bytes=7)))
        given_up.abandon()
        with Asking.of(tmp_path, rank(1)):  # its name is free again
            pass
    assert broker.moved() == {"checkpoint": 7, "data": 7, "code": 0}
