"""Checkpoints in a bucket of S3 or of a server that speaks like it.

A group is a common prefix, a blob an object. There is no rename of a prefix, so nothing is hidden while it is written:
the manifest publishes. It is put last, on condition that there is none, and a prefix without one is an unfinished save.
`publishing.py` keeps two writers apart.

The client is `obstore` (Rust, the stores of Apache Arrow): of those compared it needs the least processor time, sends
conditional puts, and its memory is bounded. It signs the SHA-256 of every part, so the server refuses what was changed
on the way; ours are the sums of the manifest, from memory to memory. Rejected: boto3 (twice the processor time, though
with more ways to find credentials), minio (its parts are private), S3's own ETags (no content hash for parts).

Limits: a process must not fork once it has used a store (the client has threads). Objects have at most 10,000 parts;
parts grow with the blob. An upload that was cut leaves parts that cost money until a lifecycle rule removes them.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.storage.buffers import BUFFER_BYTES
from trainmaster.storage.s3_access import access

_PARTS_MAX: Final = 9_000
_WINDOW_BYTES: Final = 4 * BUFFER_BYTES
_UPLOADS: Final = 4


class S3Store:
    """See `BlobStore`. `where` is `s3://BUCKET/PREFIX`, or without a prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        """Nothing is asked of the server yet. Raises `ModuleNotFoundError` without the client, `NoAccess`."""
        from obstore.store import S3Store as Client

        self._client: Any = Client(bucket, **access(os.environ, Path.home()))
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._where = f"s3://{bucket}/{self._prefix}".rstrip("/")

    def create(self, group: str, name: str, size_bytes: int) -> "S3Sink":
        if name in self._listed(group):
            raise FileExistsError(f"there is {name} in {self._where}/{group} already")
        return S3Sink(self._client, self._key(group, name), f"{self._where}/{group}/{name}", size_bytes)

    def open(self, group: str, name: str) -> "S3Source":
        return S3Source(self._client, self._key(group, name), f"{self._where}/{group}/{name}")

    def put(self, group: str, name: str, data: bytes) -> None:
        """Raises `FileExistsError` if there is such a blob."""
        import obstore

        with _told(f"{self._where}/{group}/{name}"):
            obstore.put(self._client, self._key(group, name), data, mode="create")

    def get(self, group: str, name: str) -> bytes:
        import obstore

        with _told(f"{self._where}/{group}/{name}"):
            return bytes(obstore.get(self._client, self._key(group, name)).bytes())

    def sizes(self, group: str) -> dict[str, int]:
        found = self._listed(group)
        if not found:
            raise FileNotFoundError(f"there is nothing below {self._where}/{group}")
        return found

    def groups(self) -> list[str]:
        """Names of what lies here. A place where nothing lies has none."""
        import obstore

        with _told(self._where):
            found = obstore.list_with_delimiter(self._client, self._prefix or None)
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def path(self, group: str) -> Path | None:
        return None

    def remove(self, group: str, names: Sequence[str]) -> None:
        """Deletes blobs; those that are not there are no matter."""
        import obstore

        with _told(f"{self._where}/{group}"):
            obstore.delete(self._client, [self._key(group, name) for name in names])

    def _listed(self, group: str) -> dict[str, int]:
        import obstore

        start = f"{self._prefix}{group}/"
        with _told(f"{self._where}/{group}"):
            found = obstore.list_with_delimiter(self._client, start)
        return {each["path"].removeprefix(start): each["size"] for each in found["objects"]}

    def _key(self, group: str, name: str) -> str:
        assert "/" not in group, group
        assert "/" not in name, name
        return f"{self._prefix}{group}/{name}"


class S3Source:
    """See `Source`."""

    def __init__(self, client: Any, key: str, where: str) -> None:
        import obstore

        self._client, self._key, self._where = client, key, where
        with _told(where):
            self.size_bytes: int = obstore.head(client, key)["size"]

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        import obstore

        size = sum(map(len, parts))
        if offset + size > self.size_bytes:
            raise EOFError(f"{self._where} ends at byte {self.size_bytes}")
        if size == 0:
            return
        with _told(self._where):
            data = memoryview(obstore.get_range(self._client, self._key, start=offset, length=size))
        if len(data) != size:
            raise EOFError(f"{self._where} gave {len(data)} of {size} bytes from byte {offset} on")
        at = 0
        for part in parts:
            part[:] = data[at : at + len(part)]
            at += len(part)

    def close(self) -> None:
        """There is nothing to close."""


class S3Sink:
    """See `Sink`. Stretches come from several threads in almost their order; one thread hands them on in order, as a
    stream that the client cuts into parts and uploads side by side."""

    def __init__(self, client: Any, key: str, where: str, size_bytes: int) -> None:
        self._client, self._key, self._where, self._size_bytes = client, key, where, size_bytes
        self._waiting: dict[int, bytes] = {}
        self._next = 0
        self._given_up = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._upload, name="upload", daemon=True)
        self._thread.start()

    def write(self, parts: Sequence[memoryview], offset: int) -> None:
        data = b"".join(parts)
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or offset - self._next < _WINDOW_BYTES)
            if self._error is not None:
                raise self._error
            self._waiting[offset] = data
            self._changed.notify_all()

    def close(self) -> None:
        import obstore

        self._thread.join()
        if self._error is not None:
            raise self._error
        with _told(self._where):
            size = obstore.head(self._client, self._key)["size"]
        if size != self._size_bytes:
            raise OSError(f"{self._where} has {size} of {self._size_bytes} bytes after the upload")

    def abandon(self) -> None:
        with self._changed:
            self._given_up = True
            self._changed.notify_all()
        self._thread.join()

    def _upload(self) -> None:
        import obstore

        part_bytes = max(BUFFER_BYTES, -(-self._size_bytes // _PARTS_MAX))
        try:
            with _told(self._where):
                if self._size_bytes == 0:
                    obstore.put(self._client, self._key, b"")
                else:
                    obstore.put(
                        self._client, self._key, self._stretches(), chunk_size=part_bytes, max_concurrency=_UPLOADS
                    )
        except Exception as error:  # noqa: BLE001  (raised where the next stretch is written, or at the end)
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _stretches(self) -> Iterator[bytes]:
        while self._next < self._size_bytes:
            with self._changed:
                self._changed.wait_for(lambda: self._given_up or self._next in self._waiting)
                if self._given_up:
                    raise OSError("the upload was given up")
                data = self._waiting.pop(self._next)
                self._next += len(data)
                self._changed.notify_all()
            yield data


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """Errors of the client as those of a file system, with a sentence as their text. What the client says is cut to
    its first line: the rest repeats the request."""
    import obstore.exceptions as told

    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise FileNotFoundError(f"there is no bucket for {where}") from None
        raise FileNotFoundError(f"there is no {where}") from None
    except (told.AlreadyExistsError, told.PreconditionError):
        raise FileExistsError(f"there is {where} already") from None
    except (told.PermissionDeniedError, told.UnauthenticatedError) as error:
        raise PermissionError(f"{where}: the server refuses these credentials ({_code(str(error))})") from None
    except told.BaseError as error:
        first = str(error).partition("\n")[0]
        if "NoSuchBucket" in str(error):
            raise FileNotFoundError(f"there is no bucket for {where}") from None
        raise ConnectionError(f"{where} cannot be reached: {first}") from None


def _code(text: str) -> str:
    """The code in an answer of S3, such as `SignatureDoesNotMatch`."""
    return text.partition("<Code>")[2].partition("</Code>")[0] or "no reason given"
