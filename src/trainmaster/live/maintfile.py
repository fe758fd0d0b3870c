"""Files that ask for maintenance: operations, trains, versions, rollouts and gang upgrades.

    schema = "trainmaster.maintenance/v1"
    reason = "quarterly firmware"            # of everything in the file that gives none of its own

    [[operation]]
    name = "nic"                             # only where another table of this file comes `after` it
    component = "nic-firmware"               # an upgrade to `version`; or kind = "reboot"
    version = "28.43"
    hosts = "h[0-3]"                         # an operation for each host; or
    # scope = ["rack/desk-r1"]               # one operation on all of these at once
    priority = "planned"                     # emergency, repair, planned, background
    after = ["bios", "op-12"]                # names of this file, or ids: all of those must be done before
    not_before = 2026-12-01T02:00:00Z        # a time with its offset
    deadline = 2026-12-02T02:00:00Z          # when it should be done; late ones go ahead

    [[target]]                               # this version is proven: trains bring it everywhere
    component = "gpu-driver"
    version = "550.90"

    [[rollout]]                              # one that is not proven comes by stages
    component = "gpu-driver"
    version = "560.28"
    hosts = "h[0-3]"                         # the pool; default: all units that the component is for
    canary_hosts = 1                         # optional: a first stage of so many hosts
    percents = [1.0, 10.0, 50.0]             # or stage_hosts = 8, or first_hosts = 1 and factor = 2.0
    soak_s = 43200                           # loaded time that each host of a stage has had, on average
    stage_limit_s = 1209600                  # then too little evidence holds it for a person
    unproven_percent = 10.0                  # of the pool that may carry it before it is proven; 100: no proof
    on_failure = "roll-back"                 # or "hold"
    criteria = { alpha = 0.05, beta = 0.05, theta = 3.0, tolerable = 0.02, unacceptable = 0.15 }

    [[gang]]                                 # all hosts of a job together, the job stopped after a checkpoint
    job = "llama"
    component = "collectives"
    version = "2.24"

and `[[train]]`, see `trainfile.py`. What a file names (hosts, components, jobs) is known by the server alone, which
checks it; here is checked what the file says by itself, all problems at once, cycles of `after` among them.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import NAME_PATTERN, ComponentName, HostId, KindName, OperationId
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.catalogue import UPGRADE, Priority
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.core.maintenance.stages import (
    Exponential,
    Fixed,
    OnFailure,
    Percentages,
    RolloutSpec,
    Strategy,
    spec_problems,
)
from trainmaster.live.server.maintenance_resources import (
    OPERATIONS_MAX,
    GangRequest,
    OperationAsk,
    RolloutRequest,
    TrainRequest,
    VersionRequest,
)
from trainmaster.live.tomlfile import Document, Table
from trainmaster.live.trainfile import read_trains

SCHEMA: Final = "trainmaster.maintenance/v1"
_YEAR_S: Final = 366 * 86_400.0
_ID: Final = re.compile(r"op-\d+")
_NAME_FIX: Final = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"


class Asked(Value):
    """What a file, or a command line, asks for, as the API takes it."""

    operations: tuple[OperationAsk, ...] = ()
    """Each has a key, and stands behind those that it comes after; keys hold within this value only, see `keyed`."""
    gangs: tuple[GangRequest, ...] = ()
    versions: tuple[VersionRequest, ...] = ()
    rollouts: tuple[RolloutRequest, ...] = ()
    trains: tuple[TrainRequest, ...] = ()


def keyed(asked: Asked, prefix: str) -> Asked:
    """With keys that no other request has: asking for the same value again asks for the same operations."""
    keys = {each.key for each in asked.operations}
    operations = []
    for each in asked.operations:
        after = tuple(OperationId(f"{prefix}/{name}") if name in keys else name for name in each.spec.after)
        operations.append(OperationAsk(spec=each.spec.but(after=after), key=f"{prefix}/{each.key}"))
    return asked.but(operations=tuple(operations))


def load(file: Path) -> Asked:
    """Reads a maintenance file. Raises `trainmaster.live.tomlfile.FileError` with all problems."""
    document = Document(file, "maintenance file")
    root = document.root
    document.check_schema(SCHEMA)
    reason = root.text("reason", "")
    operations = [_operation(table, reason) for table in root.tables("operation")]
    found = Asked(
        operations=_in_order(document, operations),
        gangs=tuple(_gang(table, reason) for table in root.tables("gang")),
        versions=tuple(_target(table, reason) for table in root.tables("target")),
        rollouts=tuple(_rollout(table, reason) for table in root.tables("rollout")),
        trains=tuple(TrainRequest(train=wish, reason=reason) for wish in read_trains(root)),
    )
    root.finish()
    if found == Asked() and not document.problems:
        document.note(("operation",), "the file asks for nothing", "add an [[operation]] table")
    document.finish()
    return found


# Operations


class _Row(Value):
    """A table of operations: one a scope."""

    name: str
    scopes: tuple[tuple[str, ...], ...]
    spec: OperationSpec
    after: tuple[str, ...]
    """Names of the file."""

    def keys(self, place: int) -> Iterator[str]:
        """A key a scope."""
        name = self.name or str(place + 1)
        return (name if len(self.scopes) == 1 else f"{name}/{number}" for number, _ in enumerate(self.scopes, 1))


def _operation(table: Table, reason: str) -> _Row:
    name, after = table.text("name", "", may_be_empty=False), table.texts("after", ())
    kind, component, version = _work(table)
    scopes = _scopes(table)
    spec = OperationSpec(
        kind=kind,
        scope=scopes[0] if scopes else (),
        component=component,
        version=version,
        priority=Priority(table.choice("priority", Priority.PLANNED.value, [each.value for each in Priority])),
        after=tuple(OperationId(word) for word in after if _ID.fullmatch(word)),
        not_before=table.instant("not_before"),
        deadline=table.instant("deadline"),
        reason=table.text("reason", reason),
    )
    if spec.not_before is not None and spec.deadline is not None and spec.deadline <= spec.not_before:
        table.note("deadline", "it should be done before it may begin", "put deadline behind not_before")
    if _ID.fullmatch(name):
        table.note("name", f"{name!r} looks like the id of an operation", "choose a name that is not op-NUMBER")
    elif name and not NAME_PATTERN.fullmatch(name):
        table.note("name", f"{name!r} is not a name", _NAME_FIX)
    elif name.isdigit():
        table.note("name", f"{name!r} is a number", "choose a name with a letter: tables are counted by numbers")
    table.finish()
    names = tuple(word for word in after if not _ID.fullmatch(word))
    return _Row(name=name, scopes=scopes, spec=spec, after=names)


def _work(table: Table) -> tuple[KindName, ComponentName, str]:
    component, version = table.text("component", ""), table.text("version", "")
    kind = table.text("kind", UPGRADE if component else "")
    if not kind:
        table.note("kind", "neither a kind nor a component", 'add component and version, or kind, such as "reboot"')
    elif kind == UPGRADE and not component:
        table.note("component", "an upgrade needs a component", "add component and version, or choose another kind")
    elif kind != UPGRADE and component:
        table.note("component", f"a {kind} has no component", 'remove it, or write kind = "upgrade"')
    if component and not version:
        table.note("version", "an upgrade needs a version", "add version")
    return KindName(kind), ComponentName(component), version


def _scopes(table: Table) -> tuple[tuple[str, ...], ...]:
    """A scope a host, or one scope."""
    hosts, scope = hosts_of(table, "hosts", optional=True), table.texts("scope", ())
    if table.has("hosts") and table.has("scope"):
        table.note("scope", "both hosts and scope are given", "hosts: an operation for each; scope: one on all of them")
    elif not table.has("hosts") and not scope:
        fix = 'add hosts = "h[0-3]" (an operation for each) or scope = ["rack/R"] (one on all of it)'
        table.note("hosts", "it says not where", fix)
    wrong = [word for word in scope if "/" not in word]
    if wrong:
        table.note("scope", f"{wrong[0]!r} is not a resource", f'write KIND/NAME: "host/{wrong[0]}", "rack/R"')
    if table.has("hosts"):
        return tuple((f"host/{host}",) for host in hosts)
    return (scope,) if scope else ()


def hosts_of(table: Table, key: str, optional: bool = False) -> tuple[HostId, ...]:
    """The hosts of a list; what can't be read is noted."""
    text = table.text(key, "" if optional else None, may_be_empty=False)
    try:
        return parse(text) if text else ()
    except HostListError as error:
        table.note(key, f"{error.reason} at character {error.position + 1} of {text!r}", error.fix)
        return ()


def _in_order(document: Document, rows: Sequence[_Row]) -> tuple[OperationAsk, ...]:
    """Those that others come after first. Notes names that stand twice or nowhere, and circles."""
    names: dict[str, int] = {}
    for place, row in enumerate(rows):
        if row.name in names:
            fix = f"table {names[row.name] + 1} has it; choose another"
            document.note(("operation", place, "name"), f"{row.name!r} stands twice", fix)
        if row.name:
            names.setdefault(row.name, place)
    for place, row in enumerate(rows):
        unknown = [name for name in row.after if name not in names]
        if unknown:
            fix = f"known are {', '.join(sorted(names)) or 'none'}, and ids"
            path = ("operation", place, "after")
            document.note(path, f"no operation of this file is named {unknown[0]!r}", fix)
    total = sum(len(row.scopes) for row in rows)
    if total > OPERATIONS_MAX:
        fix = f"at most {OPERATIONS_MAX:,} fit into a file; declare a train for more"
        document.note(("operation",), f"these are {total:,} operations", fix)
    return tuple(_asks(rows, names, _sorted(document, rows, names)))


def _asks(rows: Sequence[_Row], names: dict[str, int], order: Sequence[int]) -> Iterator[OperationAsk]:
    for place in order:
        row = rows[place]
        before = [key for name in row.after if name in names for key in rows[names[name]].keys(names[name])]
        after = (*row.spec.after, *(OperationId(key) for key in before))
        for scope, key in zip(row.scopes, row.keys(place), strict=True):
            yield OperationAsk(spec=row.spec.but(scope=scope, after=after), key=key)


def _sorted(document: Document, rows: Sequence[_Row], names: dict[str, int]) -> Sequence[int]:
    done: dict[int, None] = {}
    rest = list(range(len(rows)))
    while rest:
        ready = [place for place in rest if all(name not in names or names[name] in done for name in rows[place].after)]
        if not ready:
            circle = " -> ".join(_circle(rows, names, rest))
            document.note(("operation", rest[0], "after"), f"they wait for each other: {circle}", "remove one of them")
            return ()
        done.update(dict.fromkeys(ready))
        rest = [place for place in rest if place not in done]
    return tuple(done)


def _circle(rows: Sequence[_Row], names: dict[str, int], rest: Sequence[int]) -> list[str]:
    """Names along a circle, the first once more at its end."""
    path: list[int] = []
    place = rest[0]
    while place not in path:
        path.append(place)
        place = next(names[name] for name in rows[place].after if names.get(name) in rest)
    return [rows[each].name for each in (*path[path.index(place) :], place)]


# Versions and jobs


def _target(table: Table, reason: str) -> VersionRequest:
    component, version = table.text("component", may_be_empty=False), table.text("version", may_be_empty=False)
    found = VersionRequest(component=ComponentName(component), version=version, reason=table.text("reason", reason))
    table.finish()
    return found


def _rollout(table: Table, reason: str) -> RolloutRequest:
    usual = RolloutRequest(component=ComponentName("any"), version="any")
    pool = hosts_of(table, "hosts", optional=True)
    found = RolloutRequest(
        component=ComponentName(table.text("component", may_be_empty=False)),
        version=table.text("version", may_be_empty=False),
        hosts=table.text("hosts", ""),
        canary=table.integer("canary_hosts", usual.canary, 0, 100_000),
        stages=_stages(table),
        criteria=_criteria(table.table("criteria")),
        soak_s=table.number("soak_s", usual.soak_s, 0.0, _YEAR_S),
        unproven_percent=table.number("unproven_percent", usual.unproven_percent, 0.0, 100.0),
        stage_limit_s=table.number("stage_limit_s", usual.stage_limit_s, 0.0, _YEAR_S),
        on_failure="hold" if table.choice("on_failure", "roll-back", get_args(OnFailure)) == "hold" else "roll-back",
        reason=table.text("reason", reason),
    )
    for problem in spec_problems(_as_spec(found, pool)):
        table.document.note((*table.path, "stages"), problem, "correct it")
    table.finish()
    return found


def _as_spec(asked: RolloutRequest, pool: tuple[HostId, ...]) -> RolloutSpec:
    """As the core will see it; a pool that only the server knows is one host here."""
    return RolloutSpec(
        component=asked.component,
        version=asked.version,
        pool=pool or (HostId("any"),),
        canary=asked.canary,
        stages=asked.stages,
        criteria=asked.criteria,
        soak=seconds(asked.soak_s),
        unproven_percent=asked.unproven_percent,
        stage_limit=seconds(asked.stage_limit_s),
        on_failure=asked.on_failure,
    )


def _stages(table: Table) -> Strategy:
    """Percentages unless another way is named."""
    ways = [key for key in ("percents", "stage_hosts", "first_hosts") if table.has(key)]
    if len(ways) > 1:
        table.note(ways[1], f"{' and '.join(ways)} say different things", "keep one of them")
    usual = Exponential()
    first = table.integer("first_hosts", usual.first, 1, 100_000)
    factor = table.number("factor", usual.factor, 1.0, 1000.0)
    if table.has("factor") and not table.has("first_hosts"):
        table.note("factor", "it belongs to first_hosts", "add first_hosts, or remove it")
    fixed = table.integer("stage_hosts", 1, 1, 100_000)
    percents = table.numbers("percents", Percentages().percents)
    match ways:
        case ["stage_hosts", *_]:
            return Fixed(hosts=fixed)
        case ["first_hosts", *_]:
            return Exponential(first=first, factor=factor)
        case _:
            return Percentages(percents=percents)


def _criteria(table: Table) -> Criteria:
    usual = Criteria()
    found = Criteria(
        alpha=table.number("alpha", usual.alpha, 0.0, 1.0),
        beta=table.number("beta", usual.beta, 0.0, 1.0),
        theta=table.number("theta", usual.theta, 0.0, 1000.0),
        tolerable=table.number("tolerable", usual.tolerable, 0.0, 1.0),
        unacceptable=table.number("unacceptable", usual.unacceptable, 0.0, 1.0),
    )
    table.finish()
    return found


def _gang(table: Table, reason: str) -> GangRequest:
    found = GangRequest(
        job=table.text("job", may_be_empty=False),
        component=ComponentName(table.text("component", may_be_empty=False)),
        version=table.text("version", may_be_empty=False),
        reason=table.text("reason", reason),
    )
    table.finish()
    return found
