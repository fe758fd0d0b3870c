"""The reference trainer, held before the end of one step until a file appears: a test decides when the job may end.

python held.py FILE STEP ARGUMENTS...
"""

import sys
import time
from pathlib import Path
from typing import Any

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

opens, held_step = Path(sys.argv[1]), int(sys.argv[2])
report = Session.report


def held_report(session: Session, step: int, **told: Any) -> None:
    while step == held_step and not opens.exists():
        time.sleep(0.01)
    report(session, step, **told)


Session.report = held_report  # type: ignore[method-assign]
sys.exit(main(sys.argv[3:]))
