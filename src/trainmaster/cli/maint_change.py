"""`trainmaster maint pause | resume | abort | cancel | promote`, and `watch`: acting on what was asked for."""

import sys
from typing import Final

import click

from trainmaster.cli import maint_ask, maint_follow
from trainmaster.cli.client import Client, complete_maintenance, complete_operations, complete_trains, connect
from trainmaster.cli.errors import Failed, PartlyDone, UserError, WrongUsage
from trainmaster.cli.maint_plan_page import print_plan
from trainmaster.cli.maint_show import OPERATION_ID, kind_of
from trainmaster.cli.maint_words import operation_path, rollout_path, scope_text, train_path, work_text
from trainmaster.cli.options import Change, Command, changes, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.words import DURATION
from trainmaster.core.base.hostlist import fold
from trainmaster.core.maintenance.capacity import Share
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.core.words import count_text
from trainmaster.live.maintfile import Asked
from trainmaster.live.server.maintenance_resources import (
    MaintenanceChange,
    MaintenanceReport,
    OperationDetail,
    OperationView,
    RolloutDetail,
    TrainDetail,
    TrainRequest,
)

_moving = click.argument("name", metavar="TRAIN|ROLLOUT", shell_complete=complete_trains)
_CODES: Final = (0, 1, 2, 3, 5, 6)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint pause weekly --reason "launch week"', "nothing new begins"),
        ("trainmaster maint pause weekly --dry-run", "what that means now"),
        ('trainmaster maint pause rollout-3 --reason "looks odd" --yes', "a rollout; for scripts"),
    ],
    exit_codes=_CODES,
)
@_moving
@changes
@shows
def pause(name: str, change: Change, output: Output) -> None:
    """Let a train or a rollout begin nothing new. What is under way goes on to its end."""
    _moved("pause", name, change, output)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint resume weekly --reason "launch is over"', "a train that was paused"),
        ('trainmaster maint resume rollout-3 --reason "more time"', "a rollout that was paused, or is held"),
        ("trainmaster maint resume weekly --dry-run", "what that means now"),
    ],
    exit_codes=_CODES,
)
@_moving
@changes
@shows
def resume(name: str, change: Change, output: Output) -> None:
    """Let a paused train or rollout go on, or give a held rollout more time."""
    _moved("resume", name, change, output)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint abort weekly --reason "wrong versions"', "ends the train and its present stop"),
        ("trainmaster maint abort weekly --dry-run", "what it would take back"),
        ('trainmaster maint abort rollout-3 --reason "superseded"', "hosts that have the version keep it"),
    ],
    exit_codes=_CODES,
)
@_moving
@changes
@shows
def abort(name: str, change: Change, output: Output) -> None:
    """End a train or a rollout. What was not started is cancelled everywhere; nothing is left half done."""
    _moved("abort", name, change, output)


def _moved(verb: str, name: str, change: Change, output: Output) -> None:
    client = connect()
    if OPERATION_ID.fullmatch(name):
        fix = f'trainmaster maint cancel {name} --reason "..."' if verb == "abort" else "cancel it and ask again"
        raise WrongUsage(f"{name} is an operation, not a train or a rollout", f"only those can be {_past(verb)}", fix)
    if kind_of(client, name) == "train":
        view = client.get(train_path(name), TrainDetail).train
        stop = f", {view.stop.open} of {count_text(view.stop.units, 'unit')} under way" if view.stop is not None else ""
        _send(client, train_path(name, verb), f"{verb} train {name} ({view.state}{stop})", change, output)
        return
    one = client.get(rollout_path(name), RolloutDetail).rollout
    stage = f"{one.state}, stage {one.stage} of {one.stages}"
    what = f"{one.component} {one.version}, {stage}, {count_text(one.carriers, 'host')} with it"
    path = rollout_path(name, "stop" if verb == "abort" else verb)
    _send(client, path, f"{verb} rollout {name} ({what})", change, output)


def _past(verb: str) -> str:
    return {"pause": "paused", "resume": "resumed", "abort": "aborted"}[verb]


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint cancel op-12 --reason "not needed"', "asks first"),
        ("trainmaster maint cancel op-12 --dry-run", "what it would take back"),
        ('trainmaster maint cancel op-12 op-13 --reason "not needed" --yes', "several"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6, 7),
)
@click.argument("names", metavar="OP...", nargs=-1, required=True, shell_complete=complete_operations)
@changes
@shows
def cancel(names: tuple[str, ...], change: Change, output: Output) -> None:
    """Take operations back, everywhere.

    One that runs is asked to end: its present step ends first, then it is undone if it can be. One whose steps are
    through is not taken back.
    """
    client = connect()
    wrong = [name for name in names if not OPERATION_ID.fullmatch(name)]
    if wrong:
        raise WrongUsage(f"{wrong[0]!r} is not the id of an operation", "an id is op-NUMBER", "trainmaster maint ls")
    found = [client.get(operation_path(name), OperationDetail).operation for name in dict.fromkeys(names)]
    texts = [f"ask {_named(view)} to end" if view.state == "running" else f"cancel {_named(view)}" for view in found]
    plans = [_post(client, operation_path(view.id, "cancel"), change, dry_run=True) for view in found]
    if not change.dry_run and any(plan.changed for plan in plans):
        change.confirm("; ".join(texts))
    for number, (view, text, plan) in enumerate(zip(found, texts, plans, strict=True)):
        try:
            report = plan if change.dry_run else _post(client, operation_path(view.id, "cancel"), change)
        except UserError as error:
            if not number:
                raise
            what = f"{number} of {count_text(len(found), 'operation')} taken back; {view.id} is not"
            raise PartlyDone(what, error.what, f"trainmaster maint show {view.id}") from error
        _print(report, text, change, output)


def _named(view: OperationView) -> str:
    """`op-12 (reboot on host/h3, running)`."""
    what = work_text(view.kind, view.component, view.version)
    return f"{view.id} ({what} on {scope_text(view.scope)}, {view.state})"


def _post(client: Client, path: str, change: Change, dry_run: bool = False) -> MaintenanceReport:
    return client.post(path, MaintenanceChange(reason=change.reason, dry_run=dry_run), MaintenanceReport)


def _send(client: Client, path: str, what: str, change: Change, output: Output) -> None:
    """Asks first what it would do; a dry run ends there."""
    report = _post(client, path, change, dry_run=True)
    if not change.dry_run:
        if report.changed:
            change.confirm(what)
        report = _post(client, path, change)
    _print(report, what, change, output)


def _print(report: MaintenanceReport, what: str, change: Change, output: Output) -> None:
    if output.form not in ("table", "wide"):
        output.one("maintenance-report", report, [Column("sentence", lambda item: item.sentence)])
    elif change.dry_run and report.changed:
        sys.stdout.write(f"would {what}\n")
    else:
        sys.stdout.write(f"{report.sentence}\n")
    if change.dry_run:
        say(f"dry run at log index {report.index}: nothing was changed")


# Promotion


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint promote weekly --reason "its advice was right"', "from observe to act"),
        ("trainmaster maint promote weekly --dry-run", "its stops, and whom they would hit"),
        ('trainmaster maint promote rollout-3 --reason "looked at, harmless"', "a held stage passes, at your risk"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6),
)
@_moving
@changes
@shows
def promote(name: str, change: Change, output: Output) -> None:
    """Let a train that only observed act, or a held stage of a rollout pass.

    A train is declared again as it is, with mode act. A stage passes without the evidence that it lacks; the log keeps
    who let it pass, and why.
    """
    client = connect()
    if kind_of(client, name) != "train":
        one = client.get(rollout_path(name), RolloutDetail).rollout
        what = f"{one.component} {one.version}, {one.state} in stage {one.stage} of {one.stages}"
        _send(client, rollout_path(name, "pass"), f"pass the stage of rollout {name} ({what})", change, output)
        return
    detail = client.get(train_path(name), TrainDetail)
    spec = detail.spec
    if detail.train.state == "ended":
        why = detail.train.reason.sentence if detail.train.reason is not None else "nothing of it goes on"
        raise Failed(f"train {name} has ended", why, "declare it again: trainmaster maint apply FILE")
    if spec.mode == "act":
        raise Failed(f"train {name} acts already", fix=f"trainmaster maint show {name}")
    made = maint_ask.plan(client, Asked(trains=(TrainRequest(train=wish_of(spec)),)))
    if change.dry_run:
        if output.form in ("table", "wide"):
            print_plan(made, output)
        else:
            output.one(maint_ask.PLAN_KIND, made, [])
        say("dry run: nothing was changed")
        return
    units = sum(len(domain) for domain in spec.domains)
    change.confirm(f"let train {name} take out {count_text(units, 'unit')} in {count_text(len(spec.domains), 'stop')}")
    applied = maint_ask.apply(client, made, change.reason)
    if output.form in ("table", "wide"):
        sys.stdout.write("".join(f"{sentence}\n" for sentence in applied.told))
    else:
        output.one("maintenance-report", applied, [Column("index", lambda item: item.index)])


def wish_of(spec: TrainSpec) -> TrainWish:
    """The wish that gives the same train, but acting."""
    pool = fold(unit for domain in spec.domains for unit in domain)
    named = tuple(fold(domain) for domain in spec.domains)
    return TrainWish(
        name=spec.name,
        hosts=pool if spec.size else "",
        domain_size=Share(hosts=spec.size) if spec.size else None,
        domains=() if spec.size else named,
        cycle=spec.cycle,
        components=spec.components,
        stop_limit=spec.stop_limit,
        evict_after=spec.evict_after,
        emergency=spec.emergency,
        mode="act",
    )


# Watching


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint watch", "all of maintenance, until interrupted"),
        ("trainmaster maint watch op-12", "until it ends; exit code 0: done"),
        ("trainmaster maint watch weekly -o jsonl", "a train, for programs"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6, 130),
)
@click.argument("name", required=False, metavar="[OPERATION|TRAIN|ROLLOUT]", shell_complete=complete_maintenance)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Watch no longer (exit code 6): 90s, 10m, 2h.")
@shows
def watch(name: str | None, timeout: float | None, output: Output) -> None:
    """Tell what happens to maintenance, or to one operation, train or rollout until it ends."""
    client = connect()
    if name is None:
        look = maint_follow.all_of_it(client)
    else:
        ways = {"operation": maint_follow.operation, "train": maint_follow.train, "rollout": maint_follow.rollout}
        look = ways[kind_of(client, name)](client, name)
    teller = maint_follow.Lines(sys.stdout)
    if output.form in ("json", "jsonl", "yaml"):
        teller = maint_follow.Json(sys.stdout)
    elif sys.stdout.isatty():
        teller = maint_follow.Screen(sys.stdout)
    maint_follow.judge(maint_follow.follow(client, look, teller, timeout))
