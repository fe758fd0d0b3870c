"""Settings: which source wins, and what is refused."""

from pathlib import Path

import pytest

from trainmaster.live.config import Config, SettingError, docs, resolve
from trainmaster.live.tomlfile import FileError


def test_the_nearest_source_wins(tmp_path: Path) -> None:
    """1. All five sources say something. 2. Flag, variable, user, site, default win in this order."""
    site, user = tmp_path / "site.toml", tmp_path / "trainmaster" / "config.toml"
    user.parent.mkdir()
    site.write_text('server = "http://site"\noutput = "json"\ncolor = "never"\nreadonly = true\n')
    user.write_text('server = "http://user"\noutput = "yaml"\ntoken_file = "secret"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": "/state", "TRAINMASTER_OUTPUT": "wide"}
    environ |= {"TRAINMASTER_SERVER": "http://variable", "TRAINMASTER_JOB": "job-1"}
    found = resolve({"server": "http://flag"}, environ, site)
    assert found.config == Config(
        server="http://flag",
        token_file=str(user.parent / "secret"),
        run_dir="/state/trainmaster",
        output="wide",
        color="never",
        readonly=True,
    )
    assert found.origins == {
        "server": "flag --server",
        "token_file": f"file {user}",
        "run_dir": "default",
        "output": "environment TRAINMASTER_OUTPUT",
        "color": f"file {site}",
        "readonly": f"file {site}",
        "insecure": "default",
    }


def test_defaults_follow_the_home(tmp_path: Path) -> None:
    found = resolve({}, {"HOME": "/h"}, tmp_path / "none").config
    assert found.run_dir == "/h/.local/state/trainmaster"
    assert found.token_file == "/h/.local/state/trainmaster/tokens/operator.token"
    moved = resolve({"run_dir": "/r"}, {"HOME": "/h"}, tmp_path / "none").config
    assert moved.token_file == "/r/tokens/operator.token"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("0", False), ("off", False), ("", False)])
def test_yes_and_no(text: str, value: bool, tmp_path: Path) -> None:
    assert resolve({}, {"HOME": "/h", "TRAINMASTER_READONLY": text}, tmp_path / "none").config.readonly is value


def test_refuses_bad_values(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="neither yes nor no"):
        resolve({}, {"HOME": "/h", "TRAINMASTER_READONLY": "maybe"}, tmp_path / "none")
    with pytest.raises(SettingError, match="flag --color: 'blue' is not a value of color; use one of auto"):
        resolve({"color": "blue"}, {"HOME": "/h"}, tmp_path / "none")
    (tmp_path / "site.toml").write_text('run-dir = "x"\nreadonly = 1\n')
    with pytest.raises(FileError) as caught:
        resolve({}, {"HOME": "/h"}, tmp_path / "site.toml")
    assert [str(problem) for problem in caught.value.problems] == [
        "line 1: run-dir: this key is not known; did you mean run_dir?",
        "line 2: readonly: this is a whole number; write true or false",
    ]


def test_the_list_of_settings_is_a_decision() -> None:
    """1. A new setting changes this list, so that it is chosen and not slipped in. 2. Each has a line of doc."""
    assert list(docs()) == ["server", "token_file", "run_dir", "output", "color", "readonly", "insecure"]
    assert all(text.endswith(".") for text in docs().values())
