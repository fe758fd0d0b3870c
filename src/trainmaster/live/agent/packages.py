"""A component whose version is a file tree: packages, and the trees that are made of them on a host.

    PACKAGES/NAME/VERSION/manifest.json      a package: its files with checksums
    PACKAGES/NAME/VERSION/files/...
    HOST/components/NAME/VERSION/...         a tree: the same manifest and files
    HOST/components/NAME/current             link to the tree in use; `previous` and `next` likewise

A tree is made beside its place and renamed, and `current` is a link that is replaced, so whoever looks sees an old
version or a new one and never half of one. The version is what the tree itself says, and only if every file of its
manifest has the right checksum: a damaged tree has no version.

`next` is a version that takes effect with the next boot, when the agent makes it the current one.

Everything here may be repeated after a crash at any point, except `rollback`: where it was done, there is no version
before the present one left.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import ComponentName
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.live.agent.files import sync_directory, write_whole

Behaviour = Literal["", "fail", "hang", "lie", "slow", "needs-reboot"]
"""How the installer of a package behaves; for tests and demonstrations."""

MANIFEST: Final = "manifest.json"
VERSION_FILE: Final = "VERSION"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_LINKS: Final = ("current", "previous", "next")


class PackageError(Exception):
    """For whoever runs the installer: a sentence. `code` is the exit code."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


class Manifest(Value):
    name: str
    version: str
    behaviour: Behaviour = ""
    seconds: float = 0.0
    """Of a slow one."""
    on: tuple[str, ...] = ()
    """Hosts where it behaves so; empty: all."""
    files: dict[str, str]
    """SHA-256 by path, relative to the tree."""


def check_name(word: str, what: str) -> None:
    if NAME.fullmatch(word) is None or word in _LINKS:
        raise PackageError(f"{word!r} is no name of a {what}: letters, digits, dots, dashes, plus signs", 2)


def _read_manifest(directory: Path) -> Manifest:
    """Raises `PackageError`."""
    try:
        manifest = decode((directory / MANIFEST).read_bytes(), Manifest)
    except FileNotFoundError as error:
        raise PackageError(f"{directory} has no {MANIFEST}") from error
    except (OSError, msgspec.DecodeError) as error:
        raise PackageError(f"{directory / MANIFEST} can't be read: {error}") from error
    for name in manifest.files:
        if name.startswith("/") or ".." in name.split("/"):
            raise PackageError(f"{directory / MANIFEST} names {name}, which lies outside of the tree")
    return manifest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- packages ---


def pack(
    source: Path,
    packages: Path,
    name: str,
    version: str,
    behaviour: Behaviour,
    seconds: float,
    on: tuple[str, ...] = (),
) -> Path:
    """Makes a package of the files under `source`; replaces one of the same version. Raises `PackageError`."""
    check_name(name, "component")
    check_name(version, "version")
    if not source.is_dir():
        raise PackageError(f"{source} is no directory", 2)
    place = packages / name / version
    beside = place.with_name(f".{version}.packing")
    _remove(beside)
    shutil.copytree(source, beside / "files")
    (beside / "files" / VERSION_FILE).write_text(f"{version}\n")
    found = sorted(path for path in (beside / "files").rglob("*") if path.is_file())
    files = {path.relative_to(beside / "files").as_posix(): _digest(path) for path in found}
    manifest = Manifest(name=name, version=version, behaviour=behaviour, seconds=seconds, on=on, files=files)
    write_whole(beside / MANIFEST, encode(manifest))
    _put(beside, place)
    return place


def package(packages: Path, name: str, version: str) -> tuple[Path, Manifest]:
    """(its directory, manifest). Raises `PackageError`."""
    check_name(name, "component")
    check_name(version, "version")
    place = packages / name / version
    if not place.is_dir():
        have = sorted(path.name for path in (packages / name).glob("[!.]*")) if (packages / name).is_dir() else []
        raise PackageError(f"{packages} has no {name} {version}; it has {', '.join(have) or 'no version of it'}", 4)
    return place, _read_manifest(place)


# --- trees of a host ---


class Components:
    """The trees of one host."""

    def __init__(self, host_dir: Path) -> None:
        self.root = host_dir / "components"

    def names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if NAME.fullmatch(path.name) is not None)

    def linked(self, name: str, link: str) -> str | None:
        """The version that a link names."""
        try:
            return os.readlink(self.root / name / link)
        except FileNotFoundError:
            return None

    def version(self, name: str) -> str:
        """The present version, if its tree is sound. Raises `PackageError`."""
        check_name(name, "component")
        if self.linked(name, "current") is None:
            raise PackageError(f"{name} is not installed here")
        return self._sound(self.root / name / "current")

    def _sound(self, tree: Path) -> str:
        """The version that a tree says it has. Raises `PackageError` if it is damaged."""
        manifest = _read_manifest(tree)
        try:
            damaged = [name for name, digest in manifest.files.items() if _digest(tree / name) != digest]
            version = (tree / VERSION_FILE).read_text().strip()
        except OSError as error:
            raise PackageError(f"{tree} is damaged: {error.filename}: {error.strerror}") from error
        if damaged:
            raise PackageError(f"{tree} is damaged: {damaged[0]} is not what was packed")
        return version

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[Path]:
        """The directory of a component, for one installer at a time. Raises `PackageError`."""
        check_name(name, "component")
        directory = self.root / name
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PackageError(f"another installer works on {name}") from error
            yield directory

    def place(self, name: str, source: Path, manifest: Manifest, files: int | None = None) -> None:
        """Copies a package to its tree, or of a `fail`ing one the first `files`. Raises `PackageError`, `OSError`."""
        tree = self.root / name / manifest.version
        beside = tree.with_name(f".{manifest.version}.incoming")
        _remove(beside)
        for path in list(manifest.files)[:files]:
            target = beside / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(source / "files" / path, target)
                _sync(target)
            except FileNotFoundError as error:
                raise PackageError(f"the package {source} has no {path}") from error
            if _digest(target) != manifest.files[path]:
                raise PackageError(f"the package {source} is damaged: {path} is not what was packed")
        if files is None:
            write_whole(beside / MANIFEST, encode(manifest))
            _put(beside, tree)

    def switch(self, name: str, version: str) -> None:
        """Makes a version the current one, and the one so far the previous one."""
        directory = self.root / name
        before = self.linked(name, "current")
        if before not in (None, version):
            _link(directory / "previous", before)
        _link(directory / "current", version)
        (directory / "next").unlink(missing_ok=True)
        sync_directory(directory)

    def stage(self, name: str, version: str) -> None:
        """For the next boot."""
        _link(self.root / name / "next", version)
        sync_directory(self.root / name)

    def rollback(self, name: str) -> str:
        """Takes back a version that waits for a boot, or else goes back to the previous one; the version that is
        current now. Raises `PackageError`."""
        with self.changing(name) as directory:
            if self.linked(name, "next") is not None:
                (directory / "next").unlink()
                return self.version(name)
            before = self.linked(name, "previous")
            if before is None:
                raise PackageError(f"there is no version of {name} before {self.linked(name, 'current') or 'none'}")
            version = self._sound(directory / before)
            _link(directory / "current", before)
            (directory / "previous").unlink()
            sync_directory(directory)
            return version

    def remove(self, name: str) -> None:
        """Takes a component away; nothing happens where it is not there."""
        with self.changing(name) as directory:
            (directory / "current").unlink(missing_ok=True)
            gone = self.root / f".{name}.gone"
            _remove(gone)
            directory.rename(gone)
            shutil.rmtree(gone)

    def activate(self) -> list[str]:
        """After a boot: makes current what waited for it, unless its tree is damaged; what was done, in sentences.
        Raises `OSError`."""
        said = []
        for name in self.names():
            version = self.linked(name, "next")
            if version is None:
                continue
            try:
                self._sound(self.root / name / version)
            except PackageError as error:
                said.append(f"{name} {version} waited for this boot and can't be used: {error}")
                continue
            self.switch(name, version)
            said.append(f"{name} {version} takes effect with this boot")
        return said

    def versions(self) -> dict[ComponentName, str]:
        """The version of each component that is installed; empty for one whose tree is damaged."""
        found: dict[ComponentName, str] = {}
        for name in self.names():
            if self.linked(name, "current") is None:
                continue
            try:
                found[ComponentName(name)] = self.version(name)
            except PackageError:
                found[ComponentName(name)] = ""
        return found


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _link(link: Path, target: str | None) -> None:
    assert target is not None, link
    beside = link.with_name(f".{link.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)


def _put(beside: Path, place: Path) -> None:
    """Moves a finished directory to its place, which may be taken by an older one."""
    old = place.with_name(f".{place.name}.old")
    _remove(old)
    if place.exists():
        place.rename(old)
    beside.rename(place)
    sync_directory(place.parent)
    _remove(old)


def _remove(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)
