"""Transcripts of `trainmaster twin`: the scripts in `twin/`, of a small scenario, a log of it, and a server with it.

Figures of a simulated fleet change with every policy, and times with the machine; both have tests of their own. Here
every figure is a `#`, so that a script shows what is said and in which words.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.api import AT, TOKEN, FakeApi, world
from tests.transcripts.test_transcripts import replay
from tests.twin.logs import entries_of, hours, lived, write

from trainmaster.cli.scenariofile import load
from trainmaster.twin.run import Run

HERE = Path(__file__).parent
SCRIPTS = HERE / "twin"
SMALL = HERE.parent / "twin" / "small.toml"
FIGURE = re.compile(r"(?:(?<![\w-])[+-]?|(?<=\bop-))\d[\d,.]*")
DURATION = re.compile(r"# (?:d|h|min|s|ms)(?: # (?:h|min|s))?\b")


@pytest.fixture(scope="module")
def run() -> Run:
    return lived(load(SMALL).but(duration=hours(0.5), seed=5))


@pytest.fixture
def home(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Has a log, and a config file that names a server with the state at its end."""
    monkeypatch.setattr("time.time_ns", lambda: AT * 1000)
    write(tmp_path / "log.sqlite", entries_of(run)).close()
    with FakeApi() as api:
        world(api)
        api.answer("GET", "/v1/snapshot", run.world.engine.snapshot().decode())
        config = tmp_path / ".config" / "trainmaster"
        config.mkdir(parents=True)
        (tmp_path / "token").write_text(TOKEN)
        (config / "config.toml").write_text(f'server = "{api.url}"\ntoken_file = "{tmp_path}/token"\n')
        yield tmp_path


def without_figures(script: str, home: Path) -> str:
    """Output lines with a `#` for each figure, and one space where their width made several."""
    lines = []
    for line in script.replace(str(home), "HOME").split("\n"):
        if line.startswith(("$ ", "? ")):
            lines.append(line)
        else:
            lines.append(re.sub(r"(?<=\S) {2,}", "  ", DURATION.sub("# s", FIGURE.sub("#", line))))
    return "\n".join(lines)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(script: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = script.read_text()
    told = replay(stored.replace("HOME/", f"{home}/"), home, monkeypatch)
    now = without_figures(told, home)
    if os.environ.get("TRANSCRIPTS") == "accept":
        script.write_text(now)
    else:
        assert now == stored


def test_a_changed_word_is_noticed() -> None:
    """Figures are left out, words and names are not."""
    home = Path("/nowhere")
    assert without_figures("op-7: 14,198,  2 min 3 s\nh1-2 x", home) == "op-#: #  # s\nh1-2 x"
