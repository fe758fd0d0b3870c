"""`trainmaster ckpt interval`: how often a job should save, without a job: the rules beside each other, and the choice
that a running job with `every = "auto"` would make of the same numbers."""

import re
from typing import Any, Final

import click

from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.words import DURATION
from trainmaster.core.base.hostlist import HOST_LIMIT
from trainmaster.core.base.time import DAY
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint import tiers
from trainmaster.core.checkpoint.choice import Choice, ChoiceProblem, choose
from trainmaster.core.checkpoint.interval import daly_first_s, daly_s, exact_s, young_s
from trainmaster.core.checkpoint.rate import History, Rate, estimate
from trainmaster.core.checkpoint.tiers import Schedule, Tier

_SEEN: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9}(?:\.[0-9]+)?)")
_DAY_S: Final = 86_400.0


class IntervalRow(Value):
    """What a rule says, and what comes of it."""

    rule: str
    interval_s: float
    every_steps: int
    efficiency: float


class SeenType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`12/4000`: failures over host-days."""

    name = "seen"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> History:
        if isinstance(value, History):
            return value
        match = _SEEN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not FAILURES/HOST-DAYS; write 12/4000 for 12 in 4,000 host-days", param, ctx)
        if float(match.group(2)) <= 0:
            self.fail(f"{value!r}: nothing is seen in no time; write 12/4000 for 12 in 4,000 host-days", param, ctx)
        return History(failures=int(match.group(1)), host_time=round(float(match.group(2)) * DAY))


@click.command(
    name="interval",
    cls=Command,
    examples=[
        ("trainmaster ckpt interval --hosts 2048 --save 30s", "by the published rate of failures"),
        ("trainmaster ckpt interval --hosts 2048 --save 30s --failures 3.79 --restart 5m", "by a rate of your own"),
        ("trainmaster ckpt interval --hosts 64 --save 4s --seen 12/4000 --step 2s", "by what was seen"),
        (
            "trainmaster ckpt interval --hosts 2048 --save 5s --lag 1m --memory-save 200ms -o json",
            "with copies in memory, for programs",
        ),
    ],
    exit_codes=(0, 2),
)
@click.option("--hosts", type=click.IntRange(1, HOST_LIMIT), required=True, metavar="N", help="Hosts of the job.")
@click.option("--save", type=DURATION, required=True, help="How long a save into storage holds the job up.")
@click.option("--lag", type=DURATION, default="0s", show_default=True, help="Until the copy is whole, after that.")
@click.option("--restart", type=DURATION, default="5m", show_default=True, help="From a failure to the next step.")
@click.option("--step", type=DURATION, default="5s", show_default=True, help="Of the training.")
@click.option("--failures", type=click.FloatRange(0.0001, 1e9), metavar="RATE", help="In 1,000 days of a host.")
@click.option("--mttf-per-host", type=DURATION, help="Instead: between failures of one host.")
@click.option("--seen", type=SeenType(), metavar="N/HOST-DAYS", help="Instead: failures that were seen.")
@click.option("--memory-save", type=DURATION, help="Copies in memory as well, that hold the job up for so long.")
@click.option("--memory-restart", type=DURATION, default="10s", show_default=True, help="From those.")
@click.option(
    "--memory-share",
    type=click.FloatRange(0.01, 0.99),
    default=0.9,
    show_default=True,
    help="Of the failures that memory survives.",
)
@shows
def interval_command(
    hosts: int,
    save: float,
    lag: float,
    restart: float,
    step: float,
    failures: float | None,
    mttf_per_host: float | None,
    seen: History | None,
    memory_save: float | None,
    memory_restart: float,
    memory_share: float,
    output: Output,
) -> None:
    """Show how often a job should save, and why.

    Rare saves lose work at failures, frequent ones stand still. The rules of Young and Daly, the exact optimum for
    failures without memory, and what a job with `every = "auto"` would choose: whole steps, within its bounds.
    """
    rate = _rate(failures, mttf_per_host, seen)
    storage = Tier(name="storage", failures_per_s=rate.per_s(hosts), stall_s=save, restart_s=restart, lag_s=lag)
    wanted = [storage]
    if memory_save is not None:
        near, all_s = memory_share, storage.failures_per_s
        memory = Tier(name="memory", failures_per_s=near * all_s, stall_s=memory_save, restart_s=memory_restart)
        wanted = [memory, storage.but(failures_per_s=(1 - near) * all_s)]
    try:
        found = choose(wanted, step, rate, hosts)
    except ChoiceProblem as problem:
        raise WrongUsage(problem.what, problem.why, problem.fix) from problem
    rows = _rules(wanted[0], step) if len(wanted) == 1 else []
    rows += _chosen(wanted, found)
    extra = {"unit": "s", "rate": rate, "tiers": wanted, "choice": found}
    output.listing("checkpoint-interval", rows, _COLUMNS, extra=extra)
    say(found.sentence)


def _rate(failures: float | None, mttf_s: float | None, seen: History | None) -> Rate:
    given = [name for name, value in (("--failures", failures), ("--mttf-per-host", mttf_s), ("--seen", seen)) if value]
    if len(given) > 1:
        why = f"{' and '.join(given)} both say how often hosts fail"
        raise WrongUsage("the rate of failures is given twice", why, f"keep {given[0]}")
    if mttf_s == 0:
        raise WrongUsage(
            "--mttf-per-host is zero", "a host that always fails trains nothing", "give a time, such as 250d"
        )
    if failures or mttf_s:
        per_day = failures / 1000 if failures else _DAY_S / (mttf_s or 1)
        return Rate(per_host_day=per_day, failures=0, host_days=0.0, source="given")
    return estimate(seen if seen is not None else History())


def _rules(tier: Tier, step_s: float) -> list[IntervalRow]:
    """Of one tier. What is shorter than a step counts as one."""
    mttf_s = 1 / tier.failures_per_s
    rules = (("young", young_s), ("daly-first", daly_first_s), ("daly", daly_s), ("exact", exact_s))
    rows = []
    for name, rule in rules:
        length_s = rule(tier.stall_s, mttf_s)
        worth = tiers.efficiency(Schedule(interval_s=max(length_s, step_s)), [tier])
        rows.append(
            IntervalRow(rule=name, interval_s=length_s, every_steps=max(round(length_s / step_s), 1), efficiency=worth)
        )
    return rows


def _chosen(wanted: list[Tier], found: Choice) -> list[IntervalRow]:
    """The choice, a row a tier, and half and twice of it."""
    rows = [
        IntervalRow(
            rule="chosen" if len(wanted) == 1 else f"chosen-{row.name}",
            interval_s=row.interval_s,
            every_steps=row.every_steps,
            efficiency=found.efficiency,
        )
        for row in found.tiers
    ]
    near = found.tiers[0]
    for name, factor, worth in (("half", 0.5, found.at_half), ("twice", 2.0, found.at_twice)):
        steps = max(round(near.every_steps * factor), 1)
        rows.append(IntervalRow(rule=name, interval_s=near.interval_s * factor, every_steps=steps, efficiency=worth))
    return rows


def _length(value_s: float) -> str:
    return f"{value_s:,.1f} s" if value_s < 600 else f"{value_s / 60:,.1f} min"


_COLUMNS: Final = [
    Column("rule", lambda row: row.rule),
    Column("interval", lambda row: row.interval_s, _length),
    Column("steps", lambda row: row.every_steps, "{:,}".format),
    Column("efficiency", lambda row: row.efficiency, "{:.2%}".format),
]
