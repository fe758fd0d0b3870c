"""The row of steps of an operation: what comes next, and what the outcome is.

Intuition: a row is a recipe with a tick beside each step. An agent that crashed finds the ticks, and goes on where it
was. What counts in the end is not that all was ticked but what is seen when one looks.

    every step ended with 0, the wanted version is seen       done
    every step ended with 0, another version is seen          failed (the installer lied)
    a step ended otherwise, the wanted version is seen        done, and the detail says so
    a step ended otherwise                                    failed
    a step was past its deadline                              failed, whatever is seen: it was killed half way
    the version can't be seen                                 failed

The last line might have been "unknown". But the journal would answer a repeat with the same word for ever, so nobody
would settle it, and a unit that can't say what it has is not healthy; asking again is a new operation.

A step that was begun and has no end was interrupted by a crash, a shutdown or a reboot of the agent's host. Nobody
knows how far it came, so one looks first: if the wanted version is there, the row is done; otherwise it goes on with
that very step. So steps must be idempotent, and an observation must speak for the whole row. A step that has an end is
never run again.
"""

from collections.abc import Mapping
from typing import Final

from trainmaster.core.agent.contract import PRIVATE_PREFIX
from trainmaster.core.base.ids import OperationId
from trainmaster.core.base.time import Duration, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.effects import Observation, RunSteps, StepCommand
from trainmaster.core.recovery.events import Outcome

Numbers = dict[str, int | float | str]

NOTHING: Final = ("trainmaster:noop",)
"""The command of a step that does nothing: it is answered without a process and without a marker."""
PYTHON: Final = "{python}"
"""In a command: the interpreter that the agent runs in."""
WORDS_LIMIT: Final = 200
"""Characters of a command's last line in a detail."""

HOST_DIR: Final = "TRAINMASTER_HOST_DIR"
OPERATION: Final = "TRAINMASTER_OPERATION"
STEP: Final = "TRAINMASTER_STEP"
PACKAGES: Final = "TRAINMASTER_PACKAGES"
"""Directory of the packages that can be installed; handed on from the agent's own environment."""
OBSERVATION: Final = "observe"
"""The name under which an observation runs, in place of a step's name."""


class StepEnd(Value):
    """How a command ended. All is empty for one that could not be started; `trouble` then says why."""

    took: Duration
    exit_code: int | None = None
    signal: int | None = None
    overdue: bool = False
    """It was past its deadline, and was killed."""
    trouble: str = ""
    last_line: str = ""

    @property
    def well(self) -> bool:
        return self.exit_code == 0 and not self.overdue


class Seen(Value):
    """What an observation showed. No version: `trouble` says why."""

    version: str | None
    trouble: str = ""


class Row(Value):
    """What is known of a row."""

    ends: tuple[StepEnd, ...] = ()
    """Of the steps that ended, from the first on."""
    interrupted: bool = False
    """The next one was begun by an agent that did not see its end."""
    seen: Seen | None = None
    """What was observed since the last end."""

    def ended(self, end: StepEnd) -> "Row":
        """After one more step."""
        return Row(ends=(*self.ends, end))


class Run(Value):
    """Run the step with this index."""

    step: int


class Look(Value):
    """Make the observation."""


class End(Value):
    """The row is over."""

    outcome: Outcome
    detail: str
    numbers: Numbers


def next_action(effect: RunSteps, row: Row) -> Run | Look | End:
    """What to do now."""
    assert len(row.ends) <= len(effect.steps), (effect, row)
    if row.interrupted:
        return _after_interruption(effect, row)
    if len(row.ends) < len(effect.steps) and all(end.well for end in row.ends):
        return Run(step=len(row.ends))
    if effect.observe is not None and row.seen is None:
        return Look()
    return _judge(effect, row)


def _after_interruption(effect: RunSteps, row: Row) -> Run | Look | End:
    step = len(row.ends)
    assert step < len(effect.steps), (effect, row)
    assert all(end.well for end in row.ends), row
    wanted = effect.observe.wanted if effect.observe is not None else ""
    if not wanted:
        return Run(step=step)
    if row.seen is None:
        return Look()
    if row.seen.version != wanted:
        return Run(step=step)
    detail = f"step {effect.steps[step].name} was interrupted, but {wanted} is there"
    assert effect.observe is not None, effect
    numbers: Numbers = {"step": step, "component": effect.observe.component, "version": wanted}
    return End(outcome="done", detail=detail, numbers=numbers)


def _judge(effect: RunSteps, row: Row) -> End:
    """The outcome of a row that is over and was looked at."""
    failure = row.ends[-1] if row.ends and not row.ends[-1].well else None
    what = "" if failure is None else _words(effect.steps[len(row.ends) - 1], failure)
    numbers = _numbers(effect, row, failure)
    if failure is not None and failure.overdue:
        return End(outcome="failed", detail=what, numbers=numbers)
    if effect.observe is None:
        return End(outcome="done" if failure is None else "failed", detail=what, numbers=numbers)
    assert row.seen is not None, row
    wanted, version = effect.observe.wanted, row.seen.version
    if version is None:
        detail = "; ".join(part for part in (what, f"the version can't be seen: {row.seen.trouble}") if part)
        return End(outcome="failed", detail=detail, numbers=numbers)
    if not wanted:
        return End(outcome="done" if failure is None else "failed", detail=what, numbers=numbers)
    if version == wanted:
        detail = f"observed {version} as wanted, although {what}" if what else ""
        return End(outcome="done", detail=detail, numbers=numbers)
    lied = f"observed {version}, wanted {wanted}"
    return End(outcome="failed", detail=f"{what}; {lied}" if what else lied, numbers=numbers)


def _numbers(effect: RunSteps, row: Row, failure: StepEnd | None) -> Numbers:
    made: Numbers = {"step": sum(end.well for end in row.ends)}
    if effect.observe is not None and row.seen is not None and row.seen.version is not None:
        made["component"], made["version"] = effect.observe.component, row.seen.version
    if failure is None:
        return made
    if failure.exit_code is not None:
        made["exit_code"] = failure.exit_code
    if failure.signal is not None:
        made["signal"] = failure.signal
    if failure.overdue:
        made["deadline_s"] = in_seconds(effect.steps[len(row.ends) - 1].deadline)
        made["took_s"] = in_seconds(failure.took)
    return made


def _words(step: StepCommand, end: StepEnd) -> str:
    said = f": {end.last_line[:WORDS_LIMIT]}" if end.last_line else ""
    return f"step {step.name} {_how(end, step.deadline)}{said}"


def _how(end: StepEnd, deadline: Duration) -> str:
    """A predicate, such as "ended with exit code 3"."""
    if end.overdue:
        return f"was past its deadline of {in_seconds(deadline):g} s and was killed after {in_seconds(end.took):.1f} s"
    if end.trouble:
        return f"could not be started ({end.trouble})"
    if end.signal is not None:
        return f"was ended by signal {end.signal}"
    return f"ended with exit code {end.exit_code}"


def seen(observe: Observation, end: StepEnd, output: str) -> Seen:
    """What an observation showed: the first line that it printed, if it ended well."""
    if not end.well:
        said = f": {end.last_line[:WORDS_LIMIT]}" if end.last_line else ""
        return Seen(version=None, trouble=f"the observation {_how(end, observe.deadline)}{said}")
    version = output.partition("\n")[0].strip()
    if not version:
        return Seen(version=None, trouble="the observation printed nothing")
    return Seen(version=version)


def does_nothing(effect: RunSteps) -> bool:
    """Nothing runs for it: it can be answered at once."""
    return effect.observe is None and all(step.command == NOTHING for step in effect.steps)


NOTHING_ENDED: Final = StepEnd(took=Duration(0), exit_code=0)


def skip_nothing(effect: RunSteps, row: Row) -> Row:
    """The row after the steps that do nothing and come next."""
    while not row.interrupted and all(end.well for end in row.ends) and len(row.ends) < len(effect.steps):
        if effect.steps[len(row.ends)].command != NOTHING:
            break
        row = row.ended(NOTHING_ENDED)
    return row


def known_row(effect: RunSteps, begun: frozenset[int], ends: Mapping[int, StepEnd]) -> Row:
    """The row as markers tell it: indexes of steps that were begun, and ends by index."""
    row = skip_nothing(effect, Row())
    while (end := ends.get(len(row.ends))) is not None:
        row = skip_nothing(effect, row.ended(end))
    if len(row.ends) in begun:
        row = row.but(interrupted=True)
    return row


def words_of(command: tuple[str, ...], python: str) -> tuple[str, ...]:
    """The command with `{python}` replaced."""
    return tuple(word.replace(PYTHON, python) for word in command)


def environment(
    own: Mapping[str, str], host_dir: str, operation: OperationId, step: str, directory: str
) -> dict[str, str]:
    """What a step runs with: the agent's environment without its own variables (tokens among them), and where it is.
    `directory` is the agent's present one; module paths are made absolute with it."""
    kept = {name: value for name, value in own.items() if not name.startswith(PRIVATE_PREFIX) or name == PACKAGES}
    paths = [entry for entry in own.get("PYTHONPATH", "").split(":") if entry]
    if paths:
        kept["PYTHONPATH"] = ":".join(entry if entry.startswith("/") else f"{directory}/{entry}" for entry in paths)
    return {**kept, HOST_DIR: host_dir, OPERATION: operation, STEP: step}
