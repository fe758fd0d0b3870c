"""The reference trainer at a slow pace until a file appears: a test decides how long the job lasts.

python slow.py FILE SECONDS_A_STEP ARGUMENTS...
"""

import sys
import time
from pathlib import Path
from typing import Any

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

ends, pace_s = Path(sys.argv[1]), float(sys.argv[2])
report = Session.report


def slow_report(session: Session, step: int, **told: Any) -> None:
    if not ends.exists():
        time.sleep(pace_s)
    report(session, step, **told)


Session.report = slow_report  # type: ignore[method-assign]
sys.exit(main(sys.argv[3:]))
