"""PyTorch's distributed checkpoints by our writer and reader: read by each other, moved to other numbers of ranks,
damaged in every way."""

import dataclasses
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.default_planner import create_default_local_load_plan  # noqa: E402
from torch.distributed.checkpoint.planner import LoadPlan  # noqa: E402

from trainmaster.core.checkpoint.index import Index  # noqa: E402
from trainmaster.core.checkpoint.listing import published_steps, step_name  # noqa: E402
from trainmaster.storage import directory  # noqa: E402
from trainmaster.storage.checksum import crc32  # noqa: E402
from trainmaster.storage.contents import Unsound, locate, look_into  # noqa: E402
from trainmaster.storage.transfer import Damage  # noqa: E402
from trainmaster.training.distcp import CarefulPlanner, CheckpointReader, CheckpointWriter  # noqa: E402
from trainmaster.training.distcp.envelope import ALIGNMENT, envelope  # noqa: E402

pytestmark = pytest.mark.torch
TYPES = (
    "float32", "bfloat16", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16",
    "float8_e4m3fn", "float8_e5m2", "complex64",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state_of(seed: int) -> dict[str, Any]:
    """Every type, a column view, a scalar, nothing, more than a mebibyte, and values that are no tensors."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Any] = {}
    for place, name in enumerate(TYPES):
        state[name] = torch.randn(7 + place, 5, generator=generator).mul(9).to(torch.float32).to(getattr(torch, name))
    state["large"] = torch.randn(600, 1000, generator=generator)
    state["turned"] = torch.randn(20, 30, generator=generator).t()
    state["scalar"] = torch.tensor(1.5 + seed)
    state["nothing"] = torch.empty(0, 3)
    state["nested"] = {"list": [seed, torch.full((3,), float(seed))], "text": f"seed {seed}"}
    return state


def assert_same(one: Any, other: Any) -> None:
    """Bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        left, right = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
        assert torch.equal(left, right)
    else:
        assert one == other


def save(root: Path, step: int, state: dict[str, Any], **more: Any) -> Path:
    writer = CheckpointWriter(root, step=step, **more)
    dcp.save(state, storage_writer=writer)
    return writer.path


def load(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    dcp.load(state, storage_reader=CheckpointReader(path), planner=CarefulPlanner())
    return state


def failure(path: Path, state: dict[str, Any]) -> BaseException:
    with pytest.raises(CheckpointException) as caught:
        load(path, state)
    cause: BaseException = caught.value.failures[0][0]
    return cause


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_an_envelope_is_what_torch_save_makes_for_torch_load(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(getattr(torch, name))
    before, behind = envelope(tensor.dtype, tensor.shape)
    assert len(before) % ALIGNMENT == 0
    raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    (tmp_path / "item").write_bytes(before + raw + behind)
    for mapped in (False, True):
        assert_same(torch.load(tmp_path / "item", weights_only=True, mmap=mapped), tensor)


def test_an_envelope_of_more_than_four_gibibytes(tmp_path: Path) -> None:
    """1. A file with a hole, so that nothing is written. 2. The last element is where it belongs."""
    count = (1 << 32) + 12345
    before, behind = envelope(torch.uint8, torch.Size((count,)))
    with (tmp_path / "item").open("wb") as stream:
        stream.write(before)
        stream.seek(len(before) + count - 1)
        stream.write(b"\x2a" + behind)
    loaded = torch.load(tmp_path / "item", weights_only=True, mmap=True)
    assert (loaded.shape, int(loaded[-1])) == ((count,), 42)


def test_each_reads_what_the_other_wrote(tmp_path: Path) -> None:
    """1. Ours by ours and by plain PyTorch. 2. Plain PyTorch's by ours. 3. Bit for bit, values that are no tensors
    included."""
    ours = save(tmp_path, 5, state_of(1))
    dcp.save(state_of(1), checkpoint_id=tmp_path / "plain")
    assert_same(load(ours, state_of(2)), state_of(1))
    assert_same(load(tmp_path / "plain", state_of(2)), state_of(1))
    loaded = state_of(2)
    dcp.load(loaded, checkpoint_id=ours)
    assert_same(loaded, state_of(1))


def test_what_is_read_becomes_what_is_asked_for(tmp_path: Path) -> None:
    """1. float32 is stored. 2. It is loaded as bfloat16, and into a tensor with gaps. 3. As by plain PyTorch."""
    stored = {"w": torch.randn(40, 30)}
    path = save(tmp_path, 1, stored)
    assert torch.equal(load(path, {"w": torch.zeros(40, 30, dtype=torch.bfloat16)})["w"], stored["w"].bfloat16())
    assert torch.equal(load(path, {"w": torch.zeros(40, 60)[:, ::2]})["w"], stored["w"])


def test_a_save_is_published_whole_under_its_owner(tmp_path: Path) -> None:
    """1. Two saves of one state have one digest, another state another. 2. A step of another job is not replaced.
    3. What this job saved at a step before is replaced at once."""
    states = {1: state_of(1), 2: state_of(2)}
    paths = [save(tmp_path, step, states[seed], job="mine") for step, seed in ((1, 1), (2, 1), (3, 2))]
    digests = [directory.read_manifest(path).digest() for path in paths]
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(CheckpointException, match="is not this job's"):
        save(tmp_path, 3, state_of(3), job="theirs")
    save(tmp_path, 3, state_of(4), job="mine")
    assert_same(load(paths[2], state_of(0)), state_of(4))
    assert published_steps(directory.look(tmp_path)) == (3, 2, 1)


def damaged(path: Path, name: str, place: int) -> None:
    data = bytearray((path / name).read_bytes())
    data[place] ^= 0x01
    (path / name).write_bytes(data)


def test_any_flipped_bit_of_a_shard_is_found(tmp_path: Path) -> None:
    """1. One bit flips: in a header, in elements, in a value, at the end. 2. Each load says which file and where."""
    state = state_of(1)
    whole = save(tmp_path, 1, state)
    size = (whole / "__0_0.distcp").stat().st_size
    for place in (200, size // 2, size - 3):
        damaged(whole, "__0_0.distcp", place)
        cause = failure(whole, state_of(2))
        assert isinstance(cause, Damage)
        assert cause.blocks == (place >> 20,)
        damaged(whole, "__0_0.distcp", place)
    assert_same(load(whole, state_of(2)), state)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda path: damaged(path, "manifest.json", 20), "manifest.json cannot be read"),
        (lambda path: damaged(path, "index.json", 90), "index.json has its size but not its content"),
        (lambda path: (path / "manifest.json").write_bytes(b""), "manifest.json cannot be read"),
        (lambda path: (path / "__0_0.distcp").unlink(), "__0_0.distcp is missing"),
        (lambda path: os.truncate(path / "__0_0.distcp", 100), "__0_0.distcp has 100 of"),
        (lambda path: os.truncate(path / "__0_0.distcp", 0), "__0_0.distcp has no bytes"),
        (lambda path: path.rename(path.with_name(step_name(9))), "there is no checkpoint step-00000001"),
    ],
)  # fmt: skip
def test_other_damage_is_told_before_a_shard_is_read(tmp_path: Path, act: Any, message: str) -> None:
    path = save(tmp_path, 1, state_of(1))
    act(path)
    cause = failure(path, state_of(2))
    assert isinstance(cause, Unsound)
    assert message in str(cause)


def test_a_checkpoint_under_another_steps_name_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 1, state_of(1)).rename(tmp_path / step_name(2))
    assert "the directory of step 2 holds a manifest of step 1" in str(failure(tmp_path / step_name(2), state_of(2)))


def test_a_digit_that_flips_in_the_manifest_breaks_its_seal(tmp_path: Path) -> None:
    """The step becomes another one: still JSON, still a manifest, but not the one that was written."""
    path = save(tmp_path, 1, state_of(1), samples=128)
    data = (path / "manifest.json").read_bytes()
    (path / "manifest.json").write_bytes(data.replace(b'"samples":128', b'"samples":129'))
    assert "the seal is broken" in str(failure(path, state_of(2)))


class Exploit:
    """Pickles to a call of `os.mkdir`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_crafted_metadata_runs_nothing(tmp_path: Path) -> None:
    """1. `.metadata` becomes a pickle that runs a call. 2. Ours does not look at it: it is damaged by its size. 3. In
    a checkpoint of another program it is what there is, and is refused. 4. The call was not made."""
    ours = save(tmp_path, 1, state_of(1))
    dcp.save(state_of(1), checkpoint_id=tmp_path / "plain")
    for path, message in ((ours, ".metadata has"), (tmp_path / "plain", "names posix.mkdir, which is no part of")):
        (path / ".metadata").write_bytes(pickle.dumps(Exploit(tmp_path / "exploited")))
        assert message in str(failure(path, state_of(2)))
    assert not (tmp_path / "exploited").exists()


def test_a_foreign_checkpoint_that_lost_a_file_is_told_so(tmp_path: Path) -> None:
    dcp.save(state_of(1), checkpoint_id=tmp_path / "plain")
    shard = tmp_path / "plain" / "__0_0.distcp"
    os.truncate(shard, shard.stat().st_size - 1)
    assert "__0_0.distcp has" in str(failure(tmp_path / "plain", state_of(2)))
    shard.unlink()
    assert "__0_0.distcp is missing" in str(failure(tmp_path / "plain", state_of(2)))


def stepped() -> tuple[Any, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_moments_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    """1. The optimizer's own state_dict is saved. 2. Loading it into a fresh optimizer would fill no moment, which
    PyTorch does without a word: refused. 3. Into one that made a step it loads. 4. The model alone loads."""
    model, optimizer = stepped()
    path = save(tmp_path, 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    fresh = torch.optim.AdamW(model.parameters())
    told = str(failure(path, {"optimizer": fresh.state_dict()}))
    assert told.startswith("optimizer would load without its state: 6 stored values")
    _, other = stepped()
    loaded = load(path, {"optimizer": other.state_dict()})
    assert_same(loaded["optimizer"]["state"], optimizer.state_dict()["state"])
    assert_same(load(path, {"model": stepped()[0].state_dict()})["model"], model.state_dict())


def test_the_index_names_every_byte_of_every_tensor(tmp_path: Path) -> None:
    """1. Elements are read from the file by the index alone. 2. They are those of the state."""
    state = {"w": torch.randn(300, 1000), "b": torch.randn(7)}
    path = save(tmp_path, 1, state)
    index: Index = look_into(*locate(path)).index
    data = (path / "__0_0.distcp").read_bytes()
    for name, tensor in state.items():
        chunk = index.tensors[name].chunks[0]
        assert data[chunk.payload : chunk.payload + tensor.numel() * 4] == tensor.numpy().tobytes()
    assert index.sum_of("__0_0.distcp", 1) == crc32(data[1 << 20 :])


@pytest.mark.parametrize(("ranks", "shared"), [(4, False), (5, True)])
def test_many_ranks_of_a_host_that_read_the_same_share_it(tmp_path: Path, ranks: int, shared: bool) -> None:
    """1. Ranks of one host that all want the same state read it through the page cache if they are many; so many on
    different hosts, or those that want different tensors, read past it. 2. Either way the state arrives."""
    state = {f"w{place}": torch.randn(300_000) for place in range(ranks)}
    path = save(tmp_path, 1, state)
    reader = CheckpointReader(path)
    metadata = reader.read_metadata()

    def plan(host: str, names: list[str]) -> LoadPlan:
        made = create_default_local_load_plan({name: state[name] for name in names}, metadata)
        return dataclasses.replace(made, storage_data=host)

    def files(plans: list[LoadPlan]) -> list[set[str]]:
        return [set(each.storage_data) for each in reader.prepare_global_plan(plans)]

    names = list(state)
    assert files([plan("a", names) for _ in names]) == [{"__0_0.distcp"} if shared else set()] * ranks
    assert files([plan(name, names) for name in names]) == [set()] * ranks
    assert files([plan("a", [name]) for name in names]) == [set()] * ranks
    (local,) = reader.prepare_global_plan([plan("a", names) for _ in names])[:1]
    loaded = {name: torch.zeros(300_000) for name in names}
    planner = CarefulPlanner()
    planner.set_up_planner(loaded, metadata, True)
    reader.read_data(local, planner).wait()
    assert_same(loaded, state)


def test_moments_that_one_rank_would_not_get(tmp_path: Path) -> None:
    """1. Of two ranks one asks for the moments; the other one, whose optimizer has none yet, does not. 2. The load is
    refused on both. 3. A rank whose shards are all empty asks for groups alone, and is no reason."""
    model = torch.nn.Linear(3, 2)
    moments = {"0": {"momentum_buffer": torch.ones(2, 3)}}
    state = {"model": model.state_dict(), "optimizer": {"state": moments, "param_groups": [{"lr": 0.1}]}}
    path = save(tmp_path, 1, state)
    reader = CheckpointReader(path)

    def plan(part: dict[str, Any]) -> LoadPlan:
        planner = CarefulPlanner()
        planner.set_up_planner(part, reader.read_metadata(), True)
        return reader.prepare_local_plan(planner.create_local_plan())

    whole = plan(state)
    bare = plan({"model": model.state_dict(), "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]}})
    empty = plan({"optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]}})
    assert len(reader.prepare_global_plan([whole, empty])) == 2
    for plans in ([whole, bare], [bare, whole], [bare]):
        with pytest.raises(Unsound, match="would load without its state"):
            reader.prepare_global_plan(plans)
