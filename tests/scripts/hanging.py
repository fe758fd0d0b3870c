"""The reference trainer, of which a rank hangs on command: `python hanging.py DIRECTORY ARGUMENTS...`.

At the end of each step a rank takes away `DIRECTORY/RANK` and does what stood in it, once: `stall` (never goes on),
`skip` (leaves out a collective that all others enter). That is a barrier, and one that hangs; with `small` in DIRECTORY
it is a small sum, and gloo ends a rank that then gets the bytes of a larger one.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainmaster.training.reference.main import main
from trainmaster.training.runtime import Session

directory = Path(sys.argv[1])
report = Session.report
small = (directory / "small").exists()


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
    if word != "skip" and small:
        dist.all_reduce(torch.zeros(1))
    elif word != "skip":
        dist.barrier()
    report(session, step, **told)


Session.report = troubled_report  # type: ignore[method-assign]
sys.exit(main(sys.argv[2:]))
