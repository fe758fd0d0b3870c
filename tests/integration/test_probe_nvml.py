"""NVML through its real Python bindings, and a library that plays GPUs: what each scenario means, and for which GPU."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.fakes import nvml
from tests.fakes.nvml import SLOTS, Gpus
from tests.integration.agent_host import eventually, is_gone

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import OK
from trainmaster.live.agent.health.judge import Judge
from trainmaster.live.agent.health.monitor import policy_index
from trainmaster.live.agent.health.round import Rounds, Seen

pytestmark = pytest.mark.real
PATIENT = SLOTS[2]
DEADLINE_S = 2.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    made = Gpus(tmp_path / "root", tmp_path / "play")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("NVML_PLAY", str(made.path))
    return made


def look(gpus: Gpus, rounds: Rounds | None = None) -> tuple[Seen, dict[str, Finding]]:
    """What the probe saw, and what it says beside that all is well, by unit."""
    found = asyncio.run((rounds or Rounds(gpus.root)).run(["nvml"]))["nvml"]
    findings = Judge(policy_index(""), None, {}).judge("nvml", found, 0).findings
    return found, {finding.unit: finding for finding in findings if finding.answer != OK}


def test_healthy_gpus_say_nothing(gpus: Gpus) -> None:
    """1. Eight GPUs that are well, with a long history of corrected errors. 2. All are read; nothing is said."""
    gpus.say(f"{PATIENT} aggregate-dram 4", f"{PATIENT} reasons 0x4")  # a power cap by software is normal
    seen, said = look(gpus)
    assert sorted(seen.texts) == list(SLOTS)
    assert said == {}


SAID = (
    ("volatile-dram 3", "bad, reset-gpu", "3 uncorrected errors"),
    ("volatile-sram 1", "bad, reset-gpu", "1 uncorrected errors"),
    ("remap 0 1 1 0", "bad, reset-gpu", "waits for a reset"),
    ("remap 0 9 0 1", "bad, rma", "could not be remapped"),
    ("remap 0 2 0 0", "watch, none", "rows were remapped"),
    ("action 1", "bad, reset-gpu", "recovery action is Reset"),
    ("action 2", "bad, reboot", "recovery action is Reboot"),
    ("action 4", "bad, reset-gpu", "recovery action is Drain and Reset"),
    ("lost yes", "bad, reboot", "lost"),
    ("reasons 0x48", "watch, diagnose", "slows the GPU down"),
    ("width 8", "watch, diagnose", "8x wide instead of 16x"),
    ("links 0xd", "watch, diagnose", "NVLink 1 is inactive"),
)


@pytest.mark.parametrize("first", [0, 6])
def test_what_gpus_say(gpus: Gpus, first: int) -> None:
    """1. Six of eight GPUs are not well, each in another way. 2. Each is named by slot, with its answer and the line
    that proves it. 3. The other two are well, and all were read."""
    scenes = dict(zip(SLOTS, SAID[first : first + 6], strict=False))
    gpus.say(*(f"{slot} {line}" for slot, (line, _, _) in scenes.items()))
    seen, said = look(gpus)
    assert sorted(seen.texts) == list(SLOTS)
    assert {unit.removeprefix("gpu ") for unit in said} == set(scenes)
    for slot, (line, answer, words) in scenes.items():
        finding = said[f"gpu {slot}"]
        assert (str(finding.answer), words in finding.summary) == (answer, True), (line, finding)
        assert finding.evidence, line


def test_gpus_that_hang_are_named_and_delay_nobody(gpus: Gpus) -> None:
    """1. A call about one GPU never returns, nor about another, which also ignores SIGTERM. 2. The other six are read
    before the deadline is over. 3. Both are unknown, by slot, and nothing of their processes is left."""
    hanging = SLOTS[2], SLOTS[5]
    gpus.say(f"{hanging[0]} hang remap", f"{hanging[1]} deaf handle")
    rounds = Rounds(gpus.root, patience_s=0.5, deadline_s=DEADLINE_S)
    seen, said = look(gpus, rounds)
    assert sorted(seen.texts) == [slot for slot in SLOTS if slot not in hanging]
    for slot in hanging:
        finding = said[f"gpu {slot}"]
        assert (str(finding.answer), finding.rule) == ("unknown, none", "probe-deadline")
        assert "no answer within 2 s; never read here" in finding.evidence[0]
    assert rounds.corpses() == []


def test_what_can_not_be_killed_is_left_behind_and_not_joined_by_more(gpus: Gpus) -> None:
    """1. A GPU hangs in a process that no signal ends. 2. The next rounds read its neighbours, do not touch it, and say
    that it still hangs. 3. The process goes: the GPU is looked at again."""
    gpus.say(f"{PATIENT} hang ecc")
    rounds = Rounds(gpus.root, kill=lambda process: None, patience_s=0.5, deadline_s=DEADLINE_S)
    look(gpus, rounds)
    (corpse,) = rounds.corpses()
    start = time.monotonic()
    seen, said = look(gpus, rounds)
    assert time.monotonic() - start < DEADLINE_S, "it was asked again"
    assert rounds.corpses() == [corpse]
    assert len(seen.texts) == 7
    assert "an earlier look still hangs" in said[f"gpu {PATIENT}"].summary
    gpus.say()
    os.kill(corpse, 9)
    eventually(lambda: is_gone(corpse))
    seen, said = look(gpus, rounds)
    assert (len(seen.texts), said) == (8, {})


def test_the_library_itself(gpus: Gpus) -> None:
    """1. It refuses to open where GPUs are: unknown. 2. It dies at one GPU: that one is unknown, and the rest is read.
    3. It hangs as it opens: unknown, within the deadline."""
    gpus.say("* init 18")
    _, said = look(gpus)
    assert "version mismatch" in said["host"].summary
    assert str(said["host"].answer) == "unknown, none"
    gpus.say(f"{PATIENT} crash ecc")
    seen, said = look(gpus)
    assert len(seen.texts) == 7
    assert said[f"gpu {PATIENT}"].rule == "probe-unreadable"
    gpus.say("* hang init")
    _, said = look(gpus, Rounds(gpus.root, deadline_s=DEADLINE_S))
    assert [finding.rule for finding in said.values()] == ["probe-deadline"]
