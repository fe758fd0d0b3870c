"""The reference trainer, of which a rank hangs on command: `python hanging.py DIRECTORY ARGUMENTS...`.

At the end of each step a rank takes away `DIRECTORY/RANK` and does what stood in it, once: `stall` (never goes on),
`skip` (leaves out a collective that all others enter).
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

directory = Path(sys.argv[1])
report = Session.report


def asked(rank: int) -> str:
    file = directory / str(rank)
    try:
        word = file.read_text()
    except FileNotFoundError:
        return ""
    file.unlink()
    return word


def troubled_report(session: Session, step: int, **told: Any) -> None:
    word = asked(session.rank)
    while word == "stall":
        time.sleep(1.0)
    if word != "skip":
        dist.barrier()
    report(session, step, **told)


Session.report = troubled_report  # type: ignore[method-assign]
sys.exit(main(sys.argv[2:]))
