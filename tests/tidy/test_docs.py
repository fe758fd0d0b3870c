"""Documents that can be generated are up to date; those that cannot point at things that exist."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "docs" / "generate.py"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE_PATH = re.compile(r"`((?:core|live|cli|ports|training|tests|docs|bench|src)/[\w./-]+)`")
WRITTEN = sorted(
    path
    for pattern in ("*.md", "docs/adr/*.md", "docs/design/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "README.md"
)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The pages are made anew. 2. They are those in docs/reference, to the letter. If not: `make docs`."""
    monkeypatch.delenv("COLUMNS", raising=False)
    made = generator().pages()
    found = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert set(made) == set(found)
    stale = [name for name, text in made.items() if found[name] != text]
    assert stale == [], "out of date; run `make docs`"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_what_a_document_points_at_exists(path: Path) -> None:
    """1. Links to files of the project. 2. Paths in the text, relative to the root or to the package."""
    text = path.read_text("utf-8")
    links = [link for link in LINK.findall(text) if not link.startswith(("http", "mailto:"))]
    missing = [link for link in links if not (path.parent / link).exists()]
    for name in CODE_PATH.findall(text):
        if not (ROOT / name).exists() and not (ROOT / "src" / "trainmaster" / name).exists():
            missing.append(name)
    assert missing == []


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]
    for name in names:
        text = (ROOT / "docs" / "adr" / name).read_text("utf-8")
        heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert heads == ["Context", "Decision", "Rejected", "Consequences"], name
