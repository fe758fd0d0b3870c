"""The reference trainer, whose pace a test sets while it runs: a file says how many seconds each step takes at least,
and for how long the copy of a snapshot is held before it is whole.

python throttled.py FILE ARGUMENTS...
"""

import sys
import time
from pathlib import Path
from typing import Any

from trainmaster.storage.arena import Part
from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

pace = Path(sys.argv[1])
report, commit = Session.report, Part.commit


def paces() -> tuple[float, float]:
    step_s, *copy_s = pace.read_text().split()
    return float(step_s), float(copy_s[0]) if copy_s else 0.0


def held_commit(part: Part, *told: Any) -> None:
    began = time.monotonic()
    while time.monotonic() - began < paces()[1]:
        time.sleep(0.002)
    commit(part, *told)


def throttled_report(session: Session, step: int, **told: Any) -> None:
    began = time.monotonic()
    while not session.asked and time.monotonic() - began < paces()[0]:
        time.sleep(0.002)
    report(session, step, **told)


Session.report = throttled_report  # type: ignore[method-assign]
Part.commit = held_commit  # type: ignore[method-assign]
sys.exit(main(sys.argv[2:]))
