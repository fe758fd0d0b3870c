"""Our own log of events as evidence: how the ranks of a job ended (`trainmaster event tail --job J -o jsonl`).

Of one membership the failed exits are remarks, with their times; echoes are told from causes as the engine does. When
several memberships failed, each is an ending with its first cause, so that "the same at every start" shows.
"""

from typing import Any

import msgspec

from trainmaster.core.agent.failure import signal_name
from trainmaster.core.diagnosis.evidence import Ended, Evidence, Remark, What
from trainmaster.core.diagnosis.stamp import of_epoch
from trainmaster.core.recovery.cause import describe, is_echo
from trainmaster.core.recovery.events import WorkerExited, WorkersExited

_TYPES = ("worker-exited", "workers-exited")


def is_log(tree: object) -> bool:
    """Whether rows are of the log, and some tell of ends."""
    rows = tree.get("items") if isinstance(tree, dict) else tree
    return isinstance(rows, list) and any(_type(row) in _TYPES for row in rows)


def _type(row: object) -> str:
    event = row.get("event") if isinstance(row, dict) else None
    return str(event.get("type", "")) if isinstance(event, dict) else ""


def read(file: str, tree: Any) -> Evidence:
    """The failed exits in a log; those of another version that can't be read are counted."""
    rows = tree["items"] if isinstance(tree, dict) else tree
    failed: dict[tuple[str, int], list[WorkerExited]] = {}
    hosts: dict[int, str] = {}
    odd = 0
    for row in rows:
        if _type(row) not in _TYPES:
            continue
        try:
            event = msgspec.convert(row["event"], WorkerExited | WorkersExited)
        except msgspec.ValidationError:
            odd += 1
            continue
        if isinstance(event, WorkerExited):
            hosts[event.rank] = event.host
            if event.how == "failed":
                failed.setdefault((event.attempt, event.epoch), []).append(event)
    notes = (f"{file}: {odd} events are of another version and were left out",) if odd else ()
    causes = {key: _first(exits) for key, exits in failed.items()}
    several = [exit for exit in causes.values() if exit is not None]
    endings: tuple[Ended, ...] = ()
    if len(several) > 1 and len({describe(exit) for exit in several}) == 1:
        endings = tuple(
            Ended(number=number, host=exit.host, exit_code=exit.exit_code or 1, uptime_s=None, error=describe(exit),
                  place=file, steps=max(exit.step, 0))
            for number, exit in enumerate(several)
        )  # fmt: skip
    newest = failed[max(failed)] if failed else []
    remarks = tuple(_remark(exit, file, order) for order, exit in enumerate(newest))
    known = tuple(hosts.items())
    return Evidence(remarks=() if endings else remarks, endings=endings, hosts=known, notes=notes)


def _first(exits: list[WorkerExited]) -> WorkerExited | None:
    return min((exit for exit in exits if not is_echo(exit)), key=lambda exit: exit.at, default=None)


def _remark(exit: WorkerExited, file: str, order: int) -> Remark:
    what = What.ECHO if is_echo(exit) else What.EXCEPTION
    text = describe(exit)
    if exit.signal is not None and (exit.failure is None or exit.failure.exception == signal_name(exit.signal)):
        what, text = What.KILLED, f"killed by {signal_name(exit.signal)}"
    at = exit.failure.at if exit.failure is not None and exit.failure.at else exit.at
    return Remark(what=what, text=text, rank=exit.rank, host=exit.host, at_us=of_epoch(at), order=order, place=file)
