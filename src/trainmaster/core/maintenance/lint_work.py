"""What is wrong with one piece of work: its durations, deadlines, commands, units and scope."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from trainmaster.core.base.time import in_seconds
from trainmaster.core.maintenance.catalogue import Component, Kind, ScopeKind, StepSpec, Work, takes_capacity
from trainmaster.core.maintenance.problem import Path, Problem, error, warning

_CARRIERS: Final[dict[ScopeKind, frozenset[str]]] = {"plane": frozenset({"switch", "controller"})}
"""Scopes that not every kind of unit is in. Racks, rows, pods and clusters hold all kinds."""
_WORDS: Final = ("unit", "component", "version", "previous", "python")
"""What is replaced in arguments, in braces."""


def check_work(path: Path, place: str, work: Component | Kind) -> Iterator[Problem]:
    yield from _duration(path, place, work)
    yield from _units(path, place, work)
    yield from _boots(path, place, work)
    yield from _observed(path, place, work)
    for leg, steps in (("steps", work.steps), ("after_reboot", work.after_reboot), ("undo", work.undo)):
        yield from _steps((*path, leg), f"{place}: {leg}", steps)
    yield from _sum(path, place, work)
    if isinstance(work, Component) and work.job_consistent:
        yield from _job_consistent(path, place, work)


def _duration(path: Path, place: str, work: Work) -> Iterator[Problem]:
    median, p90, limit = work.duration.median, work.duration.p90, work.duration.limit
    if median <= 0:
        yield error((*path, "median_s"), place, "its median duration is not above 0", "write how long it takes")
    if p90 < median:
        reason = f"p90 {in_seconds(p90):g} s is below the median {in_seconds(median):g} s"
        yield error((*path, "p90_s"), place, reason, "nine of ten must end within p90, five within the median")
    if limit < p90:
        reason = f"the limit {in_seconds(limit):g} s is below p90 {in_seconds(p90):g} s: one in ten would fail"
        yield error((*path, "limit_s"), place, reason, "raise limit_s")


def _units(path: Path, place: str, work: Work) -> Iterator[Problem]:
    if not work.units:
        yield error((*path, "units"), place, "it is for no kind of unit", 'write units = ["compute"]')
        return
    carriers = _CARRIERS.get(work.scope, frozenset(work.units))
    if not carriers & set(work.units):
        reason = f"a {work.scope} has no {' or '.join(work.units)} units"
        fix = f'write units = ["{max(carriers)}"], or another scope'
        yield error((*path, "units"), place, reason, fix)
    if work.disturbs == "power" and work.scope == "host" and "controller" in work.units:
        reason = "a controller would cut its own power, and run no further step"
        yield error((*path, "units"), place, reason, "take the controller out of units, or let it reboot")


def _boots(path: Path, place: str, work: Work) -> Iterator[Problem]:
    """A host that missed its reboot is up, and old: that it came back is not seen by its being up. After work on power
    there is no leg of its own: the controller's steps end with power on, and verification follows."""
    boots = work.disturbs == "reboot"
    if boots and not work.after_reboot:
        reason = "nothing is checked after its reboot"
        fix = "add a step to after_reboot that fails where the new state is not there"
        yield warning((*path, "after_reboot"), place, reason, fix)
    if not boots and work.after_reboot:
        reason = f"it has steps after a reboot, and disturbs {work.disturbs!r}: they may never run"
        yield error((*path, "after_reboot"), place, reason, 'write disturbs = "reboot", or move them to steps')


def _observed(path: Path, place: str, work: Component | Kind) -> Iterator[Problem]:
    if isinstance(work, Component) and not work.observe:
        reason = "its version cannot be observed: success would be the word of the installer"
        yield error((*path, "observe"), place, reason, "add observe, a command that prints the version")
    if work.observe and work.observe_deadline <= 0:
        reason = "the deadline is not above 0"
        yield error((*path, "observe_deadline_s"), f"{place}: observe", reason, "write how long it may take")
    yield from _words((*path, "observe"), f"{place}: observe", work.observe)


def _steps(path: Path, place: str, steps: tuple[StepSpec, ...]) -> Iterator[Problem]:
    names = Counter(step.name for step in steps)
    for number, step in enumerate(steps):
        here, where = (*path, number), f"{place} {step.name or number + 1}"
        if not step.name:
            yield error((*here, "name"), where, "the step has no name", "name what it does: download, install")
        elif names[step.name] > 1:
            names[step.name] = 1  # told once
            yield error((*here, "name"), where, "several steps have this name", "rename one")
        if not step.command or not step.command[0]:
            yield error((*here, "command"), where, "the command is empty", "write the program and its arguments")
        if step.deadline <= 0:
            reason = "the step has no deadline: a command that hangs would hold the unit for ever"
            yield error((*here, "deadline_s"), where, reason, "add deadline_s")
        yield from _words((*here, "command"), where, step.command)


def _words(path: Path, place: str, command: tuple[str, ...]) -> Iterator[Problem]:
    """Braces mean other things to shells and awk, so only what looks misspelt is told."""
    for word in sorted({word for part in command for word in re.findall(r"(?<!\$)\{([a-z_]+)\}", part)}):
        near = difflib.get_close_matches(word, _WORDS, n=1, cutoff=0.75)
        if near and word not in _WORDS:
            yield warning(path, place, f"{{{word}}} is not replaced", f"did you mean {{{near[0]}}}?")


def _sum(path: Path, place: str, work: Work) -> Iterator[Problem]:
    steps = (*work.steps, *work.after_reboot)
    total = sum(step.deadline for step in steps) + (work.observe_deadline if work.observe else 0)
    if steps and total > work.duration.limit:
        limit = in_seconds(work.duration.limit)
        reason = f"the deadlines of its steps add up to {in_seconds(total):g} s, above its limit {limit:g} s"
        fix = "raise limit_s, or shorten deadlines: past the limit it counts as failed in the middle of a step"
        yield warning((*path, "limit_s"), place, reason, fix)


def _job_consistent(path: Path, place: str, component: Component) -> Iterator[Problem]:
    if not takes_capacity(component):
        reason = "jobs must agree in it, and it disturbs nothing: it would change under a job that runs"
        yield error((*path, "disturbs"), place, reason, 'write disturbs = "restart"')
    if "compute" not in component.units:
        reason = f"jobs must agree in it, and they run on compute units, not on {', '.join(component.units)}"
        yield error((*path, "job_consistent"), place, reason, "remove job_consistent")
    if component.scope != "host":
        reason = f"jobs must agree in it, and it changes a whole {component.scope} with hosts of other jobs"
        yield error((*path, "scope"), place, reason, 'write scope = "host"')
