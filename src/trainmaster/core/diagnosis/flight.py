"""Dumps of PyTorch's flight recorder, as JSON or as what a pickle held, of versions 1 (a bare list) to 2.13.

The rank of a dump stands in the name of its file (`nccl_trace_rank_3`); some tools write it inside as well, and then
that counts. Sequence numbers are of the group; the members stand in `pg_config` as a list, as text of a list, or as
text of text of a list. Point-to-point operations are left out: they have numbers of their own and no set of ranks that
must come.

Under gloo the recorder of 2.13 is of little use: every entry stays `scheduled` and the collective that hangs counts as
completed. Then only "entered" is taken from it, which is enough to see who is missing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from trainmaster.core.diagnosis.evidence import Call, Evidence, Group, Standing, Unusable

KEPT: Final = 96
"""Calls kept of each group, from the end; a ring is longer than what a diagnosis looks at."""
_LONGEST: Final = 4096
_RANK: Final = re.compile(r"(?:rank|trace|dump|fr)\D{0,3}(\d{1,7})(?=\D|$)|(\d{1,7})(?:\.\w+)*$", re.IGNORECASE)
_FIX: Final = "give a dump of the flight recorder (TORCH_FR_DUMP_TEMP_FILE names them), whole"


def rank_of_name(file: str) -> int | None:
    """The rank that the name of a file tells."""
    name = file.rpartition("/")[2]
    found = list(_RANK.finditer(name))
    return int(found[-1].group(1) or found[-1].group(2)) if found else None


def is_dump(tree: object) -> bool:
    """Whether a tree looks like a dump."""
    if isinstance(tree, dict):
        return "entries" in tree or ("pg_status" in tree and "pg_config" in tree)
    first = tree[0] if isinstance(tree, list) and tree else None
    return isinstance(first, dict) and "profiling_name" in first


def read(file: str, tree: object) -> Evidence:
    """Raises `Unusable`."""
    assert is_dump(tree)
    top: dict[str, Any] = tree if isinstance(tree, dict) else {"entries": tree}
    told = top.get("rank")
    rank = told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else rank_of_name(file)
    if rank is None:
        raise Unusable(file, "this dump does not say of which rank it is", "keep the rank in its name: trace_rank_3")
    entries = top.get("entries")
    if entries is None:
        entries = []
    if not isinstance(entries, list | tuple):
        raise Unusable(file, "`entries` is no list", _FIX)
    groups = _groups(file, top.get("pg_config"))
    calls = {name: _newest(its) for name, its in _by_group(file, entries).items()}
    status = top.get("pg_status")
    status = status if isinstance(status, dict) else {}
    names = list(dict.fromkeys([*calls, *(_word(name) for name in status)]))
    standings = [
        each for name in names if (each := _standing(file, rank, name, calls.get(name, {}), _status(status, name)))
    ]
    host = top.get("hostname") or top.get("host_name") or top.get("host")
    known = ((rank, host),) if isinstance(host, str) and host else ()
    return Evidence(standings=tuple(standings), groups=groups, dumps=(rank,), hosts=known)


def _by_group(file: str, entries: Sequence[object]) -> dict[str, dict[int, tuple[int, dict[str, Any]]]]:
    """(position, entry) of each collective, by group and sequence number."""
    found: dict[str, dict[int, tuple[int, dict[str, Any]]]] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise Unusable(f"{file}, entry {number}", "an entry is no mapping", _FIX)
        if entry.get("is_p2p") or _word(entry.get("profiling_name")).rpartition(":")[2].startswith(("send", "recv")):
            continue
        seq = next((entry[key] for key in ("collective_seq_id", "seq_id", "seq") if _is_count(entry.get(key))), None)
        if seq is None:
            raise Unusable(f"{file}, entry {number}", "an entry without a sequence number", _FIX)
        found.setdefault(_group_name(entry), {})[seq] = number, entry
    return found


def _newest(rows: dict[int, tuple[int, dict[str, Any]]]) -> dict[int, Call]:
    """The last of a group's collectives; the many before them say nothing more."""
    return {seq: _call(seq, rows[seq][1]) for seq in sorted(rows)[-KEPT:]}


def _call(seq: int, entry: dict[str, Any]) -> Call:
    backend, _, op = _word(entry.get("profiling_name")).partition(":")
    op = op or backend
    state = _word(entry.get("state"))
    done: bool | None = state == "completed" or bool(entry.get("time_discovered_completed_ns"))
    if backend == "gloo" and state == "scheduled":
        done = None
    at_ns = entry.get("time_created_ns") or entry.get("time_created_us", 0)
    unit = 1000 if "time_created_ns" in entry else 1
    return Call(
        seq=seq,
        op=op.lower().lstrip("_"),
        done=done,
        sizes=_sizes(entry.get("input_sizes")),
        outputs=_sizes(entry.get("output_sizes")),
        dtypes=_words(entry.get("input_dtypes")),
        at_us=at_ns // unit if isinstance(at_ns, int) and at_ns else None,
        frames=_frames(entry.get("frames")),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _word(value: object) -> str:
    """Text, or a number as text; anything else is `?`, since a crafted value may be of any size."""
    if isinstance(value, str):
        return value[:300]
    return str(value) if _is_count(value) else "?"


def _words(value: object) -> tuple[str, ...]:
    return tuple(_word(each) for each in value[:_LONGEST]) if isinstance(value, list | tuple) else ()


def _group_name(entry: dict[str, Any]) -> str:
    named = entry.get("process_group")
    if isinstance(named, list | tuple) and named:
        return _word(named[0])
    return _word(named if isinstance(named, str) else entry.get("pg_name", entry.get("pg_id", "0")))


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    rows = value if isinstance(value, list | tuple) else ()
    return tuple(
        tuple(int(each) for each in row if _is_count(each)) for row in rows[:_LONGEST] if isinstance(row, list | tuple)
    )


def _frames(value: object) -> tuple[str, ...]:
    frames = value if isinstance(value, list | tuple) else ()
    texts = []
    for frame in frames[:32]:
        if isinstance(frame, dict):
            texts.append("{} from {}:{}".format(*(_word(frame.get(key)) for key in ("name", "filename", "line"))))
        elif isinstance(frame, str):
            texts.append(frame[:300])
    return tuple(texts)


def _groups(file: str, config: object) -> tuple[Group, ...]:
    if not isinstance(config, dict):
        return ()
    found = []
    for name, described in config.items():
        if not isinstance(described, dict):
            continue
        ranks = _ranks(f"{file}, pg_config {_word(name)}", described.get("ranks"))
        if ranks:
            found.append(Group(name=_word(name), ranks=ranks, title=_word(described.get("desc"))))
    return tuple(found)


def _ranks(place: str, value: object) -> tuple[int, ...]:
    """Members, from a list or from text of one (or text of text of one). Nothing is evaluated."""
    for _ in range(3):
        if not isinstance(value, str):
            break
        if not value.strip():
            return ()
        text = value.strip()
        if text[0] == "(" and text[-1] == ")":
            text = f"[{text[1:-1].rstrip(',')}]"
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unusable(place, f"the ranks {text[:40]!r} are no list", _FIX) from error
    rows = value if isinstance(value, list | tuple) else ()
    if not all(_is_count(each) for each in rows):
        raise Unusable(place, "the ranks are no numbers", _FIX)
    return tuple(sorted(rows))


def _standing(file: str, rank: int, name: str, calls: dict[int, Call], status: object) -> Standing | None:
    told = status if isinstance(status, dict) else {}
    ordered = [calls[seq] for seq in sorted(calls)]
    blind = bool(ordered) and all(call.done is None for call in ordered)
    enqueued = max([call.seq for call in ordered] + _told(told, "last_enqueued_collective"), default=None)
    if enqueued is None:
        return None
    completed: int | None = None
    if not blind:
        completed = _completed(ordered, _told(told, "last_completed_collective"))
    return Standing(
        rank=rank,
        group=name,
        enqueued=enqueued,
        completed=min(completed, enqueued) if completed is not None else None,
        calls=tuple(ordered),
        source="flight",
        place=file,
    )


def _status(status: dict[Any, Any], name: str) -> object:
    return status.get(name, status.get(int(name)) if name.isdigit() else None)


def _told(status: dict[Any, Any], key: str) -> list[int]:
    value = status.get(key)
    return [value] if isinstance(value, int) and not isinstance(value, bool) and value > 0 else []


def _completed(ordered: Iterable[Call], told: list[int]) -> int:
    """The last of the unbroken run of completed ones. The ring may have lost the older ones, which were completed."""
    calls = list(ordered)
    if not calls:
        return told[0] if told else 0
    first_open = next((call.seq for call in calls if not call.done), None)
    if first_open is not None:
        return first_open - 1
    return max([calls[-1].seq, *told])
