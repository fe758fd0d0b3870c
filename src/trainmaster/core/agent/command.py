"""Reading a Python command, so that a warm process can run it itself instead of starting an interpreter.

`python -u train.py --steps 10` is a script, `python -m pkg.train` is a module. Flags that change nothing for a process
that is running already are passed over; any other flag (`-c`, `-O`, `-W`, `-X`, ...) makes the command one that only a
fresh interpreter can run, as does a command that is not Python at all. Rejected: guessing by running `python -c` with a
parser, since flags have been stable for a decade.
"""

import re
from typing import Final, Literal

from trainmaster.core.base.value import Value

_PYTHON: Final = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_HARMLESS: Final = frozenset("uBqsv")


class PythonCommand(Value):
    kind: Literal["script", "module"]
    target: str
    arguments: tuple[str, ...]


def is_python(program: str) -> bool:
    """Whether a program, by its name, is a Python interpreter."""
    return _PYTHON.fullmatch(program) is not None


def interpreter(program: str, own: str) -> str:
    """The program to run: `own` for a bare python name, so that workers see the modules that the agent sees."""
    return own if is_python(program) and "/" not in program else program


def parse(command: tuple[str, ...]) -> PythonCommand | None:
    """The command as a warm process can run it; None if only a fresh process can."""
    if not command or not is_python(command[0]):
        return None
    for index, word in enumerate(command[1:], start=1):
        rest = command[index + 1 :]
        if word == "-m":
            return PythonCommand(kind="module", target=rest[0], arguments=rest[1:]) if rest else None
        if not word.startswith("-"):
            return PythonCommand(kind="script", target=word, arguments=rest)
        if not word[1:] or not set(word[1:]) <= _HARMLESS:
            return None
    return None
