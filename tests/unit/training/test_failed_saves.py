"""What a reader of the board sees of a save that failed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

from trainmaster.core.agent.board import Board  # noqa: E402
from trainmaster.core.checkpoint.listing import step_name  # noqa: E402
from trainmaster.training.checkpoint_io import _written_bytes  # noqa: E402
from trainmaster.training.runtime import Session, open_session  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Of one rank, that saves after each step."""
    opened = open_session(tmp_path, every_steps=1, keep=1)
    yield opened
    opened.abandon()
    dist.destroy_process_group()


def test_what_all_ranks_hold_alike_is_counted_once(session: Session) -> None:
    """1. Four ranks hold a tensor of 40 bytes, another one sharded, and a number. 2. Each counts a quarter of the one,
    its own part of the other, and nothing for the number."""
    mesh = init_device_mesh("cpu", (session.world,))
    sharded = distribute_tensor(torch.zeros(6), mesh, [Shard(0)])
    alike = distribute_tensor(torch.zeros(6), mesh, [Replicate()])
    state = {"model": {"w": torch.zeros(10)}, "sharded": [sharded, alike], "step": 3}
    assert _written_bytes(state, 4) == 40 / 4 + 24 + 24 / session.world


def test_the_reason_is_on_the_board_before_the_number(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. What stands where steps 1 and 2 are to be saved is somebody else's. 2. Whenever the number of failed saves
    goes up, the note tells of this very save already: an agent reads both at any moment."""
    for step in (1, 2):
        (tmp_path / step_name(step)).mkdir()
    seen: list[tuple[int, str]] = []
    put = Board.put

    def watched(board: Board, name: str, value: int | float) -> None:
        put(board, name, value)
        if name == "failed_saves":
            seen.append((board.integer("failed_saves"), board.note()))

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    session.restore(model=model, optimizer=optimizer)
    monkeypatch.setattr(Board, "put", watched)
    for step in session.steps(total=3):
        session.report(step, loss=0.0, samples=step)
    assert [number for number, _ in seen] == [1, 2]
    assert [f"the save of step {number} failed" in note for number, note in seen] == [True, True]
