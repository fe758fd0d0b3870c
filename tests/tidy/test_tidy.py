"""The style, as tests. Each rule is a function from a source to the lines that break it, and each has a self-test: a
rule that finds nothing anywhere may be broken itself.

The lists of exceptions only shrink: an entry that is no longer needed fails too.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trainmaster"
FUNCTION_LINES = 70
FILE_LINES = 500

LONG_FUNCTIONS: frozenset[str] = frozenset()
"""`path:function` of functions over the limit. It may only shrink."""
LONG_FILES: frozenset[str] = frozenset()

IMPURE = frozenset(
    {
        "asyncio", "concurrent", "ctypes", "datetime", "glob", "http", "io", "logging", "mmap", "multiprocessing", "os",
        "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3",
        "subprocess", "sys", "tempfile", "threading", "time", "torch", "urllib", "uuid",
    }
)  # fmt: skip
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__", "breakpoint"})

UNREPEATABLE = frozenset(
    {"asyncio", "concurrent", "datetime", "multiprocessing", "random", "secrets", "threading", "time", "uuid"}
)
"""What would make two runs of one world differ: a clock, chance without a seed, an order of threads."""

MAY_IMPORT = {
    "core": {"core"},
    "ports": {"core", "ports"},
    "live": {"core", "ports", "live", "storage", "telemetry"},
    "twin": {"core", "ports", "twin", "telemetry"},
    "telemetry": {"core", "telemetry"},
    "training": {"core", "storage", "telemetry", "training"},
    "storage": {"core", "storage"},
    "cli": {"core", "ports", "live", "twin", "telemetry", "storage", "demo", "cli"},
    "demo": {"core", "ports", "live", "training", "cli", "demo"},
    "web": {"core", "ports", "live", "twin", "telemetry", "web"},
}
"""core <- ports <- {live, twin} <- {cli, web}; what a training script imports, and storage, know the core's values."""

Rule = Callable[[str, str], Iterator[str]]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def texts() -> list[Path]:
    """All text files of the project that git knows or would add, except this one (it has to name what it forbids)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    found = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    return [path for path in found if path != Path(__file__) and b"\0" not in path.read_bytes()[:4096]]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import. Names below `from` are added, since they may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module
            if node.module == "trainmaster":
                for alias in node.names:
                    yield node.lineno, f"trainmaster.{alias.name}"


def is_pure(path: str, text: str) -> Iterator[str]:
    """The core has no clock, chance, files, sockets, threads, async or logging."""
    if not path.startswith("core/"):
        return
    tree = ast.parse(text)
    for line, name in imported(tree):
        if name.partition(".")[0] in IMPURE:
            yield f"{path}:{line}: the core may not import {name}; take it as an argument"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{path}:{node.lineno}: no async in the core"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{path}:{node.lineno}: the core may not call {node.func.id}()"


def is_repeatable(path: str, text: str) -> Iterator[str]:
    """A simulated world has no clock but its own, no chance without a seed, no threads."""
    if path.startswith("twin/"):
        for line, name in imported(ast.parse(text)):
            if name.partition(".")[0] in UNREPEATABLE:
                yield f"{path}:{line}: the twin may not import {name}; take time and chance from the world"


def imports_downwards(path: str, text: str) -> Iterator[str]:
    """Imports go one way."""
    area = path.partition("/")[0]
    if area.endswith(".py"):
        return
    for line, name in imported(ast.parse(text)):
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if package == "trainmaster" and target and not target.startswith("__") and target not in MAY_IMPORT[area]:
            yield f"{path}:{line}: {area} may not import {name}"


def has_short_functions(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.name}"


def is_short(path: str, text: str) -> Iterator[str]:
    if text.count("\n") > FILE_LINES:
        yield path


def opens_with_a_docstring(path: str, text: str) -> Iterator[str]:
    if not ast.get_docstring(ast.parse(text)):
        yield f"{path}:1: a module opens with its idea"


def swallows_nothing(path: str, text: str) -> Iterator[str]:
    """No handler whose whole body is `pass` or `...`, no bare `except:`, no `contextlib.suppress(Exception)`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            empty = all(
                isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
                for line in node.body
            )
            if empty or node.type is None:
                yield f"{path}:{node.lineno}: an exception is swallowed; handle it, or name it in suppress()"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            for argument in node.args:
                if ast.unparse(argument) in ("Exception", "BaseException"):
                    yield f"{path}:{node.lineno}: suppress() of everything"


LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
PRIVATE = re.compile(
    rf"(?<![\w.])/wor[k]/|/tm[p]/bash|/roo[t]/|{re.escape(str(ROOT))}/|"
    r"\b(?:pypi|pythonhosted|npmjs|golang)\.(?:org|com)\b|\bcrates\.(?:io)\b"
)


def has_no_left_overs(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if LEFT_OVER.search(line):
            yield f"{path}:{number}: do it, or take the note out"


def names_no_private_place(path: str, text: str) -> Iterator[str]:
    """No path of one machine, no host name of a package registry."""
    for number, line in enumerate(text.splitlines(), 1):
        found = PRIVATE.search(line)
        if found:
            yield f"{path}:{number}: {found.group()} has no place in the project"


def broken(rule: Rule, files: list[Path], base: Path) -> list[str]:
    return [line for file in files for line in rule(file.relative_to(base).as_posix(), file.read_text("utf-8"))]


@pytest.mark.parametrize("rule", [is_pure, is_repeatable, imports_downwards, opens_with_a_docstring, swallows_nothing])
def test_modules(rule: Rule) -> None:
    assert broken(rule, modules(), SOURCE) == []


@pytest.mark.parametrize("rule", [has_no_left_overs, names_no_private_place])
def test_texts(rule: Rule) -> None:
    assert broken(rule, texts(), ROOT) == []


def test_names_of_test_modules_are_unique() -> None:
    """Where a directory is no package, a module is known by its file's name alone, and pytest collects one of two."""
    alone = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in alone)
    assert [name for name, count in names.items() if count > 1] == []


def test_sizes() -> None:
    """1. Nothing new is over a limit. 2. What came below it leaves the list of exceptions."""
    assert set(broken(has_short_functions, modules(), SOURCE)) == LONG_FUNCTIONS
    assert set(broken(is_short, modules(), SOURCE)) == LONG_FILES


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (is_pure, "core/a.py", "import time"),
        (is_pure, "core/a.py", "from os.path import join"),
        (is_pure, "core/a.py", "def f():\n    import random"),
        (is_pure, "core/a.py", "open('x')"),
        (is_pure, "core/a.py", "async def f(): ..."),
        (is_repeatable, "twin/a.py", "import random"),
        (is_repeatable, "twin/a.py", "from time import monotonic"),
        (imports_downwards, "core/a.py", "from trainmaster.live import config"),
        (imports_downwards, "core/a.py", "from trainmaster.twin import kernel"),
        (imports_downwards, "twin/a.py", "from trainmaster.live import config"),
        (imports_downwards, "live/a.py", "from trainmaster.twin.kernel import Kernel"),
        (imports_downwards, "core/a.py", "from trainmaster import live"),
        (imports_downwards, "ports/a.py", "import trainmaster.live.config"),
        (imports_downwards, "live/a.py", "from trainmaster.cli import main"),
        (imports_downwards, "training/a.py", "from trainmaster.ports import clock"),
        (has_short_functions, "a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
        (is_short, "a.py", "x = 1\n" * (FILE_LINES + 1)),
        (opens_with_a_docstring, "a.py", "x = 1"),
        (swallows_nothing, "a.py", "try:\n    f()\nexcept OSError:\n    pass"),
        (swallows_nothing, "a.py", "try:\n    f()\nexcept OSError:\n    ..."),
        (swallows_nothing, "a.py", "try:\n    f()\nexcept:\n    g()"),
        (swallows_nothing, "a.py", "with contextlib.suppress(Exception):\n    f()"),
        (has_no_left_overs, "a.md", "x # TODO: later"),
        (names_no_private_place, "a.md", "see " + str(ROOT / "src")),
        (names_no_private_place, "a.md", "https://" + ".".join(("pypi", "org")) + "/project/x"),
    ],
)
def test_a_rule_finds_what_it_forbids(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, text))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (is_pure, "core/a.py", "import math\nfrom trainmaster.core.base.time import Instant\ntime = open_file()"),
        (is_pure, "live/a.py", "import time"),
        (is_repeatable, "twin/a.py", "import math\nfrom trainmaster.core.base.time import Instant"),
        (is_repeatable, "live/a.py", "import time"),
        (imports_downwards, "twin/a.py", "from trainmaster.core.engine import Engine"),
        (imports_downwards, "cli/a.py", "from trainmaster.live import config\nfrom trainmaster import __version__"),
        (imports_downwards, "live/a.py", "from trainmaster.core import events"),
        (has_short_functions, "a.py", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)),
        (is_short, "a.py", "x = 1\n" * FILE_LINES),
        (opens_with_a_docstring, "a.py", '"""Idea."""'),
        (swallows_nothing, "a.py", "try:\n    f()\nexcept OSError as e:\n    g(e)\nwith suppress(OSError): pass"),
        (has_no_left_overs, "a.md", "todo list, mastodon"),
        (names_no_private_place, "a.md", "the directory of work/ and home/work/x"),
    ],
)
def test_a_rule_lets_the_rest_pass(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, text)) == []
