"""Lines that are passed over unread are those that no pattern would have matched."""

import random
import re
import re._constants as codes
import re._parser as parser
from pathlib import Path
from typing import Any

import pytest

from trainmaster.core.diagnosis import read, remarks, watchdog
from trainmaster.core.diagnosis.evidence import Unusable
from trainmaster.core.diagnosis.quiet import Shapes
from trainmaster.core.recovery import cause, port_conflict

TESTS = Path(__file__).parents[1]
OF_REMARKS = ("_OOM_KILL", "_UNEQUAL", "_STALE", "_HARDWARE", "_TRANSPORT", "_SHOULD_DUMP", "_STORE", "_EXIT",
              "_TIMEOUT", "_OOM", "_FINISHED", "_SUMMARY")  # fmt: skip
OF_WATCHDOGS = ("_CAUGHT", "_COUNTERS", "_STACK", "_BARRIER", "_FINGER", "_STALLED")
PATTERNS: dict[str, re.Pattern[str]] = {
    **{name: getattr(remarks, name) for name in OF_REMARKS},
    **{name: getattr(watchdog, name) for name in OF_WATCHDOGS},
    "ECHO": cause.ECHO,
    "_TAKEN": port_conflict._TAKEN,
}


def drawn(tree: Any, draw: random.Random) -> str:
    """A text that a parsed pattern matches, as short as its repeats allow."""
    text = ""
    for code, value in tree:
        if code is codes.LITERAL:
            text += chr(value)
        elif code is codes.BRANCH:
            text += drawn(draw.choice(value[1]), draw)
        elif code is codes.SUBPATTERN:
            text += drawn(value[3], draw)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = value
            text += "".join(drawn(inner, draw) for _ in range(draw.randint(least, min(int(most), least + 1))))
        elif code is codes.IN:
            kind, first = draw.choice([each for each in value if each[0] is not codes.NEGATE])
            text += {codes.LITERAL: lambda first=first: chr(first), codes.RANGE: lambda first=first: chr(first[0])}.get(
                kind, lambda first=first: {codes.CATEGORY_DIGIT: "7", codes.CATEGORY_SPACE: " "}.get(first, "w")
            )()
        elif code is codes.ANY:
            text += "."
        elif code is codes.NOT_LITERAL:
            text += "("
        else:
            assert code is codes.AT, code
    return text


@pytest.mark.parametrize("name", PATTERNS)
def test_what_a_pattern_matches_has_a_needle(name: str) -> None:
    """1. Texts drawn from each pattern of errors. 2. Those that it matches are never passed over, whatever the case."""
    pattern, draw = PATTERNS[name], random.Random(name)
    matched = 0
    for _ in range(2000):
        text = f"at {drawn(parser.parse(pattern.pattern), draw)}"
        for line in (text, text[3:], text.upper() if pattern.flags & re.IGNORECASE else text):
            if pattern.search(line):
                matched += 1
                assert Shapes().telling([line]) == [0], line
    assert matched > 1000


def test_steps_are_passed_over() -> None:
    """Lines of steps, of memory and of learning rates tell nothing, and the one between them does."""
    usual = [
        "2026-11-30 12:00:01,123 - INFO - step 17 | loss 2.31 | lr 3.0e-04 | grad norm 0.4",
        "[rank3]: memory: 61.20GiB(77.1%)  tps: 7031  mfu: 41.2%",
        " iteration 100/ 5000 | number of skipped iterations: 0 | number of nan iterations: 0 |",
        "saved checkpoint of step 100 done",
        "",
    ] * 3
    assert Shapes().telling(usual) == []
    assert Shapes().telling([*usual, "RuntimeError: CUDA error: unknown error", *usual]) == [15]


def everything(self: Shapes, lines: list[str]) -> list[int]:
    return list(range(len(lines)))


def texts() -> list[tuple[str, str]]:
    files = [path for path in sorted(TESTS.rglob("*")) if path.suffix in (".log", ".txt", ".out", ".err")]
    return [(str(path), path.read_text("utf-8", "replace")) for path in files]


def evidence_of(texts: list[tuple[str, str]]) -> list[object]:
    found: list[object] = []
    for name, text in texts:
        try:
            found.append(read.read_text(name, text))
        except Unusable as error:
            found.append(str(error))
    return found


def test_the_evidence_is_that_of_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. All logs and captures that tests hold, also with usual lines between theirs. 2. The evidence is that of
    every line read."""
    usual = "2026-11-30 12:00:01,123 - INFO - step 17 | loss 2.31\nnothing 5\n"
    cases = texts()
    assert len(cases) > 100
    cases += [(name, "".join(f"{line}\n{usual}" for line in text.split("\n"))) for name, text in cases]
    found = evidence_of(cases)
    monkeypatch.setattr(Shapes, "telling", everything)
    assert found == evidence_of(cases)
