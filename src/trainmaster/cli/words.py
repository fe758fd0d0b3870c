"""Words and flags that the nouns of the server share: durations, clock times, states, reasons, small tables."""

import re
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from trainmaster.cli.output import Column, Output
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.reasons import Reason
from trainmaster.core.words import count_text
from trainmaster.live.server.resources import HostView, JobView

ENDED: Final = frozenset({"finished", "failed", "cancelled"})
"""States of a job that only a person leaves."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d)")
_LONGEST_S: Final = 366 * 86_400.0


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`90s`, `10m`, `2h`, `1h30m`, in seconds. A bare number is refused: seconds to some, minutes to users of Slurm."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower().replace(" ", "")
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            hint = (
                f"write a unit: {text}s or {text}m"
                if text.isascii() and text.isdigit()
                else "write it as 90s, 10m, 2h or 1h30m"
            )
            self.fail(f"{value!r} is not a duration; {hint}", param, ctx)
        total = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if total > _LONGEST_S:
            self.fail(f"{value!r} is longer than a year", param, ctx)
        return total


DURATION: Final = DurationType()


def clock_text(at: int) -> str:
    """The time of day of an instant (microseconds), UTC: `12:03:04Z`."""
    return time.strftime("%H:%M:%SZ", time.gmtime(at // 1_000_000))


def job_state(job: JobView) -> str:
    """One word: an active job shows the state of its attempt."""
    return job.attempt_state if job.state == "active" and job.attempt_state else job.state


def reason_text(reason: Reason | None) -> str:
    return f"{reason.token}: {reason.sentence}" if reason else ""


def holds_text(host: HostView) -> str:
    return "; ".join(f"{hold.owner}: {hold.reason}" for hold in host.holds)


def visit_text(host: HostView) -> str:
    """`applying op-3, then op-4 op-5, one reboot to come (train weekly)`."""
    visit = host.visit
    if visit is None:
        return ""
    facts = [visit.phase + (f" {visit.current}" if visit.current is not None else "")]
    following = (*visit.pending, *visit.wide)
    if following:
        facts.append(f"then {' '.join(following)}")
    if visit.applied:
        facts.append(f"{' '.join(visit.applied)} carried out")
    if visit.needs_reboot and not visit.rebooting:
        facts.append("one reboot to come")
    return ", ".join(facts) + (f" (train {visit.train})" if visit.train is not None else "")


def why_host(host: HostView) -> str:
    """The shortest true answer to "why is it like that"."""
    return holds_text(host) if host.holds else host.reason


def counts_text(counts: dict[str, int]) -> str:
    """`ready 10, draining 1`, the most frequent first."""
    return ", ".join(
        f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def hosts_text(hosts: Sequence[str]) -> str:
    """`4 hosts h[1-4]`."""
    return f"{count_text(len(hosts), 'host')} {fold(hosts)}" if hosts else "no hosts"


def loss_text(loss: float | None) -> str:
    return f"{loss:.4f}" if loss is not None else "not finite"


def section(title: str) -> None:
    sys.stdout.write(f"\n{title}\n")


def small_table(output: Output, items: Sequence[Any], columns: Sequence[Column]) -> None:
    """A table inside a page of words: the page's own --columns and --sort do not apply to it."""
    inner = Output(form=output.form, columns=(), sort="", header=True, color="always" if output.color else "never")
    inner.listing("row", items, columns)
