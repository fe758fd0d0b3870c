"""A TCP connection within the host carries bytes."""

import socket

from trainmaster.live.agent.paths import HostPaths


def probe(paths: HostPaths) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        with socket.create_connection(server.getsockname(), timeout=5) as client:
            there, _ = server.accept()
            with there:
                client.sendall(b"probe")
                there.settimeout(5)
                return "" if there.recv(5) == b"probe" else "the loopback interface gave back other bytes"
