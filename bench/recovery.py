"""From SIGKILL of a host to the next completed step: ours against others, the same job, the same run, in turns.

The job is the reference trainer with four ranks (FSDP2 on gloo, some five million parameters), saving every ten steps.
Ours has five hosts with a rank each, one of them a spare. A kill destroys a whole host: its agent, its keeper, its
rank, its shared memory and its directory; the host of each rank has its turn, that of rank 0 too. Under the others
there is one launcher on the machine, and a kill takes one rank, which is less than a host. They resume from the same
checkpoints through the same library, so what differs is noticing, stopping, meeting again, starting. torchrun runs with
the c10d rendezvous, once as it is and once with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which keeps it from reusing the
store of the dead group; NVRx's `ft_launcher` from the environment that TRAINMASTER_BENCH_NVRX names, if it does.

torchft, from the environment that TRAINMASTER_BENCH_TORCHFT names, is another kind of job. It wants a script written
for its manager (`bench/torchft_job.py`: the same model, sizes and optimizer). Each replica holds the whole state; ours
holds a quarter a rank, as large models must. Its survivors go on with fewer replicas and fewer samples, so losses
differ from those of an undisturbed run; ours are equal to the bit. So it has two numbers: to the next step by whoever
lives, and to the next at full strength, which is the fair one, for ours comes back with four. It runs with its
defaults, with short timeouts, and with a spare replica as well; `bench/recovery_torchft.py` tells more.

What is measured is the gap between the last step before and the first after, less the median step. A kill counts as
not recovered when no step comes within `PATIENCE_S` (torchft's defaults wait for a minute, so it has three); the job is
then started anew for the next kill.

`ratio` is the other's median over ours. Ours must recover every time.
"""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure
from bench.recovery_sides import PATIENCE_S, RANKS, TRAINER, Launcher, Ours
from bench.recovery_torchft import PATIENCE_S as TORCHFT_PATIENCE_S
from bench.recovery_torchft import PYTHON as TORCHFT
from bench.recovery_torchft import Torchft, defaults, short_timeouts, with_spare
from trainmaster.training.reference.corpus import VOCABULARY_SIZE
from trainmaster.training.reference.main import arguments
from trainmaster.training.reference.model import Llama, Shape

KILLS = int(os.environ.get("TRAINMASTER_BENCH_KILLS", "20"))
NVRX = os.environ.get("TRAINMASTER_BENCH_NVRX", "")
"""Python of an environment in which nvidia-resiliency-ext is installed, and what the library needs."""
BLOCK = 5
"""Kills of one side before the next side has its turn: sides that ran at once would slow each other down."""
LEAST_PARAMETERS = 5_000_000


def _torchrun(folder: Path) -> Launcher:
    return Launcher(folder, "torchrun", [sys.executable, "-m", "torch.distributed.run"], {})


def _own_store(folder: Path) -> Launcher:
    command = [sys.executable, "-m", "torch.distributed.run"]
    return Launcher(folder, "torchrun, own store", command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def _nvrx(folder: Path) -> Launcher:
    return Launcher(folder, "nvrx", [NVRX, "-m", "nvidia_resiliency_ext.fault_tolerance.launcher"], {})


GOAL_S, GOAL_RATIO = 0.5, 10
Side = Ours | Launcher | Torchft
SIDES: tuple[Callable[[Path], Side], ...] = (
    Ours,
    _torchrun,
    _own_store,
    *((_nvrx,) if NVRX else ()),
    *((defaults, short_timeouts, with_spare) if TORCHFT else ()),
)


def figures() -> Iterator[Figure]:
    taken: dict[str, list[float | None]] = {}
    phases: list[dict[str, float]] = []
    _check_size()
    for start in range(0, KILLS, BLOCK):
        for begin in SIDES:
            with tempfile.TemporaryDirectory() as folder:
                phases += _block(begin(Path(folder)), min(BLOCK, KILLS - start), taken)
    ours, *peers = taken
    yield from _figures(taken, ours, tuple(peers), _middle(phases))


def _check_size() -> None:
    """The model is as large as is said."""
    options = arguments(TRAINER[2:])
    shape = Shape(vocabulary=VOCABULARY_SIZE, dim=options.dim, layers=options.layers, hidden=options.hidden)
    size = sum(parameter.numel() for parameter in Llama(shape).parameters())
    assert size >= LEAST_PARAMETERS, size


def _block(side: Side, kills: int, taken: dict[str, list[float | None]]) -> list[dict[str, float]]:
    """Some kills of one side, while the other sides do not run."""
    with contextlib.closing(side):
        times = taken.setdefault(side.name, [])
        for _ in range(kills):
            times.append(_one(side, len(times) % RANKS))
            sys.stderr.write(f"kill {len(times)} of {KILLS}, {side.name}: {times[-1]} s\n")
        if isinstance(side, Torchft):
            taken.setdefault(f"{side.name}, full strength", []).extend(side.full_strength)
        return side.phases


def _one(side: Side, rank: int) -> float | None:
    memberships = side.ready()
    result = side.steps.gap(side.kill(rank), memberships)
    if result is None:
        side.again()
    else:
        side.recovered()
    return result


def _middle(phases: list[dict[str, float]]) -> str:
    """The median of each phase, in words."""
    names = dict.fromkeys(name for each in phases for name in each)
    middle = {name: statistics.median([each.get(name, 0.0) for each in phases]) for name in names}
    return ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in middle.items() if seconds >= 0.0005)


def _range(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f} s" if times else "none"


def _figures(taken: dict[str, list[float | None]], ours: str, peers: tuple[str, ...], phases: str) -> Iterator[Figure]:
    back = {name: [seconds for seconds in times if seconds is not None] for name, times in taken.items()}
    mine, worst = statistics.median(back[ours]), max(back[ours])
    for peer in peers:
        theirs = statistics.median(back[peer]) if back[peer] else None
        suffix = "" if peer == peers[0] else "_" + peer.replace("torchrun, ", "").replace(",", "").replace(" ", "_")
        ratio = theirs / mine if theirs is not None else None
        yield Figure(
            bench="recovery",
            figure=f"recovery.kill_to_next_step_s{suffix}",
            value=round(mine, 3),
            unit="s",
            better="lower",
            peer=round(theirs, 3) if theirs is not None else None,
            ratio=round(ratio, 2) if ratio is not None else None,
            goal=f"below {GOAL_S} s" + (f", and ratio at least {GOAL_RATIO}" if peer.startswith("torchrun") else ""),
            holds=mine < GOAL_S and (not peer.startswith("torchrun") or (ratio is not None and ratio >= GOAL_RATIO)),
            note=f"{peer}: {len(back[peer])} of {KILLS} kills recovered within "
            f"{TORCHFT_PATIENCE_S if peer.startswith('torchft') else PATIENCE_S:g} s; median of those "
            f"({_range(back[peer])}). Ours by phase: {phases}",
        )
    yield Figure(
        bench="recovery",
        figure="recovery.worst_kill_to_next_step_s",
        value=round(worst, 3),
        unit="s",
        better="lower",
        goal="below 1 s",
        holds=worst < 1.0,
    )
    yield Figure(
        bench="recovery",
        figure="recovery.recovered",
        value=len(back[ours]),
        unit="kills",
        better="higher",
        peer=len(back[peers[0]]),
        ratio=round(len(back[ours]) / max(len(back[peers[0]]), 1), 2),
        goal=f"{KILLS} of {KILLS}",
        holds=len(back[ours]) == KILLS,
    )
