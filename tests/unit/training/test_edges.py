"""What the training library reads: the environment, metrics of a job, checkpoint metadata, directories."""

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from trainmaster.core.base.ids import JobId, owner_id, owner_text
from trainmaster.core.checkpoint.index import Chunk
from trainmaster.core.checkpoint.listing import Entry, own_steps, torn_name
from trainmaster.core.checkpoint.retention import retire
from trainmaster.storage import directory
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.foreign import ForbiddenClass, MetadataUnpickler, index_of
from trainmaster.storage.saving import publish
from trainmaster.training import losses, metrics
from trainmaster.training.errors import TrainingError
from trainmaster.training.surroundings import read

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_a_bare_process_is_one_rank_alone() -> None:
    here = read({}, "host-1")
    assert (here.rank, here.world, here.alone, here.managed, here.epoch) == (0, 1, True, False, 1)
    assert here.board is here.checkpoint_dir is here.job_dir is here.checkpoint_every_steps is None


def test_torchrun_counts_restarts_and_trainmaster_epochs() -> None:
    assert read({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"}, "host-1").epoch == 3
    ours = {"TRAINMASTER_EPOCH": "7", "TRAINMASTER_ATTEMPT": "job-3.a12", "TRAINMASTER_BOARD": "/b"}
    here = read({**TORCHRUN, **ours}, "host-1")
    assert (here.epoch, here.attempt_number(), here.managed, here.board) == (7, 12, True, Path("/b"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORLD_SIZE": None}, "WORLD_SIZE is not set although RANK is"),
        ({"RANK": "one"}, "RANK='one' is not a whole number"),
        ({"RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"TRAINMASTER_CHECKPOINT_KEEP": "x"}, "TRAINMASTER_CHECKPOINT_KEEP='x' is not a whole number"),
    ],
)
def test_a_broken_environment_is_told_in_a_sentence(changes: dict[str, str | None], message: str) -> None:
    merged = {**TORCHRUN, **changes}
    with pytest.raises(TrainingError, match=message):
        read({name: value for name, value in merged.items() if value is not None}, "host-1")


def line(step: int, loss: float, time_s: float) -> metrics.Line:
    return metrics.Line(step=step, loss=loss, loss_hex=loss.hex(), time_s=time_s, samples=8 * step, step_s=0.1)


def test_losses_merge_memberships_and_tell_replays_that_differ(tmp_path: Path) -> None:
    """1. Epoch 1 ran steps 1 to 3. 2. Epoch 2 replayed 2 (equal) and 3 (another last bit). 3. The last line was cut."""
    first = metrics.Writer(metrics.path_of(tmp_path, "job-1.a1", 1))
    second = metrics.Writer(metrics.path_of(tmp_path, "job-1.a1", 2))
    for each in (line(1, 3.0, 1.0), line(2, 2.5, 2.0), line(3, 2.0, 3.0)):
        first.write(each)
    for each in (line(2, 2.5, 4.0), line(3, 2.0000000000000004, 5.0)):
        second.write(each)
    first.close()
    second.close()
    with metrics.path_of(tmp_path, "job-1.a1", 2).open("ab") as stream:
        stream.write(b'{"step":4,"lo')
    told = losses(tmp_path)
    assert [(loss.step, loss.runs, loss.mismatches) for loss in told.values()] == [
        (1, 1, ()),
        (2, 2, ()),
        (3, 2, ("0x1.0000000000000p+1",)),
    ]
    assert told[3].hex == "0x1.0000000000001p+1"


def test_a_damaged_line_is_not_passed_over(tmp_path: Path) -> None:
    metrics.path_of(tmp_path, "job-1.a1", 1).write_text("nonsense\n")
    with pytest.raises(msgspec.DecodeError):
        losses(tmp_path)


def test_importing_the_library_does_not_import_torch() -> None:
    code = "import sys, trainmaster.training; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metadata_of_torch_is_read_and_everything_else_refused(tmp_path: Path) -> None:
    """1. Metadata that PyTorch wrote comes back. 2. A pickle that names a function outside does not."""
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import metadata
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    chunk = metadata.ChunkStorageMetadata(offsets=torch.Size([0]), sizes=torch.Size([2]))
    properties = metadata.TensorProperties(dtype=torch.bfloat16)
    tensor = metadata.TensorStorageMetadata(properties=properties, size=torch.Size([2]), chunks=[chunk])
    whole = metadata.Metadata(
        state_dict_metadata={"w": tensor},
        storage_data={metadata.MetadataIndex("w", (0,), 0): _StorageInfo("__0_0.distcp", 64, 4)},
        storage_meta=metadata.StorageMeta(tmp_path),
    )
    found = index_of(pickle.dumps(whole)).tensors["w"]
    assert (found.dtype, found.shape) == ("bfloat16", (2,))
    assert found.chunks == (Chunk(offsets=(0,), sizes=(2,), file="__0_0.distcp", offset=64, length=4),)
    for forbidden in (os.system, torch.load, torch.nn.Linear, subprocess.Popen, metadata.os.system):
        with pytest.raises(ForbiddenClass, match="no part of checkpoint metadata"):
            index_of(pickle.dumps(forbidden))


@pytest.mark.parametrize("content", [{"state_dict_metadata": {}}, "text", 3])
def test_a_pickle_that_is_no_table_is_refused(content: object) -> None:
    with pytest.raises(ForbiddenClass, match="refused"):
        index_of(pickle.dumps(content))


class _Attribute:
    def __init__(self, owner: object, name: str) -> None:
        self.asked = owner, name

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        return getattr, self.asked


def test_members_of_enumerations_as_older_pythons_write_them() -> None:
    """1. A memory format, as Python 3.11.2 pickles it: an attribute of its class. 2. It comes back. 3. Other attributes
    and other owners do not."""
    pytest.importorskip("torch")
    from torch.distributed.checkpoint import metadata

    formats = metadata._MEM_FORMAT_ENCODING
    written = pickle.dumps(_Attribute(formats, "TORCH_CONTIGUOUS_FORMAT"))
    assert MetadataUnpickler(io.BytesIO(written)).load().value == 0
    for owner, name in ((formats, "__class__"), (formats, "mro"), (metadata.StorageMeta, "__init__")):
        with pytest.raises(ForbiddenClass, match="attribute"):
            MetadataUnpickler(io.BytesIO(pickle.dumps(_Attribute(owner, name)))).load()


def test_a_directory_tells_whose_it_is(tmp_path: Path) -> None:
    """1. One of ours, published; one without a mark; a file; a link. 2. Only directories are told, with owners."""
    ours = tmp_path / "step-00000001"
    directory.open_staging(ours, OwnerMark(job=JobId("job-1"), attempt=3, epoch=1))
    (ours / "manifest.json").write_bytes(b"{}")
    (tmp_path / "step-2").mkdir()
    (tmp_path / "step-3").write_bytes(b"")
    (tmp_path / "step-4").symlink_to(ours)
    assert directory.look(tmp_path) == (
        Entry(name="step-00000001", complete=True, owner=JobId("job-1"), attempt=3, epoch=1),
        Entry(name="step-2", complete=False),
    )
    assert directory.look(tmp_path / "absent") == ()


def test_jobs_of_two_fleets_with_one_number(tmp_path: Path) -> None:
    """1. Job 1 of a fleet published step 7. 2. Job 1 of another can't publish over it, nor clean it away, and goes on
    from steps of its own. 3. Who is who is told."""
    ours, theirs = (OwnerMark(job=owner_id(JobId("job-1"), fleet), attempt=1, epoch=1) for fleet in ("aa", "bb"))
    for step, mark in ((7, theirs), (5, ours)):
        directory.open_staging(tmp_path / "staging", mark)
        publish(tmp_path / "staging", tmp_path / f"step-{step:08d}", mark)
        (tmp_path / f"step-{step:08d}" / "manifest.json").touch()
    directory.open_staging(tmp_path / "staging", ours)
    with pytest.raises(FileExistsError, match="is not this job's"):
        publish(tmp_path / "staging", tmp_path / "step-00000007", ours)
    entries = directory.look(tmp_path)
    assert own_steps(entries, ours.job, None) == (5,)
    assert "step-00000007" in retire(entries, keep=1, job=ours.job, attempt=1, epoch=1).foreign
    assert owner_text(theirs.job) == "job-1 of fleet bb"


def test_where_no_directory_can_be(tmp_path: Path) -> None:
    """1. Below a file, or a link to nothing. 2. On a file system that is none: of the
    kernel. Memory is storage, if it is a file system of its own. 3. What is missing can be made."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert directory.unusable(tmp_path / "file" / "a" / "b") == f"{tmp_path}/file is no directory"
    assert directory.unusable(tmp_path / "link" / "c") == f"{tmp_path}/link is a link to nothing"
    assert directory.unusable(Path("/proc/sys/c")).startswith("/proc/sys is on proc, ")
    assert directory.unusable(Path("/sys/c")).startswith("/sys is on sysfs, ")
    assert directory.unusable(Path("/proc")).startswith("/proc is on proc, ")
    assert directory.unusable(tmp_path / "a" / "b") == ""
    assert directory.unusable(Path("/dev/shm/c")) == ""


def test_publishing_moves_what_is_there_aside(tmp_path: Path) -> None:
    final, staging = tmp_path / "step-00000001", tmp_path / ".staging-step-00000001-e2"
    mark = OwnerMark(job=JobId("job-1"), attempt=1, epoch=2)
    for path, content in ((final, b"old"), (staging, b"new")):
        directory.open_staging(path, mark)
        (path / "file").write_bytes(content)
    publish(staging, final, mark)
    assert (final / "file").read_bytes() == b"new"
    assert (tmp_path / torn_name(1, 2, mark.job) / "file").read_bytes() == b"old"
    assert not staging.exists()


def test_checksums_are_those_of_zlib(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123456789")
    assert directory.crc32(tmp_path / "file") == 0xCBF43926
    assert directory.volume(tmp_path).size_bytes > 0
