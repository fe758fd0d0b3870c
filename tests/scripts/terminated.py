"""Writes a file when it is asked to end, as a script does that tidies up.

python terminated.py DIRECTORY
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

directory, rank = Path(sys.argv[1]), os.environ["RANK"]


def end(number: int, frame: FrameType | None) -> None:
    (directory / f"asked-{rank}").write_text(signal.Signals(number).name)
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
(directory / f"up-{rank}").touch()
time.sleep(60)
