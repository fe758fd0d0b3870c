"""The manifest: what a checkpoint consists of, written last and trusted first.

It names every file with its size and CRC-32, so that a torn, truncated or flipped file is found before a byte of it
reaches the model. A plain marker file (the usual remedy) shows that a save ended, not that the bytes are still those of
the save. CRC-32 rather than a cryptographic digest: the enemy is a broken disk, not a forger, and it runs at several
GiB/s, so it can always be on. Checksums are computed at the edge; here they are compared.

The manifest guards itself by a seal, a CRC-32 of its own bytes with the seal blanked out: a flipped digit in a number
would still be JSON.

`check` is told how deep it must look. A shallow check compares names and sizes of a listing. A deep one wants the
checksum of every file, and a file whose checksum is not known fails it: unknown is not healthy.
"""

import hashlib
import zlib
from collections.abc import Iterable
from typing import Final

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.listing import Problem
from trainmaster.core.checkpoint.position import Position

SCHEMA: Final = 1
_SEAL: Final = b'"seal":"'
_BLANK: Final = "00000000"


class FileEntry(Value):
    name: str
    size_bytes: int
    crc32: int


class Manifest(Value):
    """`writer` is the host of the rank that wrote the manifest; `written_at` its clock (microseconds), 0 if unknown."""

    schema: int
    job: JobId
    attempt: AttemptId
    epoch: int
    step: int
    world: int
    position: Position
    files: tuple[FileEntry, ...]
    writer: str
    written_at: int = 0
    seal: str = _BLANK

    def digest(self) -> str:
        """Names the content: equal if one process saved one state twice. Hidden files describe a save and are no part
        of the state. Another process may lay the same state out with other gaps, so unequal says nothing."""
        ordered = sorted((file for file in self.files if not file.name.startswith(".")), key=lambda file: file.name)
        return hashlib.sha256(encode(ordered)).hexdigest()

    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def sealed(manifest: Manifest) -> bytes:
    """The bytes of a manifest file."""
    data = encode(manifest.but(seal=_BLANK))
    return _with_seal(data, f"{zlib.crc32(data):08x}".encode())


def unsealed(data: bytes) -> Manifest:
    """The manifest in a file. Raises `msgspec.MsgspecError` if it is none, `ValueError` if its seal is broken."""
    manifest = decode(data, Manifest)
    if f"{zlib.crc32(_with_seal(data, _BLANK.encode())):08x}" != manifest.seal:
        raise ValueError("its bytes are not those that were written: the seal is broken")
    return manifest


def _with_seal(data: bytes, seal: bytes) -> bytes:
    """The same bytes with another seal. The last one counts: no name of a file can look like it."""
    place = data.rfind(_SEAL)
    if place < 0:
        raise ValueError("it has no seal")
    start = place + len(_SEAL)
    return data[:start] + seal + data[start + len(seal) :]


class Observed(Value):
    """A file that is there. `crc32` is None where nobody has read it."""

    name: str
    size_bytes: int
    crc32: int | None = None


def check(manifest: Manifest, observed: Iterable[Observed], *, step: int, deep: bool) -> tuple[Problem, ...]:
    """What is wrong with the directory of `step` that holds this manifest; empty if it is whole."""
    seen = {file.name: file for file in observed}
    problems: list[Problem] = []
    if manifest.schema != SCHEMA:
        sentence = f"the manifest has schema {manifest.schema}, this version reads {SCHEMA}"
        problems.append(Problem(token="unknown-schema", sentence=sentence, numbers={"schema": manifest.schema}))
    if manifest.step != step:
        sentence = f"the directory of step {step} holds a manifest of step {manifest.step}"
        problems.append(Problem(token="wrong-step", sentence=sentence, numbers={"named": step, "held": manifest.step}))
    if not manifest.files:
        problems.append(Problem(token="no-files", sentence="the manifest names no file"))
    for file in manifest.files:
        problem = _check_file(file, seen.get(file.name), deep)
        if problem is not None:
            problems.append(problem)
    return tuple(problems)


def repeats(manifest: Manifest, older: Iterable[Manifest]) -> Problem | None:
    """Says if a checkpoint holds the very bytes of another one: training stands still, or old state was saved."""
    same = [each.step for each in older if each.step != manifest.step and each.digest() == manifest.digest()]
    if not same:
        return None
    sentence = f"the checkpoint of step {manifest.step} is equal to that of step {same[0]}, byte for byte"
    return Problem(token="equal-content", sentence=sentence, numbers={"step": manifest.step, "older_step": same[0]})


def _check_file(file: FileEntry, seen: Observed | None, deep: bool) -> Problem | None:
    if seen is None:
        return _problem("missing-file", f"{file.name} is missing", file)
    numbers = {"size_bytes": seen.size_bytes, "expected_bytes": file.size_bytes}
    if seen.size_bytes == 0 and file.size_bytes > 0:
        return _problem("empty-file", f"{file.name} has no bytes, expected {file.size_bytes}", file, **numbers)
    if seen.size_bytes != file.size_bytes:
        token = "short-file" if seen.size_bytes < file.size_bytes else "long-file"
        return _problem(token, f"{file.name} has {seen.size_bytes} of {file.size_bytes} bytes", file, **numbers)
    if deep and seen.crc32 is None:
        return _problem("unread-file", f"{file.name} was not read, so nothing is known about its bytes", file)
    if deep and seen.crc32 != file.crc32:
        sentence = f"{file.name} has its size but not its content: CRC-32 {seen.crc32:08x}, expected {file.crc32:08x}"
        return _problem("checksum-mismatch", sentence, file, crc32=seen.crc32 or 0, expected_crc32=file.crc32)
    return None


def _problem(token: str, sentence: str, file: FileEntry, **numbers: int) -> Problem:
    return Problem(token=token, sentence=sentence, numbers=numbers, files=(file.name,))
