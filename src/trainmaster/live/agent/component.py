"""The installer of components that are file trees; operations run it as a step.

    python -m trainmaster.live.agent.component pack DIR NAME VERSION [--behaviour WORD] [--seconds N] [--on HOST,...]
    python -m trainmaster.live.agent.component install NAME VERSION
    python -m trainmaster.live.agent.component show NAME            prints the version; the observation of an operation
    python -m trainmaster.live.agent.component restore NAME VERSION  back to it; empty: to none; undoes an install
    python -m trainmaster.live.agent.component rollback NAME
    python -m trainmaster.live.agent.component remove NAME

An undo step is `restore NAME {previous}`, which may be repeated, rather than `rollback`, which may not, and which after
an installer that changed nothing would take the good version away.

It works in the directory of the host (TRAINMASTER_HOST_DIR) and takes packages from TRAINMASTER_PACKAGES; both are in
the environment of every step. A package may be told to behave badly, so that tests and demonstrations have an installer
that fails (after half of the files), hangs, lies (exit code 0, and nothing changed), is slow, or needs a boot; on all
hosts or on some, by the name of their directory (which in a local fleet is the name of the host).

Exit codes: 0 done; 1 it could not be done, or there is no sound version to show; 2 wrong usage; 3 the installer of the
package failed; 4 no such package.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final, get_args

from trainmaster.core.agent.steps import HOST_DIR, PACKAGES
from trainmaster.live.agent.packages import Behaviour, Components, Manifest, PackageError, pack, package

FAILED: Final = 3
FOR_EVER_S: Final = 1e6


def _directory(variable: str) -> Path:
    """Raises `PackageError`."""
    value = os.environ.get(variable)
    if not value:
        raise PackageError(f"{variable} is not set; steps of operations have it, others must set it", 2)
    return Path(value).absolute()


def _components() -> Components:
    return Components(_directory(HOST_DIR))


def install(name: str, version: str) -> str:
    """What was done, in words. Raises `PackageError` or `OSError`."""
    source, manifest = package(_directory(PACKAGES), name, version)
    components = _components()
    with components.changing(name):
        if manifest.on and components.root.parent.name not in manifest.on:
            manifest = manifest.but(behaviour="")
        _behave(components, name, source, manifest)
        if manifest.behaviour == "lie":
            return f"{name} {version} is installed"
        components.place(name, source, manifest)
        if manifest.behaviour == "needs-reboot" and components.linked(name, "current") != version:
            components.stage(name, version)
            return f"{name} {version} takes effect with the next boot"
        components.switch(name, version)
        return f"{name} {version} is installed"


def restore(name: str, version: str) -> str:
    """As `install`; without a version there was none, so it is removed. Raises `PackageError` or `OSError`."""
    if version:
        return install(name, version)
    _components().remove(name)
    return f"{name} is removed"


def _behave(components: Components, name: str, source: Path, manifest: Manifest) -> None:
    match manifest.behaviour:
        case "fail":
            components.place(name, source, manifest, len(manifest.files) // 2)
            raise PackageError(f"the installer of {name} {manifest.version} failed half way", FAILED)
        case "hang":
            print(f"installing {name} {manifest.version} ...", flush=True)
            time.sleep(FOR_EVER_S)
        case "slow":
            time.sleep(manifest.seconds)


def _do(asked: argparse.Namespace) -> str:
    match asked.verb:
        case "pack":
            packages = _directory(PACKAGES)
            on = tuple(host for host in asked.on.split(",") if host)
            place = pack(asked.directory, packages, asked.name, asked.version, asked.behaviour, asked.seconds, on)
            return f"{place} is packed"
        case "install":
            return install(asked.name, asked.version)
        case "restore":
            return restore(asked.name, asked.version)
        case "show":
            return _components().version(asked.name)
        case "rollback":
            return f"{asked.name} is back at {_components().rollback(asked.name)}"
    _components().remove(asked.name)
    return f"{asked.name} is removed"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="component", description="Installs components that are file trees.")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="pack | install | restore | show | rollback | remove"
    )
    packing = verbs.add_parser("pack", help="make a package of a directory")
    packing.add_argument("directory", type=Path)
    installing = verbs.add_parser("install", help="make a version the current one")
    restoring = verbs.add_parser("restore", help="go back to a version, or to none")
    for verb in (packing, installing, restoring):
        verb.add_argument("name")
        verb.add_argument("version")
    packing.add_argument("--behaviour", choices=get_args(Behaviour), default="", help="how its installer behaves")
    packing.add_argument("--seconds", type=float, default=0.0, help="how long a slow one takes")
    packing.add_argument("--on", default="", metavar="HOST,...", help="hosts where it behaves so; empty: all")
    for word, what in (
        ("show", "print the current version, if its files are sound"),
        ("rollback", "go back to the version before"),
        ("remove", "take it away"),
    ):
        verbs.add_parser(word, help=what).add_argument("name")
    return parser


def main(arguments: list[str]) -> int:
    try:
        print(_do(_parser().parse_args(arguments)), flush=True)
    except PackageError as error:
        print(f"component: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"component: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
