"""The small steps of every save, whoever makes it: refuse, complete, publish, explain.

Ranks do them in a synchronous save, vaults in one from memory. Nothing here knows PyTorch.
"""

import errno
import os
import socket
from pathlib import Path
from typing import Final

from trainmaster.core.base.ids import JobId
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, Entry, step_name, step_of, torn_name
from trainmaster.core.checkpoint.manifest import Manifest, Observed, check
from trainmaster.core.checkpoint.publish import Occupant, occupant
from trainmaster.core.checkpoint.space import before_save, explain
from trainmaster.storage import directory
from trainmaster.storage.directory import OwnerMark

_TRIES: Final = 5


def complete(staging: Path, manifest: Manifest) -> None:
    """Puts the manifest and compares the directory with it. Raises `OSError`."""
    directory.write_manifest(staging, manifest)
    compare(staging, manifest)


def compare(staging: Path, manifest: Manifest) -> None:
    """Raises `OSError` if what lies there is not what the manifest says."""
    seen = directory.observe(staging, [*(file.name for file in manifest.files), MANIFEST_NAME], read=False)
    read_back: Manifest = directory.read_manifest(staging)
    problems = check(read_back, [Observed(name=each.name, size_bytes=each.size_bytes) for each in seen],
                     step=manifest.step, deep=False)  # fmt: skip
    if problems:
        raise OSError(f"what was written does not verify: {problems[0].sentence}")


def see(root: Path, staging: str) -> None:
    """Raises `OSError` if this host does not see what the coordinator made: the path is not shared."""
    if staging not in os.listdir(root):
        raise OSError(
            f"{socket.gethostname()} does not see {staging} in {root}: the directory is not shared by all hosts; "
            "use one that is"
        )


def refuse_foreign(root: Path, entries: tuple[Entry, ...], step: int, job: JobId) -> None:
    """Raises `OSError` if what stands where the save will be is somebody else's."""
    if occupant(entries, step, job) is Occupant.FOREIGN:
        raise FileExistsError(f"{step_name(step)} in {root} is not this job's; move it away")


def refuse_full(root: Path, needed_bytes: int) -> None:
    """Raises `OSError` (see `lacks_room`) if a save cannot fit."""
    lacking = [problem for problem in before_save(directory.volume(root), needed_bytes) if problem.token == "no-space"]
    if lacking:
        refusal = OSError(lacking[0].sentence)
        refusal.errno = errno.ENOSPC
        raise refusal


def lacks_room(error: OSError) -> bool:
    """Whether a save failed for want of space: a full volume, or a quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def with_shortage(sentence: str, staging: Path, needed_bytes: int) -> str:
    """Why a save failed, with what a lack of space means here if that was it. Raises `OSError`."""
    if not any(f"[Errno {number}]" in sentence for number in (errno.ENOSPC, errno.EDQUOT)):
        return sentence
    written = sum(entry.stat().st_size for entry in os.scandir(staging))
    shortage = explain(directory.volume(staging.parent), needed_bytes=needed_bytes, written_bytes=written)
    return f"{shortage.sentence} (see: {shortage.next_command}); {sentence}"


def publish_once(staging: Path, final: Path, mark: OwnerMark) -> bool:
    """Gives a directory its final name unless this membership or a later one has published that step; whether it did.

    Several may try at the same time: a rename never replaces what is there, and who moved something newer aside puts it
    back. Raises `OSError`.
    """
    return _published(staging, final, mark, fenced=True)


def publish(staging: Path, final: Path, mark: OwnerMark) -> None:
    """Gives a written and verified directory its final name. What this job has under that name is moved aside.

    Raises `FileExistsError` if it is another job's, which stays as it is; `OSError`.
    """
    placed = _published(staging, final, mark, fenced=False)
    assert placed, final


def _published(staging: Path, final: Path, mark: OwnerMark, fenced: bool) -> bool:
    directory.sync_directory(staging)
    for _ in range(_TRIES):
        if final.exists() and not _moved_aside(final, mark, fenced):
            return False
        try:
            staging.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue
        directory.sync_directory(final.parent)
        return True
    raise OSError(errno.EEXIST, f"others publish {final.name} again and again")


def _moved_aside(final: Path, mark: OwnerMark, fenced: bool) -> bool:
    """Moves a checkpoint of ours out of the way; False if what is there is to stay."""
    if _stays(final, mark, fenced):
        return False
    aside = final.parent / torn_name(step_of(final.name) or 0, mark.epoch, mark.job)
    if aside.exists():
        directory.remove(aside)
    try:
        final.rename(aside)
    except FileNotFoundError:
        return True  # somebody else did it
    try:
        stays = _stays(aside, mark, fenced)
    except FileExistsError:
        aside.rename(final)
        raise
    if stays:
        aside.rename(final)
    return not stays


def _stays(path: Path, mark: OwnerMark, fenced: bool) -> bool:
    """Whether it was published by this membership or a later one, if that matters. Raises `FileExistsError` if it is
    not this job's."""
    owner = directory.owner_of(path)
    if not path.exists():
        return False
    if owner is None or owner.job != mark.job:
        raise FileExistsError(f"{path.name} in {path.parent} is not this job's; move it away")
    newer = (owner.attempt, owner.epoch) >= (mark.attempt, mark.epoch)
    return fenced and newer and (path / MANIFEST_NAME).is_file()
