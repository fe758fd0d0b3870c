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


@pytest.mark.parametrize(
    ("line", "answer", "words"),
    [
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
    ],
)  # fmt: skip
def test_what_a_gpu_says(gpus: Gpus, line: str, answer: str, words: str) -> None:
    """1. One of eight GPUs is not well. 2. It is named by slot, with the answer and the line that proves it. 3. The
    other seven were read and are well."""
    gpus.say(f"{PATIENT} {line}")
    seen, said = look(gpus)
    assert sorted(seen.texts) == list(SLOTS)
    assert list(said) == [f"gpu {PATIENT}"]
    finding = said[f"gpu {PATIENT}"]
    assert (str(finding.answer), words in finding.summary) == (answer, True), finding
    assert finding.evidence


@pytest.mark.parametrize("line", ["hang remap", "deaf handle"])
def test_a_gpu_that_hangs_is_named_and_delays_nobody(gpus: Gpus, line: str) -> None:
    """1. A call about one GPU never returns (one also ignores SIGTERM). 2. The other seven are read before its deadline
    is over. 3. It is unknown, by slot, and nothing of the process is left."""
    gpus.say(f"{PATIENT} {line}")
    rounds = Rounds(gpus.root, patience_s=0.5, deadline_s=DEADLINE_S)
    seen, said = look(gpus, rounds)
    assert sorted(seen.texts) == [slot for slot in SLOTS if slot != PATIENT]
    finding = said[f"gpu {PATIENT}"]
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
