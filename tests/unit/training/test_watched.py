"""What the recorder sees beyond the entry points of torch.distributed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from trainmaster.core.agent.ring import Slow  # noqa: E402
from trainmaster.training.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(tmp_path / "ring-0", 0, 1)
    made.install()
    made.mark(Slow.NONE)
    yield made
    made.close()


def test_the_reducer_of_ddp_is_seen(tmp_path: Path) -> None:
    """1. Three ranks train with DDP, in two buckets or more. 2. Recorded and not, the parameters are equal to the bit.
    3. Each bucket of each step is a line that was left, and somebody waited for the last ones. 4. A hook of the
    script's own is used, and ours is not set."""
    command = [sys.executable, str(ROOT / "tests" / "integration" / "ddp_ranks.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["equal"]
    assert set(told["ops"]) == {"all_reduce"}
    assert len(told["ops"]) >= 1 + 2 * 3  # DDP learns the order of its buckets from the first step
    assert told["whole"]
    assert told["waited"] >= 1
    assert told["own_hook_used"] == 1


def test_a_model_that_evaluates(recorder: Recorder) -> None:
    """1. Evaluation mode begins the phase, training mode ends it. 2. The same of the model that is wrapped. 3. Another
    model changes nothing. 4. In a phase that the script named nothing is marked."""
    inner = torch.nn.Linear(2, 2)
    model = torch.nn.DataParallel(inner)
    recorder.mode.watch(model)
    for each in (model, inner):
        each.eval()
        assert recorder.slow is Slow.EVALUATION
        each.train()
        assert recorder.slow is Slow.NONE
    torch.nn.Linear(2, 2).eval()
    assert recorder.slow is Slow.NONE
    with recorder.phase(Slow.SAVE):
        model.eval()
        assert recorder.slow is Slow.SAVE
        model.train()
    assert recorder.slow is Slow.NONE


def test_a_script_that_trains_in_evaluation_mode(recorder: Recorder) -> None:
    """1. The model stays in evaluation mode (its normalization is frozen). 2. With the first step that is completed the
    mode says nothing any more: a hang is found."""
    model = torch.nn.Linear(2, 2)
    recorder.mode.watch(model)
    model.eval()
    assert recorder.slow is Slow.EVALUATION
    recorder.completed(1)
    assert recorder.slow is Slow.NONE


def test_all_is_put_back(tmp_path: Path) -> None:
    """1. Installed and closed. 2. PyTorch's own functions stand where they stood."""
    distributed = torch.nn.parallel.DistributedDataParallel
    before = torch.nn.Module.train, distributed._pre_forward
    made = Recorder(tmp_path / "ring-0", 0, 1)
    made.install()
    assert (torch.nn.Module.train, distributed._pre_forward) != before
    made.close()
    assert (torch.nn.Module.train, distributed._pre_forward) == before
