"""The death of the process before every single file operation of a save, one after the other."""

import os
import sys
import zlib
from pathlib import Path

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.checkpoint.listing import published_steps, staging_name, step_name
from trainmaster.core.checkpoint.manifest import FileEntry, Manifest, check
from trainmaster.core.checkpoint.position import Position
from trainmaster.core.checkpoint.retention import retire
from trainmaster.storage import directory
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.saving import publish

JOB = JobId("job-1")
MARK = OwnerMark(job=JOB, attempt=1, epoch=1)
OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir"})
KILLED = 77


def save(root: Path, step: int) -> None:
    """What rank 0 does in a save, with one file for the shards."""
    data = f"state of step {step}".encode()
    staging = root / staging_name(step, MARK.epoch, MARK.job)
    directory.open_staging(staging, MARK)
    directory.write_synced(staging / "__0_0.distcp", data)
    manifest = Manifest(
        schema=1,
        job=JOB,
        attempt=AttemptId("job-1.a1"),
        epoch=1,
        step=step,
        world=1,
        position=Position(samples=step, global_batch=1, step=step),
        files=(FileEntry(name="__0_0.distcp", size_bytes=len(data), crc32=zlib.crc32(data)),),
        writer="host-1",
    )
    directory.write_manifest(staging, manifest)
    publish(staging, root / step_name(step), MARK)
    for name in retire(directory.look(root), keep=1, job=JOB, attempt=1, epoch=1).delete:
        directory.remove(root / name)


def save_and_die(root: Path, operations: int) -> bool:
    """Saves step 2 in a child that dies before its operation of that number; whether it died."""
    child = os.fork()
    if child == 0:
        left = operations

        def count(event: str, _: tuple[object, ...]) -> None:
            nonlocal left
            if event in OPERATIONS:
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(count)
        save(root, 2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


def whole(root: Path, step: int) -> bool:
    manifest = directory.read_manifest(root / step_name(step))
    seen = directory.observe(root / step_name(step), [file.name for file in manifest.files], read=True)
    return not check(manifest, seen, step=step, deep=True)


def test_a_checkpoint_that_verifies_is_there_after_a_death_at_any_operation(tmp_path: Path) -> None:
    """1. Step 1 is published; a leftover stands where step 2 will be. 2. The save of step 2 (it then deletes step 1)
    dies before its n-th file operation, for every n. 3. The newest published checkpoint is whole. 4. Saving again
    works and leaves exactly the new one."""
    deaths = 0
    dying = True
    while dying:
        root = tmp_path / str(deaths)
        save(root, 1)
        directory.open_staging(root / step_name(2), MARK)
        dying = save_and_die(root, deaths)
        newest = published_steps(directory.look(root))[0]
        assert whole(root, newest), deaths
        save(root, 2)
        assert [path.name for path in root.iterdir()] == ["step-00000002"]
        assert whole(root, 2)
        deaths += dying
    assert deaths > 20
