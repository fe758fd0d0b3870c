"""Transcripts: scripts of commands beside their stored output, which are scenario, documentation and regression in one.

A script is a text file beside this one. It opens with what is being proved; then, for each command:

    $ NAME=VALUE trainmaster COMMAND < FILE      the command line; variables and the file are optional
    text                                         its stdout
    ! text                                       its stderr
    ? 2                                          its exit code, unless 0

Commands run in this process, in `files/`, with an empty home. `TRANSCRIPTS=accept pytest tests/transcripts` rewrites
the scripts with what the commands print now; read the difference before you commit it.
"""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

import pytest

from trainmaster.cli.main import main

HERE = Path(__file__).parent
FILES = HERE / "files"


def run(line: str, home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """The lines that follow the command in a script."""
    words = shlex.split(line)
    stdin = ""
    if "<" in words:
        stdin = (FILES / words[words.index("<") + 1]).read_text()
        words = words[: words.index("<")]
    out, err = io.StringIO(), io.StringIO()
    with patch.context() as inner:
        for name in [name for name in os.environ if name.startswith(("TRAINMASTER_", "XDG_"))]:
            inner.delenv(name)
        inner.setenv("HOME", str(home))
        inner.setenv("NO_COLOR", "1")
        inner.chdir(FILES)
        inner.setattr(sys, "stdin", io.StringIO(stdin))
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            inner.setenv(name, value)
        assert words.pop(0) == "trainmaster", line
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    lines = out.getvalue().splitlines() + [f"! {text}".rstrip() for text in err.getvalue().splitlines()]
    lines += [f"? {code}"] if code else []
    return [text.replace(str(home), "HOME").replace(str(FILES), "FILES") for text in lines]


def replay(script: str, home: Path, patch: pytest.MonkeyPatch) -> str:
    """The script with what its commands print now."""
    head, *commands = script.split("\n$ ")
    lines = [head.rstrip("\n"), ""]
    for command in commands:
        line = command.split("\n", 1)[0]
        lines += [f"$ {line}", *run(line, home, patch), ""]
    return "\n".join(lines)


@pytest.mark.parametrize("script", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = script.read_text()
    now = replay(stored, tmp_path, monkeypatch)
    if os.environ.get("TRANSCRIPTS") == "accept":
        script.write_text(now)
    else:
        assert now == stored


def test_a_changed_word_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A script claims a wrong output and a wrong exit code. 2. Replaying it gives the right ones."""
    script = "Proof.\n\n$ trainmaster hosts count 'h[1-2]'\n3\n\n$ trainmaster hosts count 'h['\n"
    now = replay(script, tmp_path, monkeypatch)
    assert now.startswith("Proof.\n\n$ trainmaster hosts count 'h[1-2]'\n2\n\n")
    assert now.endswith("? 2\n")
