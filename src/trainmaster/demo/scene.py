"""The files of the demo: a fleet of five local hosts and a job, written where the user can look at them."""

from pathlib import Path

from trainmaster.core.base.value import Value

HOSTS = 4
SPARES = 1
REBOOT_S = 3.0


class Settings(Value):
    steps: int
    checkpoint_every: int
    seed: int
    trainer: tuple[str, ...]
    """Further arguments of the reference trainer."""


_FLEET = """\
# Four hosts that train and one spare; each is an agent with processes, memory and a directory of its own.
schema = "trainmaster.fleet/v1"
name = "demo"

[[cluster]]
name = "desk"
fabric = "loopback"

[[cluster.hosts]]
list = "h[0-{last}]"
platform = "laptop"

[agents]
heartbeat_s = 0.5
reboot_s = {reboot}
"""

_JOB = """\
# A decoder-only model in the shape of Llama 3 on the works of Shakespeare, sharded over {hosts} hosts.
schema = "trainmaster.job/v1"
name = "{name}"
command = [{command}]
hosts = {hosts}
spares = {spares}
workdir = "."

[checkpoint]
every_steps = {every}
keep = 2
"""


def write_fleet(folder: Path) -> Path:
    path = folder / "fleet.toml"
    path.write_text(_FLEET.format(last=HOSTS + SPARES - 1, reboot=REBOOT_S))
    return path


def write_job(folder: Path, name: str, settings: Settings, ends: Path | None = None) -> Path:
    """`ends`: until this file appears, the job takes its time (see `paced.py`)."""
    command = ["python", "-m", "trainmaster.training.reference", "--steps", str(settings.steps)]
    if ends is not None:
        command = ["python", "-m", "trainmaster.demo.paced", str(ends), str(settings.steps)]
    command += ["--seed", str(settings.seed), *settings.trainer]
    path = folder / f"{name}.toml"
    path.write_text(
        _JOB.format(name=name, command=_quoted(command), hosts=HOSTS, spares=SPARES, every=settings.checkpoint_every)
    )
    return path


def _quoted(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f'"{word}"' for word in words)
