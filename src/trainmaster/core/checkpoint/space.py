"""Whether a save fits, and why one did not.

"No space left on device" while `df` shows room has three usual causes: one storage target of a striped file system is
full (the volume fills unevenly, from about 85 % on), a quota, or the inodes are used up. The saver is innocent in all
three, and the bytes that were written are no checkpoint. A check before a save that compares need with free bytes is
necessary but not sufficient, so it warns about fill as well.
"""

from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

UNSAVED: Final = "all steps are done, but their result is not saved: there is no room for it"
"""What a job says at its end if nobody made room; the engine knows by it that another try is of no use."""
_STRIPED: Final = frozenset({"lustre", "beegfs", "gpfs", "ceph"})
_FULL_PERCENT: Final = 85
_NO_INODES_PERCENT: Final = 99


class Volume(Value):
    """What `df` tells about the place of a save."""

    path: str
    kind: str
    size_bytes: int
    free_bytes: int
    inodes_used_percent: int

    def used_percent(self) -> int:
        return 100 - self.free_bytes * 100 // self.size_bytes if self.size_bytes else 100


class Shortage(Value):
    """Why a save found no space: the suspect, one sentence, the command that tells more."""

    suspect: str
    sentence: str
    next_command: str
    resumable: bool = False


def explain(volume: Volume, *, needed_bytes: int, written_bytes: int) -> Shortage:
    """Explains an ENOSPC on `volume` after `written_bytes` of `needed_bytes`. What was written is to be discarded."""
    rest_bytes = max(0, needed_bytes - written_bytes)
    of = f" of {needed_bytes}" if needed_bytes else ""
    told = f"{written_bytes}{of} bytes were written and are no checkpoint"
    if volume.inodes_used_percent >= _NO_INODES_PERCENT:
        sentence = f"{volume.path} has no inodes left ({volume.inodes_used_percent} % used); {told}"
        return Shortage(suspect="inodes", sentence=sentence, next_command=f"df -i {volume.path}")
    if volume.free_bytes < rest_bytes or volume.free_bytes == 0:
        sentence = f"{volume.path} is full: {volume.free_bytes} bytes free, {rest_bytes} more needed; {told}"
        return Shortage(suspect="volume", sentence=sentence, next_command=f"df -h {volume.path}")
    if volume.kind in _STRIPED:
        command = f"lfs df -h {volume.path}" if volume.kind == "lustre" else f"df -h {volume.path}"
        sentence = (
            f"one storage target of {volume.path} is full, or a quota is reached, though the volume has "
            f"{volume.free_bytes} bytes free ({volume.used_percent()} % used); {told}"
        )
        return Shortage(suspect="storage-target-or-quota", sentence=sentence, next_command=command)
    sentence = f"a quota or reserved blocks on {volume.path}, which has {volume.free_bytes} bytes free; {told}"
    return Shortage(suspect="quota", sentence=sentence, next_command=f"quota -s; df -h {volume.path}")


def before_save(volume: Volume, needed_bytes: int) -> tuple[Problem, ...]:
    """What speaks against a save of `needed_bytes`; token `no-space` is a reason not to try."""
    assert needed_bytes >= 0
    numbers = {"needed_bytes": needed_bytes, "free_bytes": volume.free_bytes, "used_percent": volume.used_percent()}
    if volume.free_bytes < needed_bytes:
        sentence = f"{volume.path} has {volume.free_bytes} bytes free, the save needs {needed_bytes}"
        return (Problem(token="no-space", sentence=sentence, numbers=numbers),)
    if volume.kind in _STRIPED and volume.used_percent() >= _FULL_PERCENT:
        sentence = (
            f"{volume.path} is {volume.used_percent()} % full and striped over targets that fill unevenly: a save of "
            f"{needed_bytes} bytes may fail although {volume.free_bytes} are free"
        )
        return (Problem(token="uneven-fill", sentence=sentence, numbers=numbers),)
    return ()
