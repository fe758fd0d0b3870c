"""What a command will import of PyTorch and of ours, read without running it."""

from pathlib import Path

import pytest

from trainmaster.core.agent.command import parse
from trainmaster.live.agent.imports import PYTORCH, needed
from trainmaster.training import PRELOAD


def of(monkeypatch: pytest.MonkeyPatch, folder: Path, *command: str, **files: str) -> tuple[str, ...]:
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(folder)
    python = parse(command or ("python", "train.py", "--steps", "3"))
    assert python is not None
    return needed(python)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import trainmaster.training as tm", PRELOAD),
        ("from trainmaster import training", PRELOAD),
        ("def main():\n    from trainmaster.training.runtime import Session", PRELOAD),
        ("import torch.nn as nn", PYTORCH),
        ("try:\n    from torch import optim\nexcept ImportError:\n    pass", PYTORCH),
        ("import json, torchvision_of_mine", ()),
        ("import trainmaster", ()),
        ("print('import torch')", ()),
        ("this is no Python", ()),
        ("", ()),
    ],
)
def test_own_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert of(monkeypatch, tmp_path, train=text) == expected


def test_modules_beside_the_script_are_looked_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1. The script imports a module beside it, that one a package, and that one ours by a relative import. 2. Two
    modules that import each other end."""
    deep = of(
        monkeypatch,
        tmp_path,
        train="import first",
        first="from pack import loop",
        pack__in____init__="",
        pack__in__loop="from . import inner\nimport first",
        pack__in__inner="from trainmaster import training",
    )
    assert deep == PRELOAD
    assert (
        of(monkeypatch, tmp_path, train="import first", first="import second", second="import first, torch") == PYTORCH
    )


def test_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1. A module that is started by its name. 2. One of ours. 3. One that is not there, and a script that is not."""
    module = ("python", "-m", "pack.go")
    assert of(monkeypatch, tmp_path, *module, pack__in____init__="", pack__in__go="import torch") == PYTORCH
    assert of(monkeypatch, tmp_path, "python", "-m", "trainmaster.training.reference") == PRELOAD
    assert of(monkeypatch, tmp_path, "python", "-m", "trainmaster.live.verification.group") == PYTORCH
    assert of(monkeypatch, tmp_path, "python", "-m", "no.such.module") == ()
    assert of(monkeypatch, tmp_path, "python", "missing.py") == ()
