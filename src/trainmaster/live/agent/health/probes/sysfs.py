"""Reading sysfs: small files that may not exist, may not be readable, and may vanish while one reads them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

MOST_BYTES = 65_536


def text_of(path: Path) -> str | None:
    """The content in one line; None if there is none. A file that the driver refuses to read (EINVAL, EIO) has none:
    that is how sysfs says `not known`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(handle, MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data.replace(b"\0", b"").decode("utf-8", "replace").strip()


def names_in(path: Path) -> list[str]:
    """Entries of a directory, sorted; none if it is not there. Raises `OSError` if it is and can't be listed."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def leaves(base: Path, directory: str, names: Iterable[str]) -> Iterator[str]:
    """Lines `PATH: VALUE` of files below a directory, the path relative to the base."""
    for name in names:
        value = text_of(base / directory / name)
        if value is not None:
            yield f"{directory}/{name}: {' '.join(value.split())}"
