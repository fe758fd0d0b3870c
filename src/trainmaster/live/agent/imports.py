"""What a command will import of PyTorch and of our training library, read from its source without running it.

A warm process is worth what it has imported: what it lacks, each standby and each rank anew imports cold, a second and
more on an idle machine, and a dozen where all ranks of a host do it at once. Nobody should have to know the list, so it
is read off the script: its own imports, and those of the modules beside it that it imports, at whatever depth they
stand. A script that uses our library gets all of `trainmaster.training.PRELOAD`, one that uses PyTorch gets that.

Rejected: importing the script itself (it would run), and always importing PyTorch (seconds and memory for jobs that do
not use it). Limits: an import by a computed name is not seen, nor what an installed package imports in its turn; such a
module can be named in `preload`.
"""

import ast
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from trainmaster.core.agent.command import PythonCommand

OURS: Final = "trainmaster.training"
PYTORCH: Final = ("torch", "torch.distributed")
FILES_LIMIT: Final = 200
"""Files that are read of one command; who imports PyTorch only beyond them names it."""
_FILE_LIMIT: Final = 1 << 20
"""Bytes of a file that a person wrote."""


def needed(python: PythonCommand) -> tuple[str, ...]:
    """The modules that a process of this command should find imported. The working directory is the command's."""
    names = set(_imported(python))
    if any(name == OURS or name.startswith(f"{OURS}.") for name in names):
        return tuple(importlib.import_module(OURS).PRELOAD)  # late: that it is imported tells who the command is
    return PYTORCH if any(name.partition(".")[0] == "torch" for name in names) else ()


def _imported(python: PythonCommand) -> Iterator[str]:
    """Full names of modules, and of attributes that may be modules."""
    if python.kind == "module":
        yield python.target
        here, waiting = os.getcwd(), _files(python.target, [os.getcwd(), *sys.path])
        waiting += _files(f"{python.target}.__main__", [os.getcwd(), *sys.path])
    else:
        here, waiting = os.path.dirname(os.path.abspath(python.target)), [(Path(python.target), "")]
    seen: set[Path] = set()
    while waiting and len(seen) < FILES_LIMIT:
        file, package = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _names(file, package):
            yield name
            if name.partition(".")[0] not in ("torch", "trainmaster"):
                waiting += _files(name, [here])


def _files(name: str, search: list[str]) -> list[tuple[Path, str]]:
    """The source files that an import of this name runs, each with its package, as far as it is found; nothing is
    imported."""
    found, parts, package = [], name.split("."), ""
    for part in parts:
        spec = PathFinder.find_spec(f"{package}.{part}" if package else part, search)
        if spec is None:
            break
        if spec.has_location and spec.origin is not None and spec.origin.endswith(".py"):
            found.append((Path(spec.origin), spec.name if spec.submodule_search_locations is not None else package))
        if spec.submodule_search_locations is None:
            break
        package, search = spec.name, list(spec.submodule_search_locations)
    return found


def _names(file: Path, package: str) -> Iterator[str]:
    try:
        if file.stat().st_size > _FILE_LIMIT:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # the rank will say what is wrong with it, with its line
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module that names are taken from; empty where a relative import leads out of its package."""
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return "" if node.level else node.module or ""
    within = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*within, *([node.module] if node.module else [])])
