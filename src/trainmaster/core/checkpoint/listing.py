"""What a look at a directory of checkpoints says, and what it does not say.

A name says what a directory claims to be, never what it is. `step-00000200` is a checkpoint only if it carries its
manifest (written last, before the rename that publishes it); `.staging-step-00000200-e3-j1f0c2b9a` is a save that has
not ended; `.staging-step-00000200-e3-j1f0c2b9a-parts` is one that is written from memory (`parts.py`);
`.torn-step-...` was moved out of the way of a new save. The `j...` is the sum of the job's id: jobs that share a
directory never write into, remove or judge a save of another one, not even in the moment before its owner's mark is
there. Every other name is somebody else's, however much it resembles ours (`step-100.backup`), and is neither counted
nor touched.

Two judgements need no manifest, for directories of other tools: whether a set of shards can be whole (`judge_shards`),
and whether two hosts hold halves of one checkpoint because the path is not shared (`judge_hosts`). Both are careful
about absence: a listing that may be partial proves that a file is bad, not that one is missing.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.value import Value

MANIFEST_NAME: Final = "manifest.json"
PULL_PREFIX: Final = ".pull-"
_STEP: Final = re.compile(r"step-(\d{1,12})", re.ASCII)
_UNPUBLISHED: Final = re.compile(
    r"\.(staging|torn)-step-(\d{1,12})(?:-e(\d{1,9})(?:-j([0-9a-f]{8}))?(-parts)?)?", re.ASCII
)
_UNFINISHED: Final = (".tmp", ".partial", ".part")


class Problem(Value):
    """Something that is wrong: a fixed token, one sentence, the numbers in it, and the files concerned."""

    token: str
    sentence: str
    numbers: dict[str, int] = msgspec.field(default_factory=dict)
    files: tuple[str, ...] = ()


class Entry(Value):
    """One directory of a checkpoint directory: its name, whether its completeness marker is there, whose it is.

    `owner` is the job that the directory names as its own (in its owner marker); None if it names none. `attempt` is
    the number of the attempt of that job that made it, `epoch` the membership, each 0 if unknown. `pin` is why somebody
    keeps it, empty if nobody does. `sound` is what came of the last time that every byte of it was read; None if that
    was never.
    """

    name: str
    complete: bool
    owner: JobId | None = None
    attempt: int = 0
    epoch: int = 0
    pin: str = ""
    sound: bool | None = None


class Unpublished(Value):
    step: int
    epoch: int
    by_parts: bool = False
    owner_tag: str = ""
    """See `owner_tag`; empty if its name has none."""


class Shard(Value):
    """One file of a sharded set. `size_bytes` is None where the listing does not tell."""

    name: str
    index: int
    size_bytes: int | None = None


class Mount(Value):
    """What is mounted under a path on one host."""

    host: str
    path: str
    kind: str
    source: str


_LOCAL_KINDS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "f2fs"})


def step_name(step: int) -> str:
    assert step >= 0
    return f"step-{step:08d}"


def owner_tag(job: JobId) -> str:
    """Eight hexadecimal digits for the job as the owner of checkpoints (`ids.owner_id`)."""
    return f"{zlib.crc32(job.encode()):08x}"


def staging_name(step: int, epoch: int, job: JobId) -> str:
    assert step >= 0
    assert epoch >= 0
    return f".staging-step-{step:08d}-e{epoch}-j{owner_tag(job)}"


def parts_name(step: int, epoch: int, job: JobId) -> str:
    """The staging directory of a save from memory: another one than that of a synchronous save of the same step, since
    both may be under way."""
    return f"{staging_name(step, epoch, job)}-parts"


def torn_name(step: int, epoch: int, job: JobId) -> str:
    return staging_name(step, epoch, job).replace("staging", "torn", 1)


def step_of(name: str) -> int | None:
    """The step that a directory name claims; None for names that are not exactly ours."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def unpublished_of(name: str) -> Unpublished | None:
    """The save that a staging (or moved aside) directory belongs to; epoch 0 if its name has none."""
    match = _UNPUBLISHED.fullmatch(name)
    if match is None or (match[5] and match[1] != "staging"):
        return None
    return Unpublished(
        step=int(match[2]), epoch=int(match[3] or 0), by_parts=match[5] is not None, owner_tag=match[4] or ""
    )


def is_save_of(save: Unpublished, owner: JobId | None, job: JobId) -> bool:
    """Whether a save that has not ended is this job's: by its name, or, if that does not say, by its mark; without
    either it is anybody's."""
    return save.owner_tag == owner_tag(job) if save.owner_tag else owner in (None, job)


def pull_of(name: str) -> int | None:
    """The step of a copy that has not ended (`ckpt pull`), or never will; None for other names."""
    return step_of(name.removeprefix(PULL_PREFIX)) if name.startswith(PULL_PREFIX) else None


def published_steps(entries: Iterable[Entry]) -> tuple[int, ...]:
    """Steps with a complete directory, newest first."""
    claimed = (step_of(entry.name) for entry in entries if entry.complete)
    return tuple(sorted({step for step in claimed if step is not None}, reverse=True))


def own_steps(entries: Iterable[Entry], job: JobId, began_step: int | None) -> tuple[int, ...]:
    """Published steps that a job may go on from, newest first: its own. Before it has published any: whatever is there
    at its very start (`began_step` None); later only the step that it began with then, 0 if that was none. Another job
    that saves into the same directory may be further, but not on the way of this one."""
    assert began_step is None or began_step >= 0, began_step
    known = tuple(entries)
    own = published_steps(entry for entry in known if entry.owner == job)
    return own or tuple(step for step in published_steps(known) if began_step is None or 0 < step == began_step)


def judge_shards(label: str, shards: Sequence[Shard], expected: int | None = None) -> tuple[Problem, ...]:
    """Why a set of shards cannot be whole; empty if nothing speaks against it.

    `expected` is the number of shards that the set must have. Without it the listing may be partial, so a shard that
    is not in it is not reported as missing. A shard is short if most shards of the set are longer than it.
    """
    finished = [shard for shard in shards if not shard.name.endswith(_UNFINISHED)]
    sizes = Counter(shard.size_bytes for shard in finished if shard.size_bytes)
    usual = max(sizes, key=lambda size: (sizes[size], size)) if sizes else 0
    assert usual is not None
    empty = [shard for shard in finished if shard.size_bytes == 0]
    short = [shard for shard in finished if shard.size_bytes and shard.size_bytes < usual]
    unfinished = [shard for shard in shards if shard.name.endswith(_UNFINISHED)]
    problems: list[Problem] = []
    if empty:
        problems.append(_about("empty-shard", f"{label}: {_shards(empty)} has no bytes", empty, count=len(empty)))
    for shard in short:
        size = shard.size_bytes or 0
        sentence = f"{label}: {_shards([shard])} is truncated, {size} < {usual} bytes"
        problems.append(_about("short-shard", sentence, [shard], size_bytes=size, usual_bytes=usual))
    if unfinished:
        sentence = f"{label}: {_shards(unfinished)} was never renamed to its final name; its size proves nothing"
        problems.append(_about("unfinished-shard", sentence, unfinished, count=len(unfinished)))
    absent = sorted(set(range(expected)) - {shard.index for shard in shards}) if expected is not None else []
    if absent:
        sentence = f"{label}: {len(absent)} of {expected} shards are missing, the first is {absent[0]}"
        problems.append(Problem(token="missing-shard", sentence=sentence, numbers={"missing": len(absent)}))
    return tuple(problems)


def _about(token: str, sentence: str, shards: Sequence[Shard], **numbers: int) -> Problem:
    return Problem(token=token, sentence=sentence, numbers=numbers, files=tuple(shard.name for shard in shards))


def _shards(shards: Sequence[Shard]) -> str:
    return "shard " + ", ".join(str(index) for index in sorted(shard.index for shard in shards))


def judge_hosts(
    held: Mapping[str, Iterable[str]], expected: Iterable[str], mounts: Iterable[Mount] = ()
) -> tuple[Problem, ...]:
    """Why hosts that look at one path do not see one whole checkpoint; empty if each host sees every expected file.

    Token `not-shared`: together they hold all of it, so nothing is corrupt and the halves must be gathered.
    Token `missing-file`: even together they lack files.
    """
    sets = {host: frozenset(names) for host, names in held.items()}
    wanted = frozenset(expected)
    assert sets, "no host looked"
    union = frozenset().union(*sets.values())
    lacking = sorted(wanted - union)
    if lacking:
        sentence = f"no host has {lacking[0]}; {len(lacking)} of {len(wanted)} files are missing everywhere"
        return (
            Problem(token="missing-file", sentence=sentence, numbers={"missing": len(lacking)}, files=tuple(lacking)),
        )
    partial = sorted(host for host, names in sets.items() if not wanted <= names)
    if not partial:
        return ()
    local = sorted({f"{mount.path} is {mount.kind}" for mount in mounts if mount.kind in _LOCAL_KINDS})
    why = f" ({', '.join(local)} on each host)" if local else ""
    sentence = (
        f"the directory is not shared{why}: {len(partial)} of {len(sets)} hosts see a part, together they hold all "
        f"{len(wanted)} files; gather them on a shared file system and resume, nothing is corrupt"
    )
    numbers = {"hosts": len(sets), "partial": len(partial), "files": len(wanted)}
    return (Problem(token="not-shared", sentence=sentence, numbers=numbers),)
