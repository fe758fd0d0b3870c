"""Where checkpoints are, as users write it: a path, or `s3://BUCKET/PREFIX`.

    /checkpoints                          a place with checkpoints in it
    /checkpoints/step-00001200            a checkpoint, or a place: what is asked of it decides
    s3://models/llama/step-00001200       the same in a bucket

The client of a store is imported when the first store is asked for.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.directory_store import DirectoryStore

S3: Final = "s3://"


class Shelf(BlobStore, Protocol):
    """A store whose groups can be listed, and whose blobs can be removed."""

    def groups(self) -> list[str]:
        """Names of the groups that lie there, in order."""
        ...

    def remove(self, group: str, names: Sequence[str]) -> None:
        """Deletes blobs; those that are not there are no matter."""
        ...


class NoClient(Exception):
    """What is needed to reach a store is not installed."""


class Place:
    """A place, in the words of the user (`str`)."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` if it names no place."""
        self._text = text
        self.path: Path | None = None
        if text.startswith(S3):
            self._bucket, _, prefix = text.removeprefix(S3).partition("/")
            self._keys = [part for part in prefix.split("/") if part]
            if not self._bucket:
                raise ValueError(f"{text} names no bucket; write s3://BUCKET/PREFIX")
        elif "://" in text:
            raise ValueError(f"{text}: there are paths and {S3}BUCKET/PREFIX")
        else:
            self.path = Path(text).absolute()

    def __str__(self) -> str:
        return self._text

    @property
    def name(self) -> str:
        """The last part: the name of a checkpoint."""
        return self.path.name if self.path is not None else (self._keys[-1:] or [""])[0]

    @property
    def parent(self) -> "Place":
        if self.path is not None:
            return Place(str(Path(self._text).parent))
        return Place("/".join((f"{S3}{self._bucket}", *self._keys[:-1])))

    def child(self, name: str) -> "Place":
        return Place(f"{self._text.rstrip('/')}/{name}")

    def shelf(self) -> Shelf:
        """The store of the checkpoints that lie here. Raises `NoClient`, `NoAccess`."""
        if self.path is not None:
            return DirectoryStore(self.path)
        if importlib.util.find_spec("obstore") is None:
            raise NoClient(f"{self} needs a client that is not installed: pip install 'trainmaster[s3]'")
        from trainmaster.storage.s3_store import S3Store

        return S3Store(self._bucket, "/".join(self._keys))

    def located(self) -> tuple[Shelf, str]:
        """The store and the name of the checkpoint that lies here."""
        if not self.name:
            raise ValueError(f"{self} is a bucket and no checkpoint")
        return self.parent.shelf(), self.name
