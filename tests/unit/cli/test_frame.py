"""The frame of the command line: exit codes, safety flags, crash reports, start-up, broken pipes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from trainmaster.cli import errors, main
from trainmaster.cli.options import Change, Command, changes, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text
from trainmaster.core.base.value import Value

SOURCE = Path(__file__).parents[3] / "src"


class Thing(Value):
    name: str
    state: str
    size: int | None
    note: str = ""


THINGS = [
    Thing(name="h10", state="ready", size=5),
    Thing(name="h9", state="out (failed)", size=None, note="yes"),
    Thing(name="h1", state="ready", size=12, note="a: b"),
]
COLUMNS = [
    Column("name", lambda thing: thing.name),
    Column("state", lambda thing: thing.state, state=True),
    Column("size", lambda thing: thing.size, text=lambda size: "-" if size is None else f"{size} GiB"),
    Column("note", lambda thing: thing.note, wide=True),
]


@click.command(cls=Command)
@changes
def change_something(change: Change) -> None:
    if change.dry_run:
        print("would change")
        return
    change.confirm("change 2 hosts, 16 GPUs")
    print(f"changed: {change.reason}")


@click.command(cls=Command)
@click.argument("kind")
def fail(kind: str) -> int:
    kinds = {
        "no": errors.Failed, "usage": errors.WrongUsage, "none": errors.NoSuchThing, "moved": errors.WorldMoved,
        "forbidden": errors.NotAllowed, "away": errors.Unreachable, "partly": errors.PartlyDone,
    }  # fmt: skip
    if kind in kinds:
        raise kinds[kind]("what", "why\nmore", "next")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "defect":
        raise KeyError("boom\nsecond line")
    return int(kind)


@click.command(cls=Command)
@shows
def things(output: Output) -> None:
    output.listing("thing", THINGS, COLUMNS)


@pytest.fixture(autouse=True)
def frame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three commands of the test's own, an empty home, no settings."""
    for name in [name for name in os.environ if name.startswith(("TRAINMASTER_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("change-something", "fail", "things"):
        monkeypatch.setitem(main.COMMANDS, name, (f"{__name__}:{name.replace('-', '_')}", "For the test."))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("no", 1), ("usage", 2), ("none", 3), ("moved", 4), ("forbidden", 5), ("away", 6), ("partly", 7),
        ("interrupt", 130), ("0", 0), ("7", 7),
    ],
)  # fmt: skip
def test_exit_codes(kind: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["fail", kind]) == code
    assert code in errors.EXIT_CODES
    if kind == "no":
        assert capsys.readouterr().err == "error: what\n  why: why\n       more\n  try: next\n"


def test_a_defect_leaves_a_report_and_no_traceback(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """1. A command raises KeyError. 2. The user sees one line. 3. The traceback lies in the file that it names."""
    assert main.main(["--run-dir", str(tmp_path / "run"), "fail", "defect"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("internal error: KeyError: 'boom\\nsecond line'; this is a defect")
    assert captured.err.count("\n") == 1
    (report,) = (tmp_path / "run" / "crashes").iterdir()
    assert str(report) in captured.err
    assert "Traceback" in report.read_text()


def test_a_defect_is_told_even_if_nothing_can_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main.main(["--run-dir", str(tmp_path / "file"), "fail", "defect"]) == 1
    assert "the traceback could not be written" in capsys.readouterr().err


def test_changes_need_a_reason_and_consent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A dry run needs nothing. 2. No reason: refused. 3. Nobody to ask: refused. 4. --yes goes on. 5. Read-only."""
    assert main.main(["change-something", "--dry-run"]) == 0
    assert main.main(["change-something", "--yes"]) == 2
    assert main.main(["change-something", "--yes", "--reason", " "]) == 2
    assert main.main(["change-something", "--reason", "fans"]) == 2
    assert "this would change 2 hosts, 16 GPUs" in capsys.readouterr().err
    assert main.main(["change-something", "--reason", "fans", "--yes"]) == 0
    assert capsys.readouterr().out == "changed: fans\n"
    monkeypatch.setenv("TRAINMASTER_READONLY", "1")
    assert main.main(["change-something", "--reason", "fans", "--yes"]) == 5
    assert "environment TRAINMASTER_READONLY" in capsys.readouterr().err
    assert main.main(["change-something", "--dry-run"]) == 0
    monkeypatch.delenv("TRAINMASTER_READONLY")
    assert main.main(["--readonly", "change-something", "--reason", "fans", "--yes"]) == 5


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 130)])
def test_changes_ask_on_a_terminal(
    answer: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. stdin and stderr are terminals. 2. The question shows what would happen. 3. Only a yes goes on."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main.main(["change-something", "--reason", "fans"]) == code
    captured = capsys.readouterr()
    assert "This will change 2 hosts, 16 GPUs. Go on?" in captured.err + captured.out
    assert ("changed" in captured.out) == (code == 0)


class Terminal:
    """A stdin that says it is a terminal."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)

    def isatty(self) -> bool:
        return True

    def readline(self, _: int = -1) -> str:
        return self._lines.pop(0) if self._lines else ""


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["things", "--sort", "name"]) == 0
    assert capsys.readouterr().out == (
        "NAME  STATE         SIZE\n"
        "h1    ready         12 GiB\n"
        "h9    out (failed)  -\n"
        "h10   ready         5 GiB\n"
    )  # fmt: skip
    assert main.main(["things", "-o", "wide", "--no-header", "--columns", "note,name"]) == 0
    assert capsys.readouterr().out == "-     h10\nyes   h9\na: b  h1\n"
    assert main.main(["things", "--sort", "-size", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["h9", "h1", "h10"]


def test_colour_repeats_words_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Not a terminal: none. 2. Always: words are wrapped, and the text is the same without the codes."""
    assert main.main(["things"]) == 0
    plain = capsys.readouterr().out
    assert "\033" not in plain
    assert main.main(["things", "--color", "always"]) == 0
    coloured = capsys.readouterr().out
    assert "\033[32mready       \033[0m" in coloured
    assert "\033[31mout (failed)\033[0m" in coloured
    for code in ("\033[32m", "\033[31m", "\033[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main.main(["things"]) == 0
    assert "\033" not in capsys.readouterr().out


def test_machine_forms_agree(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["things", "-o", "json"])
    tree = json.loads(capsys.readouterr().out)
    assert tree["schema"] == "trainmaster.thing/v1"
    assert [item["size"] for item in tree["items"]] == [5, None, 12]
    main.main(["things", "-o", "jsonl"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{k: v for k, v in line.items() if k != "schema"} for line in lines] == tree["items"]
    main.main(["things", "-o", "yaml"])
    text = capsys.readouterr().out
    assert '  - name: h9\n    state: "out (failed)"\n    size: null\n    note: "yes"\n' in text


def test_words_for_time() -> None:
    minute = 60_000_000
    assert [duration_text(d) for d in (0, 450_000, 12_900_000, 3 * minute + 5_000_000, 60 * minute, 3120 * minute)] == [
        "0 ms", "450 ms", "12 s", "3 min 5 s", "1 h", "2 d 4 h"
    ]  # fmt: skip
    at = 1_785_412_800_000_000
    assert instant_text(at, at + 3 * minute) == "2026-07-30 12:00:00Z (3 min ago)"
    assert instant_text(at, at - minute) == "2026-07-30 12:00:00Z (in 1 min)"
    assert instant_text(None) == instant_text(0) == "never"


def python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_help_imports_nothing_heavy() -> None:
    """1. `--help` runs in a fresh process. 2. No module of ours beyond the frame, and no large library, is loaded."""
    code = "import sys; from trainmaster.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    loaded = set(python(code).stderr.split())
    assert "trainmaster.cli.main" in loaded
    assert not loaded & {"msgspec", "starlette", "uvicorn", "httpx", "rich", "torch", "numpy", "sqlite3", "asyncio"}
    assert {name for name in loaded if name.startswith("trainmaster.")} == {
        "trainmaster.cli", "trainmaster.cli.main", "trainmaster.cli.errors", "trainmaster.cli.options"
    }  # fmt: skip


def test_every_row_of_the_table_leads_to_a_command() -> None:
    context = click.Context(main.root)
    for name in main.COMMANDS:
        command = main.root.get_command(context, name)
        assert command is not None
        assert command.name == {"node": "host"}.get(name, name)


def test_a_closed_pipe_is_quiet() -> None:
    """1. The reader leaves after a line of 200,000. 2. No message, exit code 0."""
    code = (
        "import os, subprocess, sys\n"
        "run = 'import sys; from trainmaster.cli.main import main; sys.exit(main())'\n"
        "child = subprocess.Popen([sys.executable, '-c', run, 'hosts', 'expand', 'h[1-200000]'],\n"
        "                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "print(child.stdout.readline())\n"
        "child.stdout.close()\n"
        "print(child.stderr.read(), child.wait())\n"
    )
    assert python(code).stdout.splitlines()[-1] == "b'' 0"
