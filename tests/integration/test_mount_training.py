"""What training does with files, on a mount: PyTorch's saves and loads, safetensors by mapping, checkpoints of ours, an
environment of Python that pip installs into."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.integration.mounts import Mount, mounted, why_not

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402

from trainmaster.training.distcp import CheckpointReader, CheckpointWriter  # noqa: E402

pytestmark = [
    pytest.mark.real,
    pytest.mark.torch,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


@pytest.fixture(scope="module", params=["passthrough", "copying"])
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp(request.param), request.param) as made:
        yield made
        assert "defect" not in made.log()
        made.end()


def state() -> "dict[str, torch.Tensor]":
    torch.manual_seed(7)
    return {f"layer.{number}": torch.randn(512, 1024) for number in range(8)}


def same(one: "dict[str, torch.Tensor]", two: "dict[str, torch.Tensor]") -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_torch_save(mount: Mount) -> None:
    """1. Saved, loaded, and loaded by mapping."""
    path = mount.path / "state.pt"
    torch.save(state(), path)
    assert same(torch.load(path), state())
    assert same(torch.load(path, mmap=True), state())


def test_safetensors(mount: Mount) -> None:
    """1. Saved twice, the second time over the first. 2. Loaded by mapping, tensor by tensor and a slice."""
    safetensors = pytest.importorskip("safetensors.torch")
    path = mount.path / "state.safetensors"
    for _ in range(2):
        safetensors.save_file(state(), path)
    assert same(safetensors.load_file(path), state())
    with safetensors.safe_open(path, "pt") as opened:
        assert torch.equal(opened.get_slice("layer.3")[5:9], state()["layer.3"][5:9])


def test_plain_distributed_checkpoints(mount: Mount) -> None:
    whole = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    dcp.save(state(), checkpoint_id=mount.path / "plain")
    dcp.load(whole, checkpoint_id=mount.path / "plain")
    assert same(whole, state())


def test_checkpoints_of_ours(mount: Mount) -> None:
    """1. Published by a rename of a directory. 2. Loaded, every byte compared."""
    root = mount.path / "checkpoints"
    root.mkdir()
    writer = CheckpointWriter(root, step=1)
    dcp.save(state(), storage_writer=writer)
    whole = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    dcp.load(whole, storage_reader=CheckpointReader(writer.path))
    assert same(whole, state())


@pytest.mark.slow
def test_an_environment_with_pip(mount: Mount) -> None:
    """Thousands of small files, links to programs, and what was installed runs."""
    path = mount.path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(path)], check=True, capture_output=True, timeout=200)
    command = [str(path / "bin" / "python"), "-m", "pip", "--version"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert str(path) in ran.stdout
