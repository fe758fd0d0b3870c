"""A server of S3 on loopback, a process of its own, and a way to it on which things go wrong when a test says so."""

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

KEY: Final = "AKIATESTTESTTEST"
SECRET: Final = "tm+very/secret+words/tm"
BUCKET: Final = "models"
_SERVER: Final = """
import logging, sys
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def server() -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    quiet = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = process.stdout.readline().strip()
        assert port.isdigit(), "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(20)


class Way:
    """Passes requests on to a server. `refuse` requests are answered with 503; `flip` answers to a GET of more than a
    kilobyte have a bit turned over; after `cut` requests for a stretch the way ends: nothing is answered any more."""

    def __init__(self, target: str) -> None:
        self.refuse = self.flip = 0
        self.cut: int | None = None
        self.requests: list[tuple[str, str, int]] = []
        self._lock = threading.Lock()
        way = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, answer = way._answer(target, self.command, self.path, dict(self.headers), body)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fetched_bytes(self) -> int:
        """Bytes of answers to GETs of stretches of objects."""
        return sum(size for method, path, size in self.requests if method == "GET" and "?" not in path)

    def _answer(
        self, target: str, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        with self._lock:
            if self.refuse > 0:
                self.refuse -= 1
                return 503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>"
            if self.cut is not None and self.cut <= 0:
                return 0, [], b""
            if self.cut is not None and "Range" in {name.title() for name in headers}:
                self.cut -= 1
        connection = http.client.HTTPConnection(target.removeprefix("http://"))
        kept = {name: value for name, value in headers.items() if name.lower() != "connection"}
        connection.request(method, path, body, kept)
        found = connection.getresponse()
        answer = found.read()
        connection.close()
        dropped = ("transfer-encoding", "connection", *(["content-length"] if method != "HEAD" else []))
        told = [(name, value) for name, value in found.getheaders() if name.lower() not in dropped]
        with self._lock:
            if method == "GET" and len(answer) > 1024 and "?" not in path and self.flip > 0:
                self.flip -= 1
                answer = answer[:1000] + bytes([answer[1000] ^ 4]) + answer[1001:]
            self.requests.append((method, path, len(answer)))
        return found.status, told, answer


def environment(patch: pytest.MonkeyPatch, address: str, home: Path) -> None:
    """Lets this process reach a server, and no other: whatever the machine has set is taken away."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("AWS_ACCESS_KEY_ID", KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_ENDPOINT_URL", address)
    patch.setenv("AWS_REGION", "us-east-1")


def bucket(address: str, name: str = BUCKET) -> None:
    """Makes a bucket, with a client that is not ours."""
    client = _client(address)
    client.create_bucket(Bucket=name)
    client.close()


def pending_uploads(address: str, name: str = BUCKET) -> list[str]:
    """Keys of uploads in parts that were begun and neither ended nor taken back."""
    client = _client(address)
    found = client.list_multipart_uploads(Bucket=name).get("Uploads", [])
    client.close()
    return [each["Key"] for each in found]


def _client(address: str) -> Any:
    import boto3

    return boto3.client(
        "s3", endpoint_url=address, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
