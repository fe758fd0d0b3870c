"""Saving to disk and loading from it, beside what the disk itself can do.

The limit of a save is raw O_DIRECT writes of the same memory from two threads, reserved ahead and synced, without
checksums or files beside it; ours is a whole `dcp.save` with checksums, index, manifest, verification and publish. The
limit of a load is reading the file into the same tensors, cold, without checksums: O_DIRECT from two threads, or
`readv` through the page cache, whichever is faster (the note says both); ours is a whole `dcp.load` with every block
verified. Peers in the same rounds: plain `dcp.save` and `dcp.load`, and `torch.save` (synced).

Then the same on four ranks together (`bench/ranks.py`).

`value` is the limit's time over ours (1 is the limit), `peer` the same of plain DCP, `ratio` how many times faster than
it ours is. Files of a round are removed outside of its time.
"""

import functools
import itertools
import mmap
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from bench import ranks
from bench.figure import Figure, timed
from bench.state import STATE_BYTES, emptied, forget, in_turns, load_of_machine, state
from trainmaster.training.distcp import CheckpointReader, CheckpointWriter

GOAL = 0.9
_BLOCK_BYTES = 8 << 20


def figures() -> Iterator[Figure]:
    warnings.simplefilter("ignore")  # plain DCP warns that no other ranks are there
    with tempfile.TemporaryDirectory(dir=os.environ.get("TRAINMASTER_BENCH_DIR")) as folder:
        yield _write(Path(folder))
        yield _load(Path(folder))
        yield from ranks.figures(Path(folder))


def _whole_pages(whole: dict[str, torch.Tensor]) -> list[memoryview]:
    """What of the tensors a disk can write and read directly: all but a page of each."""
    pages = []
    for tensor in whole.values():
        view = memoryview(tensor.numpy()).cast("B")
        start = -tensor.data_ptr() % mmap.PAGESIZE
        pages.append(view[start : start + (len(view) - start) // mmap.PAGESIZE * mmap.PAGESIZE])
    return pages


def _by_two(act: Callable[[int, memoryview, int], object], file: int, views: list[memoryview]) -> None:
    """Does it for all views, one after the other in the file, in two threads."""
    offsets = itertools.accumulate(map(len, views), initial=0)
    left = iter(list(zip(views, offsets, strict=False)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                found = next(left, None)
            if found is None:
                return
            view, offset = found
            for at in range(0, len(view), _BLOCK_BYTES):
                act(file, view[at : at + _BLOCK_BYTES], offset + at)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def raw_write(path: Path, whole: dict[str, torch.Tensor]) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    os.posix_fallocate(file, 0, STATE_BYTES)
    _by_two(os.pwrite, file, _whole_pages(whole))
    os.fsync(file)
    os.close(file)


def _torch_save(whole: dict[str, torch.Tensor], path: Path) -> None:
    torch.save(whole, path)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _write(folder: Path) -> Figure:
    whole, root = state(), folder / "write"
    acts: dict[str, Callable[[], object]] = {
        "raw": lambda: raw_write(root / "raw", whole),
        "ours": lambda: dcp.save(whole, storage_writer=CheckpointWriter(root, step=1)),
        "dcp": lambda: dcp.save(whole, checkpoint_id=root / "plain"),
        "torch": lambda: _torch_save(whole, root / "torch"),
    }

    def fresh(act: Callable[[], object]) -> float:
        emptied(root)
        return timed(act)

    median = in_turns({name: functools.partial(fresh, act) for name, act in acts.items()})
    return _figure("write", median, f"torch.save {median['raw'] / median['torch']:.2f}; {load_of_machine()}")


def raw_load(path: Path, whole: dict[str, torch.Tensor]) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    _by_two(lambda file, view, offset: os.preadv(file, [view], offset), file, _whole_pages(whole))
    os.close(file)


def cached_load(path: Path, whole: dict[str, torch.Tensor]) -> None:
    file = os.open(path, os.O_RDONLY)
    offset = 0
    for tensor in whole.values():
        view = memoryview(tensor.numpy()).cast("B")
        while len(view):
            count = os.preadv(file, [view[:_BLOCK_BYTES]], offset)
            view, offset = view[count:], offset + count
    os.close(file)


def _load(folder: Path) -> Figure:
    whole, root = state(), emptied(folder / "load")
    writer = CheckpointWriter(root, step=1)
    dcp.save(whole, storage_writer=writer)
    dcp.save(whole, checkpoint_id=root / "plain")

    acts: dict[str, Callable[[], object]] = {
        "direct": lambda: raw_load(writer.path / "__0_0.distcp", whole),
        "cached": lambda: cached_load(writer.path / "__0_0.distcp", whole),
        "ours": lambda: dcp.load(whole, storage_reader=CheckpointReader(writer.path)),
        "dcp": lambda: dcp.load(whole, checkpoint_id=root / "plain"),
    }

    def cold(act: Callable[[], object]) -> float:
        for each in (writer.path, root / "plain"):
            forget(each)
        return timed(act)

    median = in_turns({name: functools.partial(cold, act) for name, act in acts.items()})
    median["raw"] = min(median["direct"], median["cached"])
    rates = [f"{name} {STATE_BYTES / median[name] / 2**30:.2f}" for name in ("direct", "cached")]
    return _figure("load", median, f"{', '.join(rates)}; {load_of_machine()}")


def _figure(act: str, median: dict[str, float], note: str) -> Figure:
    value = median["raw"] / median["ours"]
    rate = STATE_BYTES / median["raw"] / 2**30
    return Figure(
        bench="checkpoint",
        figure=f"checkpoint.{act}_ratio",
        value=round(value, 3),
        unit="ratio",
        better="higher",
        peer=round(median["raw"] / median["dcp"], 3),
        ratio=round(median["dcp"] / median["ours"], 2),
        goal=f"at least {GOAL:g} of the raw rate",
        holds=value >= GOAL,
        note=f"raw {rate:.2f} GiB/s; {note}",
    )
