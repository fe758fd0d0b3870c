"""Connections that are remembered and cut; exceptions that tell of lost peers."""

import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from trainmaster.training.inplace import LOST, told_by
from trainmaster.training.links import Links

pytestmark = pytest.mark.torch


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


@pytest.fixture
def older() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection that was there before."""
    ends = pair()
    yield ends
    for end in ends:
        end.close()


def test_who_waits_is_freed(older: tuple[socket.socket, socket.socket]) -> None:
    """1. A connection and a listener come while the group forms. 2. A thread waits on the connection. 3. A cut from
    here ends the wait, and the far end sees it. 4. What was there before, and the listener, go on."""
    links = Links()
    links.begin()
    one, other = pair()
    listener = socket.create_server(("127.0.0.1", 0))
    links.hold()
    assert len(links.held) == 2
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(one.recv(1)))
    waiting.start()
    links.cut()
    waiting.join(10)
    assert got == [b""]
    assert other.recv(1) == b""
    links.release()
    older[0].sendall(b"x")
    assert older[1].recv(1) == b"x"
    late = socket.create_connection(listener.getsockname())
    for each in (one, other, late, listener):
        each.close()


def test_a_cut_while_the_group_forms() -> None:
    """1. The word comes before the group stands. 2. What came since the beginning is cut all the same."""
    links = Links()
    links.begin()
    one, other = pair()
    links.cut()
    assert one.recv(1) == b""
    assert links.held == []
    one.close()
    other.close()


def test_groups_made_later_are_cut(older: tuple[socket.socket, socket.socket]) -> None:
    """1. After the forming a connection comes that an event loop watches, and one that none does. 2. The first is cut,
    the second is not."""
    links = Links()
    links.begin()
    links.hold()
    watched, far = pair()
    loose, loose_far = pair()
    loop = select.epoll()
    loop.register(watched, select.EPOLLIN)
    links.cut()
    assert far.recv(1) == b""
    loose.sendall(b"x")
    assert loose_far.recv(1) == b"x"
    loop.close()
    for each in (watched, far, loose, loose_far):
        each.close()


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    links = Links()
    for _ in range(3):
        links.begin()
        ends = pair()
        links.hold()
        links.cut()
        links.release()
        for end in ends:
            end.close()
    assert len(os.listdir("/proc/self/fd")) == before


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:  # noqa: BLE001  whatever was given
        return caught


def test_what_tells_of_lost_peers() -> None:
    gloo = RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
    told = told_by(raised(gloo))
    assert told is not None
    assert (told.exception, told.message) == ("RuntimeError", str(gloo))
    assert told.location.startswith(__file__)
    assert told_by(raised(ConnectionError(LOST))) is not None
    wrapped = told_by(raised(ValueError("the step failed"), raised(gloo)))
    assert wrapped is not None
    assert wrapped.exception == "RuntimeError"
    assert told_by(raised(ValueError("not a number"))) is None
    assert told_by(raised(ValueError("outer"), KeyError("inner"))) is None
