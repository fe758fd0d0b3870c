"""Runs a command line in this process, with an empty home and the settings of the test."""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from trainmaster.cli.main import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Terminal(io.StringIO):
    """Text that says it is typed at a terminal."""

    def isatty(self) -> bool:
        return True


class Stream(io.TextIOWrapper):
    """A stream with bytes below it, as the real ones have."""

    def __init__(self, terminal: bool) -> None:
        self._bytes, self._terminal = io.BytesIO(), terminal
        super().__init__(self._bytes, encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode()


class CommandLine:
    """`run("host ls")`. With `answers`, stdin and stderr are a terminal where these lines are typed."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, server: str = "", token: str = "") -> None:
        self.home, self._patch = home, patch
        for name in [name for name in os.environ if name.startswith(("TRAINMASTER_", "XDG_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("LOGNAME", "kim")
        patch.chdir(home)
        if server:
            patch.setenv("TRAINMASTER_SERVER", server)
        if token:
            (home / "token").write_text(token + "\n")
            patch.setenv("TRAINMASTER_TOKEN_FILE", str(home / "token"))

    def run(self, *words: str, answers: str | None = None, terminal: bool = False) -> Ran:
        out, err = Stream(terminal), Stream(answers is not None)
        stdin = Terminal(answers) if answers is not None else io.StringIO()
        with self._patch.context() as inner:
            inner.setattr(sys, "stdin", stdin)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(words))
        return Ran(code, out.text(), err.text())
