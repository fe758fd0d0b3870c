"""A mount beside the disk below it: streams written and synced, and read cold, by one process and by four.

`dd` does the work in blocks of a mebibyte, on a mount by passthrough, on a mount that copies, and on the bare directory
beside the stores, in turns. Written is fresh files, each synced at its end; read is from the disk, since caches of the
mount and of the disk are dropped before. Files of a round are removed outside of its time. All processes together move
TRAINMASTER_BENCH_MOUNT_MIB (2048).

Then names: files made, asked for and removed one after the other, with the kernel's caches of the mount off, so that
each of them reaches the server. There the bare disk is no peer that a process in user space could reach: its figure is
told in the note.

`value` is the bare disk's time over that of passthrough (1 is the disk), `peer` the same of copying, `ratio` how many
times faster than copying passthrough is. Of names it is thousands a second.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, timed
from bench.state import emptied, forget, in_turns
from trainmaster.storage.fuse import mounting
from trainmaster.storage.fuse.daemon import Mode, Options
from trainmaster.storage.fuse.launch import start, stop

GOAL = 0.9
TOTAL_MIB = int(os.environ.get("TRAINMASTER_BENCH_MOUNT_MIB", "2048"))
NAMES = 2000
_ROUNDS = 5


def figures() -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TRAINMASTER_BENCH_DIR")))
    try:
        bare = folder / "bare"
        bare.mkdir()
        with mounted(folder, "passthrough") as fast, mounted(folder, "copying") as slow:
            sides = {"bare": bare, "passthrough": fast, "copying": slow}
            for many in (1, 4):
                yield _streams("write_fsync", sides, many, folder)
                yield _streams("read", sides, many, folder)
        with mounted(folder, "passthrough", cache_ms=0) as uncached:
            yield from _names(bare, uncached)
    finally:
        shutil.rmtree(folder)


@contextmanager
def mounted(folder: Path, mode: Mode, cache_ms: int = 1000) -> Iterator[Path]:
    directory, store = folder / f"{mode}-{cache_ms}", folder / f"store-{mode}-{cache_ms}"
    directory.mkdir()
    start(Options(store=str(store), directory=str(directory), mode=mode, cache_ms=cache_ms))
    try:
        yield directory
        stop(directory, lazily=False)
    finally:
        if mounting.mounted_at(directory) is not None:
            mounting.unmount(directory, lazily=True)


def _streams(act: str, sides: dict[str, Path], many: int, folder: Path) -> Figure:
    """Reading is of the same files each round; those of the first, which does not count, were just written."""
    each = TOTAL_MIB // many

    def side(path: Path) -> Callable[[], float]:
        def measure() -> float:
            files = [path / "round" / str(number) for number in range(many)]
            if act == "write_fsync" or not all(file.exists() for file in files):
                _freed(emptied(path / "round"), folder)
                targets = [f"of={file}" for file in files]
                written_s = timed(lambda: _dd(targets, "if=/dev/zero", f"count={each}", "conv=fsync"))
                if act == "write_fsync":
                    return written_s
            forget(path / "round")
            for contents in folder.glob("store-*/contents/*"):
                forget(contents)
            return timed(lambda: _dd([f"if={file}" for file in files], "of=/dev/null"))

        return measure

    median = in_turns({name: side(path) for name, path in sides.items()}, _ROUNDS)
    for path in sides.values():
        shutil.rmtree(path / "round")
    value = median["bare"] / median["passthrough"]
    rates = ", ".join(f"{name} {TOTAL_MIB / 1024 / seconds:.2f}" for name, seconds in median.items())
    return Figure(
        bench="mount",
        figure=f"mount.{act}_ratio_x{many}",
        value=round(value, 3),
        unit="ratio",
        better="higher",
        peer=round(median["bare"] / median["copying"], 3),
        ratio=round(median["copying"] / median["passthrough"], 2),
        goal=f"at least {GOAL:g} of the bare disk",
        holds=value >= GOAL,
        note=f"GiB/s: {rates}; {TOTAL_MIB} MiB; {_load()}",
    )


def _freed(directory: Path, folder: Path) -> None:
    """Waits until a mount has given back the room of what was in a directory, as the disk has by then."""
    deadline = time.monotonic() + 30
    store = folder / f"store-{directory.parent.name}"
    while any(store.glob("contents/*/*")):
        assert time.monotonic() < deadline, store
        time.sleep(0.01)


def _dd(words: list[str], *common: str) -> None:
    """One process a word, all at once."""
    processes = [subprocess.Popen(["dd", word, *common, "bs=1M"], stderr=subprocess.DEVNULL) for word in words]
    codes = [process.wait() for process in processes]
    assert not any(codes), codes


def _names(bare: Path, uncached: Path) -> Iterator[Figure]:
    acts: dict[str, Callable[[Path], object]] = {
        "create": lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
        "stat": os.stat,
        "unlink": os.unlink,
    }
    taken: dict[str, dict[str, list[float]]] = {name: {"bare": [], "ours": []} for name in acts}
    for _ in range(_ROUNDS):
        for side, root in (("bare", bare), ("ours", uncached)):
            paths = [emptied(root / "names") / "0", *(root / "names" / str(number) for number in range(1, NAMES))]
            for name, act in acts.items():
                taken[name][side].append(timed(lambda act=act, paths=paths: [act(path) for path in paths]))
    for name, sides in taken.items():
        ours, other = (NAMES / sorted(times)[_ROUNDS // 2] / 1000 for times in (sides["ours"], sides["bare"]))
        yield Figure(
            bench="mount",
            figure=f"mount.{name}_thousands_s",
            value=round(ours, 2),
            unit="thousand/s",
            better="higher",
            note=f"one process, the kernel's caches off; the bare disk {other:.0f}; {_load()}",
        )


def _load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
