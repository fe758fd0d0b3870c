"""What is wrong with a policy.

An *error* makes a policy unusable: an answer that contradicts itself, a code in two rows, a pattern that is none or
that does not name its unit, a relation to a row that does not exist. A *warning* is what is likely not meant: sources
that disagree without a reason why the row is as it is, a repeat that asks for less than one event does.
"""

import collections
import re
from collections.abc import Iterator, Sequence

from trainmaster.core.health.policy import ROLES, UNIT_KINDS, Bits, Code, Counter, Index, Mask, Policy, Row, Text
from trainmaster.core.health.words import contradicts_itself
from trainmaster.core.maintenance.problem import Path, Problem, error, warning

_WITHOUT_A_NAME = ("host", "job", "gpu")


def lint(policy: Policy) -> tuple[Problem, ...]:
    """All problems, table by table."""
    return tuple(_problems(policy))


def _problems(policy: Policy) -> Iterator[Problem]:
    for table, codes in (("xid", policy.xids), ("sxid", policy.sxids)):
        yield from _codes(table, codes)
    known = set(_known(policy))
    for place, text in enumerate(policy.texts):
        path: Path = ("text", place)
        yield from _row(path, f"text {text.id}", text)
        yield from _text(path, text, known)
    for name, count in collections.Counter(text.id for text in policy.texts).items():
        if count > 1:
            yield error(("text",), f"text {name}", f"it is declared {count} times", "merge the rows, or rename one")
    for place, counter in enumerate(policy.counters):
        yield from _row(("counter", place), f"counter {counter.id}", counter)
        yield from _counter(("counter", place), counter)
    for place, bits in enumerate(policy.bits):
        yield from _row(("nvlink_bits", place), f"nvlink_bits {place + 1}", bits)
        yield from _bits(("nvlink_bits", place), bits)
    for place, mask in enumerate(policy.masks):
        yield from _row(("nvlink_mask", place), f"nvlink_mask {mask.sub_unit}", mask)
        yield from _mask(("nvlink_mask", place), mask)


def _counter(path: Path, counter: Counter) -> Iterator[Problem]:
    where = f"counter {counter.id}"
    if _bad_pattern(counter.path) or "unit" not in re.compile(counter.path).groupindex:
        yield error((*path, "path"), where, "the pattern is none, or does not name the unit", "use (?P<unit>...)")
    if counter.kind not in UNIT_KINDS:
        yield error((*path, "kind"), where, f"there is no unit {counter.kind!r}", f"use one of {', '.join(UNIT_KINDS)}")


def _known(policy: Policy) -> Iterator[str]:
    if not any(_bad_pattern(text.pattern) or _bad_pattern(text.then) for text in policy.texts):
        yield from Index(policy).rows


def _row(path: Path, place: str, row: Row) -> Iterator[Problem]:
    if contradicts_itself(row.answer):
        fix = "write ok with none or restart-app; bad with a remedy; or another verdict"
        yield error((*path, "answer"), place, f"{row.answer} contradicts itself", fix)
    if row.sources and not row.because:
        fix = "write because = the reason why the row is as it is"
        yield warning((*path, "sources"), place, "sources disagree, and nothing says why it was settled so", fix)
    for number, repeat in enumerate(row.repeats):
        here = (*path, "repeats", number)
        if contradicts_itself(repeat.answer):
            yield error(
                (*here, "answer"), place, f"{repeat.answer} contradicts itself", "use another verdict or remedy"
            )
        if repeat.answer.rank < row.answer.rank:
            reason = f"again and again it asks for less ({repeat.answer}) than once ({row.answer})"
            yield warning((*here, "answer"), place, reason, "remove the repeat, or ask for more")


def _codes(table: str, rows: Sequence[Code]) -> Iterator[Problem]:
    counts = collections.Counter(code for row in rows for code in row.codes)
    for place, row in enumerate(rows):
        path: Path = (table, place)
        name = f"{table} {row.codes[0] if row.codes else place + 1}"
        yield from _row(path, name, row)
        if not row.codes:
            yield error((*path, "codes"), name, "it names no code", "add codes, or remove the row")
        if row.role not in ROLES:
            yield error((*path, "role"), name, f"{row.role!r} is no role", f"use one of {', '.join(ROLES)}")
        for code in row.codes:
            if counts[code] > 1:
                yield error((*path, "codes"), name, f"{code} stands in {counts[code]} rows", "keep one of them")


def _bad_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as problem:
        return str(problem)
    return ""


def _text(path: Path, row: Text, known: set[str]) -> Iterator[Problem]:
    place = f"text {row.id}"
    problem = _bad_pattern(row.pattern)
    if problem:
        yield error((*path, "pattern"), place, f"this is no regular expression: {problem}", "see Python's re")
    elif "unit" not in re.compile(row.pattern).groupindex and row.kind not in _WITHOUT_A_NAME:
        yield error((*path, "pattern"), place, f"it does not say which {row.kind}", "name a group: (?P<unit>...)")
    if row.then and _bad_pattern(row.then):
        yield error(
            (*path, "then"), place, f"this is no regular expression: {_bad_pattern(row.then)}", "see Python's re"
        )
    if row.kind not in UNIT_KINDS:
        yield error((*path, "kind"), place, f"{row.kind!r} is no kind of unit", f"use one of {', '.join(UNIT_KINDS)}")
    if not row.contains:
        yield error(
            (*path, "contains"), place, "it is empty, so every line would be tried", "add a literal of the line"
        )
    for key, names in (
        ("counts_as", (row.counts_as,)),
        ("echo_of", row.echo_of),
        ("clears", row.clears),
        ("joins", row.joins),
    ):
        for name in names:
            if name and known and name not in known:
                yield error((*path, key), place, f"there is no row {name!r}", "name a row: xid-79, or the id of a text")


def _bits(path: Path, row: Bits) -> Iterator[Problem]:
    if not 1 <= row.register <= 7 or any(not 0 <= bit <= 31 for bit in row.bits) or not row.bits:
        yield error(path, "nvlink_bits", "registers are 1 to 7 and bits 0 to 31", "correct the numbers")


def _mask(path: Path, row: Mask) -> Iterator[Problem]:
    for key, mask in (("mask_v1", row.mask_v1), ("mask_v2", row.mask_v2)):
        if not re.fullmatch(r"[01-]{32}", mask):
            fix = "write 32 of 0, 1 and -, the highest bit first"
            yield error((*path, key), f"nvlink_mask {row.sub_unit}", f"{mask!r} is no mask", fix)
