"""Waiting for what was asked for: `maint apply --wait`.

Each kind of maintenance ends in its own way. An operation ends by itself. A gang upgrade is over when the server has
none for the job any more; it is known by its operations then: one for each host, of its component and version, and
none at all means that it was dropped. A rollout ends complete, or stopped, or off-boarded; one that is held waits for a
person, and so does who waits for it. A train goes round for ever, so its first cycle is waited for, which ends with a
proof: who was visited, and who was missed. A version is a word; nothing is waited for.
"""

import sys
from collections.abc import Iterator
from typing import Final

from trainmaster.cli.client import Client
from trainmaster.cli.errors import Failed, PartlyDone
from trainmaster.cli.maint_ask import Applied
from trainmaster.cli.maint_follow import (
    ENDED,
    ENDED_ROLLOUTS,
    SINGLY,
    Lines,
    Look,
    Looker,
    Screen,
    follow,
    these,
    train_failed,
)
from trainmaster.cli.maint_words import rollout_path, short_reason, train_path, work_text
from trainmaster.cli.output import say
from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.ids import TrainName
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.plan import GangPlan
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    OPERATIONS_MAX,
    GangView,
    MaintenanceView,
    Operations,
    OperationView,
    RolloutDetail,
    TrainDetail,
)

NAMED: Final = 3
"""So many operations are named one by one."""


def wait_for(client: Client, applied: Applied, since: Instant, timeout_s: float | None) -> None:
    """Until all of it has ended, telling it on stderr. Raises `Failed` or `PartlyDone` unless all ended well. `since`:
    no operation that was asked for before belongs to a gang upgrade."""
    parts = list(_parts(applied))
    if not parts:
        say("there is nothing to wait for: versions are brought by trains and rollouts")
        return
    say(f"waiting for {'; '.join(parts)}")
    teller = Screen(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
    _judge(follow(client, _look(client, applied, since), teller, timeout_s), applied)


def _parts(applied: Applied) -> Iterator[str]:
    names = [answer.operation for answer in applied.operations]
    if names:
        yield ", ".join(names) if len(names) <= NAMED else count_text(len(names), "operation")
    for gang in applied.gangs:
        yield f"the gang upgrade of {gang.name} ({gang.job}) to {gang.component} {gang.version}"
    yield from applied.rollouts
    for train in applied.trains:
        yield f"the first cycle of train {train}"


def _look(client: Client, applied: Applied, since: Instant) -> Looker:
    own = these(client, [answer.operation for answer in applied.operations]) if applied.operations else None
    gangs = {plan.job: plan for plan in applied.gangs}
    cycles: dict[TrainName, int] = {}

    def look() -> Look:
        found = own() if own is not None else Look(index=0, at=0, over=True)
        index, at, over = found.index, found.at, found.over
        operations = {view.id: view for view in found.operations}
        going: tuple[GangView, ...] = ()
        if gangs:
            whole = client.get("/v1/maintenance", MaintenanceView)
            going = tuple(view for view in whole.gangs if view.job in gangs)
            operations.update({view.id: view for plan in gangs.values() for view in _of_gang(client, plan, since)})
            index, at, over = whole.index, whole.at, over and not going
        rollouts = [client.get(rollout_path(name), RolloutDetail) for name in applied.rollouts]
        trains = [client.get(train_path(name), TrainDetail) for name in applied.trains]
        for detail in rollouts:
            index, at = detail.index, detail.at
        for train in trains:
            index, at = train.index, train.at
            first = cycles.setdefault(train.train.name, train.train.cycle)
            over = over and (train.train.cycle > first or train.train.state == "ended")
        return Look(
            index=index,
            at=at,
            operations=tuple(operations.values()),
            gangs=going,
            rollouts=tuple(detail.rollout for detail in rollouts),
            trains=tuple(detail.train for detail in trains),
            over=over and all(detail.rollout.state in ENDED_ROLLOUTS for detail in rollouts),
        )

    return look


def _of_gang(client: Client, plan: GangPlan, since: Instant) -> Iterator[OperationView]:
    """The operations of a gang upgrade, ended ones too: these do not say for which job they were."""
    scopes = {(f"host/{host}",) for host in parse(plan.hosts)}
    for view in client.get("/v1/operations", Operations, limit=OPERATIONS_MAX).items:
        of_it = view.component == plan.component and view.version == plan.version and view.scope in scopes
        if of_it and view.requested_at >= since and view.train is None:
            yield view


def _judge(look: Look, applied: Applied) -> None:
    bad = list(_bad(look, applied))
    if not bad:
        return
    total = len(look.operations) + len(applied.rollouts) + len(applied.trains)
    total += sum(not _has_operations(look, plan) for plan in applied.gangs)
    text = "\n".join(sentence for _, sentence in bad[:SINGLY])
    error = Failed if len(bad) == total else PartlyDone
    raise error(f"{len(bad)} of {total} ended otherwise than done", text, bad[0][0])


def _has_operations(look: Look, plan: GangPlan) -> bool:
    return any(view.component == plan.component and view.version == plan.version for view in look.operations)


def _bad(look: Look, applied: Applied) -> Iterator[tuple[str, str]]:
    """What did not end well: the command that shows it, and a sentence."""
    show = "trainmaster maint show"
    for view in look.operations:
        if view.state in ENDED and view.state != "done":
            yield f"{show} {view.id}", _ended(f"{view.id} {view.state}", view.reason)
    for plan in applied.gangs:
        if not _has_operations(look, plan):
            what = work_text("upgrade", plan.component, plan.version)
            told = f"the gang {what} of {plan.name} was dropped: the job had no hosts any more"
            yield f"trainmaster job show {plan.job}", told
    for rollout in look.rollouts:
        if rollout.state != "complete":
            yield f"{show} {rollout.id}", _ended(f"{rollout.id} {rollout.state}", rollout.reason)
    for train in look.trains:
        failed = train_failed(train)
        if train.missed_before and not failed:
            failed = f"train {train.name}: its cycle missed {train.missed_before} of {count_text(train.units, 'unit')}"
        if failed:
            yield f"{show} {train.name}", failed


def _ended(what: str, reason: Reason | None) -> str:
    return f"{what}: {short_reason(reason)}" if reason is not None else what
