"""What a keeper imports ahead: each worker that it forks then finds the modules there.

That is what the command is seen to need (`imports`), and what the job names. Of the first, what is not there is passed
over: a script may do without. A command with an interpreter of its own has a keeper in it only if it names modules."""

import gc
import importlib
import os
import sys
from collections.abc import Iterable, Iterator

from trainmaster.core.agent import failure
from trainmaster.core.agent.command import interpreter, parse
from trainmaster.core.base.value import Value
from trainmaster.live.agent import imports, talk


def _whole(names: Iterable[str]) -> Iterator[str]:
    """The names, ours followed by all that it stands for, as soon as it is imported."""
    for name in names:
        yield name
        if name == imports.OURS and name in sys.modules:
            yield from sys.modules[name].PRELOAD


class Warmth(Value):
    modules: tuple[str, ...]
    """That were to be imported; none: workers are fresh processes."""
    trouble: str
    """What went wrong, in one line, or nothing."""


def preload(spec: talk.KeeperSpec) -> Warmth:
    """Imports the modules. Workers fail on their own import of what could not be, with the line of the script, which
    says more than a keeper that does not start."""
    python = parse(spec.command)
    if python is not None and python.kind == "script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(python.target)))
    else:
        sys.path.insert(0, os.getcwd())
    here = os.path.abspath(interpreter(spec.command[0], sys.executable)) == os.path.abspath(sys.executable)
    needed = imports.needed(python) if python is not None and spec.preload_needed and here else ()
    modules = (*needed, *[name for name in spec.preload if name not in needed])
    trouble = ""
    gc.disable()  # what is imported stays: looking through all of it again and again takes an eighth of the time
    for name in _whole(modules):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  any error of a foreign module; it is reported
            told = f"preload of {name}: {type(error).__name__}: {failure.first_line(str(error))}"
            print(told, flush=True)
            if name in spec.preload:
                trouble = trouble or told
    gc.enable()
    if len(os.listdir("/proc/self/task")) > 1:
        trouble = trouble or "a preloaded module started a thread, which forked workers will not have"
    return Warmth(modules=modules, trouble=trouble)
