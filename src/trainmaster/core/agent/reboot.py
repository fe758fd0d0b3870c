"""A reboot as one effect: asked for under one boot id, done under another.

The agent does not live to see it, so it writes down what it is about to do, and the next agent compares boot ids. The
same boot id means that the reboot never happened: it is tried once more, and then it has failed. A host that never
comes back is for the server to notice.

A disk that was lost together with the record makes a host boot once more; that is harmless.
"""

from typing import Final

from trainmaster.core.agent.steps import End, Numbers
from trainmaster.core.base.ids import BootId, EffectId, OperationId
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.effects import RebootHost

TRIES: Final = 2


class RebootRecord(Value):
    """Who boots the host anew, and why: left on its disk for the next agent, and for people who wonder."""

    effect: EffectId
    operation: OperationId
    why: str
    boot: BootId
    """Under which it was asked for."""
    at: Instant
    """Of the first try."""
    tries: int


def next_reboot(effect: RebootHost, record: RebootRecord | None, boot: BootId, at: Instant) -> RebootRecord | End:
    """What to write down before a reboot that comes next, or the outcome."""
    if record is None or record.effect != effect.id:
        return RebootRecord(effect=effect.id, operation=effect.operation, why=effect.why, boot=boot, at=at, tries=1)
    if record.boot != boot:
        took_s = round(in_seconds(max(0, at - record.at)), 3)
        numbers: Numbers = {"boot_before": record.boot, "boot": boot, "tries": record.tries, "reboot_s": took_s}
        return End(outcome="done", detail="", numbers=numbers)
    if record.tries < TRIES:
        return record.but(tries=record.tries + 1)
    detail = f"the host still runs under boot id {boot} after {record.tries} tries: it was not rebooted"
    return End(outcome="failed", detail=detail, numbers={"boot_before": boot, "boot": boot, "tries": record.tries})
