"""The recorder: what passes through it is noted, and can be read from outside while the rank is in it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from trainmaster.core.agent.ring import CAPACITY, HEADER_SIZE, SIZE, Ring, Slow  # noqa: E402
from trainmaster.live.diagnosis.ranks import read_ring  # noqa: E402
from trainmaster.training import recorder as recording  # noqa: E402
from trainmaster.training.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    made = Recorder(tmp_path / "ring-0", 0, 1)
    made.install()
    yield made
    made.close()
    dist.destroy_process_group()


def notes(tmp_path: Path) -> list[tuple[str, int, int, int]]:
    """(operation, sequence, group, bytes) of all lines."""
    found = read_ring(tmp_path / "ring-0")
    assert found is not None
    return [(call.op, call.seq, call.group, call.bytes) for call in found.calls]


def test_waits_for_data_are_kept_by_step(recorder: Recorder, tmp_path: Path) -> None:
    """1. Thirty steps wait, each a bit longer. 2. The last 24 are there, in order, beside the collectives; a very long
    wait is the longest that fits. 3. Groups are not touched by it."""
    for step in range(30):
        recorder.completed(step)
        recorder.waited_for_data(1000 * step)
    found = read_ring(tmp_path / "ring-0")
    assert found is not None
    assert found.data_waits == tuple((step, 1000 * step) for step in range(6, 30))
    assert [group.name for group in found.groups] == ["0"]
    recorder.waited_for_data(1 << 40)
    found = read_ring(tmp_path / "ring-0")
    assert found is not None
    assert found.data_waits[-1] == (29, (1 << 32) - 2)


def test_collectives_are_noted(recorder: Recorder, tmp_path: Path) -> None:
    """1. Collectives of tensors, of lists, of objects, in the world and in a group. 2. Each has its line, numbered in
    its group, with its bytes; all were left."""
    group = dist.new_group([0])
    before = len(notes(tmp_path))
    dist.all_reduce(torch.ones(4))
    dist.all_gather([torch.zeros(2)], torch.ones(2), group=group)
    dist.broadcast(tensor=torch.ones(8), src=0)
    dist.all_gather_object([None], {"a": 1}, group)
    dist.barrier()
    found = notes(tmp_path)[before:]
    assert [(op, group) for op, _, group, _ in found] == [
        ("all_reduce", 0), ("all_gather", 1), ("broadcast", 0), ("all_gather", 1), ("all_gather", 1), ("barrier", 0),
    ]  # fmt: skip
    assert [size for *_, size in found][:3] == [16, 8, 32]
    assert [seq for _, seq, group, _ in found if group == 1] == [1, 2, 3]
    ring = read_ring(tmp_path / "ring-0")
    assert ring is not None
    assert all(call.left_us >= call.entered_us > 0 for call in ring.calls)
    assert [(group.name == "0", group.ranks) for group in ring.groups] == [(True, (0,)), (False, (0,))]


def test_waiting_for_an_asynchronous_one(recorder: Recorder, tmp_path: Path) -> None:
    """1. Issued: nobody waits. 2. Waited for: left. 3. The object is the one that PyTorch made."""
    work = dist.all_reduce(torch.ones(4), async_op=True)
    issued = read_ring(tmp_path / "ring-0")
    assert issued is not None
    assert isinstance(work, dist.Work)
    assert (issued.calls[-1].asynchronous, issued.calls[-1].waited_us, issued.calls[-1].left_us) == (True, 0, 0)
    work.wait()
    waited = read_ring(tmp_path / "ring-0")
    assert waited is not None
    assert waited.calls[-1].left_us >= waited.calls[-1].waited_us > 0


def test_one_that_fails_stays_open(recorder: Recorder, tmp_path: Path) -> None:
    """1. A collective raises. 2. The user sees the same error; in the ring the rank never left it."""
    with pytest.raises(RuntimeError, match="list size"):
        dist.scatter(torch.ones(1), [torch.ones(1), torch.ones(1)], src=0)
    ring = read_ring(tmp_path / "ring-0")
    assert ring is not None
    assert ring.calls[-1].left_us == 0


def test_the_oldest_lines_are_overwritten(recorder: Recorder, tmp_path: Path) -> None:
    """1. More collectives than lines. 2. The newest are there, in order. 3. What was issued before and is waited for
    now changes no newer line."""
    late = dist.all_reduce(torch.ones(1), async_op=True)
    for _ in range(CAPACITY + 10):
        dist.barrier()
    before = notes(tmp_path)
    assert len(before) == CAPACITY
    assert [seq for _, seq, _, _ in before] == list(range(before[0][1], before[0][1] + CAPACITY))
    data = (tmp_path / "ring-0").read_bytes()
    late.wait()
    assert (tmp_path / "ring-0").read_bytes() == data


def test_phases_and_steps(recorder: Recorder, tmp_path: Path) -> None:
    """1. The start ends with the first step. 2. An evaluation is marked, and what is in it; then it is over."""
    dist.barrier()
    recorder.completed(1)
    with recorder.phase(Slow.EVALUATION):
        dist.barrier()
        inside = read_ring(tmp_path / "ring-0")
    dist.barrier()
    after = read_ring(tmp_path / "ring-0")
    assert inside is not None
    assert after is not None
    assert inside.slow == Slow.EVALUATION
    assert after.slow == Slow.NONE
    assert [(call.step, call.slow) for call in after.calls[-3:]] == [(0, Slow.START), (1, Slow.EVALUATION), (1, 0)]


def test_everything_is_put_back(tmp_path: Path) -> None:
    names = ("all_reduce", "barrier", "all_gather_into_tensor")
    before = [getattr(dist, name) for name in names] + [dist.Work.wait]
    made = Recorder(tmp_path / "ring-0", 0, 1)
    made.install()
    assert all(getattr(dist, name) is not old for name, old in zip(names, before[:3], strict=True))
    made.close()
    assert [getattr(dist, name) for name in names] + [dist.Work.wait] == before


def test_switched_off_or_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. By the environment. 2. Without an agent. 3. With no room: a line, and the job goes on."""
    board = tmp_path / "board-3"
    monkeypatch.setenv(recording.OFF, "0")
    assert recording.record(board, 3, 4) is None
    monkeypatch.delenv(recording.OFF)
    assert recording.record(None, 3, 4) is None
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert recording.record(board, 3, 4) is None
    assert "rank 3 is not recorded: [Errno 28] No space left" in capsys.readouterr().err


def test_a_torn_line_is_left_out() -> None:
    """1. A line whose two numbers differ, one that belongs elsewhere, and rubbish in the header. 2. None is read."""
    data = bytearray(SIZE)
    ring = Ring(memoryview(data))
    ring.clear(1)
    ring.add_group("0", (0, 1, 5))
    data[HEADER_SIZE : HEADER_SIZE + 8] = (1).to_bytes(8, "little")
    assert ring.read().calls == ()
    data[HEADER_SIZE : HEADER_SIZE + 8] = data[HEADER_SIZE + 56 : HEADER_SIZE + 64] = (2).to_bytes(8, "little")
    assert ring.read().calls == ()
    assert ring.read().groups[0].ranks == (0, 1, 5)
    data[24:32] = (1 << 40).to_bytes(8, "little")
    assert len(ring.read().groups) > 1
    assert not Ring(memoryview(bytes(SIZE))).is_valid()
