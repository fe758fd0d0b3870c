"""The files of the maintenance demo: hosts that have components, what can be done to them, and packages of versions.

A component is a file tree below the directory of a host, put there by an installer that really runs (see
`live/agent/component.py`). All hosts come up with version 1 of everything, as from an image; version 2 is packed
beforehand. The maintenance buffer is the whole fleet, since a gang upgrade takes a whole job; a train still takes one
host a stop.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.base.value import Value
from trainmaster.demo.scene import HOSTS, REBOOT_S, SPARES
from trainmaster.live.adapters import local
from trainmaster.live.agent.packages import Behaviour, Components, pack, package


class Part(Value):
    """A component of the scene."""

    name: ComponentName
    layer: str
    disturbs: str
    job_consistent: bool = False


def _part(name: str, layer: str, disturbs: str, job_consistent: bool = False) -> Part:
    return Part(name=ComponentName(name), layer=layer, disturbs=disturbs, job_consistent=job_consistent)


BIOS, KERNEL = _part("bios", "firmware", "reboot"), _part("kernel-image", "system", "reboot")
NIC = _part("nic-firmware", "firmware", "drain")
DRIVER, STORAGE = _part("driver-stack", "driver", "drain"), _part("storage-client", "driver", "drain")
RUNTIME = _part("runtime-image", "job", "restart", job_consistent=True)
PARTS: Final = (BIOS, KERNEL, NIC, DRIVER, STORAGE, RUNTIME)
"""In the order in which they are applied."""
SLIDING: Final = (BIOS, KERNEL, DRIVER, STORAGE)
"""What the train brings to every host; NIC is on trial."""

_FLEET = """\
# Four hosts that train and one spare, and what can be done to them.
schema = "trainmaster.fleet/v1"
name = "{name}"
catalogue = "catalogue.toml"

[[cluster]]
name = "desk"
fabric = "loopback"

[[cluster.hosts]]
list = "{hosts}"
platform = "laptop"

[agents]
heartbeat_s = 0.5
reboot_s = {reboot}

# A gang upgrade takes all hosts of a job, so all may be out at once; a train still takes one at a stop.
[[capacity.book]]
name = "desk"
cluster = "desk"
maintenance_hosts = {count}
failure_hosts = 1
"""

_COMPONENT = """
[[component]]
name = "{name}"
layer = "{layer}"
disturbs = "{disturbs}"{more}
median_s = 1
p90_s = 3
limit_s = 90
observe = [{tool}, "show", "{{component}}"]
observe_deadline_s = 30

[[component.steps]]
name = "install"
command = [{tool}, "install", "{{component}}", "{{version}}"]
deadline_s = {deadline_s:g}

[[component.undo]]
name = "restore"
command = [{tool}, "restore", "{{component}}", "{{previous}}"]
deadline_s = 30
"""
_AFTER_REBOOT = """
[[component.after_reboot]]
name = "booted"
command = [{tool}, "show", "{{component}}"]
deadline_s = 30
"""
_TOOL = '"{python}", "-m", "trainmaster.live.agent.component"'
_KIND = """
[[kind]]
name = "reboot"
disturbs = "reboot"
median_s = 4
p90_s = 8
limit_s = 60

[[kind.after_reboot]]
name = "answers"
command = ["{python}", "-c", "pass"]
deadline_s = 15
"""


def catalogue(parts: Iterable[Part], deadline_s: float = 30.0) -> str:
    """A catalogue file. `deadline_s`: of an installer."""
    rows = ['# Components whose version is a file tree.\nschema = "trainmaster.catalogue/v1"\nname = "demo"\n']
    for part in parts:
        more = "\njob_consistent = true" if part.job_consistent else ""
        named = {"name": part.name, "layer": part.layer, "disturbs": part.disturbs}
        rows.append(_COMPONENT.format(**named, more=more, tool=_TOOL, deadline_s=deadline_s))
        if part.disturbs == "reboot":
            rows.append(_AFTER_REBOOT.format(tool=_TOOL))
    return "".join([*rows, _KIND])


def write_fleet(folder: Path) -> Path:
    (folder / "catalogue.toml").write_text(catalogue(PARTS))
    count = HOSTS + SPARES
    path = folder / "fleet.toml"
    path.write_text(_FLEET.format(name="upkeep", hosts=f"h[0-{count - 1}]", reboot=REBOOT_S, count=count))
    return path


def make_package(state: Path, part: Part, version: str, behaviour: Behaviour = "", on: tuple[HostId, ...] = ()) -> None:
    """As `component pack` does, of a directory with a few files. `behaviour`: of its installer, on these hosts."""
    with tempfile.TemporaryDirectory() as source:
        for name in ("bin/tool", "lib/module", "notes.txt"):
            path = Path(source, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{part.name} {version} {name}\n")
        pack(Path(source), state / "packages", part.name, version, behaviour, 0.0, on)


def install_first(state: Path, hosts: Iterable[HostId], parts: Iterable[Part]) -> None:
    """Version 1 of everything on every host, before it boots for the first time."""
    for part in parts:
        source, manifest = package(state / "packages", part.name, "1")
        for host in hosts:
            components = Components(local.host_dir(state, host))
            with components.changing(part.name):
                components.place(part.name, source, manifest)
                components.switch(part.name, "1")


def needs_boot(part: Part) -> Behaviour:
    """How an honest installer of this component behaves."""
    return "needs-reboot" if part.disturbs == "reboot" else ""


def stock(state: Path, hosts: Iterable[HostId]) -> None:
    """Packages of both versions, the first one installed everywhere."""
    for part in PARTS:
        make_package(state, part, "1", needs_boot(part))
        if part is not NIC:  # which hosts it lies on is known later
            make_package(state, part, "2", needs_boot(part))
    install_first(state, hosts, PARTS)
