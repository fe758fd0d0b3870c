"""The reference trainer, whose pace a test sets while it runs: a file says how many seconds each step takes at least.

python throttled.py FILE ARGUMENTS...
"""

import sys
import time
from pathlib import Path
from typing import Any

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

pace = Path(sys.argv[1])
report = Session.report


def throttled_report(session: Session, step: int, **told: Any) -> None:
    began = time.monotonic()
    while not session.asked and time.monotonic() - began < float(pace.read_text()):
        time.sleep(0.002)
    report(session, step, **told)


Session.report = throttled_report  # type: ignore[method-assign]
sys.exit(main(sys.argv[2:]))
