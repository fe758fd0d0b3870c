"""Does every step of a run have its place? A pure function of what the run left behind.

Three witnesses that know nothing of each other are compared: the metrics (one line a step, written by rank 0), the log
of the server (what agents told of steps, restores and exits), and the account that is made of the log. Each complaint
is one sentence; a run without any is in order.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trainmaster.core.accounting.report import JobAccount
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.value import Value
from trainmaster.core.events import AnyEvent
from trainmaster.core.fleet.events import AgentDisconnected, AgentSilent
from trainmaster.core.recovery.cause import ECHO
from trainmaster.core.recovery.events import EpochPhase, WorkerExited
from trainmaster.training.metrics import Line

TRACEBACK: Final = "Traceback (most recent call last)"
ROUNDING_S: Final = 1e-3


class Run(Value):
    """What a run left behind."""

    total: int
    """Steps of the job."""
    every: int
    """Steps between two restore points: what an interruption may cost at most."""
    unheard: int
    """Steps that the job can do between two heartbeats: what may be unknown of an epoch that nobody survived."""
    lines: dict[int, tuple[Line, ...]]
    """Metrics by epoch, in the order in which they were written."""
    expected: dict[int, str]
    """Losses of an undisturbed run, as hexadecimal floats by step."""
    events: tuple[AnyEvent, ...]
    account: JobAccount
    epochs: int


def complaints(run: Run) -> tuple[str, ...]:
    """Everything that is not in order."""
    return (*_steps(run), *_restores(run), *_lost(run), *_account(run))


def _steps(run: Run) -> Iterator[str]:
    done = {line.step for lines in run.lines.values() for line in lines}
    missing = sorted(set(range(1, run.total + 1)) - done)
    if missing:
        yield f"{len(missing)} steps were never done, the first is {missing[0]}"
    for epoch, lines in sorted(run.lines.items()):
        for before, line in itertools.pairwise(lines):
            if line.step != before.step + 1:
                yield f"epoch {epoch}: step {line.step} follows on step {before.step}"
        wrong = [line.step for line in lines if line.loss_hex != run.expected.get(line.step)]
        if wrong:
            yield f"epoch {epoch}: {len(wrong)} losses differ from an undisturbed run, the first at step {wrong[0]}"


def restored(events: Iterable[AnyEvent]) -> dict[int, int]:
    """The step from which each epoch went on, by the log."""
    phases = [event for event in events if isinstance(event, EpochPhase) and event.phase is Phase.RESTORED]
    return {event.epoch: event.step for event in phases}


def _restores(run: Run) -> Iterator[str]:
    begun, done = restored(run.events), 0
    for epoch, lines in sorted(run.lines.items()):
        if not lines:
            continue
        first = lines[0].step
        if begun.get(epoch, first - 1) != first - 1:
            yield f"epoch {epoch} says that it restored step {begun[epoch]}, and its first step was {first}"
        if first > done + 1:
            yield f"epoch {epoch} began with step {first}, but only {done} were done"
        if done - (first - 1) > run.every:
            yield f"epoch {epoch} began with step {first} after {done} were done: more than {run.every} were lost"
        done = max(done, lines[-1].step)


def last_told(events: Iterable[AnyEvent]) -> tuple[dict[int, int], set[int]]:
    """The newest step of each epoch that agents told of, and the epochs of which an exit told it."""
    told: dict[int, int] = {}
    by_exit: set[int] = set()
    for event in events:
        if isinstance(event, WorkerExited):
            told[event.epoch] = max(told.get(event.epoch, -1), event.step)
            by_exit.add(event.epoch)
        elif isinstance(event, AgentDisconnected | AgentSilent):
            for reached in event.reached:
                told[reached.epoch] = max(told.get(reached.epoch, -1), reached.step)
    return told, by_exit


def _lost(run: Run) -> Iterator[str]:
    """What the account says was lost, against the log and against the metrics."""
    told, by_exit = last_told(run.events)
    begun = restored(run.events)
    for incident in run.account.incidents:
        epoch = incident.epoch
        after = next((number for number in range(epoch + 1, run.epochs + 1) if number in begun), None)
        if after is None:
            yield f"epoch {epoch} ended, and none after it restored anything"
            continue
        by_log = max(told.get(epoch, -1) - max(begun[after], 0), 0)
        if incident.steps_lost != by_log:
            yield f"epoch {epoch}: the account has {incident.steps_lost} lost steps, its log {by_log}"
        lines = run.lines.get(epoch, ())
        by_metrics = max(lines[-1].step - max(begun[after], 0), 0) if lines else 0
        unheard = 1 if epoch in by_exit else run.unheard
        if not by_metrics - unheard <= incident.steps_lost <= by_metrics + 1:
            yield f"epoch {epoch}: the account has {incident.steps_lost} lost steps, the metrics {by_metrics}"


def _account(run: Run) -> Iterator[str]:
    account = run.account
    if account.steps != run.total:
        yield f"the account has {account.steps} steps of {run.total}"
    parts_s = sum(account.seconds_by_phase.values())
    if abs(parts_s - account.wall_s) > ROUNDING_S:
        yield f"the spans of the account are {parts_s} s, the job took {account.wall_s} s"
    lost_s = sum(loss.seconds for loss in account.losses)
    if abs(account.productive_s + lost_s - account.wall_s) > ROUNDING_S:
        yield f"{account.productive_s} s were productive and {lost_s} s lost, of {account.wall_s} s"
    negative = [phase for phase, seconds in account.seconds_by_phase.items() if seconds < 0]
    if negative:
        yield f"spans below zero: {', '.join(negative)}"
    if [incident.epoch for incident in account.incidents] != list(range(1, run.epochs)):
        yield f"{len(account.incidents)} incidents, and {run.epochs} epochs"
    lost = sum(incident.steps_lost for incident in account.incidents)
    if lost != account.steps_lost_planned + account.steps_lost_unplanned:
        yield f"the incidents lost {lost} steps, the account more or less"
    for incident in account.incidents:
        if incident.resumed_at is None:
            continue
        away_s = (incident.resumed_at - incident.last_step_at) / 1e6
        spans_s = sum(seconds for phase, seconds in incident.seconds_by_phase.items() if phase != "replay")
        if abs(spans_s - away_s) > ROUNDING_S:
            yield f"epoch {incident.epoch}: its spans are not the {away_s} s that the job was away"


def tracebacks(text: str, echoes_pass: bool) -> list[str]:
    """What every traceback of a log ended with. `echoes_pass`, for what ranks say: not those by which one says that it
    lost a peer, nor the last one if the rank was killed while it spoke."""
    ends: list[str] = []
    inside = False
    for line in text.splitlines():
        if TRACEBACK in line:
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            inside = False
            if not (echoes_pass and ECHO.search(line)):
                ends.append(line)
    return [*ends, "a traceback that was cut"] if inside and not echoes_pass else ends


def ways(total: Mapping[str, Sequence[float]]) -> list[str]:
    """Lines of a table: seconds to the next finished step, by what was killed."""
    rows = ["killed                   shots   median s    worst s"]
    for label, seconds in sorted(total.items()):
        ordered = sorted(seconds)
        rows.append(f"{label:<24} {len(ordered):>5} {ordered[len(ordered) // 2]:>10.2f} {ordered[-1]:>10.2f}")
    return rows
