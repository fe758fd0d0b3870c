"""Follow maintenance as it happens: for `maint watch`, and for `maint apply --wait` (`maint_wait.py`).

The log's stream says that something happened, not what became of operations: most of their edges are taken on the
outcome of an effect, which names none. So after events, and every two seconds in any case, the server is asked how
things are, and what changed is told, with operations folded that changed alike.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

from trainmaster.cli.client import Client, Pause
from trainmaster.cli.errors import Failed, PartlyDone, Unreachable
from trainmaster.cli.follow import ASK_AT_MOST_EVERY_S, ASK_EVERY_S
from trainmaster.cli.maint_words import operation_path, rollout_path, scope_text, short_reason, train_path, work_text
from trainmaster.cli.output import duration_text
from trainmaster.cli.words import clock_text, counts_text, reason_text
from trainmaster.core.base.ids import OperationId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import Value, encode
from trainmaster.core.maintenance import events as asked
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    OPERATIONS_MAX,
    GangView,
    MaintenanceView,
    OperationDetail,
    Operations,
    OperationView,
    RolloutDetail,
    RolloutView,
    TrainDetail,
    TrainView,
)
from trainmaster.live.server.resources import LoggedEvent

ENDED: Final = ("done", "failed", "off-boarded", "cancelled")
ENDED_ROLLOUTS: Final = ("complete", "stopped", "off-boarded")
SINGLY: Final = 8
"""So many operations are asked for one by one; more, by the list."""

_TOLD: Final = (
    asked.CatalogueDeclared, asked.CapacityDeclared, asked.TrainDeclared, asked.VersionTargeted, asked.RolloutDeclared,
    asked.TrainPaused, asked.TrainResumed, asked.TrainAborted, asked.RolloutPaused, asked.RolloutPassed,
    asked.RolloutResumed, asked.RolloutStopped, asked.GangUpgradeRequested, asked.OperationCancelled,
)  # fmt: skip
"""Events that are told as they are; requests of operations show as operations."""


class Look(Value):
    """How things are."""

    index: int
    at: int
    operations: tuple[OperationView, ...] = ()
    trains: tuple[TrainView, ...] = ()
    rollouts: tuple[RolloutView, ...] = ()
    gangs: tuple[GangView, ...] = ()
    over: bool = False
    """Nothing more will come of it."""


Looker = Callable[[], Look]


# What is looked at


def all_of_it(client: Client) -> Looker:
    def look() -> Look:
        whole = client.get("/v1/maintenance", MaintenanceView)
        found = client.get("/v1/operations", Operations, limit=OPERATIONS_MAX)
        return Look(
            index=found.index,
            at=found.at,
            operations=found.items,
            trains=whole.trains,
            rollouts=whole.rollouts,
            gangs=whole.gangs,
        )

    return look


def operation(client: Client, name: str) -> Looker:
    def look() -> Look:
        found = client.get(operation_path(name), OperationDetail)
        over = found.operation.state in ENDED
        return Look(index=found.index, at=found.at, operations=(found.operation,), over=over)

    return look


def train(client: Client, name: str) -> Looker:
    def look() -> Look:
        found = client.get(train_path(name), TrainDetail)
        mine = client.get("/v1/operations", Operations, train=name, limit=OPERATIONS_MAX).items
        over = found.train.state == "ended"
        return Look(index=found.index, at=found.at, operations=mine, trains=(found.train,), over=over)

    return look


def rollout(client: Client, name: str) -> Looker:
    def look() -> Look:
        found = client.get(rollout_path(name), RolloutDetail)
        mine = client.get("/v1/operations", Operations, rollout=name, limit=OPERATIONS_MAX).items
        over = found.rollout.state in ENDED_ROLLOUTS
        return Look(index=found.index, at=found.at, operations=mine, rollouts=(found.rollout,), over=over)

    return look


def these(client: Client, names: Sequence[OperationId]) -> Looker:
    """Operations by id."""
    seen: dict[OperationId, OperationView] = {}

    def look() -> Look:
        rest = [name for name in names if name not in seen or seen[name].state not in ENDED]
        index = at = 0
        if len(rest) > SINGLY:
            found = client.get("/v1/operations", Operations, limit=OPERATIONS_MAX)
            index, at = found.index, found.at
            listed = {view.id: view for view in found.items}
            seen.update({name: listed[name] for name in rest if name in listed})
            rest = [name for name in rest if name not in listed][:SINGLY]
        for name in rest:
            detail = client.get(operation_path(name), OperationDetail)
            index, at, seen[name] = detail.index, detail.at, detail.operation
        over = len(seen) == len(names) and all(view.state in ENDED for view in seen.values())
        return Look(index=index, at=at, operations=tuple(seen.values()), over=over)

    return look


# Telling


class Lines:
    """A line a change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def event(self, item: LoggedEvent) -> None:
        self._write(f"{clock_text(item.event.at)}  {item.sentence}")

    def changed(self, old: Look | None, new: Look) -> None:
        for line in lines(old, new):
            self._write(f"{clock_text(new.at)}  {line}")

    def connection(self, lost: str) -> None:
        sys.stderr.write(f"the server went away ({lost}); trying again\n" if lost else "the server is back\n")

    def end(self) -> None:
        pass

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class Json(Lines):
    """A value a line: events, and whatever changed."""

    def event(self, item: LoggedEvent) -> None:
        self._tagged("event", item)

    def changed(self, old: Look | None, new: Look) -> None:
        for view in _changed_operations(old, new):
            self._tagged("operation", view)
        for train_view in new.trains:
            if old is None or train_view not in old.trains:
                self._tagged("train", train_view)
        for rollout_view in new.rollouts:
            if old is None or rollout_view not in old.rollouts:
                self._tagged("rollout", rollout_view)

    def _tagged(self, kind: str, value: Value) -> None:
        self._write(f'{{"schema":"trainmaster.{kind}/v1",{encode(value).decode()[1:]}')


class Screen(Lines):
    """What happens scrolls by; the last line says how things are and is redrawn."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._line = ""

    def changed(self, old: Look | None, new: Look) -> None:
        self._line = status_line(new)
        super().changed(old, new)
        self._draw()

    def connection(self, lost: str) -> None:
        self._line = f"no server ({lost})" if lost else "the server is back"
        self._draw()

    def end(self) -> None:
        self._stream.write("\r\033[K")
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write("\r\033[K")
        super()._write(line)
        self._draw()

    def _draw(self) -> None:
        import shutil

        self._stream.write("\r\033[K" + self._line[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()


def status_line(look: Look) -> str:
    """How things are, in one line."""
    counts: dict[str, int] = {}
    for view in look.operations:
        if view.state not in ENDED:
            counts[view.state] = counts.get(view.state, 0) + 1
    parts = [f"operations: {counts_text(counts) or 'none under way'}"]
    ended = sum(view.state in ENDED for view in look.operations)
    parts += [f"{ended} ended"] if ended else []
    parts += [_gang_line(view) for view in look.gangs]
    parts += [_train_line(view) for view in look.trains]
    parts += [_rollout_line(view) for view in look.rollouts]
    return "  ".join(parts)


def lines(old: Look | None, new: Look) -> Iterator[str]:
    """What changed, in words."""
    groups: dict[tuple[str, ...], list[OperationView]] = {}
    for view in _changed_operations(old, new):
        token = str(view.reason.token) if view.reason is not None else ""
        groups.setdefault((view.kind, view.component, view.version, view.state, token), []).append(view)
    for members in groups.values():
        yield _operations_line(members)
    told = [_gang_line(view) for view in old.gangs] if old is not None else []
    for gang in new.gangs:
        if _gang_line(gang) not in told:
            reason = gang.reason if gang.began_at is None else None
            yield _gang_line(gang) + (f": {short_reason(reason)}" if reason is not None else "")
    before = {view.name: _train_line(view) for view in old.trains} if old is not None else {}
    for train_view in new.trains:
        if before.get(train_view.name) != _train_line(train_view):
            reason = train_view.paused or train_view.reason
            yield _train_line(train_view) + (f": {short_reason(reason)}" if reason is not None else "")
    was = {view.id: _rollout_line(view) for view in old.rollouts} if old is not None else {}
    for rollout_view in new.rollouts:
        if was.get(rollout_view.id) != _rollout_line(rollout_view):
            reason = rollout_view.reason
            yield _rollout_line(rollout_view) + (f": {short_reason(reason)}" if reason is not None else "")


def _changed_operations(old: Look | None, new: Look) -> list[OperationView]:
    """Those whose state, or what they wait on, is another one; at the first look, those that have not ended."""
    if old is None:
        alone = len(new.operations) == 1
        return [view for view in new.operations if alone or view.state not in ENDED]
    before = {view.id: _shown(view) for view in old.operations}
    return [view for view in new.operations if before.get(view.id) != _shown(view)]


def _shown(view: OperationView) -> tuple[str, str]:
    return (view.state, str(view.reason.token) if view.reason is not None else "")


def _operations_line(members: Sequence[OperationView]) -> str:
    first = members[0]
    who = first.id if len(members) == 1 else count_text(len(members), "operation")
    where = scope_text(resource for view in members for resource in view.scope)
    what = work_text(first.kind, first.component, first.version)
    verbs = ("has", "have") if first.state == "failed" else ("is", "are")
    verb = verbs[len(members) > 1]
    why = f": {short_reason(first.reason)}" if first.reason is not None else ""
    return f"{who}, {what} on {where}, {verb} {first.state}{why}"


def _gang_line(view: GangView) -> str:
    what = f"the gang upgrade of {view.job} to {view.component} {view.version}"
    if view.began_at is None:
        return f"{what} waits"
    return f"{what} is under way, {count_text(len(view.operations), 'operation')} left"


def _train_line(view: TrainView) -> str:
    if view.state == "ended":
        return f"train {view.name} has ended"
    if view.stop is not None:
        done = view.stop.units - view.stop.open
        where = f"at domain {view.stop.domain} of {view.domains}, {done} of {count_text(view.stop.units, 'unit')}"
        return f"train {view.name} {view.state} {where}"
    paused = " (paused)" if view.paused is not None else ""
    return f"train {view.name} {view.state}{paused} before domain {view.next_domain} of {view.domains}"


def _rollout_line(view: RolloutView) -> str:
    hosts = f"{view.carriers} of {count_text(view.pool, 'host')}"
    return f"rollout {view.id} {view.state} {view.stage} of {view.stages}, {hosts}"


# Following


def follow(client: Client, look: Looker, teller: Lines, timeout_s: float | None = None) -> Look:
    """Tells what changes until it is over; returns the last look. Raises `Unreachable` after `timeout_s`."""
    asked_at = started = time.monotonic()
    now_is, lost, dirty = look(), "", False
    teller.changed(None, now_is)
    try:
        if now_is.over:
            return now_is
        for heard in client.watch(now_is.index + 1):
            now = time.monotonic()
            if timeout_s is not None and now - started > timeout_s:
                raise _too_late(now_is, timeout_s)
            if isinstance(heard, LoggedEvent):
                dirty = True
                if isinstance(heard.event, _TOLD) and _concerns(heard, now_is):
                    teller.event(heard)
            gone = heard.lost if isinstance(heard, Pause) else ""
            if bool(gone) != bool(lost):
                teller.connection(gone)
                asked_at = now  # what was missed comes first, then what became of it
            lost = gone
            if lost or now - asked_at < (ASK_AT_MOST_EVERY_S if dirty else ASK_EVERY_S):
                continue
            before, now_is = now_is, look()
            asked_at, dirty = time.monotonic(), False
            teller.changed(before, now_is)
            if now_is.over:
                return now_is
    finally:
        teller.end()
    raise AssertionError("a watch has no end")


def _concerns(item: LoggedEvent, look: Look) -> bool:
    """Where one thing is followed, its events only; where all is, all."""
    named = [getattr(item.event, field, None) for field in ("operation", "train", "rollout")]
    known = {*(view.id for view in look.operations), *(view.name for view in look.trains)}
    known |= {view.id for view in look.rollouts}
    return not any(named) or any(name in known for name in named)


def _too_late(look: Look, timeout_s: float) -> Unreachable:
    left = [view for view in look.operations if view.state not in ENDED]
    why = f"{left[0].id} is {left[0].state}" if left else status_line(look)
    if left and left[0].reason is not None:
        why += f": {short_reason(left[0].reason)}"
    what = f"not over within {duration_text(seconds(timeout_s))}"
    return Unreachable(what, why, "it goes on; trainmaster maint watch")


def train_failed(view: TrainView) -> str:
    """How a train has ended, if otherwise than by having been everywhere."""
    if view.state != "ended" or (view.reason is not None and view.reason.token is Token.FINISHED):
        return ""
    return f"train {view.name} has ended: {reason_text(view.reason) or 'nobody knows why'}"


def judge(look: Look) -> None:
    """Raises unless what was followed ended well."""
    bad = [view for view in look.operations if view.state in ENDED and view.state != "done"]
    if look.trains or look.rollouts:
        bad = []
    for view in look.rollouts:
        if view.state in ENDED_ROLLOUTS and view.state != "complete":
            raise Failed(f"{view.id} {view.state}", reason_text(view.reason), f"trainmaster maint show {view.id}")
    if not bad:
        return
    text = "\n".join(f"{view.id} {view.state}: {reason_text(view.reason)}" for view in bad[:SINGLY])
    error = Failed if len(bad) == len(look.operations) else PartlyDone
    what = f"{len(bad)} of {count_text(len(look.operations), 'operation')} ended otherwise than done"
    raise error(what, text, f"trainmaster maint show {bad[0].id}")
