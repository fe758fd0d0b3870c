"""Saving and restoring a sharded model and its optimizer, as a collective of all ranks.

Save: rank 0 opens a fresh staging directory; every rank checks that it sees it (a path that is not shared is found
here, not at the resume). All write and sync their shards; each reads its own back for size and checksum; rank 0 writes
the manifest, compares the directory with it, and publishes it by one rename. If anything fails on any rank, all learn
it in the next collective, the staging directory goes, and the same `SaveFailed` is raised on all.

Restore: all ranks look; each computes the same choice from the same gathered facts, reads its share of the bytes, and
tells the checksums; only then is a byte loaded. No vote is needed: the facts are shared, the choice a function.

State goes through `get_state_dict` and `set_state_dict`; with the optimizer's own `state_dict` the moments of a fresh
AdamW are silently not restored. Limit: synchronous; the step waits for the disks.
"""

import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from trainmaster.core.base.ids import AttemptId
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value, encode
from trainmaster.core.checkpoint.listing import (
    MANIFEST_NAME,
    Problem,
    judge_hosts,
    published_steps,
    staging_name,
    step_name,
)
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest, Observed, check, repeats
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.publish import MACHINE, Occupant, Stage, collisions, occupant
from trainmaster.core.checkpoint.retention import retire
from trainmaster.core.checkpoint.select import Fresh, Refused, Resume, Verify, select
from trainmaster.core.checkpoint.space import before_save, explain
from trainmaster.training import directory
from trainmaster.training.agreement import broadcast, gather, on_first, together
from trainmaster.training.directory import OwnerMark
from trainmaster.training.errors import SaveFailed, TrainingError
from trainmaster.training.sharded_files import (
    METADATA_NAME,
    CarefulPlanner,
    CarefulReader,
    CarefulWriter,
    os_error_behind,
)


class Saved(Value):
    """`complaint` is what went wrong after the publish (old checkpoints that could not be deleted), else empty."""

    step: int
    size_bytes: int
    complaint: str


class Restored(Value):
    """`sentence` says why it is not the newest published one; empty if it is."""

    step: int
    position: Position
    sentence: str


class Checkpoints:
    """The checkpoint directory of one membership. All methods are collectives."""

    def __init__(self, root: Path, mark: OwnerMark, attempt: AttemptId, keep: int) -> None:
        self._root = root
        self._mark = mark
        self._attempt = attempt
        self._keep = keep
        self._stage = MACHINE.first
        self._story: tuple[Chapter, ...] = ()
        self._rank = dist.get_rank()
        self._world = dist.get_world_size()

    def save(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, position: Position) -> Saved:
        """Publishes the state after `position.step`. Raises `SaveFailed` on all ranks if it could not."""
        state = _state(model, optimizer)
        staging = self._root / staging_name(position.step, self._mark.epoch)
        needed_bytes = sum(gather(_local_bytes(state)))
        try:
            on_first(lambda: self._open(staging, position.step, needed_bytes))
            together(lambda: self._see(staging))
            self._write(state, staging)
            files = together(lambda: self._own_files(staging))
            manifest = on_first(lambda: self._finish(staging, [file for part in files for file in part], position))
            complaint = on_first(lambda: "; ".join(filter(None, (self._compare(position.step), self._clean()))))
        except SaveFailed as failure:
            raise self._explained(failure, staging, needed_bytes) from failure
        assert manifest is not None
        return Saved(step=position.step, size_bytes=manifest.size_bytes(), complaint=complaint)

    def restore(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, requested: int | None = None
    ) -> Restored | None:
        """Loads the newest published state that verifies (or exactly the requested one); None if none was published.

        Raises `TrainingError` on all ranks if what is there cannot be used.
        """
        published = self._agree_on_listing()
        manifests: dict[int, Manifest] = {}
        verdicts: dict[int, tuple[Problem, ...]] = {}
        while isinstance(choice := select(published, verdicts, requested), Verify):
            verdicts[choice.step] = self._verify(choice.step, manifests)
        if isinstance(choice, Refused):
            raise TrainingError(f"{self._root}: {choice.problem.sentence}")
        if isinstance(choice, Fresh):
            return None
        assert isinstance(choice, Resume)
        self._load(model, optimizer, manifests[choice.step])
        return Restored(step=choice.step, position=manifests[choice.step].position, sentence=choice.sentence)

    def collisions(self, step: int, every_steps: int) -> list[str]:
        """What saves after a resume at `step` will meet."""
        met = collisions(directory.look(self._root), resume_step=step, save_every_steps=every_steps)
        return broadcast([problem.sentence for problem in met])

    def clean(self) -> str:
        """Deletes what retention says; returns a complaint or nothing. Never fails: old files cost space, not a job."""
        return on_first(self._clean)

    def _open(self, staging: Path, step: int, needed_bytes: int) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        lacking = [p for p in before_save(directory.volume(self._root), needed_bytes) if p.token == "no-space"]
        if lacking:
            raise SaveFailed(lacking[0].sentence)
        if occupant(directory.look(self._root), step, self._mark.job) is Occupant.FOREIGN:
            raise SaveFailed(f"{step_name(step)} in {self._root} is not this job's; move it away")
        self._stage, self._story = MACHINE.first, ()
        directory.open_staging(staging, self._mark)

    def _see(self, staging: Path) -> None:
        """Raises if this rank does not see what rank 0 made: the path is not shared."""
        if staging.name not in os.listdir(self._root):
            raise SaveFailed(
                f"{socket.gethostname()} does not see {staging.name} in {self._root}: the directory is not shared by "
                "all hosts; use one that is"
            )

    def _write(self, state: dict[str, Any], staging: Path) -> None:
        try:
            dcp.save(state, storage_writer=CarefulWriter(staging))
        except CheckpointException as error:
            raise _save_failed(error) from error

    def _own_files(self, staging: Path) -> tuple[Observed, ...]:
        names = sorted(name for name in os.listdir(staging) if name.startswith(f"__{self._rank}_"))
        if self._rank == 0:
            names.append(METADATA_NAME)
        return directory.observe(staging, names, read=True)

    def _finish(self, staging: Path, files: list[Observed], position: Position) -> Manifest:
        """Rank 0: manifest, verification, publish."""
        manifest = Manifest(
            schema=SCHEMA,
            job=self._mark.job,
            attempt=self._attempt,
            epoch=self._mark.epoch,
            step=position.step,
            world=self._world,
            position=position,
            files=tuple(FileEntry(name=f.name, size_bytes=f.size_bytes, crc32=f.crc32 or 0) for f in files),
            writer=socket.gethostname(),
        )
        directory.write_synced(staging / MANIFEST_NAME, encode(manifest))
        self._reach(Stage.WRITTEN, position.step, "all ranks wrote and synced")
        seen = directory.observe(staging, os.listdir(staging), read=False)
        problems = check(directory.read_manifest(staging), seen, step=position.step, deep=False)
        if problems:
            raise SaveFailed(f"what was written does not verify: {problems[0].sentence}")
        self._reach(Stage.VERIFIED, position.step, "the directory agrees with its manifest")
        directory.publish(staging, self._root / step_name(position.step), self._mark.epoch)
        self._reach(Stage.PUBLISHED, position.step, "renamed to its final name")
        return manifest

    def _reach(self, stage: Stage, step: int, cause: str) -> None:
        now = Instant(time.time_ns() // 1000)
        self._story = MACHINE.step(step_name(step), self._story, self._stage, stage, now, cause)
        self._stage = stage

    def _compare(self, step: int) -> str:
        """Rank 0: a complaint if what was published is equal to an older checkpoint."""
        steps = published_steps(directory.look(self._root))
        found = [_manifest_or_problem(self._root / step_name(each)) for each in steps]
        manifests = [each for each in found if isinstance(each, Manifest)]
        problem = next((repeats(each, manifests) for each in manifests if each.step == step), None)
        return problem.sentence if problem else ""

    def _clean(self) -> str:
        try:
            plan = retire(
                directory.look(self._root),
                keep=self._keep,
                job=self._mark.job,
                attempt=self._mark.attempt,
                epoch=self._mark.epoch,
            )
            for name in plan.delete:
                directory.remove(self._root / name)
        except OSError as error:
            return f"old checkpoints stay: {error}"
        return ""

    def _explained(self, failure: SaveFailed, staging: Path, needed_bytes: int) -> SaveFailed:
        """The failure with its explanation, after the staging directory is gone."""

        def explain_and_discard() -> str:
            if not staging.exists():
                return str(failure)
            sentence = str(failure)
            if f"[Errno {errno.ENOSPC}]" in sentence:
                written = sum(entry.stat().st_size for entry in os.scandir(staging))
                shortage = explain(directory.volume(self._root), needed_bytes=needed_bytes, written_bytes=written)
                sentence = f"{shortage.sentence} (see: {shortage.next_command}); {sentence}"
            directory.remove(staging)
            return sentence

        try:
            return SaveFailed(on_first(explain_and_discard))
        except SaveFailed as second:
            return SaveFailed(f"{failure}; and the staging directory could not be removed: {second}")

    def _agree_on_listing(self) -> tuple[int, ...]:
        try:
            views = together(lambda: (socket.gethostname(), directory.look(self._root)))
        except SaveFailed as failure:
            raise TrainingError(f"{self._root} cannot be read: {failure}") from failure
        steps = [published_steps(entries) for _, entries in views]
        if all(view == steps[0] for view in steps):
            return steps[0]
        held: dict[str, set[str]] = {}
        for rank_host, names in gather((socket.gethostname(), _file_names(self._root))):
            held.setdefault(rank_host, set()).update(names)
        problems = judge_hosts(held, frozenset().union(*held.values()))
        why = problems[0].sentence if problems else "ranks saw different checkpoints a moment ago; start again"
        raise TrainingError(f"{self._root}: {why}")

    def _verify(self, step: int, manifests: dict[int, Manifest]) -> tuple[Problem, ...]:
        """Reads all bytes of a checkpoint, each rank its share, and compares them with the manifest."""
        path = self._root / step_name(step)
        manifest = broadcast(_manifest_or_problem(path) if self._rank == 0 else None)
        if isinstance(manifest, Problem):
            return (manifest,)
        assert manifest is not None
        manifests[step] = manifest
        ordered = sorted(manifest.files, key=lambda file: (-file.size_bytes, file.name))
        mine = [file.name for file in ordered[self._rank :: self._world]]
        parts = gather(_try(lambda: directory.observe(path, mine, read=True)))
        unreadable = [part for part in parts if isinstance(part, Problem)]
        seen = [file for part in parts if not isinstance(part, Problem) for file in part]
        return (*unreadable, *check(manifest, seen, step=step, deep=True))

    def _load(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, manifest: Manifest) -> None:
        state = _state(model, optimizer)
        reader = CarefulReader(self._root / step_name(manifest.step), frozenset(file.name for file in manifest.files))
        try:
            dcp.load(state, storage_reader=reader, planner=CarefulPlanner())
        except CheckpointException as error:
            rank, (cause, _) = min(error.failures.items())
            raise TrainingError(f"step {manifest.step} could not be loaded on rank {rank}: {cause}") from error
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def _local_bytes(state: object) -> int:
    """Bytes of the tensors of this rank (a sharded tensor counts with its local part)."""
    if isinstance(state, dict):
        return sum(_local_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_local_bytes(value) for value in state)
    if not isinstance(state, torch.Tensor):
        return 0
    local = state.to_local() if hasattr(state, "to_local") else state
    return int(local.numel() * local.element_size())


def _save_failed(error: CheckpointException) -> SaveFailed:
    """What a failed collective write means; raises if the cause was no failing disk but a defect."""
    told = []
    for rank, (cause, _) in sorted(error.failures.items()):
        behind = os_error_behind(cause)
        if behind is None:
            raise RuntimeError(f"rank {rank} could not save: {cause}") from error
        told.append(f"rank {rank}: {behind}")
    return SaveFailed("; ".join(told))


def _manifest_or_problem(path: Path) -> Manifest | Problem:
    try:
        return directory.read_manifest(path)
    except (OSError, msgspec.MsgspecError) as error:
        return Problem(token="manifest-unreadable", sentence=f"{path.name}/{MANIFEST_NAME} cannot be read: {error}")


def _try(work: Callable[[], tuple[Observed, ...]]) -> tuple[Observed, ...] | Problem:
    try:
        return work()
    except OSError as error:
        return Problem(token="unreadable-file", sentence=f"a file cannot be read: {error}")


def _file_names(root: Path) -> list[str]:
    """Every file of every published directory, as `step-.../name`."""
    published = [entry.name for entry in directory.look(root) if entry.complete or entry.name.startswith("step-")]
    return [f"{name}/{file}" for name in published for file in os.listdir(root / name)]
