"""The page about job files says what the reader of job files does."""

import re
from pathlib import Path
from typing import Any

import pytest

from trainmaster.core.scheduling.request import JobSpec
from trainmaster.live import jobfile, jobfile_keys
from trainmaster.live.jobfile_keys import KEYS
from trainmaster.live.tomlfile import FileError, Table

NEEDED = {"name": '"llama"', "command": '["python", "train.py"]', "hosts": "4"}
EXAMPLES = {
    **NEEDED, "NAME": '"1"', "dir": '"ckpt"', "every": '"auto"', "agreement_every_steps": "5",
    "protected_until": "2026-12-01T02:00:00Z", "expected_duration_s": "9", "bound_s": "9",
}  # fmt: skip


def written(values: dict[tuple[str, str], str]) -> str:
    """A job file with these values by (table, key)."""
    text = ""
    for table in sorted({table for table, _ in values}):
        text += f"[{table}]\n" if table else ""
        text += "".join(f"{name} = {value}\n" for (of, name), value in values.items() if of == table)
    return text


def load(directory: Path, values: dict[tuple[str, str], str]) -> JobSpec:
    file = directory / "job.toml"
    file.write_text(written(values))
    return jobfile.load(file)


def test_the_keys_of_the_page_are_those_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A file with every key of the page. 2. Its only problem is that two of them exclude each other. 3. What the
    reader asked for is what the page lists, table by table."""
    tables: list[Table] = []
    begin = Table.__init__

    def noted(self: Table, *given: Any) -> None:
        begin(self, *given)
        tables.append(self)

    monkeypatch.setattr(Table, "__init__", noted)
    with pytest.raises(FileError) as caught:
        load(tmp_path, {(key.table, key.name): key.default or EXAMPLES[key.name] for key in KEYS})
    assert [problem.key for problem in caught.value.problems] == ["checkpoint.every"]
    asked = {(".".join(map(str, table.path)), name) for table in tables for name in table._known}
    heads = {("", table) for table in {key.table for key in KEYS} if table}
    listed = {(key.table, key.name) for key in KEYS}
    assert asked == (listed | heads) - {("env", "NAME")}
    source = Path(jobfile.__file__).read_text("utf-8")
    named = set(re.findall(r'\.(?:has|text|texts|integer|number|flag|choice|instant)\(\s*"(\w+)"', source))
    assert named <= {key.name for key in KEYS}


def test_the_defaults_of_the_page_are_those_that_hold(tmp_path: Path) -> None:
    """A file with every default written out means the same as one with nothing but what is required."""
    needed = {("", name): value for name, value in NEEDED.items()}
    defaults = {(key.table, key.name): key.default for key in KEYS if key.default}
    assert len(defaults) > 15
    assert load(tmp_path, {**needed, **defaults}) == load(tmp_path, needed)
    assert {name for name in EXAMPLES if name in NEEDED} == {key.name for key in KEYS if key.absent == "required"}


def test_every_key_has_words() -> None:
    assert all(key.meaning.endswith(".") and len(key.meaning) < 200 for key in jobfile_keys.KEYS)
