"""From one file to evidence. The form is told from the content, the name helps with ranks and hosts only.

JSON goes to the flight recorder's reader, to torchrun's error files, to tables; text first to what has a form of its
own (RAS, tables, listings), the rest is read line by line as a log. What is none of these is refused, with the place
and what to give instead: an input that was not understood must not look like one in which nothing was wrong.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from trainmaster.core.agent.failure import from_record
from trainmaster.core.base.time import Instant
from trainmaster.core.diagnosis import flight, log_events, ras, ring, tables
from trainmaster.core.diagnosis.evidence import Evidence, Remark, Unusable, What
from trainmaster.core.diagnosis.quiet import Shapes
from trainmaster.core.diagnosis.remarks import Teller, lines_of
from trainmaster.core.diagnosis.stamp import of_epoch
from trainmaster.core.diagnosis.watchdog import Watchdogs

_HOST_NAME: Final = re.compile(
    r"^([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*-?\d+)(?:[._-](?:rank\D?\d+|log|err|out|txt|stderr|stdout|\d+))*$"
)
_RANK_NAME: Final = re.compile(
    r"(?:rank|worker|trainer|task)[-_.]?(\d{1,7})|^(\d{1,6})[./]|/(\d{1,6})/(?:stderr|stdout|error)"
)
_FORMS: Final = "give dumps of the flight recorder, logs, output of ncclras, or a table with a header"


def read_text(file: str, text: str, snapshot: int = 0) -> Evidence:
    """The evidence in a file's text. `snapshot` numbers reports of one kind in the order given. Raises `Unusable`."""
    plain = text.removeprefix("\ufeff")
    if "\x1b" in plain:
        plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", plain)
    if not plain.strip():
        raise Unusable(file, "the file is empty, which tells nothing", _FORMS)
    start = plain.lstrip()[:1]
    if start in "{[":
        tree = _json(file, plain)
        if tree is not None:
            return read_tree(file, tree[0])
    if ras.is_report(plain):
        return ras.read(file, plain, snapshot)
    own = tables.read_csv(file, plain) or tables.read_keyed(file, plain) or tables.read_listing(file, plain)
    return own if own is not None else _log(file, plain)


def read_tree(file: str, tree: object) -> Evidence:
    """The evidence in what a JSON file or a pickle held. Raises `Unusable`."""
    if flight.is_dump(tree):
        return flight.read(file, tree)
    if ring.is_ring(tree):
        return ring.read(file, tree)
    if log_events.is_log(tree):
        return log_events.read(file, tree)
    failure = _error_file(file, tree)
    found = failure or tables.read_json(file, tree)
    if found is None:
        raise Unusable(file, "this JSON is no dump, no error file and no table that is known", _FORMS)
    return found


def _json(file: str, text: str) -> tuple[object] | None:
    """The tree in a tuple; None: it is no JSON, but lines that begin like it."""
    try:
        return (msgspec.json.decode(text),)
    except RecursionError as error:
        raise Unusable(file, "it is nested too deeply", _FORMS) from error
    except msgspec.DecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return ([msgspec.json.decode(line) for line in lines],)
        except (msgspec.DecodeError, RecursionError):
            whole = re.match(r"\{\s*(?:[\"}]|$)|\[\s*(?:[\"{\[\]]|$)", text.lstrip()) is not None
            if whole:
                raise Unusable(file, f"it begins as JSON and is none: {error}", "give the whole file") from error
            return None


def _error_file(file: str, tree: object) -> Evidence | None:
    """What torchrun's `@record` or we wrote for a rank that failed."""
    if not isinstance(tree, dict) or not ({"message", "exception"} & tree.keys()):
        return None
    failure = from_record(msgspec.json.encode(tree), Instant(0))
    if failure is None:
        return None
    said = f"{failure.exception}: {failure.message}" if failure.exception else failure.message
    extra = tree["message"].get("extraInfo") if isinstance(tree.get("message"), dict) else None
    stamp = str(extra.get("timestamp", "")) if isinstance(extra, dict) else ""
    teller = Teller(file, rank_of(file), host_of(file))
    teller.read(["Traceback (most recent call last):", f"{said}"], (0,))
    found = teller.found[:1] or [Remark(what=What.EXCEPTION, text=said, rank=rank_of(file), place=file)]
    at_us = of_epoch(int(stamp) * 1_000_000) if stamp.isdigit() and len(stamp) < 12 else None
    return Evidence(remarks=tuple(each.but(at_us=at_us, location=failure.location) for each in found))


def rank_of(file: str) -> int | None:
    found = _RANK_NAME.search(file)
    return int(next(part for part in found.groups() if part is not None)) if found else None


def host_of(file: str) -> str:
    """The host that the name of a log tells (`gpu-002.log`); empty: none."""
    name = file.rpartition("/")[2].rpartition(".")[0] or file
    found = _HOST_NAME.match(name)
    return found.group(1) if found and not re.match(r"(?:rank|run|round|attempt|part|trace|node_?rank)", name) else ""


def _log(file: str, text: str) -> Evidence:
    launch = tables.read_launch(text)
    port = tables.read_port(file, text)
    rank, host = rank_of(file), host_of(file)
    watchdogs, teller = Watchdogs(file, rank), Teller(file, rank, host)
    lines = lines_of(text)
    telling = Shapes().telling(lines)
    for place in watchdogs.read(lines, telling):
        lines[place] = ""
    teller.read(lines, telling)
    found = Evidence(
        standings=tuple(watchdogs.standings()),
        remarks=(*watchdogs.remarks, *teller.found, *(port.remarks if port and not teller.found else ())),
        conflict=port.conflict if port else None,
        endpoint=launch.endpoint if launch else "",
        nodes_min_max=launch.nodes_min_max if launch else None,
    )
    if found == Evidence():
        readable = sum(character.isprintable() or character in "\t\n\r" for character in text[:4000])
        if readable < 0.9 * len(text[:4000]):
            raise Unusable(file, "it is no text", _FORMS)
        return Evidence(notes=(f"{file}: {len(lines)} lines, none of which tells of a failure",))
    return found


def read_all(files: Sequence[tuple[str, str]]) -> Evidence:
    """The evidence of several texts: (name, text). Raises `Unusable`."""
    from trainmaster.core.diagnosis.evidence import joined

    return joined(read_text(file, text, number) for number, (file, text) in enumerate(files))
