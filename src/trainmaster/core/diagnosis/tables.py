"""Tables and small JSON files that people measure by hand or export: times of ranks, tests in pairs, campaigns of
tests, attempts of a job, checks before a start, listings of processes and partitions, the shape of a job.

A table is known by the words of its header. One column names who (`rank`, `node`, `host`, `pair`), the others what was
measured; the unit of time does not matter, since values are compared with each other only. Where a `step` stands beside
a rank, the values are a history. Keys of `NAME=value` lines are taken as they are.
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from trainmaster.core.diagnosis.evidence import (
    Checked,
    Ended,
    Evidence,
    Partition,
    Remark,
    Round,
    Standing,
    Times,
    Trial,
    Unusable,
    What,
)
from trainmaster.core.recovery.port_conflict import port_conflict

_WHO: Final = ("rank", "node", "host", "worker", "hostname", "gpu", "device")
_STEP: Final = ("step", "iteration", "iter", "batch")
_PAIR: Final = ("pair", "nodes", "hosts", "members")
_PAIR_LEFT: Final = ("a", "left", "first", "src", "node_a", "host_a", "rank_a", "node1", "host1", "rank1", "from")
_PAIR_RIGHT: Final = ("b", "right", "second", "dst", "node_b", "host_b", "rank_b", "node2", "host2", "rank2", "to")
_NOT_MEASURED: Final = ("pid", "port", "gpus", "local_rank", "world_size", "seed", "epoch", "attempt", "pod", "id")
_KEYED: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_PS: Final = re.compile(r"^\s*PID\s+\S*STAT", re.MULTILINE)
_SINFO: Final = re.compile(r"^(\S+?)\*?\s+(up|down|drain|inact)\s+(?:\S+\s+)?(\d+)\s+([a-z]+[*~#!%$@+-]*)\s+(\S+)\s*$")
_LAUNCH: Final = re.compile(r"--rdzv[_-]endpoint[= ](\[[^\]]+\]|[^\s:]+)(?::(\d+))?")
_ERRNO: Final = re.compile(r"errno:? 98")
_NNODES: Final = re.compile(r"--nnodes[= ](\d+)(?::(\d+))?")
Rows = list[dict[str, str]]


def read_csv(file: str, text: str) -> Evidence | None:
    """The evidence of a table with a header; None: it is no table of a kind that is known. Raises `Unusable`."""
    try:
        return _read_csv(file, text)
    except csv.Error:  # lines with carriage returns, or longer than any cell: a log
        return None


def _read_csv(file: str, text: str) -> Evidence | None:
    mark = "\t" if "\t" in text.split("\n", 1)[0] else ","
    head = [name.strip().lower() for name in next(csv.reader([text.split("\n", 1)[0]], delimiter=mark), [])]
    if len(head) < 2 or not all(re.fullmatch(r"[a-z_][\w .()/%-]{0,40}", name) for name in head):
        return None
    rows: Rows = []
    for number, cells in enumerate(csv.reader(text.strip().split("\n")[1:], delimiter=mark), 2):
        if not cells:
            continue
        if len(cells) != len(head):
            reason = f"{len(cells)} cells, and the header has {len(head)}"
            raise Unusable(f"{file}, line {number}", reason, "give every row a value for each column")
        rows.append(dict(zip(head, (cell.strip() for cell in cells), strict=True)))
    return read_rows(file, rows)


def read_rows(file: str, rows: Rows) -> Evidence | None:
    """The evidence of rows with lower-case names."""
    if not rows:
        return None
    head = list(rows[0])
    readers: tuple[Callable[[str, Rows, list[str]], Evidence | None], ...] = (
        _counters, _pairs, _trials, _attempts, _checks, _history, _times,
    )  # fmt: skip
    return next((found for reader in readers if (found := reader(file, rows, head)) is not None), None)


def _counters(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    """How far each rank has come, as somebody wrote it down."""
    entered = next((name for name in head if re.search(r"enqueued|launched|entered", name)), "")
    done = next((name for name in head if re.search(r"completed|finished", name)), "")
    if "rank" not in head or not (entered and done) or not all(_numeric(rows, n) for n in ("rank", entered, done)):
        return None
    standings = tuple(
        Standing(
            rank=int(row["rank"]), group=row.get("group", row.get("pg", "0")), enqueued=int(float(row[entered])),
            completed=int(float(row[done])), source="table", place=file,
        )
        for row in rows
    )  # fmt: skip
    return Evidence(standings=standings)


def _pairs(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    whole = next((name for name in _PAIR if name in head), "")
    left = next((name for name in _PAIR_LEFT if name in head), "")
    right = next((name for name in _PAIR_RIGHT if name in head), "")
    if not whole and not (left and right):
        return None
    value = next((name for name in head if name not in (whole, left, right, "round") and _numeric(rows, name)), "")
    if not value:
        return None
    rounds: dict[str, list[tuple[str, str, float]]] = {}
    for number, row in enumerate(rows, 2):
        members = re.split(r"[,;:/ &+-]+", row[whole].strip("[]() ")) if whole else [row[left], row[right]]
        if len(members) != 2 or not all(members):
            reason = f"{row[whole] if whole else row}: a pair has two members"
            raise Unusable(f"{file}, line {number}", reason, 'write a pair as "0,1"')
        rounds.setdefault(row.get("round", ""), []).append((members[0], members[1], float(row[value])))
    return Evidence(rounds=tuple(Round(pairs=tuple(pairs), place=file) for pairs in rounds.values()))


def _trials(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    run = next(
        (name for name in head if re.search(r"(tests?|programs?|jobs?|cases)_?(run|total|count|ran)?$", name)), ""
    )
    bad = next((name for name in head if re.search(r"with_fault|failing|failed|fail(ure)?s$", name)), "")
    who = next((name for name in _WHO if name in head), "")
    if not (run and bad and who) or not (_numeric(rows, run) and _numeric(rows, bad)):
        return None
    faults = next((name for name in head if name not in (run, bad, who) and _numeric(rows, name)), bad)
    trials = [
        Trial(host=row[who], programs=int(float(row[run])), failing=int(float(row[bad])),
              faults=int(float(row[faults])), place=file)
        for row in rows
    ]  # fmt: skip
    return Evidence(trials=tuple(trials))


def _attempts(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    if "attempt" not in head or not {"error", "exit_code", "exit_reason", "reason"} & set(head):
        return None
    return Evidence(endings=tuple(_ending(file, row) for row in rows))


def _ending(place: str, row: Mapping[str, str]) -> Ended:
    number, code, uptime, steps = (_number(row.get(name, "")) for name in ("attempt", "exit_code", "uptime_s", "steps"))
    uptime = uptime if uptime is not None else _number(row.get("uptime", ""))
    steps = steps if steps is not None else _number(row.get("step", ""))
    return Ended(
        number=int(number or 0),
        host=row.get("host", row.get("node", row.get("first_host", ""))),
        exit_code=int(code) if code is not None else None,
        uptime_s=uptime,
        error=row.get("error", row.get("exit_reason", row.get("reason", ""))),
        place=place,
        steps=int(steps) if steps is not None else None,
    )


def _checks(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    who = next((name for name in ("host", "node", "hostname", "name") if name in head), "")
    if "status" not in head or not who:
        return None
    checks = [
        Checked(
            id=int(_number(row.get("id", "")) or number),
            rank=int(_number(row.get("rank", "")) or 0),
            host=row[who],
            status=row["status"].upper(),
            place=file,
        )
        for number, row in enumerate(rows)
    ]
    return Evidence(checks=tuple(checks))


def _history(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    """Values step by step: a row a step and rank, or a row a step with a column a rank."""
    step = next((name for name in _STEP if name in head), "")
    if not step or not _numeric(rows, step):
        return None
    who = next((name for name in _WHO if name in head), "")
    found: list[Times] = []
    if who:
        for name in head:
            if name not in (step, who, *_NOT_MEASURED) and _numeric(rows, name):
                cells = [(int(float(row[step])), row[who], float(row[name])) for row in rows]
                found.append(history(name, "rank" if who in ("rank", "worker") else "host", cells, file))
    else:
        columns = [name for name in head if re.fullmatch(r"(?:rank|r|worker|node|host|gpu)[_ -]?\d+.*", name)]
        if len(columns) >= 2 and all(_numeric(rows, name) for name in columns):
            names = {name: (re.search(r"\d+", name) or [name])[0] for name in columns}
            cells = [(int(float(row[step])), names[name], float(row[name])) for row in rows for name in columns]
            found.append(history("step", "host" if columns[0][0] in "nh" else "rank", cells, file))
    return Evidence(times=tuple(found)) if found else None


def history(metric: str, unit: str, cells: Sequence[tuple[int, str, float]], place: str) -> Times:
    """A measure step by step, with the median of each rank or host beside it."""
    by_who: dict[str, list[float]] = {}
    for _, who, value in cells:
        by_who.setdefault(who, []).append(value)
    medians = tuple((who, median(values)) for who, values in by_who.items())
    steps = {step for step, _, _ in cells}
    return Times(metric=metric, unit=unit, values=medians, place=place, rows=tuple(cells) if len(steps) > 1 else ())


def _times(file: str, rows: Rows, head: list[str]) -> Evidence | None:
    who = next((name for name in _WHO if name in head), "")
    if not who or len({row[who] for row in rows}) != len(rows):
        return None
    unit = "rank" if who in ("rank", "worker", "gpu", "device") else "host"
    hosts = next((name for name in ("host", "node", "hostname") if name in head and name != who), "")
    measured = [name for name in head if name not in (who, hosts, *_NOT_MEASURED) and _numeric(rows, name)]
    times = [
        Times(metric=name, unit=unit, values=tuple((row[who], float(row[name])) for row in rows), place=file)
        for name in measured
    ]
    known = tuple((int(row[who]), row[hosts]) for row in rows if hosts and row[who].isdigit())
    return Evidence(times=tuple(times), hosts=known) if times else None


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the two in the middle."""
    assert values
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _numeric(rows: Rows, name: str) -> bool:
    return bool(rows) and all(_number(row.get(name, "")) is not None for row in rows)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -1e300 < value < 1e300 else None


def read_keyed(file: str, text: str) -> Evidence | None:
    """Lines of `attempt=0 exit_code=1 ...`."""
    if "attempt=" not in text.lower():
        return None
    rows = []
    for line in text.splitlines():
        if "attempt=" not in line.lower():
            continue
        row = {key.lower(): _unquoted(value) for key, value in _KEYED.findall(line[:4000])}
        if "attempt" in row and ("error" in row or "exit_code" in row):
            rows.append(row)
    return Evidence(endings=tuple(_ending(file, row) for row in rows)) if rows else None


def _unquoted(value: str) -> str:
    return value[1:-1].replace('\\"', '"') if value.startswith('"') and len(value) > 1 else value


def read_listing(file: str, text: str) -> Evidence | None:
    """A listing of processes (`ps`), or of partitions (`sinfo`)."""
    if _PS.search(text[:2000]):
        return Evidence(listing=text)
    first = text.lstrip()[:4000].partition("\n")[0]
    if not first.startswith("PARTITION") and not _SINFO.match(first):
        return None
    rows = [_SINFO.match(line) for line in text.strip().splitlines() if not line.startswith("PARTITION")]
    if rows and all(rows):
        partitions = [
            Partition(name=row[1], up=row[2] == "up", count=int(row[3]), state=row[4], hosts=row[5])
            for row in rows if row is not None
        ]  # fmt: skip
        return Evidence(partitions=tuple(partitions))
    return None


def read_launch(text: str) -> Evidence | None:
    """The command line of a launcher, where it says which host has the store."""
    found = _LAUNCH.search(text[:20_000])
    nodes = _NNODES.search(text[:20_000])
    if not found:
        return None
    low = int(nodes.group(1)) if nodes else None
    span = (low, int(nodes.group(2) or low)) if nodes and low is not None else None
    return Evidence(endpoint=found.group(1), nodes_min_max=span)


def read_port(file: str, text: str) -> Evidence | None:
    """A port that was taken, in the text of an error."""
    lower = text.lower()  # for a whole log, this is faster than asking a pattern that ignores case
    if not any(word in lower for word in ("address already in use", "eaddrinuse")) and not _ERRNO.search(lower):
        return None
    conflict = port_conflict(text)
    if conflict is None:
        return None
    line = next((line for line in text.splitlines() if port_conflict(line) is not None), "")
    said = Remark(what=What.PORT_TAKEN, text=" ".join(line.split())[:300], place=file)
    return Evidence(conflict=conflict, remarks=(said,))


def read_json(file: str, tree: object) -> Evidence | None:
    """A small JSON file: rows, or the shape of a job. None: nothing of it is known. Raises `Unusable`."""
    if isinstance(tree, list):
        if not tree or not all(isinstance(row, dict) for row in tree):
            return None
        return read_rows(file, [{str(key).lower(): _text(value) for key, value in row.items()} for row in tree])
    if not isinstance(tree, dict):
        return None
    for value in tree.values():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            found = read_json(file, value)
            if found is not None:
                return found
    return _shape(file, tree)


def _shape(file: str, tree: dict[str, Any]) -> Evidence | None:
    world = tree.get("world_size", tree.get("world"))
    hosts = tree.get("hosts", tree.get("rank_to_host"))
    by_rank: list[tuple[int, str]] = []
    if isinstance(hosts, dict):
        by_rank = [(int(rank), str(host)) for rank, host in hosts.items() if str(rank).isdigit()]
    elif isinstance(hosts, list) and isinstance(world, int) and hosts and world % len(hosts) == 0:
        by_rank = [(rank, str(hosts[rank // (world // len(hosts))])) for rank in range(world)]
    workers, nodes = tree.get("workers"), tree.get("whole_nodes", tree.get("nodes"))
    timeout = tree.get("timeout_s", tree.get("collective_timeout_s"))
    found = Evidence(
        world=world if isinstance(world, int) and not isinstance(world, bool) and world > 0 else None,
        hosts=tuple(by_rank),
        initial_workers=workers if isinstance(workers, int) else None,
        wanted_hosts=nodes if isinstance(nodes, int) else None,
        timeout_s=float(timeout) if isinstance(timeout, int | float) else None,
        endpoint=str(tree.get("rdzv_endpoint", "")).partition(":")[0],
    )
    if found == Evidence():
        return Evidence(notes=(f"{file}: read, and nothing in it bears on the question",))
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return (
        msgspec.json.encode(value).decode() if isinstance(value, dict | list) else "" if value is None else str(value)
    )
