"""What `trainmaster explain` knows."""

import json

import pytest

from trainmaster.cli.explain import MACHINES, STATES, state_views
from trainmaster.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_state_has_one_sentence() -> None:
    """1. The sentences are those of the machines' states, no more and no less. 2. Each is a sentence."""
    assert set(STATES) == {f"{machine.name}/{state.value}" for machine in MACHINES for state in type(machine.first)}
    assert all(text[0].isupper() and text.endswith(".") for text in STATES.values())
    assert len(state_views()) == len(STATES)


def test_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "out-failed")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "state:    host/out-failed"
    assert out.splitlines()[2] == "next:     verifying"


def test_a_state_of_several_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """1. Jobs, attempts and operations can have failed. 2. All are listed; MACHINE/STATE names one."""
    _, out, _ = run(capsys, "failed", "-o", "name")
    assert out.split() == ["job/failed", "attempt/failed", "operation/failed"]
    _, out, _ = run(capsys, "Job/Failed", "-o", "json")
    assert json.loads(out)["schema"] == "trainmaster.state/v1"
    assert json.loads(out)["next"] == ["queued"]


def test_a_word_that_is_token_and_state(capsys: pytest.CaptureFixture[str]) -> None:
    """1. `finished` is a token and two states. 2. The token is shown; stderr says where the states are."""
    code, out, err = run(capsys, "finished")
    assert code == 0
    assert out.startswith("token:")
    assert err.splitlines() == [
        "also a state: trainmaster explain job/finished",
        "also a state: trainmaster explain attempt/finished",
    ]


def test_all_states(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--states", "-o", "name")
    assert out.split() == [view.state for view in state_views()]


def test_an_unknown_word_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "drainin")
    assert (code, out) == (3, "")
    assert "trainmaster explain draining" in err
