"""The reference trainer, the slower the nearer it comes to its end, until a file appears; no loss depends on it.

    python -m trainmaster.demo.paced FILE STEPS ARGUMENTS...

The maintenance demo takes as long as its hosts need, on whatever machine it runs, and the job has to last until then.
A rank leaves its host between two steps, so whoever is asked for something sleeps no longer.
"""

import sys
import time
from pathlib import Path
from typing import Any, Final

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

STRETCH_S: Final = 60.0
"""Shared by the steps that are left: so a job of 60 steps sleeps for up to five minutes in all."""
LOOK_S: Final = 0.05


def sleep_s(step: int, steps: int) -> float:
    """How long this step is stretched."""
    return STRETCH_S / max(steps - step, 1)


def run(ends: Path, steps: int, arguments: list[str]) -> int:
    report = Session.report

    def paced(session: Session, step: int, **told: Any) -> None:
        until = time.monotonic() + sleep_s(step, steps)
        while time.monotonic() < until and not ends.exists() and not session.asked:
            time.sleep(LOOK_S)
        report(session, step, **told)

    Session.report = paced  # type: ignore[method-assign, assignment]
    return main(["--steps", str(steps), *arguments])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
