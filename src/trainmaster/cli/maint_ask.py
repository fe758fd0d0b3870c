"""What is asked of maintenance: by a file, by options, or by a plan that was kept; and the plan of it.

A plan is made by the server, one for each part of what is asked, and kept with it in one JSON file. A change is planned
again when it is applied, and all parts must have the fingerprint that they had, before the first one is sent; so a plan
is carried out as it was read, or not at all. Each part after the first is bound to a plan made right before, since the
parts before it have moved the world themselves.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from trainmaster.cli.client import Client
from trainmaster.cli.errors import Failed, NoSuchThing, PartlyDone, UserError, WorldMoved, WrongUsage
from trainmaster.cli.maint_words import scope_text
from trainmaster.cli.output import say
from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.ids import ComponentName, KindName, OperationId, RolloutId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, after, seconds
from trainmaster.core.base.value import Value, encode
from trainmaster.core.maintenance.catalogue import UPGRADE, Priority
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.plan import GangPlan, OperationsPlan, RolloutPlan, TrainPlan
from trainmaster.core.words import count_text
from trainmaster.live.maintfile import Asked, keyed, load
from trainmaster.live.server.maintenance_resources import (
    GangReport,
    MaintenanceReport,
    OperationAnswer,
    OperationAsk,
    OperationsReport,
    OperationsRequest,
    PlanReport,
    PlanRequest,
    RolloutReport,
    TrainReport,
)
from trainmaster.live.tomlfile import FileError, FileProblem

PLAN_KIND: Final = "maintenance-plan"
CHANGES_SHOWN: Final = 8


class Made(Value):
    """A plan with what it is of. Immutable; `apply` carries out just this."""

    made_at: Instant
    asked: Asked
    operations: OperationsPlan | None = None
    gangs: tuple[GangPlan, ...] = ()
    versions: tuple[MaintenanceReport, ...] = ()
    rollouts: tuple[RolloutPlan, ...] = ()
    trains: tuple[TrainPlan, ...] = ()


class Applied(Value):
    """What became of a plan."""

    index: int
    """Of the log."""
    operations: tuple[OperationAnswer, ...] = ()
    told: tuple[str, ...] = ()
    """A sentence a part."""
    gangs: tuple[GangPlan, ...] = ()
    rollouts: tuple[RolloutId, ...] = ()
    trains: tuple[TrainName, ...] = ()
    """What was asked for beside operations."""


class Words(NamedTuple):
    """The options of `plan` and `apply` that stand for a file."""

    kind: str
    component: str
    version: str
    hosts: str
    scope: tuple[str, ...]
    priority: str
    after: tuple[str, ...]
    not_before: float | None
    """Seconds from now."""
    deadline: float | None


# What is asked


def read(file: Path | None, words: Words) -> Asked | Made:
    """From a maintenance file, a plan that was kept, or options."""
    given = [name for name, value in words._asdict().items() if value and name != "priority"]
    if file is None:
        return _by_words(words)
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise WrongUsage(f"both a file and {names}", "the file says what is asked for", "give one of them")
    if file.is_file() and file.read_bytes()[:64].lstrip().startswith(b"{"):
        return read_plan(file)
    return keyed(load(file), _prefix())


def _prefix() -> str:
    """Keys begin with it, so that a request whose answer was lost can be sent again, and no other has the same."""
    return f"ask-{secrets.token_hex(6)}"


def _by_words(words: Words) -> Asked:
    kind = words.kind or (UPGRADE if words.component else "")
    if not kind:
        fix = "give FILE, or --component C --version V, or --kind K; and --hosts or --scope"
        raise WrongUsage("nothing is asked for", "there is no file, no component and no kind", fix)
    if kind == UPGRADE and not (words.component and words.version):
        raise WrongUsage("an upgrade needs --component and --version", fix="add the one that is missing")
    if kind != UPGRADE and (words.component or words.version):
        raise WrongUsage(f"a {kind} has no --component and no --version", fix="leave them out, or leave out --kind")
    if bool(words.hosts) == bool(words.scope):
        fix = "--hosts LIST for an operation on each host; --scope rack/R for one on all of it"
        raise WrongUsage("it is not clear where" if words.hosts else "it is not said where", "", fix)
    wrong = [word for word in words.scope if not all(word.partition("/"))]
    if wrong:
        fix = f"write KIND/NAME: --scope rack/{wrong[0].strip('/') or 'R'}; or --hosts LIST"
        raise WrongUsage(f"--scope {wrong[0]!r} names no resource", "a resource is KIND/NAME, such as rack/r1", fix)
    now = Instant(time.time_ns() // 1000)
    scopes = [(f"host/{host}",) for host in parse(words.hosts)] if words.hosts else [words.scope]
    spec = OperationSpec(
        kind=KindName(kind),
        scope=scopes[0],
        component=ComponentName(words.component),
        version=words.version,
        priority=Priority(words.priority),
        after=tuple(OperationId(name) for name in words.after),
        not_before=after(now, seconds(words.not_before)) if words.not_before is not None else None,
        deadline=after(now, seconds(words.deadline)) if words.deadline is not None else None,
    )
    asks = (OperationAsk(spec=spec.but(scope=scope), key=str(number)) for number, scope in enumerate(scopes, 1))
    return keyed(Asked(operations=tuple(asks)), _prefix())


def read_plan(file: Path) -> Made:
    """A plan that `plan --out` kept. Raises `FileError`."""
    try:
        tree = msgspec.json.decode(file.read_bytes())
        schema = tree.pop("schema", "")
        if schema != f"trainmaster.{PLAN_KIND}/v1":
            raise msgspec.ValidationError(f"its schema is {schema!r}")
        return msgspec.convert(tree, Made)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fix = "make one: trainmaster maint plan FILE --out plan.json"
        problem = FileProblem(line=None, key="", reason=f"this is no plan: {error}", fix=fix)
        raise FileError(file, "plan", [problem]) from error


def keep_plan(file: Path, made: Made) -> None:
    tree = {"schema": f"trainmaster.{PLAN_KIND}/v1", **msgspec.to_builtins(made)}
    try:
        file.write_bytes(msgspec.json.format(encode(tree), indent=2) + b"\n")
    except FileNotFoundError:
        fix = "make the directory, or give another --out"
        raise Failed(f"cannot keep the plan in {file}", f"there is no directory {file.parent}", fix) from None
    say(f"the plan is in {file}; trainmaster maint apply {file}")


# Plans


def plan(client: Client, asked: Asked) -> Made:
    """Asks the server what would come of it; changes nothing. Several parts are planned together, as the later ones
    build on those before."""
    made = Made(made_at=Instant(time.time_ns() // 1000), asked=asked)
    if _count(asked) > 1:
        found = client.post("/v1/plans", _request(asked), PlanReport)
        made = made.but(operations=found.operations, gangs=found.gangs, versions=found.versions)
        made = made.but(rollouts=found.rollouts, trains=found.trains)
    elif asked.operations:
        report = client.post("/v1/operations", _operations(asked, dry_run=True), OperationsReport)
        made = made.but(operations=report.plan)
    else:
        made = _alone(client, made)
    seeded = tuple(each.but(seed=drawn.seed) for each, drawn in zip(asked.rollouts, made.rollouts, strict=True))
    return made.but(asked=asked.but(rollouts=seeded))


def _alone(client: Client, made: Made) -> Made:
    """With the plan of its only part, which is none of operations."""
    asked = made.asked
    for gang in asked.gangs:
        made = made.but(gangs=(client.post("/v1/gang-upgrades", gang.but(dry_run=True), GangReport).plan,))
    for version in asked.versions:
        made = made.but(versions=(client.post("/v1/versions", version.but(dry_run=True), MaintenanceReport),))
    for rollout in asked.rollouts:
        made = made.but(rollouts=(client.post("/v1/rollouts", rollout.but(dry_run=True), RolloutReport).plan,))
    for train in asked.trains:
        made = made.but(trains=(client.post("/v1/trains", train.but(dry_run=True), TrainReport).plan,))
    return made


def _request(asked: Asked) -> PlanRequest:
    return PlanRequest(
        operations=asked.operations,
        gangs=asked.gangs,
        versions=asked.versions,
        rollouts=asked.rollouts,
        trains=asked.trains,
    )


def _operations(asked: Asked, reason: str = "", **more: Any) -> OperationsRequest:
    """`reason`: of all of them, whatever the file says."""
    asks = asked.operations
    if reason:
        asks = tuple(each.but(spec=each.spec.but(reason=reason)) for each in asks)
    return OperationsRequest(operations=asks, **more)


def check_reason(asked: Asked, reason: str) -> None:
    """Raises `WrongUsage` unless each part has a reason, from the flag or from the file."""
    found = [each.spec.reason for each in asked.operations] + [each.reason for each in asked.gangs]
    found += [each.reason for each in asked.versions] + [each.reason for each in asked.rollouts]
    found += [each.reason for each in asked.trains]
    if not reason and not all(text.strip() for text in found):
        fix = 'add --reason "why", or reason = "why" to the file, or --dry-run'
        raise WrongUsage("a change needs a reason", "it is kept with your name for those who wonder later", fix)


def check(old: Made, new: Made) -> None:
    """Raises `WorldMoved`, saying what changed, unless both plans mean the same."""
    old, new = _without_known(old, new)
    if fingerprints(old) == fingerprints(new):
        return
    changed = list(differences(old, new))
    shown = changed[:CHANGES_SHOWN]
    if len(changed) > CHANGES_SHOWN:
        shown.append(f"and {len(changed) - CHANGES_SHOWN} more")
    fix = "read the new plan (trainmaster maint plan FILE), then apply that one"
    raise WorldMoved("not done: the plan is of another world", "\n".join(shown), fix)


def _without_known(old: Made, new: Made) -> tuple[Made, Made]:
    """Both without their operations, if all of these were asked for by this plan before: asking for them once more is
    no change, and what is left of the plan may still be carried out."""
    found = new.operations
    if found is None or not all(item.known for item in found.items):
        return old, new
    return old.but(operations=None), new.but(operations=None)


def fingerprints(made: Made) -> tuple[str, ...]:
    found = [] if made.operations is None else [made.operations.fingerprint]
    found += [each.fingerprint for each in made.gangs]
    found += [each.fingerprint for each in made.rollouts]
    found += [each.fingerprint for each in made.trains]
    return tuple(found)


_PASSING: Final = frozenset({"index", "fingerprint", "sentence", "numbers", "at", "capacity", "made_at"})
"""What changes by itself."""


def differences(old: Made, new: Made) -> Iterator[str]:
    """Lines `WHERE: BEFORE, now AFTER`."""
    return _differences("", msgspec.to_builtins(old.but(asked=Asked())), msgspec.to_builtins(new.but(asked=Asked())))


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            if key not in _PASSING:
                yield from _differences(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        for place, (before, now) in enumerate(zip(old, new, strict=True), 1):
            yield from _differences(f"{path}[{_name(before) or place}]", before, now)
    elif old != new:
        yield f"{path}: {_brief(old)}, now {_brief(new)}"


def _name(item: Any) -> str:
    """What a reader knows a part of a plan by."""
    if not isinstance(item, dict):
        return ""
    return scope_text(item["scope"]) if "scope" in item else str(item.get("job") or item.get("component") or "")


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_name(item) or str(item) for item in value) or "none"
    if isinstance(value, dict):
        return str(value.get("token") or _name(value))
    return "none" if value in (None, "") else str(value)


# Carrying it out


def apply(client: Client, made: Made, reason: str) -> Applied:
    """Sends the parts one after the other. Raises `PartlyDone` if one fails after another was carried out."""
    applied = Applied(index=0)
    try:
        for report in _parts(client, made, reason):
            applied = _with(applied, report)
    except UserError as error:
        if not applied.told:
            raise
        done = len(applied.told)
        verb = "is" if done == 1 else "are"
        what = f"{done} of {count_text(_count(made.asked), 'part')} {verb} done: {'; '.join(applied.told)}"
        raise PartlyDone(what, f"then: {error.what}" + (f"\n{error.why}" if error.why else ""), error.fix) from error
    return applied


def _with(applied: Applied, report: "_Report") -> Applied:
    applied = applied.but(index=report.index, told=(*applied.told, report.sentence))
    match report:
        case OperationsReport():
            return applied.but(operations=report.items)
        case GangReport():
            return applied.but(gangs=(*applied.gangs, report.plan))
        case RolloutReport():
            return applied.but(rollouts=(*applied.rollouts, report.rollout))
        case TrainReport():
            return applied.but(trains=(*applied.trains, report.plan.spec.name))
        case _:
            return applied


def _count(asked: Asked) -> int:
    return bool(asked.operations) + sum(map(len, (asked.gangs, asked.versions, asked.rollouts, asked.trains)))


_Report = OperationsReport | GangReport | MaintenanceReport | RolloutReport | TrainReport


def _parts(client: Client, made: Made, reason: str) -> Iterator[_Report]:
    """Each is bound to the plan that was read, or, behind others, to one made now. Trains come last: they take with
    them what the others ask for."""
    asked = made.asked
    rest: list[tuple[str, Any, Any, Any]] = []
    check_refused(made)
    if made.operations is not None:
        rest.append(("/v1/operations", _operations(asked, reason), OperationsReport, made.operations))
    rest += _rows("/v1/gang-upgrades", asked.gangs, GangReport, made.gangs)
    rest += _rows("/v1/versions", asked.versions, MaintenanceReport, made.versions)
    rest += _rows("/v1/rollouts", asked.rollouts, RolloutReport, made.rollouts)
    rest += _rows("/v1/trains", asked.trains, TrainReport, made.trains)
    for place, (path, body, kind, read) in enumerate(rest):
        body = body.but(reason=reason or body.reason)
        if kind is not MaintenanceReport:  # of versions: a word, no plan
            now = client.post(path, body.but(dry_run=True), kind).plan if place else read
            body = body.but(check_index=now.index, check_plan=now.fingerprint)
        yield client.post(path, body, kind)


def _rows(path: str, bodies: Sequence[Any], kind: Any, plans: Sequence[Any]) -> list[tuple[str, Any, Any, Any]]:
    return [(path, body, kind, read) for body, read in zip(bodies, plans, strict=True)]


def check_refused(made: Made) -> None:
    """Raises what `apply` would raise if something of the plan can't be asked for."""
    if made.operations is not None and made.operations.refused:
        raise _refused(made.operations)


def _refused(found: OperationsPlan) -> UserError:
    """Those that are refused alike in one line."""
    scopes: dict[tuple[Token, str], list[str]] = {}
    for item in found.items:
        if item.refused is not None:
            scopes.setdefault((item.refused.token, item.refused.sentence), []).extend(item.scope)
    lines = [f"{scope_text(where)}: {token}: {text}" for (token, text), where in scopes.items()]
    if len(lines) > CHANGES_SHOWN:
        lines[CHANGES_SHOWN:] = [f"and {len(lines) - CHANGES_SHOWN} more"]
    tokens = [token for token, _ in scopes]
    error = NoSuchThing if all(token.startswith("no-such-") for token in tokens) else Failed
    what = f"{found.refused} of {count_text(len(found.items), 'operation')} can't be asked for"
    return error(what, "\n".join(lines), min(tokens, key=lambda token: token.precedence).advice)
