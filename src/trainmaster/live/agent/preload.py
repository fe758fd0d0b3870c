"""What a keeper imports ahead: each worker that it forks then finds the modules there."""

import gc
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.core.agent import failure
from trainmaster.core.agent.command import parse
from trainmaster.live.agent import talk

OURS: Final = "trainmaster.training"


def _whole(names: Iterable[str]) -> Iterator[str]:
    """The names, ours followed by all that it stands for."""
    for name in names:
        yield name
        if name == OURS and name in sys.modules:
            yield from sys.modules[name].PRELOAD


def preload(spec: talk.KeeperSpec) -> str:
    """Imports the modules; what went wrong in one line, or nothing. Workers then fail on their own import, with the
    line of the script, which says more than a keeper that does not start."""
    python = parse(spec.command)
    if python is not None and python.kind == "script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(python.target)))
    else:
        sys.path.insert(0, os.getcwd())
    trouble = ""
    gc.disable()  # what is imported stays: looking through all of it again and again takes an eighth of the time
    for name in _whole(spec.preload):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  any error of a foreign module; it is reported
            trouble = trouble or f"preload of {name}: {type(error).__name__}: {failure.first_line(str(error))}"
            print(trouble, flush=True)
    gc.enable()
    if len(os.listdir("/proc/self/task")) > 1:
        trouble = trouble or "a preloaded module started a thread, which forked workers will not have"
    return trouble
