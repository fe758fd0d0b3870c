"""Saving and restoring a sharded model and its optimizer, as a collective of all ranks.

Save: rank 0 opens a fresh staging directory; every rank checks that it sees it (a path that is not shared is found
here, not at the resume). All write their shards, summing every block as it passes, and sync them; rank 0 writes the
manifest, compares the directory with it, and publishes it by one rename. If anything fails on any rank, all learn
it in the next collective, the staging directory goes, and the same `SaveFailed` is raised on all.

Restore: all ranks look; each computes the same choice from the same gathered facts. Every rank reads what it needs
straight into its tensors and verifies it on the way; if a block differs on any rank, all load the next older checkpoint
over it, and if there is none the job ends. No step is ever made from state that did not verify, and no vote is needed:
the facts are shared, the choice a function.

State goes through `get_state_dict` and `set_state_dict`; with the optimizer's own `state_dict` the moments of a fresh
AdamW are silently not restored. Limit: synchronous; the step waits for the disks.
"""

import math
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor

from trainmaster.core.base.ids import AttemptId, JobId, owner_text
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import (
    MANIFEST_NAME,
    Problem,
    judge_hosts,
    own_steps,
    published_steps,
    staging_name,
    step_name,
)
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest, repeats
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.publish import MACHINE, Stage, collisions
from trainmaster.core.checkpoint.retention import retire
from trainmaster.core.checkpoint.select import Fresh, Refused, Resume, Verify, select
from trainmaster.storage import directory
from trainmaster.storage.contents import Unsound, manifest_in
from trainmaster.storage.directory import OwnerMark, Verdict
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.saving import complete, lacks_room, publish, refuse_foreign, refuse_full, see, with_shortage
from trainmaster.storage.transfer import Damage
from trainmaster.training.agreement import broadcast, gather, on_first, together
from trainmaster.training.distcp.planner import BalancedPlanner, CarefulPlanner
from trainmaster.training.distcp.reader import CheckpointReader
from trainmaster.training.distcp.writer import ShardWriter
from trainmaster.training.distrust import Distrust
from trainmaster.training.errors import NoRoom, SaveFailed, TrainingError


class Saved(Value):
    """`complaint` is what was wrong though it was published (slow writers, old checkpoints that stay), else empty."""

    step: int
    size_bytes: int
    complaint: str


class Restored(Value):
    """`sentence` says why it is not the newest published one; empty if it is."""

    step: int
    position: Position
    sentence: str


class Checkpoints:
    """The checkpoint directory of one membership. All methods but `tidy` are collectives."""

    def __init__(
        self,
        root: Path,
        mark: OwnerMark,
        attempt: AttemptId,
        keep: int,
        distrusted: Sequence[Distrust] = (),
        began_step: int | None = None,
    ) -> None:
        self._distrusted = tuple(distrusted)
        self._began_step = began_step
        self._root = root
        self._store = DirectoryStore(root)
        self._mark = mark
        self._attempt = attempt
        self._keep = keep
        self._stage = MACHINE.first
        self._story: tuple[Chapter, ...] = ()
        self._rank = dist.get_rank()
        self._world = dist.get_world_size()

    def save(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, position: Position) -> Saved:
        """Publishes the state after `position.step`. Raises `SaveFailed` on all ranks if it could not."""
        state = state_of(model, optimizer)
        staging = self._root / staging_name(position.step, self._mark.epoch, self._mark.job)
        needed_bytes = math.ceil(sum(gather(_written_bytes(state, self._world))))
        try:
            on_first(lambda: self._open(staging, position.step, needed_bytes))
            together(lambda: see(self._root, staging.name))
            written = self._write(state, staging)
            manifest = on_first(lambda: self._finish(staging, written.files, position))
            complaint = on_first(
                lambda: "; ".join(filter(None, (written.complaint, self._compare(position.step), self._clean())))
            )
        except SaveFailed as failure:
            raise self._explained(failure, staging, needed_bytes) from failure
        assert manifest is not None
        return Saved(step=position.step, size_bytes=manifest.size_bytes(), complaint=complaint)

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        requested: int | None = None,
        newer_than: int = -1,
    ) -> Restored | None:
        """Loads the newest published state that verifies (or exactly the requested one); None if none was published.

        What is not newer than step `newer_than` is not looked at, since the caller has something better; then None also
        if none verifies. Raises `TrainingError` on all ranks if what is there cannot be used.
        """
        published = tuple(step for step in self.published() if step > newer_than)
        state: dict[str, Any] = {}
        manifests: dict[int, Manifest] = {}
        verdicts: dict[int, tuple[Problem, ...]] = {}
        while isinstance(choice := select(published, verdicts, requested), Verify):
            state = state or state_of(model, optimizer)
            verdicts[choice.step] = self._load(choice.step, state, manifests)
        if isinstance(choice, Refused) and newer_than >= 0:
            return None
        if isinstance(choice, Refused):
            raise TrainingError(f"{self._root}: {choice.problem.sentence}")
        if isinstance(choice, Fresh):
            return None
        assert isinstance(choice, Resume)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        manifest = manifests[choice.step]
        told = (choice.sentence, _whose(manifest, self._mark.job))
        return Restored(step=choice.step, position=manifest.position, sentence="; ".join(filter(None, told)))

    def tidy(self, step: int, every_steps: int) -> list[str]:
        """Deletes what retention says, and tells what saves after a resume at `step` will meet; sentences. Of rank 0
        alone, since nobody has to wait for it. Never fails: old files cost space, not a job."""
        met = collisions(directory.look(self._root), resume_step=step, save_every_steps=every_steps)
        return [self._clean(), *(problem.sentence for problem in met)]

    def _open(self, staging: Path, step: int, needed_bytes: int) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        refuse_full(self._root, needed_bytes)
        refuse_foreign(self._root, directory.look(self._root), step, self._mark.job)
        self._stage, self._story = MACHINE.first, ()
        directory.open_staging(staging, self._mark)

    def _write(self, state: dict[str, Any], staging: Path) -> ShardWriter:
        writer = ShardWriter(self._store, staging.name)
        try:
            dcp.save(state, storage_writer=writer, planner=BalancedPlanner())
        except CheckpointException as error:
            raise _save_failed(error) from error
        return writer

    def _finish(self, staging: Path, files: tuple[FileEntry, ...], position: Position) -> Manifest:
        """Rank 0: manifest, verification, publish."""
        manifest = Manifest(
            schema=SCHEMA,
            job=self._mark.job,
            attempt=self._attempt,
            epoch=self._mark.epoch,
            step=position.step,
            world=self._world,
            position=position,
            files=files,
            writer=socket.gethostname(),
            written_at=time.time_ns() // 1000,
        )
        self._reach(Stage.WRITTEN, position.step, "all ranks wrote and synced")
        complete(staging, manifest)
        self._reach(Stage.VERIFIED, position.step, "the directory agrees with its manifest")
        publish(staging, self._root / step_name(position.step), self._mark)
        self._reach(Stage.PUBLISHED, position.step, "renamed to its final name")
        return manifest

    def _reach(self, stage: Stage, step: int, cause: str) -> None:
        now = Instant(time.time_ns() // 1000)
        self._story = MACHINE.step(step_name(step), self._story, self._stage, stage, now, cause)
        self._stage = stage

    def _compare(self, step: int) -> str:
        """Rank 0: a complaint if what was published is equal to an older checkpoint."""
        steps = published_steps(directory.look(self._root))
        found = [self._manifest(each) for each in steps]
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
            sentence = with_shortage(str(failure), staging, needed_bytes)
            directory.remove(staging)
            return sentence

        try:
            return type(failure)(on_first(explain_and_discard))
        except SaveFailed as second:
            return type(failure)(f"{failure}; and the staging directory could not be removed: {second}")

    def published(self) -> tuple[int, ...]:
        """Steps to go on from (`own_steps`), as all see them. Raises `TrainingError` if not all see the same."""
        try:
            views = together(lambda: (socket.gethostname(), directory.look(self._root)))
        except SaveFailed as failure:
            raise TrainingError(f"{self._root} cannot be read: {failure}") from failure
        steps = [published_steps(entries) for _, entries in views]
        if all(view == steps[0] for view in steps):
            return own_steps(views[0][1], self._mark.job, self._began_step)
        held: dict[str, set[str]] = {}
        for rank_host, names in gather((socket.gethostname(), _file_names(self._root))):
            held.setdefault(rank_host, set()).update(names)
        problems = judge_hosts(held, frozenset().union(*held.values()))
        why = problems[0].sentence if problems else "ranks saw different checkpoints a moment ago; start again"
        raise TrainingError(f"{self._root}: {why}")

    def _load(self, step: int, state: dict[str, Any], manifests: dict[int, Manifest]) -> tuple[Problem, ...]:
        """Reads a checkpoint into the state; why it could not, or nothing. What was read is undefined if it could not.

        Raises `TrainingError` on all ranks if it is whole but of another model.
        """
        manifest = broadcast(self._manifest(step) if self._rank == 0 else None)
        if isinstance(manifest, Problem):
            return (manifest,)
        assert manifest is not None
        if any(each.covers(manifest.attempt, manifest.epoch, step) for each in self._distrusted):
            sentence = f"replicas disagreed in epoch {manifest.epoch} after step {step}: it is not believed"
            return (Problem(token="replicas-disagreed", sentence=sentence),)
        manifests[step] = manifest
        try:
            dcp.load(state, storage_reader=CheckpointReader(self._root / step_name(step)), planner=CarefulPlanner())
        except CheckpointException as error:
            problems = _load_problems(step, error)
            on_first(lambda: self._note(step, Verdict(sound=False, sentence=problems[0].sentence, at=_now())))
            return problems
        on_first(lambda: self._note(step, Verdict(sound=True, sentence="", at=_now())))
        return ()

    def _note(self, step: int, verdict: Verdict) -> None:
        """Remembers what came of reading it, for retention. A directory that can't be written to keeps no notes."""
        try:
            directory.note(self._root / step_name(step), directory.VERDICT_NAME, verdict)
        except OSError as error:
            print(f"trainmaster: the verdict on step {step} is not kept: {error}", file=sys.stderr)

    def _manifest(self, step: int) -> Manifest | Problem:
        try:
            return manifest_in(self._store, step_name(step))
        except Unsound as unsound:
            return unsound.problems[0]
        except OSError as error:
            sentence = f"{step_name(step)}/{MANIFEST_NAME} cannot be read: {error}"
            return Problem(token="manifest-unreadable", sentence=sentence)


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def _whose(manifest: Manifest, job: JobId) -> str:
    """A sentence if another job wrote the checkpoint."""
    if manifest.job == job:
        return ""
    who = owner_text(manifest.job)
    return f"goes on from step {manifest.step}, which job {who} wrote: this job has no checkpoint of its own"


def _written_bytes(state: object, world: int) -> float:
    """This rank's share of what is written: of what several ranks hold alike, one writes."""
    if isinstance(state, dict):
        return sum(_written_bytes(value, world) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_written_bytes(value, world) for value in state)
    if not isinstance(state, torch.Tensor):
        return 0.0
    if not isinstance(state, DTensor):
        return int(state.numel() * state.element_size()) / world
    places = zip(state.device_mesh.shape, state.placements, strict=True)
    alike: int = math.prod(size for size, place in places if place.is_replicate())
    local: torch.Tensor = state.to_local()
    return int(local.numel() * local.element_size()) / alike


def _save_failed(error: CheckpointException) -> SaveFailed:
    """What a failed collective write means; raises if the cause was no failing disk but a defect."""
    told, kind = [], SaveFailed
    for rank, (cause, _) in sorted(error.failures.items()):
        if not isinstance(cause, OSError):
            raise RuntimeError(f"rank {rank} could not save: {cause}") from error
        told.append(f"rank {rank}: {cause}")
        kind = NoRoom if lacks_room(cause) else kind
    return kind("; ".join(told))


def _load_problems(step: int, error: CheckpointException) -> tuple[Problem, ...]:
    """What is wrong with a checkpoint that could not be loaded; raises if it is not the checkpoint that is wrong."""
    problems: list[Problem] = []
    for rank, (cause, _) in sorted(error.failures.items()):
        if isinstance(cause, Unsound):
            problems += cause.problems
        elif isinstance(cause, Damage):
            problems.append(Problem(token="checksum-mismatch", sentence=str(cause), files=(cause.name,)))
        elif isinstance(cause, OSError | EOFError):
            problems.append(Problem(token="unreadable-file", sentence=f"a file cannot be read: {cause}"))
        else:
            raise TrainingError(f"step {step} could not be loaded on rank {rank}: {cause}") from error
    return tuple(problems)


def _now() -> int:
    """Microseconds since 1970 (UTC)."""
    return time.time_ns() // 1000


def _file_names(root: Path) -> list[str]:
    """Every file of every published directory, as `step-.../name`."""
    published = [entry.name for entry in directory.look(root) if entry.complete or entry.name.startswith("step-")]
    return [f"{name}/{file}" for name in published for file in os.listdir(root / name)]
